//! A plugin that is one command (`type: mcp_tool`), or one that judges (`type: quality_gate`). Owns its keys, ranges and defaults; `crate::command` owns what they
//! mean, `command_parameters` reads the parameters. Refuses placeholders that no value would ever replace, and commands
//! that only a shell could run, unless the file asks for one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::command_parameters::{json_of, read_parameters};
use super::diagnostic::Report;
use super::reader::{MapReader, did_you_mean, text_of};
use super::tree::{Entry, Mark, Node, Value};
use super::{
    Backend, BackendKind, Manifest, ProtocolMode, QUEUED_CALLS_DEFAULT, RestartMode, SandboxLevel, StdoutMode,
    ToolFilter, access, backend, lint, plugin,
};
use crate::access::{AccessPermission, PathGrant};
use crate::command::{
    COMMAND_TIMEOUT_DEFAULT, CommandTool, ExitMeaning, Fault, GATE_NAME_VARIABLE, Gate, GatePhase, GateSeverity, Group,
    Invocation, Item, OUTPUT_BYTES_DEFAULT, OutputForm, Overflow, PHASES, Parameter, ParameterKind, Piece, SEVERITIES,
    TOOL_NAME_VARIABLE, Template, Word, WorkingDirectory, check_interpreter, read_line, read_script, read_word,
};
use crate::id::{PluginId, RemoteToolName, ToolId};
use crate::visible::quoted;

/// Shortest and longest name, in bytes (the seed's rule, with `_` as its own examples need it).
const NAME_BYTES: RangeInclusive<usize> = 3..=50;

/// Bounds on one run, in milliseconds. 0 would mean no time or no limit, so it is neither.
const TIMEOUT_MS: RangeInclusive<u64> = 1..=600_000;

/// Output limits, in bytes: what is handed on is held in memory while the command runs.
const OUTPUT_BYTES: RangeInclusive<u64> = 1..=16 * 1024 * 1024;

/// Room in a result beside the output itself: a character takes up to six bytes in JSON, the output stands in the text
/// and in the structured part, and there are two streams.
const RESULT_BYTES_PER_OUTPUT_BYTE: u64 = 24;

/// Bytes of a result that are not output.
const RESULT_FRAME_BYTES: u64 = 64 * 1024;

/// Runs of one command at once when a file says nothing: each is a process.
const RUNS_DEFAULT: u32 = 8;

/// Runs of one command at once that a file may ask for.
const RUNS: RangeInclusive<u64> = 1..=64;

/// Most elements of a command.
const WORDS_MAX: usize = 256;

/// Most exit codes with a meaning of their own.
const EXIT_CODES_MAX: usize = 64;

/// Longest pattern for output, in bytes: it is read by a person and compiled once.
const PATTERN_BYTES_MAX: usize = 4096;

/// Memory a compiled pattern may take, in bytes.
const PATTERN_COMPILED_BYTES_MAX: usize = 1024 * 1024;

const KEYS: [&str; 20] = [
    "type",
    "name",
    "version",
    "description",
    "command",
    "shell",
    "parameters",
    "timeout_ms",
    "working_directory",
    "stdin",
    "env",
    "secret_env",
    "exit_codes",
    "output",
    "output_schema",
    "output_limit",
    "max_output_bytes",
    "max_concurrent_calls",
    "permissions",
    "sandbox",
];

/// Keys of a gate. What a tool has for the values of its callers, a gate has not.
const GATE_KEYS: [&str; 19] = [
    "type",
    "name",
    "version",
    "description",
    "phase",
    "blocking",
    "severity",
    "command",
    "shell",
    "timeout_ms",
    "working_directory",
    "env",
    "secret_env",
    "exit_codes",
    "output_limit",
    "max_output_bytes",
    "max_concurrent_calls",
    "permissions",
    "sandbox",
];

/// The types of files that are a plugin of their own. This module reads the first two.
const TYPES: [&str; 4] = ["mcp_tool", "quality_gate", "agent", "integration"];

