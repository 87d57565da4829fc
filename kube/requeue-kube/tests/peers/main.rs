//! The tests and examples of kube-runtime 5.0 and controller-runtime 0.24 on promises to a controller's user,
//! written anew for this crate. `docs/peers.md` maps theirs to ours.
//!
//! It also has the remaining rules of `docs/rules.md`, and the tests that keep both pages true.

mod controller_runtime;
mod examples;
mod kube_runtime;
mod rules;
mod tables;
mod world;
