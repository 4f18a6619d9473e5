//! placeholder
pub mod package;
pub mod schema;