/// Whether a file with these top-level keys names a type, as the files of single tools do.
pub(crate) fn has_type(root: &Node) -> bool {
    matches!(&root.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == "type"))
}

/// Reads a whole file; `None` when it is refused, with every reason in `report`.
pub(crate) fn read_command_plugin(root: Node, is_gate: bool, report: &mut Report) -> Option<Manifest> {
    let keys: &[&str] = if is_gate { &GATE_KEYS } else { &KEYS };
    let mut map = MapReader::new(root, "", keys, report);
    drop(map.take("type"));
    let name = read_name(&mut map, report);
    let version = plugin::read_optional_line(&mut map, "version", report).unwrap_or_else(|| "0".to_owned());
    let description = read_description(&mut map, report);
    let (permissions, mut requested) = access::read_permissions(&mut map, report);
    let working_directory = read_working_directory(&mut map, &mut requested, report);
    let gate = is_gate.then(|| read_gate(&mut map, report));
    let (parameters, input_schema) = read_parameters(&mut map, report);
    let command = read_command(&mut map, report);
    let stdin = read_stdin(&mut map, report);
    if let Some((invocation, at)) = &command {
        check_placeholders(invocation, *at, &parameters, stdin.as_ref(), report);
    }
    let env = backend::read_env(&mut map, report);
    let secret_env = backend::read_secret_env(&mut map, &env, report);
    let timeout = map.number("timeout_ms", TIMEOUT_MS, report).map(Duration::from_millis);
    let exit_codes = read_exit_codes(&mut map, report);
    let output = read_output(&mut map, report);
    let output_schema = map.take("output_schema").map(|entry| json_of(&entry.node).to_string());
    let choices = [("error", Overflow::Error), ("truncate", Overflow::Truncate), ("spill", Overflow::Spill)];
    let overflow = map.choice("output_limit", &choices, report).unwrap_or(Overflow::Error);
    let max_output_bytes = map.number("max_output_bytes", OUTPUT_BYTES, report).unwrap_or(OUTPUT_BYTES_DEFAULT);
    let runs = map.number("max_concurrent_calls", RUNS, report).and_then(|number| u32::try_from(number).ok());
    let min_sandbox_level = access::read_sandbox(&mut map, &mut requested, report);
    let (invocation, command_at) = command?;
    let tool = CommandTool {
        name: name?,
        description: description?,
        invocation,
        parameters,
        input_schema,
        timeout: timeout.unwrap_or(COMMAND_TIMEOUT_DEFAULT),
        working_directory,
        stdin: stdin.map(|(name, _)| name),
        exit_codes,
        output,
        output_schema,
        overflow,
        max_output_bytes,
        gate,
    };
    lint_command(&tool, command_at, &env, &secret_env, report);
    let backend = backend_of(&tool, env, secret_env, runs.unwrap_or(RUNS_DEFAULT));
    access::check_variables(&requested, &backend, report);
    manifest_of(&tool, version, permissions, requested, backend, min_sandbox_level)
}

fn manifest_of(
    tool: &CommandTool,
    version: String,
    permissions: Vec<crate::id::PermissionName>,
    requested: access::Requested,
    backend: Backend,
    min_sandbox_level: SandboxLevel,
) -> Option<Manifest> {
    // The form of the name was checked; both take every name of that form.
    let id = PluginId::new(tool.name.as_str()).ok()?;
    let remote = RemoteToolName::new(tool.name.as_str()).ok()?;
    Some(Manifest {
        name: tool.name.clone(),
        version,
        description: tool.description.clone(),
        permissions,
        access: requested.into_access(),
        declared_tools: Some(vec![ToolId::new(id.clone(), remote)]),
        backend,
        tools: ToolFilter::default(),
        min_sandbox_level,
        supervision: super::Supervision::default(),
        id,
    })
}

