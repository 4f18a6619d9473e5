//! A schema as a graph, and what it can cost at most.
//!
//! Owns the figures that decide, before anything is built, whether a schema may be used at all: how large it is once
//! its references are followed, how deep, and whether it comes back to itself without going into the value. Refuses
//! a schema by those figures; it never sees a value (see the rehearsal for that).

use std::collections::HashMap;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::pattern::{Matcher, Matchers};
use super::references::{self, Places};
use super::{SchemaFault, dialect, keywords};

/// Schemas visited if every reference is followed, a recursive group counted once. The largest real tool has about
/// a thousand; doubling through thirty references has a thousand million.
const MAX_EXPANDED: u64 = 100_000;

/// Schemas that apply to the same value one through the other, as in a chain of references. Real ones have ten; each
/// takes stack for every level of a value.
const MAX_CHAIN: u64 = 128;

/// `uniqueItems` hashes long arrays but compares the items of short ones (up to fifteen) with each other.
const UNIQUE_ITEMS: u64 = 16;

/// Checks for each value inside a value that must itself be a schema (a reference to a meta-schema).
const META_SCHEMA: u64 = 256;

/// A node's place in [`Graph::nodes`].
pub(super) type Id = usize;

/// One schema: which others apply to the same value, and which to its parts.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Work for the keywords of this schema alone, in steps of one simple check.
    pub(super) weight: u64,
    /// Schemas that apply to the same value.
    pub(super) same: Vec<Id>,
    pub(super) properties: HashMap<String, Id>,
    /// Schemas by pattern of the property name.
    pub(super) named: Vec<(Option<Matcher>, Id)>,
    /// Schemas for properties without one of their own.
    pub(super) other_properties: Vec<Id>,
    /// Schemas for each property, whatever its name.
    pub(super) every_property: Vec<Id>,
    /// Schemas for the names themselves.
    pub(super) names: Vec<Id>,
    /// Schemas by position in an array.
    pub(super) prefix: Vec<Id>,
    /// Schemas for any item of an array.
    pub(super) items: Vec<Id>,
    pub(super) pattern: Option<Matcher>,
    /// `unevaluated…` looks at the schemas for the same value a second time.
    pub(super) twice: bool,
    /// Looks at everything inside the value: comparisons, and a meta-schema used as a rule.
    pub(super) whole_value: u64,
    /// Kept for faults.
    pointer: String,
}

impl Node {
    fn children(&self) -> impl Iterator<Item = Id> + '_ {
        let listed = [&self.same, &self.other_properties, &self.every_property, &self.names, &self.prefix, &self.items];
        let listed = listed.into_iter().flatten().copied();
        listed.chain(self.properties.values().copied()).chain(self.named.iter().map(|(_, id)| *id))
    }

    fn matchers(&self) -> impl Iterator<Item = Matcher> + '_ {
        self.pattern.into_iter().chain(self.named.iter().filter_map(|(matcher, _)| *matcher))
    }

    fn atoms(&self) -> u64 {
        let atoms = |matcher| if let Matcher::Linear { atoms } = matcher { atoms } else { 0 };
        self.matchers().map(atoms).fold(0, u64::saturating_add)
    }
}

/// The graph of one schema; the root is node 0.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Steps for one value if the schema is not recursive, parts of the value not counted.
    pub(super) expanded_weight: u64,
    pub(super) recursive: bool,
    /// Schemas below one another, references followed; a recursive group counts all its members.
    pub(super) depth: u64,
    /// Atoms of all linear patterns met on the way.
    pub(super) expanded_atoms: u64,
    pub(super) backtracks: bool,
}

impl Graph {
    /// Builds the graph of a schema whose references are local and checks its figures.
    ///
    /// # Errors
    ///
    /// A figure over its limit, with the pointer of a schema that takes part.
    pub(super) fn build(
        schema: &Value,
        draft: Draft,
        places: &Places,
        matchers: &Matchers,
    ) -> Result<Self, SchemaFault> {
        let mut builder = Builder {
            root: schema,
            draft,
            places,
            matchers,
            ids: HashMap::new(),
            nodes: Vec::new(),
            queue: Vec::new(),
        };
        builder.id(schema, "");
        while let Some((id, value, pointer)) = builder.queue.pop() {
            let node = builder.node(value, pointer);
            builder.nodes[id] = node;
        }
        let nodes = builder.nodes;
        check_chains(&nodes)?;
        let mut graph =
            Self { nodes, expanded_weight: 0, recursive: false, depth: 0, expanded_atoms: 0, backtracks: false };
        graph.measure()?;
        Ok(graph)
    }

