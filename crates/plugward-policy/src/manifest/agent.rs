//! A plugin that is one prompt (`type: agent`). Owns its keys and ranges; `crate::prompt` owns what they mean. Refuses
//! placeholders that no argument fills, and everything that would need a program: nothing runs for such a plugin.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::command::{identity, read_description, read_name};
use super::diagnostic::Report;
use super::reader::{MapReader, did_you_mean, text_of};
use super::tree::{Mark, Node};
use super::{Backend, BackendKind, Manifest, SandboxLevel, ToolFilter, plugin};
use crate::access::Access;
use crate::command::{Word, is_parameter_name, read_word};
use crate::id::PermissionName;
use crate::prompt::{PROMPT_VALUE_BYTES_MAX, PromptArgument, PromptMessage, PromptRole, PromptTemplate, ROLES};

/// Longest text of one message, in characters (the seed's bound on its one message).
const MESSAGE_CHARS_MAX: usize = 10_000;

/// Most messages: an exchange that shows what is meant, not a book.
const MESSAGES_MAX: usize = 32;

/// Most arguments; people fill them in one by one.
const ARGUMENTS_MAX: usize = 32;

/// Most capabilities, and longest one in characters.
const CAPABILITIES_MAX: usize = 32;
const CAPABILITY_CHARS_MAX: usize = 64;

/// Longest description of an argument, in characters.
const ARGUMENT_DESCRIPTION_CHARS_MAX: usize = 1000;

/// Memory a compiled trigger may take, in bytes: it is only checked, never matched.
const TRIGGER_COMPILED_BYTES_MAX: usize = 256 * 1024;

/// The permission that opens prompts to clients. It follows from the type; a deployment may deny it.
const PROMPTS_PERMISSION: &str = "mcp.prompts";

const KEYS: [&str; 11] = [
    "type",
    "name",
    "version",
    "description",
    "prompt_template",
    "messages",
    "arguments",
    "category",
    "capabilities",
    "trigger",
    "quality_gate",
];

const CATEGORIES: [&str; 9] =
    ["engineering", "operations", "business", "data", "product", "growth", "review", "orchestration", "custom"];

/// Reads a whole file; `None` when it is refused, with every reason in `report`.
pub(crate) fn read_agent(root: Node, report: &mut Report) -> Option<Manifest> {
    let mut map = MapReader::new(root, "", &KEYS, report);
    drop(map.take("type"));
    let name = read_name(&mut map, report);
    let version = plugin::read_optional_line(&mut map, "version", report).unwrap_or_else(|| "0".to_owned());
    let description = read_description(&mut map, report);
    let arguments = read_arguments(&mut map, report);
    let messages = read_messages(&mut map, &arguments, report);
    let facts = read_facts(&mut map, report);
    let prompt = PromptTemplate { name: name?, description: description?, arguments, messages: messages?, facts };
    let (id, permission) = (identity(&prompt.name)?, PermissionName::new(PROMPTS_PERMISSION).ok()?);
    Some(Manifest {
        name: prompt.name.clone(),
        version,
        description: prompt.description.clone(),
        permissions: vec![permission],
        access: Access::default(),
        declared_tools: Some(Vec::new()),
        // Nothing runs, so nothing has to be held in.
        min_sandbox_level: SandboxLevel::Full,
        tools: ToolFilter::default(),
        supervision: super::Supervision::default(),
        backend: backend_of(prompt),
        id,
    })
}

fn backend_of(prompt: PromptTemplate) -> Backend {
    Backend::without_program(Vec::new(), Vec::new(), Duration::ZERO, BackendKind::Prompt(Box::new(prompt)))
}

fn read_arguments(map: &mut MapReader, report: &mut Report) -> Vec<PromptArgument> {
    const FLAGS: [(&str, bool); 2] = [("true", true), ("false", false)];
    let mut arguments: Vec<PromptArgument> = Vec::new();
    for (path, item) in map.list("arguments", ARGUMENTS_MAX, report).unwrap_or_default() {
        let mut entry = MapReader::new(item, &path, &["name", "description", "required", "default"], report);
        let named = entry.required_text("name", report);
        let description = entry.text("description", report);
        let required = entry.choice("required", &FLAGS, report);
        let default = entry.text("default", report);
        let Some((name, at)) = named else { continue };
        let name_path = entry.path_of("name");
        if !is_parameter_name(&name) {
            let message = format!("argument name {} is not valid", crate::visible::quoted(&name));
            report.error_hint(Some(at), &name_path, message, "use letters, digits, `_` and `-`");
        } else if arguments.iter().any(|argument| argument.name == name) {
            report.error(Some(at), &name_path, format!("argument `{name}` is listed twice"));
        } else {
            check_texts(&entry, description.as_ref(), default.as_ref(), report);
            if let (Some(true), Some((_, at))) = (required, &default) {
                let message = "is required and has a default, which would never be used";
                report.error_hint(Some(*at), &entry.path_of("default"), message, "leave out one of the two");
            }
            arguments.push(PromptArgument {
                name,
                description: description.map(|(text, _)| text).unwrap_or_default(),
                required: required.unwrap_or(false),
                default: default.map(|(text, _)| text),
            });
        }
    }
    arguments
}