/// The launch of the command as every backend has it: what is reviewed and what an approval is bound to.
fn backend_of(tool: &CommandTool, env: Vec<backend::Variable>, secret_env: Vec<String>, runs: u32) -> Backend {
    let mut variables: Vec<(String, String)> = env.into_iter().map(|it| (it.name, it.value)).collect();
    let name_variable = if tool.gate.is_some() { GATE_NAME_VARIABLE } else { TOOL_NAME_VARIABLE };
    if !variables.iter().any(|(name, _)| name == name_variable) {
        variables.push((name_variable.to_owned(), tool.name.clone()));
    }
    Backend {
        command: tool.program().to_owned(),
        args: tool.shown_arguments(),
        env: variables,
        secret_env,
        cwd: tool.working_directory.as_text().map(str::to_owned),
        startup_timeout: super::STARTUP_TIMEOUT_DEFAULT,
        tool_timeout: tool.timeout,
        list_timeout: super::STARTUP_TIMEOUT_DEFAULT,
        stdout: StdoutMode::Tolerant,
        protocol: ProtocolMode::Auto,
        restart: RestartMode::Never,
        max_message_bytes: super::MESSAGE_BYTES_DEFAULT,
        max_result_bytes: tool.max_output_bytes * RESULT_BYTES_PER_OUTPUT_BYTE + RESULT_FRAME_BYTES,
        max_concurrent_calls: runs,
        max_queued_calls: QUEUED_CALLS_DEFAULT,
        kind: BackendKind::Command(Box::new(tool.clone())),
    }
}

/// The id of a plugin with this name, whose form was checked.
pub(super) fn identity(name: &str) -> Option<PluginId> {
    PluginId::new(name).ok()
}

/// The type, if there is one of that name.
pub(crate) fn check_type(root: &Node, report: &mut Report) -> Option<&'static str> {
    let Value::Map(entries) = &root.value else { return None };
    let entry = entries.iter().find(|entry| entry.key == "type")?;
    let at = entry.node.at;
    let text = text_of(entry.node.clone(), "type", report)?;
    if let Some(known) = TYPES.iter().find(|known| **known == text) {
        return Some(known);
    }
    let hint = did_you_mean(&text, TYPES).unwrap_or_else(|| format!("known types are {}", TYPES.join(", ")));
    report.error_hint(Some(at), "type", format!("unknown value {}", quoted(&text)), hint);
    None
}

fn read_gate(map: &mut MapReader, report: &mut Report) -> Gate {
    Gate {
        phase: map.choice("phase", &PHASES, report).unwrap_or(GatePhase::PreCommit),
        blocking: map.choice("blocking", &[("true", true), ("false", false)], report).unwrap_or(true),
        severity: map.choice("severity", &SEVERITIES, report).unwrap_or(GateSeverity::High),
    }
}

pub(super) fn read_name(map: &mut MapReader, report: &mut Report) -> Option<String> {
    let (text, at) = map.required_text("name", report)?;
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase());
    if NAME_BYTES.contains(&text.len()) && starts_well && text.chars().all(legal) {
        return Some(text);
    }
    let message = format!(
        "name {} is not valid: use {} to {} lower-case ASCII letters, digits, `_` and `-`, starting with a letter",
        quoted(&text),
        NAME_BYTES.start(),
        NAME_BYTES.end()
    );
    report.error(Some(at), "name", message);
    None
}

pub(super) fn read_description(map: &mut MapReader, report: &mut Report) -> Option<String> {
    if map.lacks("description") {
        report.error(Some(map.at()), "description", "missing key");
        return None;
    }
    let at = map.at();
    let text = plugin::read_description(map, report);
    if text.trim().is_empty() {
        report.error_hint(Some(at), "description", "is empty", "say what the tool does: models choose by it");
        return None;
    }
    Some(text)
}

