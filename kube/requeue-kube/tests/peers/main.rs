//! What the tests and the examples of kube-runtime 5.0 and of controller-runtime 0.24 say about the promises that a
//! controller's user has, written anew against this crate. `docs/peers.md` says which of theirs is which of ours.
//!
//! And what is left of the rules of `docs/rules.md`, with the tests that keep both pages true.

mod controller_runtime;
mod examples;
mod kube_runtime;
mod rules;
mod tables;
mod world;
