//! `requeue plan`: shows the behaviour of a limiter before it is put in production.

mod calls;
pub(crate) mod command;
mod picture;
mod rows;
mod scale;
mod svg;
mod terminal;