fn read_working_directory(
    map: &mut MapReader,
    requested: &mut access::Requested,
    report: &mut Report,
) -> WorkingDirectory {
    let (text, at) = match map.text("working_directory", report) {
        Some(found) => found,
        None => ("project".to_owned(), map.at()),
    };
    let directory = match text.as_str() {
        "project" => WorkingDirectory::Project,
        "plugin" => WorkingDirectory::Plugin,
        "repo" => WorkingDirectory::Repo,
        path if path.starts_with('/') => WorkingDirectory::Absolute(path.to_owned()),
        other => {
            let hint = "use project, plugin, repo or an absolute path";
            let message = format!("unknown value {}", quoted(other));
            report.error_hint(Some(at), "working_directory", message, hint);
            return WorkingDirectory::Plugin;
        }
    };
    match &directory {
        WorkingDirectory::Plugin => {}
        WorkingDirectory::Absolute(path) => match PathGrant::new(path.as_str()) {
            Ok(_) if requested.covers(path) => {}
            Ok(_) => {
                let hint = format!("add `fs.read:{path}` or `fs.write:{path}` to `permissions`");
                let message = format!("{} lies in no place the tool asks for", quoted(path));
                report.error_hint(Some(at), "working_directory", message, hint);
            }
            Err(error) => report.error(Some(at), "working_directory", error.to_string()),
        },
        named => {
            // A command that runs in a folder has to see it. Asked for in so many words, it is as asked.
            let folder = named.as_text().unwrap_or_default();
            if !requested.covers(folder)
                && let Ok(path) = PathGrant::new(folder)
            {
                requested.add(AccessPermission::FilesRead(path), at, "working_directory");
            }
        }
    }
    directory
}

fn read_command(map: &mut MapReader, report: &mut Report) -> Option<(Invocation, Mark)> {
    let shell = map.choice("shell", &[("true", true), ("false", false)], report).unwrap_or(false);
    if map.lacks("command") {
        report.error(Some(map.at()), "command", "missing key");
    }
    let entry = map.take("command")?;
    let at = entry.node.at;
    if matches!(entry.node.value, Value::List(_)) {
        if shell {
            let hint = "write the script as one text, or leave `shell` out";
            report.error_hint(Some(at), "command", "is a list and `shell` is true", hint);
            return None;
        }
        return read_argv(entry, report).map(|template| (Invocation::Argv(template), at));
    }
    let text = text_of(entry.node, "command", report)?;
    let text = if shell { check_plain(text, at, report)? } else { backend::checked_text(text, at, "command", report)? };
    let read = if shell { read_script(&text).map(Invocation::Shell) } else { read_line(&text).map(Invocation::Argv) };
    match read {
        Ok(invocation) => Some((invocation, at)),
        Err(fault) => {
            report_fault(fault, at, "command", report);
            None
        }
    }
}

/// As for other texts of a command, without a look at references: `${NAME}` in a script is the shell's.
fn check_plain(text: String, at: Mark, report: &mut Report) -> Option<String> {
    let escaped = text.replace("${", "$");
    backend::checked_text(escaped, at, "command", report).map(|_| text)
}

fn report_fault(fault: Fault, at: Mark, path: &str, report: &mut Report) {
    report.error_hint(Some(at), path, fault.message, fault.hint);
}

fn read_argv(entry: Entry, report: &mut Report) -> Option<Template> {
    let at = entry.node.at;
    let Value::List(items) = entry.node.value else { return None };
    if items.len() > WORDS_MAX {
        let message = format!("list has {} entries, at most {WORDS_MAX} are allowed", items.len());
        report.error(Some(at), "command", message);
        return None;
    }
    let count = items.len();
    let read: Vec<Item> =
        items.into_iter().enumerate().filter_map(|(index, item)| read_item(index, item, report)).collect();
    // With one missing, what is said about the others would be wrong.
    if read.len() < count {
        return None;
    }
    let mut items = read.into_iter();
    let program = match items.next() {
        None => {
            report.error_hint(Some(at), "command", "is empty", "name a program");
            return None;
        }
        Some(Item::Word(word)) => word.fixed(),
        Some(Item::Group(_)) => None,
    };
    let Some(program) = program else {
        report_fault(crate::command::program_of_values(), at, "command[0]", report);
        return None;
    };
    if program.trim().is_empty() {
        report.error_hint(Some(at), "command[0]", "is empty", "name a program");
        return None;
    }
    let template = Template { program, items: items.collect() };
    let words: Vec<&Word> = template.words().collect();
    if let Err(fault) = check_interpreter(&template.program, &words) {
        report_fault(fault, at, "command", report);
    }
    Some(template)
}

