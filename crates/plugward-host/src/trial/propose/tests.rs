//! What is proposed for what was seen.
