//! Sessions over an in-memory stream.
