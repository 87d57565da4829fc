//! The suite against the library, awaited under smol.

use requeue_verify::fronts::SmolAsync;

requeue_verify::conformance!(SmolAsync);
