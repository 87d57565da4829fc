//! Parameters of statements with their PostgreSQL types.
//!
//! An unprepared statement is sent in one message with its parameters, without asking the server for their
//! types.

use serde_json::value::RawValue;
use tokio_postgres::types::{Json, ToSql, Type};

/// A type whose values can be parameters.
pub(crate) trait Typed {
    const TYPE: Type;
    /// The type of an array of such values.
    const ARRAY: Type;
}

macro_rules! typed {
    ($($rust:ty: $one:ident, $array:ident;)*) => {$(
        impl Typed for $rust {
            const TYPE: Type = Type::$one;
            const ARRAY: Type = Type::$array;
        }
    )*};
}

typed! {
    bool: BOOL, BOOL_ARRAY;
    i16: INT2, INT2_ARRAY;
    i32: INT4, INT4_ARRAY;
    i64: INT8, INT8_ARRAY;
    f64: FLOAT8, FLOAT8_ARRAY;
    str: TEXT, TEXT_ARRAY;
    String: TEXT, TEXT_ARRAY;
    [u8]: BYTEA, BYTEA_ARRAY;
    Vec<u8>: BYTEA, BYTEA_ARRAY;
    Json<&RawValue>: JSONB, JSONB_ARRAY;
    Json<&Box<RawValue>>: JSONB, JSONB_ARRAY;
}

impl<T: Typed + ?Sized> Typed for &T {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

// an array of arrays is one of more dimensions
impl<T: Typed> Typed for Vec<T> {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}

impl<T: Typed> Typed for [T] {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}

/// A parameter.
pub(crate) trait Param: Sync {
    fn sql_type(&self) -> Type;
    fn sql(&self) -> &(dyn ToSql + Sync);
}

impl<T: Typed + ToSql + Sync> Param for T {
    fn sql_type(&self) -> Type {
        T::TYPE
    }
    fn sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

/// Parameters with their types.
pub(crate) fn with_types<'a>(params: &[&'a dyn Param]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (param.sql(), param.sql_type())).collect()
}
