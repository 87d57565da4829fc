//! The suite of workers, on threads.

use requeue_verify::workers::Threads;

requeue_verify::worker_conformance!(Threads);
