//! JSON Schema of tools: what arguments and results must look like (requirements 15, 45, 58-61).
//!
//! Owns compiling schemas that strangers wrote and checking values that strangers sent, both in bounded time, memory
//! and stack, without reading anything outside the schema itself. Refuses whatever would break one of those bounds,
//! with a reason that names the place. The validator library is used in this module only.
//!
//! ```text
//! text -> parse -> repair -> localize references -> patterns -> graph and its limits -> build     (compile)
//! text -> parse -> rehearse on the graph -> engine -> violations                                  (validate)
//! ```

mod cache;
mod compile;
mod dialect;
mod graph;
mod keywords;
mod parse;
mod pattern;
mod references;
mod rehearsal;
mod repair;
mod violation;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::value::RawValue;
use thiserror::Error;

pub(crate) use violation::Violations;

use compile::MAX_SCHEMA_BYTES;
use rehearsal::TooMuch;

/// Steps up to which every violation is collected; above, only that there is one. Collecting keeps an object for
/// each violation met on the way.
const MAX_STEPS_FOR_DETAIL: u64 = 200_000;

/// What a schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// Arguments of a tool: the root must be an object.
    Input,
    /// The structured result of a tool: any schema.
    Output,
}

/// A schema that cannot be used. The plugin that sent it is at fault, and only this tool is lost.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("schema{}{pointer}{}: {reason}", if .pointer.is_empty() { "" } else { " at `" }, if .pointer.is_empty() { "" } else { "`" })]
pub(crate) struct SchemaFault {
    /// JSON pointer into the schema; empty for the schema as a whole.
    pub(crate) pointer: String,
    /// What is wrong there.
    pub(crate) reason: String,
}

impl SchemaFault {
    fn new(pointer: &str, reason: impl Into<String>) -> Self {
        Self { pointer: violation::bounded(pointer, 512), reason: reason.into() }
    }
}

/// Something about a schema that a person should know, although the tool can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaWarning {
    /// JSON pointer into the schema; empty for the schema as a whole.
    pub(crate) pointer: String,
    /// What was found and what was made of it.
    pub(crate) message: String,
}

impl SchemaWarning {
    fn new(pointer: &str, message: &str) -> Self {
        Self { pointer: violation::bounded(pointer, 512), message: message.to_owned() }
    }
}

impl fmt::Display for SchemaWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => formatter.write_str(&self.message),
            pointer => write!(formatter, "`{pointer}`: {}", self.message),
        }
    }
}

/// The outcome of [`compile`].
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    /// Checks values.
    pub(crate) schema: ToolSchema,
    /// What was found on the way.
    pub(crate) warnings: Vec<SchemaWarning>,
    /// The schema to show to others, only where it was repaired; otherwise the original text stays.
    pub(crate) exposed: Option<Box<RawValue>>,
}

/// Compiles the schema of a tool. The same text is compiled once per process.
///
/// A schema of `null` for [`Use::Input`] is a tool without arguments.
///
/// # Errors
///
/// The first reason why this schema cannot be used: not a schema of its edition, over a limit, or with a reference
/// that leads outside or nowhere (requirements 45, 60). For [`Use::Output`] the caller may go on without the schema.
pub(crate) fn compile(schema: &RawValue, usage: Use) -> Result<Compiled, SchemaFault> {
    if schema.get().len() > MAX_SCHEMA_BYTES {
        // Not worth hashing or remembering.
        return compile::compile(schema, usage);
    }
    cache::get_or(schema.get(), usage, || compile::compile(schema, usage))
}

/// A compiled schema; clones share it.
#[derive(Clone)]
pub(crate) struct ToolSchema {
    inner: Arc<Inner>,
}

struct Inner {
    validator: Validator,
    graph: graph::Graph,
}

impl fmt::Debug for ToolSchema {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ToolSchema").field("schemas", &self.inner.graph.nodes.len()).finish()
    }
}

impl ToolSchema {
    /// Whether both come from one compilation.
    #[cfg(test)]
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Checks `instance` against the whole schema (requirements 58, 61).
    ///
    /// Takes at most a few hundred milliseconds, whatever the schema and the value; above a megabyte of text the
    /// caller should not do this on a thread that serves others. A pattern whose match the engine gives up on counts
    /// as met, and is logged.
    ///
    /// # Errors
    ///
    /// Where the value does not fit and what was expected there, never what was there. A value with duplicate keys,
    /// or one that would take too long to check, does not fit.
    pub(crate) fn validate(&self, instance: &RawValue) -> Result<(), Violations> {
        let (value, size) = parse::parse(instance.get()).map_err(Violations::whole)?;
        let steps = rehearsal::rehearse(&self.inner.graph, &value, size).map_err(|too_much| {
            Violations::whole(match too_much {
                TooMuch::Steps => "takes too long to check against this schema",
                TooMuch::Depth => "is nested too deeply to check against this schema",
            })
        })?;
        if self.inner.validator.is_valid(&value) {
            return Ok(());
        }
        if steps > MAX_STEPS_FOR_DETAIL {
            return Err(Violations::whole("does not fit the schema; it is too large to say where"));
        }
        let errors: Vec<_> = self.inner.validator.iter_errors(&value).collect();
        let (undecided, decided): (Vec<_>, Vec<_>) = errors.into_iter().partition(violation::is_undecided);
        match (decided.is_empty(), undecided.first()) {
            (true, Some(error)) => {
                let schema_pointer = error.schema_path().as_str();
                tracing::warn!(schema_pointer, "pattern not checked: no answer within the step limit");
                Ok(())
            }
            (true, None) => Err(Violations::whole("does not fit the schema")),
            (false, _) => Err(Violations::of(&decided)),
        }
    }
}