    fn measure(&mut self) -> Result<(), SchemaFault> {
        let mut figures = vec![Figures::default(); self.nodes.len()];
        let mut measured = vec![false; self.nodes.len()];
        for group in groups(&self.nodes, &|node| node.children().collect()) {
            let mut sum = Figures::default();
            for &member in &group.members {
                let node = &self.nodes[member];
                sum.add(Figures { count: 1, weight: node.weight, atoms: node.atoms(), depth: 0 });
                // What leads out of the group was measured before it.
                node.children().filter(|child| measured[*child]).for_each(|child| sum.add(figures[child]));
            }
            sum.depth += group.members.len() as u64;
            if self.nodes[group.members[0]].twice {
                sum.weight = sum.weight.saturating_mul(3);
            }
            self.recursive |= group.cyclic;
            let pointer = &self.nodes[group.members[0]].pointer;
            if sum.count > MAX_EXPANDED {
                let reason = format!("with its references followed the schema has more than {MAX_EXPANDED} parts");
                return Err(SchemaFault::new(pointer, reason));
            }
            for &member in &group.members {
                (figures[member], measured[member]) = (sum, true);
            }
        }
        let root = figures.first().copied().unwrap_or_default();
        (self.expanded_weight, self.expanded_atoms, self.depth) = (root.weight, root.atoms, root.depth);
        self.backtracks = self.nodes.iter().any(|node| node.matchers().any(|matcher| matcher == Matcher::Backtracking));
        Ok(())
    }
}

/// Schemas for the same value must come to an end, and soon.
fn check_chains(nodes: &[Node]) -> Result<(), SchemaFault> {
    let mut lengths = vec![0u64; nodes.len()];
    for group in groups(nodes, &|node| node.same.clone()) {
        let first = group.members[0];
        let pointer = &nodes[first].pointer;
        if group.cyclic {
            let reason = "the schema refers back to itself without going into the value";
            return Err(SchemaFault::new(pointer, reason));
        }
        lengths[first] = 1 + nodes[first].same.iter().map(|&next| lengths[next]).max().unwrap_or(0);
        if lengths[first] > MAX_CHAIN {
            let reason = format!("more than {MAX_CHAIN} schemas lead to one another without going into the value");
            return Err(SchemaFault::new(pointer, reason));
        }
    }
    Ok(())
}

/// What a schema comes to with everything it leads to.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    count: u64,
    weight: u64,
    atoms: u64,
    depth: u64,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.weight = self.weight.saturating_add(other.weight);
        self.atoms = self.atoms.saturating_add(other.atoms);
        self.depth = self.depth.max(other.depth);
    }
}

struct Builder<'a> {
    root: &'a Value,
    draft: Draft,
    places: &'a Places,
    matchers: &'a Matchers,
    /// By address: the same place in the document is one node, however it is reached.
    ids: HashMap<*const Value, Id>,
    nodes: Vec<Node>,
    queue: Vec<(Id, &'a Value, String)>,
}

impl<'a> Builder<'a> {
    fn id(&mut self, value: &'a Value, pointer: &str) -> Id {
        let next = self.nodes.len();
        let id = *self.ids.entry(std::ptr::from_ref(value)).or_insert(next);
        if id == next {
            self.nodes.push(Node::default());
            self.queue.push((id, value, pointer.to_owned()));
        }
        id
    }

    fn one(&mut self, map: &'a Map<String, Value>, pointer: &str, keyword: &str) -> Vec<Id> {
        match map.get(keyword) {
            Some(value @ (Value::Object(_) | Value::Bool(_))) => vec![self.id(value, &format!("{pointer}/{keyword}"))],
            _ => Vec::new(),
        }
    }