fn read_item(index: usize, item: Node, report: &mut Report) -> Option<Item> {
    let path = format!("command[{index}]");
    match item.value {
        Value::Scalar { .. } => one_word(item, &path, report).map(Item::Word),
        Value::List(words) => {
            let words = group_words(words, item.at, &path, report)?;
            if words.iter().all(|word| word.parameters().next().is_none()) {
                let hint = "write `{when: NAME, args: [...]}` to make it depend on a parameter, or drop the brackets";
                report.error_hint(Some(item.at), &path, "group has no placeholder, so it never vanishes", hint);
                return None;
            }
            Some(Item::Group(Group { when: None, words }))
        }
        Value::Map(_) => {
            let at = item.at;
            let mut map = MapReader::new(item, &path, &["when", "args"], report);
            let when = map.required_text("when", report).map(|(text, _)| text);
            let args = map.take("args");
            let words = match args.map(|entry| entry.node) {
                Some(Node { value: Value::List(words), at }) => group_words(words, at, &format!("{path}.args"), report),
                _ => {
                    report.error_hint(Some(at), &format!("{path}.args"), "missing list", "write `args: [...]`");
                    None
                }
            };
            Some(Item::Group(Group { when: Some(when?), words: words? }))
        }
    }
}

fn group_words(words: Vec<Node>, at: Mark, path: &str, report: &mut Report) -> Option<Vec<Word>> {
    if words.is_empty() || words.len() > WORDS_MAX {
        let message = format!("group has {} words, 1 to {WORDS_MAX} are allowed", words.len());
        report.error(Some(at), path, message);
        return None;
    }
    let read = |(index, word): (usize, Node)| one_word(word, &format!("{path}[{index}]"), report);
    let count = words.len();
    let read: Vec<Word> = words.into_iter().enumerate().filter_map(read).collect();
    (read.len() == count).then_some(read)
}

fn one_word(node: Node, path: &str, report: &mut Report) -> Option<Word> {
    let at = node.at;
    let text = text_of(node, path, report)?;
    let text = backend::checked_text(text, at, path, report)?;
    match read_word(&text) {
        Ok(word) => Some(word),
        Err(fault) => {
            report_fault(fault, at, path, report);
            None
        }
    }
}

/// Requirements 197, 204: every placeholder names a parameter, and always has a value or a group to vanish with.
fn check_placeholders(
    invocation: &Invocation,
    at: Mark,
    parameters: &[Parameter],
    stdin: Option<&(String, Mark)>,
    report: &mut Report,
) {
    let find = |name: &str| parameters.iter().find(|parameter| parameter.name == name);
    let used: BTreeSet<&str> = match invocation {
        Invocation::Argv(template) => template.parameters(),
        Invocation::Shell(script) => script.parameters.iter().map(String::as_str).collect(),
    };
    let named = used.iter().map(|name| (*name, at)).chain(stdin.iter().map(|(name, at)| (name.as_str(), *at)));
    for (name, at) in named {
        if find(name).is_none() {
            let hint = did_you_mean(name, parameters.iter().map(|parameter| parameter.name.as_str()))
                .unwrap_or_else(|| "declare it under `parameters`".to_owned());
            let message = format!("placeholder names parameter `{name}`, which is not declared");
            report.error_hint(Some(at), "command", message, hint);
        }
    }
    let absent = |name: &str| find(name).is_some_and(Parameter::may_be_absent);
    match invocation {
        Invocation::Argv(template) => {
            for item in &template.items {
                check_item(item, at, &absent, report);
            }
            for word in template.words() {
                check_arrays(word, at, &|name| find(name).is_some_and(|it| it.kind == ParameterKind::Array), report);
            }
        }
        Invocation::Shell(script) => {
            for name in &script.parameters {
                if absent(name) {
                    report_absent(name, at, "give it a default, or make it required", report);
                }
                if find(name).is_some_and(|parameter| parameter.kind == ParameterKind::Array) {
                    let message = format!("parameter `{name}` is an array, which a script cannot be given");
                    report.error_hint(Some(at), "command", message, "write the command as a list");
                }
            }
        }
    }
    for parameter in parameters {
        let is_read = stdin.is_some_and(|(name, _)| *name == parameter.name);
        if !used.contains(parameter.name.as_str()) && !is_read {
            let message = format!("parameter `{}` is not used by the command", parameter.name);
            report.warning(Some(at), "parameters", message, None);
        }
    }
}

