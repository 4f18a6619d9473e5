//! The store as its users see it, one module per question. One binary, so that it is linked once.
//!
//! The modules are marked as tests so that the lints for tests apply to what their tests share.

#[cfg(test)]
mod crash;
#[cfg(test)]
mod home;
#[cfg(test)]
mod registry;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod trace;
