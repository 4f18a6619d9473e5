//! The Host API as programs meet it: the real program over a real port, with fixture plugins behind it.
//!
//! If these fail, whoever drives the host from a program loses it. What needs no plugin is tested inside the api module.

mod asking;
mod calling;
mod client;
mod lifecycle;
mod opening;
