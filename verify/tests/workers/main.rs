//! Workers: their suite on each host, and what concerns one host only.

mod alone;
mod blocking;
mod reports;
mod tasks;

/// Threads, whose handlers cannot be dropped.
mod threads {
    requeue_verify::workers!(requeue_verify::workers::Threads, b_cancel w_demand w_drains w_ends w_resize w_runs);
}

/// Tasks of a Tokio runtime.
mod tokio {
    requeue_verify::workers!(requeue_verify::workers::OnTokio);
}

/// Tasks of smol's executor.
mod smol {
    requeue_verify::workers!(requeue_verify::workers::OnSmol);
}

/// One future, without an executor.
mod future {
    requeue_verify::workers!(requeue_verify::workers::InOneFuture);
}
