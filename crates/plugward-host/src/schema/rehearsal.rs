//! How much work a value means for a schema, counted before it is done.
//!
//! Owns the promise that validating ends soon whatever plugin wrote the schema and whoever wrote the value: the
//! engine cannot be stopped, so its steps are counted first, as if no check ever ended early. Refuses to decide
//! whether the value is right.

use serde_json::Value;

use super::graph::{Graph, Id};
use super::parse::Size;
use super::pattern::Matcher;

/// Steps one validation may take; a few hundred milliseconds at worst. A real call takes tens to thousands.
const MAX_STEPS: u64 = 5_000_000;

/// Steps up to which a product of two sizes is proof enough, so that ordinary calls skip the rehearsal.
const OBVIOUSLY_FEW_STEPS: u64 = 100_000;

/// Schemas and parts of the value below one another. Each level takes a few hundred bytes of stack.
const MAX_DEPTH: u64 = 512;

/// Steps for one match of the backtracking engine. It gives up after ten thousand steps of its own, but where it does
/// the validator goes over the value again, up to 64 times, once for each way the open matches could have ended.
const BACKTRACKING_MATCH: u64 = 25_000;

/// The value is too much work to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooMuch {
    /// More steps than [`MAX_STEPS`].
    Steps,
    /// More levels than [`MAX_DEPTH`].
    Depth,
}

/// Steps that validating `value` takes at most, those inside patterns left out.
///
/// # Errors
///
/// Which limit would be passed.
pub(super) fn rehearse(graph: &Graph, value: &Value, size: Size) -> Result<u64, TooMuch> {
    if let Some(steps) = obviously_few(graph, size) {
        return Ok(steps);
    }
    let mut rehearsal = Rehearsal { graph, steps: 0, matching: 0 };
    rehearsal.visit(0, value, 0)?;
    Ok(rehearsal.steps - rehearsal.matching)
}

/// A bound from sizes alone. Holds only where no part of the value can meet the same schema in many ways.
fn obviously_few(graph: &Graph, size: Size) -> Option<u64> {
    if graph.recursive || graph.backtracks || graph.depth + size.depth > MAX_DEPTH {
        return None;
    }
    let whole: u64 = graph.nodes.iter().map(|node| node.whole_value).sum();
    let whole = whole.saturating_mul(size.depth + 1);
    let checks = graph.expanded_weight.saturating_mul(size.nodes.saturating_mul(1 + whole));
    let matching = linear_steps(graph.expanded_atoms, size.text_bytes);
    let steps = checks.saturating_add(matching);
    (steps <= OBVIOUSLY_FEW_STEPS).then_some(steps)
}

/// Following one atom for one byte is far cheaper than a step, and rarely needed at all.
fn linear_steps(atoms: u64, bytes: u64) -> u64 {
    (atoms.saturating_mul(bytes) / 64).saturating_add(bytes / 32)
}

struct Rehearsal<'a> {
    graph: &'a Graph,
    steps: u64,
    /// Those of `steps` that patterns take.
    matching: u64,
}

impl Rehearsal<'_> {
    fn charge(&mut self, steps: u64) -> Result<(), TooMuch> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS { Err(TooMuch::Steps) } else { Ok(()) }
    }

    fn charge_match(&mut self, matcher: Option<Matcher>, text: &str) -> Result<(), TooMuch> {
        let steps = match matcher {
            None => 0,
            Some(Matcher::Linear { atoms }) => 1 + linear_steps(atoms, text.len() as u64),
            Some(Matcher::Backtracking) => BACKTRACKING_MATCH,
        };
        self.matching = self.matching.saturating_add(steps);
        self.charge(steps)
    }

    fn visit(&mut self, id: Id, value: &Value, depth: u64) -> Result<(), TooMuch> {
        let graph = self.graph;
        let node = &graph.nodes[id];
        if depth > MAX_DEPTH {
            return Err(TooMuch::Depth);
        }
        self.charge(node.weight)?;
        if node.whole_value > 0 {
            self.charge(node.whole_value.saturating_mul(parts(value)))?;
        }
        for round in 0..=u8::from(node.twice) {
            for &same in &node.same {
                self.visit(same, value, depth + 1)?;
            }
            if round == 1 {
                self.charge(length(value).saturating_mul(1 + node.same.len() as u64))?;
            }
        }
        match value {
            Value::String(text) => self.charge_match(node.pattern, text),
            Value::Array(items) => self.visit_items(id, items, depth),
            Value::Object(named) => {
                for (name, value) in named {
                    self.visit_property(id, name, value, depth)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn visit_items(&mut self, id: Id, items: &[Value], depth: u64) -> Result<(), TooMuch> {
        let node = &self.graph.nodes[id];
        for (&schema, item) in node.prefix.iter().zip(items) {
            self.visit(schema, item, depth + 1)?;
        }
        for &schema in &node.items {
            for item in items {
                self.visit(schema, item, depth + 1)?;
            }
        }
        Ok(())
    }

    fn visit_property(&mut self, id: Id, name: &str, value: &Value, depth: u64) -> Result<(), TooMuch> {
        let node = &self.graph.nodes[id];
        self.charge(1)?;
        let own = node.properties.get(name);
        if let Some(&schema) = own {
            self.visit(schema, value, depth + 1)?;
        }
        for &(matcher, schema) in &node.named {
            self.charge_match(matcher, name)?;
            self.visit(schema, value, depth + 1)?;
        }
        let others = if own.is_none() { node.other_properties.as_slice() } else { &[] };
        for &schema in others.iter().chain(&node.every_property) {
            self.visit(schema, value, depth + 1)?;
        }
        if !node.names.is_empty() {
            let name = Value::String(name.to_owned());
            for &schema in &node.names {
                self.visit(schema, &name, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Values in `value`, itself included.
fn parts(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(parts).sum::<u64>(),
        Value::Object(named) => 1 + named.values().map(parts).sum::<u64>(),
        _ => 1,
    }
}

fn length(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.len() as u64,
        Value::Object(named) => named.len() as u64,
        _ => 0,
    }
}
