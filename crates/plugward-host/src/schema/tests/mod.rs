//! Schemas as plugins send them: the odd, the old, the broken and the hostile.
//!
//! Owns the promises of requirements 15, 45 and 58-61. Needs no plugin: schemas and values are given as text.

mod cases;
mod hostile;
mod network;
mod real;

use super::{Compiled, SchemaFault, Use, Violations, compile};
use serde_json::value::RawValue;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("the test's JSON is well formed")
}

fn input(text: &str) -> Result<Compiled, SchemaFault> {
    compile(&raw(text), Use::Input)
}

/// Compiles an input schema that must be fine, without any warning.
fn clean(text: &str) -> Compiled {
    let compiled = input(text).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    assert_eq!(compiled.warnings, [], "{text}");
    assert!(compiled.exposed.is_none(), "an untouched schema is shown as it came: {text}");
    compiled
}

fn check(compiled: &Compiled, value: &str) -> Result<(), Violations> {
    compiled.schema.validate(&raw(value))
}

/// The paths at which `value` does not fit.
fn paths(compiled: &Compiled, value: &str) -> Vec<String> {
    match check(compiled, value) {
        Ok(()) => Vec::new(),
        Err(violations) => violations.list.into_iter().map(|violation| violation.path).collect(),
    }
}

fn fault(text: &str) -> SchemaFault {
    match input(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(fault) => fault,
    }
}
