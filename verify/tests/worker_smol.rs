//! The suite of workers, in tasks of smol's executor.

use requeue_verify::workers::OnSmol;

requeue_verify::async_worker_conformance!(OnSmol);
