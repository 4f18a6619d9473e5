//! YAML text to a small tree with positions. Owns every limit on size, depth and repetition, and
//! keeps each scalar as it is written in the file, so that `1.10`, `no` and `0755` stay text until
//! a reader asks for a number. Refuses tags, several documents, keys that are not text, duplicate
//! keys and anything past a limit, all with a position.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::diagnostic::Report;
use super::path_of;
use crate::visible::quoted;

/// Largest manifest, in bytes. Real ones have a few kilobytes.
pub const MANIFEST_BYTES_MAX: usize = 256 * 1024;

/// Deepest nesting; the deepest manifest key sits at level 4.
const DEPTH_MAX: usize = 32;

/// Most nodes of a file after aliases are replaced. A full manifest has a few hundred; the limit
/// is what stops an alias bomb, which grows by doubling.
const NODES_MAX: usize = 10_000;

/// Most aliases of a file: people use them to repeat a block or two.
const ALIASES_MAX: usize = 64;

/// A position in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    /// Line, from 1.
    pub(crate) line: u32,
    /// Column in characters, from 1.
    pub(crate) column: u32,
}

/// A value and where it is written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Mark,
    pub(crate) value: Value,
}

/// What a value is made of.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Text as written; `plain` when it had no quotes, so that it may also be read as a number.
    Scalar { text: String, plain: bool },
    /// Entries of a list.
    List(Vec<Node>),
    /// Entries of a map in the order of the file, each key once.
    Map(Vec<Entry>),
}

/// One key of a map with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: Mark,
    pub(crate) node: Node,
}

impl Node {
    /// What the value is, for a message about something else that was expected.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { .. } => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Whether YAML reads the value as null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Nodes in here, this one included, and levels of nesting.
    fn extent(&self) -> (usize, usize) {
        let add = |(nodes, depth): (usize, usize), inner: (usize, usize)| (nodes + inner.0, depth.max(inner.1 + 1));
        match &self.value {
            Value::Scalar { .. } => (1, 0),
            Value::List(items) => items.iter().map(Node::extent).fold((1, 1), add),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.extent()).fold((1, 1), add),
        }
    }
}

/// Reads `text` into a tree. `None` means that nothing can be said about the content; the reason
/// is in `report`.
pub(crate) fn read(text: &str, report: &mut Report) -> Option<Node> {
    if text.len() > MANIFEST_BYTES_MAX {
        let message = format!("file has {} bytes, at most {MANIFEST_BYTES_MAX} are allowed", text.len());
        report.error(None, "", message);
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = granit_parser::options! {
        emit_comments: false,
        disallow_directives: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut builder = Builder::new(report);
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => builder.take(event, span)?,
            Err(error) => {
                let at = mark(*error.marker());
                builder.report.error(Some(at), "", syntax_message(&error));
                return None;
            }
        }
    }
    builder.finish()
}

/// The parser's own words about broken syntax, in our form.
fn syntax_message(error: &granit_parser::ScanError) -> String {
    let text = error.to_string();
    // The position is ours to print; the parser appends it.
    let end = text.rfind(" at char ").unwrap_or(text.len());
    format!("not valid yaml: {}", text[..end].trim_end_matches('.'))
}

fn mark(marker: granit_parser::Marker) -> Mark {
    Mark {
        line: u32::try_from(marker.line()).unwrap_or(u32::MAX),
        column: u32::try_from(marker.col().saturating_add(1)).unwrap_or(u32::MAX),
    }
}

/// A list or map that is not closed yet.
struct Open {
    at: Mark,
    anchor: usize,
    collection: Collection,
}

enum Collection {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, lines: HashMap<String, u32>, key: Option<(String, Mark)> },
}

/// Builds the tree from parser events with a stack of its own, so that nesting costs no call stack.
struct Builder<'r> {
    report: &'r mut Report,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    anchored: HashMap<usize, Node>,
    nodes: usize,
    aliases: usize,
}

impl<'r> Builder<'r> {
    fn new(report: &'r mut Report) -> Self {
        Self { report, open: Vec::new(), root: None, documents: 0, anchored: HashMap::new(), nodes: 0, aliases: 0 }
    }

