//! The suite against the reference model: what both know of the contract must
//! agree before either is believed.

use requeue_verify::reference::Reference;

requeue_verify::q_line!(Reference);
requeue_verify::q_get!(Reference);
