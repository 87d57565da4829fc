//! The suite against the queue in a file, awaited without a runtime.

use requeue_verify::durable::DurableTasks;

requeue_verify::conformance!(DurableTasks);
