//! The suite of workers, inside one future, without an executor.

use requeue_verify::workers::InOneFuture;

requeue_verify::async_worker_conformance!(InOneFuture);
