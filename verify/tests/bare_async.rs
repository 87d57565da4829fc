//! The suite against the library, awaited on a bare `block_on`, without a runtime.

use requeue_verify::fronts::BareAsync;

requeue_verify::conformance!(BareAsync);
