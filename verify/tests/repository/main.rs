//! The repository: rules and tests, documents, doc comments, imports, packages, examples, public items.
#![cfg(not(any(requeue_loom, requeue_counted)))]

mod comments;
mod documents;
mod examples;
mod modules;
mod packages;
mod promises;
mod public_api;
