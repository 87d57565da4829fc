//! A small HTTP server: routes as a function from request to response, and a listener around it.
//!
//! Nothing here knows the rest of the command.

mod routes;
mod server;

pub(crate) use self::routes::{Routes, page, text};
pub(crate) use self::server::{CLIENTS, Server, bind};
