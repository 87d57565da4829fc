//! The contract of the queue as tests.
