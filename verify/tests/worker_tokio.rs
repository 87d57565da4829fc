//! The suite of workers, in tasks of a Tokio runtime.

use requeue_verify::workers::OnTokio;

requeue_verify::async_worker_conformance!(OnTokio);