    /// Takes one event; `None` ends reading, with the reason reported.
    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let at = mark(span.start);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.report.error(Some(at), "", "file holds more than one yaml document");
                    return None;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag, at);
                let plain = style == ScalarStyle::Plain;
                let value = Value::Scalar { text: text.into_owned(), plain };
                self.count(1, at)?;
                self.add(Node { at, value }, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag, at);
                self.open_collection(at, anchor, Collection::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag, at);
                let collection = Collection::Map { entries: Vec::new(), lines: HashMap::new(), key: None };
                self.open_collection(at, anchor, collection)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close_collection()?,
            Event::Alias(anchor) => self.replay(anchor, at)?,
            _ => {}
        }
        Some(())
    }

    fn finish(self) -> Option<Node> {
        if self.root.is_none() {
            self.report.error(None, "", "file is empty");
        }
        self.root
    }

    fn open_collection(&mut self, at: Mark, anchor: usize, collection: Collection) -> Option<()> {
        self.count(1, at)?;
        self.check_depth(self.open.len() + 1, at)?;
        if let Some(Open { collection: Collection::Map { key: None, .. }, .. }) = self.open.last() {
            return self.refuse_key(at);
        }
        self.open.push(Open { at, anchor, collection });
        Some(())
    }

    fn close_collection(&mut self) -> Option<()> {
        let Open { at, anchor, collection } = self.open.pop()?;
        let value = match collection {
            Collection::List(items) => Value::List(items),
            Collection::Map { entries, .. } => Value::Map(entries),
        };
        self.add(Node { at, value }, anchor)
    }

    /// Puts a finished node where it belongs: as key or value of the open map, into the open list,
    /// or as the document.
    fn add(&mut self, node: Node, anchor: usize) -> Option<()> {
        if anchor != 0 {
            self.anchored.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(node),
            Some(Collection::List(items)) => items.push(node),
            Some(Collection::Map { entries, lines, key }) => match key.take() {
                Some((key, at)) => match lines.entry(key.clone()) {
                    Slot::Vacant(slot) => {
                        slot.insert(at.line);
                        entries.push(Entry { key, at, node });
                    }
                    // The first one stays, so that what it says is still checked.
                    Slot::Occupied(slot) => {
                        let message = format!("duplicate key, first given in line {}", slot.get());
                        let path = path_of(&self.path(), &key);
                        self.report.error(Some(at), &path, message);
                    }
                },
                None => match node.value {
                    Value::Scalar { text, .. } => *key = Some((text, node.at)),
                    Value::List(_) | Value::Map(_) => return self.refuse_key(node.at),
                },
            },
        }
        Some(())
    }

    fn refuse_key(&mut self, at: Mark) -> Option<()> {
        let path = self.path();
        self.report.error(Some(at), &path, "key is a list or a map, expected text");
        None
    }

    /// Replaces an alias by a copy of what it stands for, within the budget.
    fn replay(&mut self, anchor: usize, at: Mark) -> Option<()> {
        self.aliases += 1;
        if self.aliases > ALIASES_MAX {
            self.report.error(Some(at), "", format!("file uses more than {ALIASES_MAX} aliases"));
            return None;
        }
        let Some(target) = self.anchored.get(&anchor) else {
            // Known to the parser but not finished: the alias is inside what it names.
            self.report.error(Some(at), "", "alias stands for something that contains it");
            return None;
        };
        let ((nodes, depth), mut copy) = (target.extent(), target.clone());
        self.count(nodes, at)?;
        self.check_depth(self.open.len() + depth, at)?;
        copy.at = at;
        self.add(copy, 0)
    }

    fn count(&mut self, nodes: usize, at: Mark) -> Option<()> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            let message = format!("file holds more than {NODES_MAX} values, aliases included");
            self.report.error(Some(at), "", message);
            return None;
        }
        Some(())
    }

    fn check_depth(&mut self, depth: usize, at: Mark) -> Option<()> {
        if depth > DEPTH_MAX {
            self.report.error(Some(at), "", format!("nesting is deeper than {DEPTH_MAX} levels"));
            return None;
        }
        Some(())
    }

    fn refuse_tag(&mut self, tag: Option<Cow<'_, Tag>>, at: Mark) {
        if let Some(tag) = tag {
            let path = self.path();
            let message = format!("tag {} is not allowed", quoted(&tag.to_string()));
            self.report.error_hint(Some(at), &path, message, "write the plain value");
        }
    }

    /// Where the next node goes, for messages.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.collection {
                Collection::List(items) => path = format!("{path}[{}]", items.len()),
                Collection::Map { key: Some((key, _)), .. } => path = path_of(&path, key),
                Collection::Map { key: None, .. } => {}
            }
        }
        path
    }
}
