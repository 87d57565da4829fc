//! The suite against the library, awaited under tokio's multi-thread runtime.

use requeue_verify::fronts::TokioAsync;

requeue_verify::conformance!(TokioAsync);