fn report_absent(name: &str, at: Mark, hint: &str, report: &mut Report) {
    let message = format!("parameter `{name}` may be without a value, and its placeholder would be left over");
    report.error_hint(Some(at), "command", message, hint);
}

fn check_item(item: &Item, at: Mark, absent: &dyn Fn(&str) -> bool, report: &mut Report) {
    let deciding = match item {
        Item::Word(_) => None,
        Item::Group(Group { when: None, .. }) => return,
        Item::Group(Group { when, .. }) => when.as_deref(),
    };
    for name in item.words().iter().flat_map(Word::parameters) {
        if absent(name) && deciding != Some(name) {
            let hint = "give it a default, make it required, or put it in a group in a command that is a list: \
                        `[--option, \"{{params.NAME}}\"]`";
            report_absent(name, at, hint, report);
        }
    }
}

fn check_arrays(word: &Word, at: Mark, is_array: &dyn Fn(&str) -> bool, report: &mut Report) {
    let arrays = word.pieces.iter().filter(|piece| matches!(piece, Piece::Value(name) if is_array(name))).count();
    if arrays > 1 {
        let message = format!("word `{}` holds two arrays", crate::visible(&word.shown()));
        report.error_hint(Some(at), "command", message, "give each a word of its own");
    }
}

/// `closed`, or the one placeholder whose value is read.
fn read_stdin(map: &mut MapReader, report: &mut Report) -> Option<(String, Mark)> {
    let (text, at) = map.text("stdin", report)?;
    if text == "closed" {
        return None;
    }
    match read_word(&text).map(|word| word.pieces) {
        Ok(pieces) => match pieces.as_slice() {
            [Piece::Value(name)] => Some((name.clone(), at)),
            _ => {
                let message = format!("unknown value {}", quoted(&text));
                report.error_hint(Some(at), "stdin", message, "use `closed` or `\"{{params.NAME}}\"`");
                None
            }
        },
        Err(fault) => {
            report_fault(fault, at, "stdin", report);
            None
        }
    }
}

fn read_exit_codes(map: &mut MapReader, report: &mut Report) -> BTreeMap<i32, ExitMeaning> {
    let mut codes = BTreeMap::new();
    let Some(entry) = map.take("exit_codes") else { return codes };
    let at = entry.node.at;
    let Value::Map(entries) = entry.node.value else {
        report.error(Some(at), "exit_codes", "expected a map of exit codes");
        return codes;
    };
    if entries.len() > EXIT_CODES_MAX {
        let message = format!("map has {} entries, at most {EXIT_CODES_MAX} are allowed", entries.len());
        report.error(Some(at), "exit_codes", message);
        return codes;
    }
    for entry in entries {
        let path = super::path_of("exit_codes", &entry.key);
        let code = entry.key.parse::<u8>().ok().filter(|code| code.to_string() == entry.key);
        let Some(code) = code else {
            report.error(Some(entry.at), &path, "expected an exit code from 0 to 255");
            continue;
        };
        if let Some(meaning) = read_meaning(entry.node, &path, report) {
            codes.insert(i32::from(code), meaning);
        }
    }
    codes
}

