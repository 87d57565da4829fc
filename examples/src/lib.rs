//! Programs that show requeue at work. Each asserts what it prints, and ends with an
//! error if it is not so.
//!
//! | | |
//! |---|---|
//! | `quickstart` | four threads, a thousand triggers, a handful of runs |
//! | `order_timeouts` | a million orders, closed after thirty minutes unless paid, on a clock that the program steps |
//! | `burst` | five tasks at once, then one a second |
//! | `tokio_workers` | workers on Tokio: back-off, a time limit, more of them while the line is long |
//! | `mirror` | a controller: keeps a directory equal to another one, from file events |
//! | `axum_service` | a web service: keys come by requests, `/metrics`, and TERM loses nothing that was accepted |
//! | `single_flight` | a cache that loads an entry once, however many miss it at the same time |
//! | `write_limit` | a fast producer in front of a store that takes fifty writes a second |
//!
//! ```text
//! cargo run -p requeue-examples --example quickstart
//! ```
