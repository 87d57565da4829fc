//! The tests and examples of kube-runtime 5.0 and controller-runtime 0.24 on promises to a controller's user,
//! written anew for this crate. `peers.tsv` maps theirs to ours. Left out are tests of what we use of kube
//! as it is (watcher, reflector, store, dispatcher, events, waits, `CreateOrUpdate`), and of what types forbid here or
//! what is not there (the end of a back-off, `future_hash_map`, a controller that is started twice).
//!
//! `rules.tsv` names the tests of each promise of this crate: `s…` are scenarios, those of `tests/real` run on a real
//! API server. Here stand the tests of the remaining rules, and those that keep both tables true.

mod controller_runtime;
mod examples;
mod kube_runtime;
mod rules;
mod tables;
mod world;