fn read_meaning(node: Node, path: &str, report: &mut Report) -> Option<ExitMeaning> {
    const CHOICES: [(&str, bool); 2] = [("success", true), ("failure", false)];
    if matches!(node.value, Value::Map(_)) {
        let mut map = MapReader::new(node, path, &["result", "message"], report);
        if map.lacks("result") {
            report.error(Some(map.at()), &map.path_of("result"), "missing key");
        }
        let success = map.choice("result", &CHOICES, report)?;
        let message = map.text("message", report).map(|(text, _)| text);
        return Some(ExitMeaning { success, message });
    }
    let at = node.at;
    let text = text_of(node, path, report)?;
    let found = CHOICES.iter().find(|(word, _)| *word == text);
    if found.is_none() {
        let hint = "use success or failure, or `{result: failure, message: ...}`";
        report.error_hint(Some(at), path, format!("unknown value {}", quoted(&text)), hint);
    }
    found.map(|(_, success)| ExitMeaning { success: *success, message: None })
}

fn read_output(map: &mut MapReader, report: &mut Report) -> OutputForm {
    const HINT: &str = "use text, json, lines, or `{pattern: '(?P<name>...)'}`";
    let Some(entry) = map.take("output") else { return OutputForm::Text };
    let at = entry.node.at;
    if !matches!(entry.node.value, Value::Map(_)) {
        let text = text_of(entry.node, "output", report).unwrap_or_default();
        match text.as_str() {
            "json" => return OutputForm::Json,
            "lines" => return OutputForm::Lines,
            "text" | "" => {}
            other => report.error_hint(Some(at), "output", format!("unknown value {}", quoted(other)), HINT),
        }
        return OutputForm::Text;
    }
    let mut form = MapReader::new(entry.node, "output", &["pattern", "matches"], report);
    let every = form.choice("matches", &[("every", true), ("first", false)], report).unwrap_or(true);
    let Some((pattern, at)) = form.required_text("pattern", report) else { return OutputForm::Text };
    if let Err(reason) = check_pattern(&pattern) {
        report.error(Some(at), "output.pattern", reason);
    }
    OutputForm::Regex { pattern, every }
}

fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("pattern has {} bytes, at most {PATTERN_BYTES_MAX} are allowed", pattern.len()));
    }
    let compiled = regex::RegexBuilder::new(pattern).multi_line(true).size_limit(PATTERN_COMPILED_BYTES_MAX).build();
    match compiled {
        Ok(regex) if regex.capture_names().flatten().next().is_some() => Ok(()),
        Ok(_) => Err("pattern has no named group: write `(?P<name>...)` around what is wanted".to_owned()),
        Err(error) => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err(format!("pattern is not valid: {last}"))
        }
    }
}

fn lint_command(tool: &CommandTool, at: Mark, env: &[backend::Variable], secret_env: &[String], report: &mut Report) {
    if let Invocation::Shell(_) = tool.invocation {
        let message = "runs a shell script: what is in it is not checked, and it may start any program it can see";
        report.warning(Some(at), "shell", message, None);
        lint::check("", at, &[], env, secret_env, report);
        return;
    }
    let arguments: Vec<backend::Argument> = tool
        .shown_arguments()
        .into_iter()
        .map(|text| backend::Argument { path: "command".to_owned(), at, text })
        .collect();
    lint::check(tool.program(), at, &arguments, env, secret_env, report);
    let has_values = arguments.iter().any(|argument| argument.text.contains("{{"));
    if has_values && tool.program().rsplit('/').next() == Some("ssh") {
        let message = "hands its arguments to a shell on another machine, which reads values as text";
        report.warning(Some(at), "command", message, Some("send values through `stdin`".to_owned()));
    }
}
