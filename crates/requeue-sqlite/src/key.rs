//! Encoding of values in the file.

use requeue_engine::EngineError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value in its stored form: JSON.
pub(crate) fn encode<V: Serialize>(value: &V) -> Result<Vec<u8>, EngineError> {
    serde_json::to_vec(value).map_err(|e| EngineError::Codec(e.into()))
}

pub(crate) fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, EngineError> {
    serde_json::from_slice(bytes).map_err(|e| EngineError::Codec(e.into()))
}
