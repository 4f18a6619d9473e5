//! The witness: before a level is believed, a probe under the same rules tries to get through.
//!
//! Owns its three parts: what can be reached from outside ([`Canaries`], held by the launcher), trying to reach it from
//! inside ([`Attempts`]), and the host's judgement and memory ([`Witnesses`]). Refuses trusting that a layer works because
//! the kernel accepted it: there have been sandboxes that reported success and confined nothing.

mod attempts;
mod canaries;
mod confirm;
mod passed;

pub(super) use attempts::Attempts;
pub(super) use canaries::Canaries;
pub(super) use confirm::{MAX_ANSWER_BYTES, Witnesses, judge};

/// Last line of a probe that tried everything. Without it the probe proves nothing.
const DONE: &str = "done";
