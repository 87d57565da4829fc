//! The suite against the library, waited for by blocked threads.

use requeue_verify::fronts::Blocking;

requeue_verify::conformance!(Blocking);
