//! The conformance suite against each queue, and the rules of engines against each engine.

mod engine_memory;
mod engine_postgres;
mod engine_sqlite;

/// The library, waited for by blocked threads.
mod blocking {
    requeue_verify::suite!(requeue_verify::fronts::Blocking);
}

/// The library, awaited on a bare `block_on`, without a runtime.
mod bare_async {
    requeue_verify::suite!(requeue_verify::fronts::BareAsync);
}

/// The library, awaited under Tokio's multi-thread runtime.
mod tokio_async {
    requeue_verify::suite!(requeue_verify::fronts::TokioAsync);
}

/// The library, awaited under smol.
mod smol_async {
    requeue_verify::suite!(requeue_verify::fronts::SmolAsync);
}

/// The queue in a file, waited for by blocked threads.
mod durable_threads {
    requeue_verify::suite!(requeue_verify::durable::DurableThreads);
}

/// The queue in a file, awaited without a runtime.
mod durable_tasks {
    requeue_verify::suite!(requeue_verify::durable::DurableTasks);
}

/// The reference model: what both know of the contract must agree before either is believed.
mod reference {
    requeue_verify::suite!(requeue_verify::reference::Reference,
        q_line q_get q_shut q_drain q_done q_unfinished q_unwind q_close d_timers d_wait b_backoff b_batch
        b_bound b_control b_debounce b_pause b_rate b_priority b_groups b_overdue b_pause_group b_rate_group
        b_value w_attempts
    );
}
