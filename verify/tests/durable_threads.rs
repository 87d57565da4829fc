//! The suite against the queue in a file, waited for by blocked threads.

use requeue_verify::durable::DurableThreads;

requeue_verify::conformance!(DurableThreads);