fn check_texts(
    entry: &MapReader,
    description: Option<&(String, Mark)>,
    default: Option<&(String, Mark)>,
    report: &mut Report,
) {
    if let Some((text, at)) = description {
        check_chars(text, *at, &entry.path_of("description"), ARGUMENT_DESCRIPTION_CHARS_MAX, report);
    }
    if let Some((text, at)) = default
        && text.len() > PROMPT_VALUE_BYTES_MAX
    {
        let message = format!("text has {} bytes, at most {PROMPT_VALUE_BYTES_MAX} are allowed", text.len());
        report.error(Some(*at), &entry.path_of("default"), message);
    }
}

fn check_chars(text: &str, at: Mark, path: &str, chars_max: usize, report: &mut Report) {
    let chars = text.chars().count();
    if chars > chars_max {
        report.error(Some(at), path, format!("text has {chars} characters, at most {chars_max} are allowed"));
    }
    if text.chars().any(|c| crate::visible::is_deceptive(c) && !matches!(c, '\n' | '\t')) {
        report.error(Some(at), path, "text holds control or invisible characters");
    }
}

/// `prompt_template`, one message of the user, or `messages`.
fn read_messages(map: &mut MapReader, arguments: &[PromptArgument], report: &mut Report) -> Option<Vec<PromptMessage>> {
    let single = map.text("prompt_template", report);
    let Some(list) = map.list("messages", MESSAGES_MAX, report) else {
        let Some((text, at)) = single else {
            if map.lacks("prompt_template") && map.lacks("messages") {
                let hint = "write what is said as `prompt_template`, or as a list of `messages`";
                report.error_hint(Some(map.at()), "prompt_template", "missing key", hint);
            }
            return None;
        };
        let text = read_text(&text, at, "prompt_template", arguments, report)?;
        let messages = vec![PromptMessage { role: PromptRole::User, text }];
        warn_unused(&messages, arguments, at, report);
        return Some(messages);
    };
    if let Some((_, at)) = single {
        report.error(Some(at), "prompt_template", "means the same as one of `messages`, give only one of the keys");
        return None;
    }
    let (at, count) = (map.at(), list.len());
    if count == 0 {
        report.error(Some(at), "messages", "is empty");
        return None;
    }
    let messages: Vec<PromptMessage> = list
        .into_iter()
        .filter_map(|(path, item)| {
            let mut entry = MapReader::new(item, &path, &["role", "text"], report);
            let role = entry.choice("role", &ROLES, report);
            let (text, at) = entry.required_text("text", report)?;
            let text = read_text(&text, at, &entry.path_of("text"), arguments, report)?;
            Some(PromptMessage { role: role.unwrap_or(PromptRole::User), text })
        })
        .collect();
    if messages.len() < count {
        return None;
    }
    warn_unused(&messages, arguments, at, report);
    Some(messages)
}

/// Requirement 197 for prompts: what no value would ever replace is found when the file is read.
fn read_text(text: &str, at: Mark, path: &str, arguments: &[PromptArgument], report: &mut Report) -> Option<Word> {
    if text.trim().is_empty() {
        report.error(Some(at), path, "is empty");
        return None;
    }
    check_chars(text, at, path, MESSAGE_CHARS_MAX, report);
    let word = match read_word(text) {
        Ok(word) => word,
        Err(fault) => {
            report.error_hint(Some(at), path, fault.message, fault.hint);
            return None;
        }
    };
    let mut told: Vec<&str> = Vec::new();
    for name in word.parameters() {
        if !arguments.iter().any(|argument| argument.name == name) && !told.contains(&name) {
            told.push(name);
            let hint = did_you_mean(name, arguments.iter().map(|argument| argument.name.as_str()))
                .unwrap_or_else(|| "declare it under `arguments`".to_owned());
            let message = format!("placeholder names argument `{name}`, which is not declared");
            report.error_hint(Some(at), path, message, hint);
        }
    }
    Some(word)
}

fn warn_unused(messages: &[PromptMessage], arguments: &[PromptArgument], at: Mark, report: &mut Report) {
    for argument in arguments {
        if !messages.iter().any(|message| message.text.parameters().any(|name| name == argument.name)) {
            let message = format!("argument `{}` is not used by any message", argument.name);
            report.warning(Some(at), "arguments", message, None);
        }
    }
}

/// What the seed's files say of an agent beside its prompt. Checked, and told to clients as it is.
fn read_facts(map: &mut MapReader, report: &mut Report) -> BTreeMap<String, Json> {
    let mut facts = BTreeMap::new();
    let categories = CATEGORIES.map(|category| (category, category));
    if let Some(category) = map.choice("category", &categories, report) {
        facts.insert("category".to_owned(), json!(category));
    }
    if let Some(true) = map.choice("quality_gate", &[("true", true), ("false", false)], report) {
        facts.insert("quality_gate".to_owned(), json!(true));
    }
    if let Some((trigger, at)) = map.text("trigger", report) {
        match regex::RegexBuilder::new(&trigger).size_limit(TRIGGER_COMPILED_BYTES_MAX).build() {
            Ok(_) => {
                facts.insert("trigger".to_owned(), json!(trigger));
            }
            Err(_) => report.error(Some(at), "trigger", "is no regular expression"),
        }
    }
    let mut capabilities = Vec::new();
    for (path, item) in map.list("capabilities", CAPABILITIES_MAX, report).unwrap_or_default() {
        let at = item.at;
        let Some(text) = text_of(item, &path, report) else { continue };
        check_chars(&text, at, &path, CAPABILITY_CHARS_MAX, report);
        capabilities.push(text);
    }
    if !capabilities.is_empty() {
        facts.insert("capabilities".to_owned(), json!(capabilities));
    }
    facts
}
