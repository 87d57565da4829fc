//! See the examples in `examples/`.