    fn many(&mut self, map: &'a Map<String, Value>, pointer: &str, keyword: &str) -> Vec<Id> {
        let Some(Value::Array(items)) = map.get(keyword) else { return Vec::new() };
        let place = |(index, item): (usize, &'a Value)| self.id(item, &format!("{pointer}/{keyword}/{index}"));
        items.iter().enumerate().map(place).collect()
    }

    fn named(&mut self, map: &'a Map<String, Value>, pointer: &str, keyword: &str) -> Vec<(&'a str, Id)> {
        let Some(Value::Object(named)) = map.get(keyword) else { return Vec::new() };
        let schemas = named.iter().filter(|(_, value)| value.is_object() || value.is_boolean());
        let place = |(name, value): (&'a String, &'a Value)| {
            (name.as_str(), self.id(value, &format!("{pointer}/{keyword}/{}", keywords::escape(name))))
        };
        schemas.map(place).collect()
    }

    fn node(&mut self, schema: &'a Value, pointer: String) -> Node {
        let mut node = Node { weight: 1, ..Node::default() };
        if let Value::Object(map) = schema {
            self.fill_same(map, &pointer, &mut node);
            if dialect::ref_has_siblings(self.draft) || !map.contains_key("$ref") {
                self.fill_own(map, &mut node);
                self.fill_parts(map, &pointer, &mut node);
            }
        }
        node.pointer = pointer;
        node
    }

    fn fill_same(&mut self, map: &'a Map<String, Value>, pointer: &str, node: &mut Node) {
        for keyword in references::REFERENCES {
            if let Some(Value::String(target)) = map.get(keyword) {
                self.follow(keyword, target, node);
            }
        }
        if !dialect::ref_has_siblings(self.draft) && map.contains_key("$ref") {
            return;
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            node.same.extend(self.many(map, pointer, keyword));
        }
        for keyword in ["not", "if", "then", "else"] {
            node.same.extend(self.one(map, pointer, keyword));
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            node.same.extend(self.named(map, pointer, keyword).into_iter().map(|(_, id)| id));
        }
    }

    fn follow(&mut self, keyword: &str, target: &str, node: &mut Node) {
        let mut places = match references::local_pointer(target) {
            Some(place) => vec![place],
            None => {
                target.strip_prefix('#').and_then(|name| self.places.anchors.get(name)).cloned().unwrap_or_default()
            }
        };
        if keyword == "$recursiveRef" {
            places = vec![String::new()];
        }
        if !target.starts_with('#') {
            node.whole_value += META_SCHEMA;
        }
        for place in places {
            if let Some(value) = self.root.pointer(&place) {
                node.same.push(self.id(value, &place));
            }
        }
    }

    fn fill_own(&self, map: &Map<String, Value>, node: &mut Node) {
        let length = |keyword: &str| match map.get(keyword) {
            Some(Value::Array(items)) => items.len() as u64,
            Some(Value::Object(named)) => named.len() as u64,
            _ => 0,
        };
        node.weight += map.len() as u64 + length("enum") + length("required") + length("properties");
        if let Some(Value::Object(named)) = map.get("dependentRequired").or_else(|| map.get("dependencies")) {
            let lists = named.values().filter_map(Value::as_array);
            node.weight += named.len() as u64 + lists.map(|list| list.len() as u64).sum::<u64>();
        }
        // Comparing containers costs as much as the value has parts, for each of the values compared with.
        let compared =
            map.get("const").into_iter().chain(map.get("enum").and_then(Value::as_array).into_iter().flatten());
        node.whole_value += compared.filter(|value| value.is_array() || value.is_object()).count() as u64;
        node.whole_value += UNIQUE_ITEMS * u64::from(map.get("uniqueItems") == Some(&Value::Bool(true)));
        let text = |value: &Value| value.as_str().and_then(|pattern| self.matchers.get(pattern)).copied();
        node.pattern = map.get("pattern").and_then(text);
        node.twice = map.contains_key("unevaluatedItems") || map.contains_key("unevaluatedProperties");
    }

    fn fill_parts(&mut self, map: &'a Map<String, Value>, pointer: &str, node: &mut Node) {
        for (name, id) in self.named(map, pointer, "properties") {
            node.properties.insert(name.to_owned(), id);
        }
        for (pattern, id) in self.named(map, pointer, "patternProperties") {
            node.named.push((self.matchers.get(pattern).copied(), id));
        }
        node.other_properties = self.one(map, pointer, "additionalProperties");
        node.every_property = self.one(map, pointer, "unevaluatedProperties");
        node.names = self.one(map, pointer, "propertyNames");
        node.prefix = self.many(map, pointer, "prefixItems");
        node.prefix.extend(self.many(map, pointer, "items"));
        for keyword in ["items", "additionalItems", "contains", "unevaluatedItems"] {
            node.items.extend(self.one(map, pointer, keyword));
        }
    }
}

/// Nodes that reach one another.
struct Group {
    members: Vec<Id>,
    /// More than one member, or one that leads to itself.
    cyclic: bool,
}

/// The strongly connected groups of the graph under `edges`, each after all groups it leads to (Tarjan, with a stack
/// of its own because a schema can chain thousands of nodes).
fn groups(nodes: &[Node], edges: &dyn Fn(&Node) -> Vec<Id>) -> Vec<Group> {
    const UNSEEN: usize = usize::MAX;
    let (mut order, mut low) = (vec![UNSEEN; nodes.len()], vec![0; nodes.len()]);
    let mut open = vec![false; nodes.len()];
    let (mut counter, mut stack, mut found) = (0, Vec::new(), Vec::new());
    for start in 0..nodes.len() {
        if order[start] != UNSEEN {
            continue;
        }
        let mut path: Vec<(Id, Vec<Id>, usize)> = vec![(start, edges(&nodes[start]), 0)];
        while let Some((id, children, next)) = path.last_mut() {
            let id = *id;
            if order[id] == UNSEEN {
                (order[id], low[id], open[id]) = (counter, counter, true);
                counter += 1;
                stack.push(id);
            }
            if let Some(&child) = children.get(*next) {
                *next += 1;
                if order[child] == UNSEEN {
                    path.push((child, edges(&nodes[child]), 0));
                } else if open[child] {
                    low[id] = low[id].min(order[child]);
                }
                continue;
            }
            let leads_to_itself = children.contains(&id);
            path.pop();
            if let Some((parent, ..)) = path.last() {
                low[*parent] = low[*parent].min(low[id]);
            }
            if low[id] == order[id] {
                let at = stack.iter().rposition(|&member| member == id).unwrap_or(0);
                let members = stack.split_off(at);
                members.iter().for_each(|&member| open[member] = false);
                let cyclic = members.len() > 1 || leads_to_itself;
                found.push(Group { members, cyclic });
            }
        }
    }
    found
}
