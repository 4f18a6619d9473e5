//! Search mode: three tools in the place of all.
//!
//! ```text
//! search_tools   words -> names, first sentences, arguments         (nothing runs)
//! describe_tool  name  -> the definition as its plugin wrote it     (nothing runs)
//! call_tool      name, arguments -> the call itself                 (the one call path, under the real name)
//! ```
//!
//! Owns these definitions and their answers. The order of results is by score, then by the order of the list, so that
//! the same words give the same answer. Refuses to reword what plugins wrote, but for cutting descriptions short.

mod rank;

use plugward_protocol::mcp::CallParamsIn;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::empty_object;
use rank::{Document, Index};

const SEARCH: &str = "search_tools";
const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";

/// Results unless asked for more, and most: a model reads all of them.
const LIMIT_DEFAULT: usize = 5;
const LIMIT_MAX: usize = 25;

/// Longest description in a result, in characters: enough to choose by.
const DESCRIPTION_CHARS: usize = 240;

/// Longest text of one tool that is searched, in bytes. Real descriptions reach some thousand.
const SEARCHED_BYTES_MAX: usize = 16 * 1024;

/// The three definitions.
pub(super) fn definitions() -> Vec<Box<RawValue>> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "Most results" });
    let all = [
        json!({
            "name": SEARCH,
            "description": "Finds tools by what they do. Give a few words such as `create issue` or `read file`. \
                            The answer lists names for describe_tool and call_tool, best first.",
            "inputSchema": {
                "type": "object",
                "properties": { "query": { "type": "string", "description": "A few words" }, "limit": limit },
                "required": ["query"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": DESCRIBE,
            "description": "Gives the full definition of a tool that search_tools found: what it does and the schema of \
                            its arguments.",
            "inputSchema": {
                "type": "object",
                "properties": { "name": { "type": "string", "description": "Name as search_tools gave it" } },
                "required": ["name"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": CALL,
            "description": "Runs a tool that search_tools found. The result is the tool's own.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "Name as search_tools gave it" },
                    "arguments": { "type": "object", "description": "Arguments as describe_tool tells" },
                },
                "required": ["name"],
            },
        }),
    ];
    all.iter().filter_map(|tool| to_raw_value(tool).ok()).collect()
}

/// What a client asks of the three tools.
#[derive(Debug)]
pub(super) enum Request {
    Search {
        query: String,
        limit: usize,
    },
    Describe {
        name: String,
    },
    /// The call as it goes on.
    Call(CallParamsIn),
    /// Arguments that do not fit; what is said about them.
    Invalid(String),
}

#[derive(Deserialize)]
struct SearchArguments {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct DescribeArguments {
    name: String,
}

#[derive(Deserialize)]
struct CallArguments {
    name: String,
    arguments: Option<Box<RawValue>>,
}

impl Request {
    /// Reads a call; none if it is to none of the three.
    pub(super) fn of(params: &CallParamsIn) -> Option<Self> {
        let text = params.arguments.get();
        let request = match params.name.as_str() {
            SEARCH => serde_json::from_str(text).map(|SearchArguments { query, limit }| Request::Search {
                query,
                limit: limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX),
            }),
            DESCRIBE => serde_json::from_str(text).map(|DescribeArguments { name }| Request::Describe { name }),
            CALL => serde_json::from_str(text).map(|CallArguments { name, arguments }| {
                let arguments = arguments.filter(|arguments| arguments.get() != "null");
                // Digits and order of the arguments are the caller's; they go on as text.
                let arguments = arguments.unwrap_or_else(empty_object);
                Request::Call(CallParamsIn { name, arguments, ..params.clone() })
            }),
            _ => return None,
        };
        Some(request.unwrap_or_else(|error| Request::Invalid(format!("arguments of `{}`: {error}", params.name))))
    }
}

/// What can be found at one moment.
#[derive(Debug)]
pub(super) struct Catalogue {
    version: u64,
    tools: Vec<Entry>,
    index: Index,
}

#[derive(Debug)]
struct Entry {
    name: String,
    summary: String,
    arguments: Vec<String>,
    definition: Box<RawValue>,
}

impl Catalogue {
    /// `tools` are exposed names with definitions, in the order of every list.
    pub(super) fn new(version: u64, tools: Vec<(String, Box<RawValue>)>) -> Self {
        let mut documents = Vec::with_capacity(tools.len());
        let mut entries = Vec::with_capacity(tools.len());
        for (name, definition) in tools {
            let read: Value = serde_json::from_str(definition.get()).unwrap_or(Value::Null);
            let description = read["description"].as_str().unwrap_or_default();
            let title = read["title"].as_str().or_else(|| read["annotations"]["title"].as_str()).unwrap_or_default();
            let properties = read["inputSchema"]["properties"].as_object();
            let arguments: Vec<String> = properties.into_iter().flatten().map(|(name, _)| name.clone()).collect();
            let described = properties.into_iter().flatten().filter_map(|(_, schema)| schema["description"].as_str());
            documents.push(Document {
                name: format!("{name} {title}"),
                text: cut(description, SEARCHED_BYTES_MAX).to_owned(),
                arguments: arguments.join(" "),
                notes: cut(&described.collect::<Vec<_>>().join(" "), SEARCHED_BYTES_MAX).to_owned(),
            });
            entries.push(Entry { summary: summary(description), name, arguments, definition });
        }
        Self { version, tools: entries, index: Index::new(&documents) }
    }

    /// The version of the tools it was made of.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Names, best first.
    pub(super) fn search(&self, query: &str, limit: usize) -> Box<RawValue> {
        let found: Vec<Value> = self
            .index
            .search(query, limit)
            .into_iter()
            .filter_map(|index| self.tools.get(index))
            .map(|tool| json!({ "name": tool.name, "description": tool.summary, "arguments": tool.arguments }))
            .collect();
        let hint = if found.is_empty() { "nothing was found: try other words, or fewer" } else { "" };
        let mut answer = json!({ "tools": found, "searched": self.tools.len() });
        if !hint.is_empty() {
            answer["hint"] = json!(hint);
        }
        answered(&answer)
    }

    /// The definition of a tool.
    pub(super) fn describe(&self, name: &str) -> Box<RawValue> {
        match self.tools.iter().find(|tool| tool.name == name) {
            Some(tool) => {
                // The text is the definition as it is; a copy of it as values would lose digits.
                let result = json!({ "content": [{ "type": "text", "text": tool.definition.get() }] });
                to_raw_value(&result).unwrap_or_else(|_| RawValue::NULL.to_owned())
            }
            None => {
                failed(&format!("no tool `{}`: search_tools finds names", plugward_policy::visible(cut(name, 200))))
            }
        }
    }
}

fn answered(answer: &Value) -> Box<RawValue> {
    let result = json!({
        "content": [{ "type": "text", "text": answer.to_string() }],
        "structuredContent": answer,
    });
    to_raw_value(&result).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A result that says what went wrong.
pub(super) fn failed(message: &str) -> Box<RawValue> {
    let result = json!({ "content": [{ "type": "text", "text": message }], "isError": true });
    to_raw_value(&result).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The first paragraph, cut short.
fn summary(description: &str) -> String {
    let paragraph = description.trim().split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(DESCRIPTION_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// At most so many bytes, whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
