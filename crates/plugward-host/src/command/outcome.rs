//! What a run came to. Owns the structured result (requirements 177, 198) and its form as an MCP tool result. Refuses
//! to call a cut or unreadable output a success without saying so.

use std::path::PathBuf;
use std::time::Duration;

use plugward_policy::{CommandTool, OutputForm};
use plugward_sandbox::MainExit;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::capture::Captured;
use super::error::{CommandError, CommandErrorCode, CommandStage};
use super::run::{Ended, Finished};
use super::spill::SPILL_BYTES_MAX;
use crate::error::ErrorCode;

/// Most matches of a pattern that are handed on: a list nobody reads to the end is no result.
const MATCHES_MAX: usize = 10_000;

/// Key of the facts about a run under `_meta`.
const META_KEY: &str = "plugward/command";

/// Key of code and cause of a failure under `_meta`, as the faces use it.
const ERROR_META_KEY: &str = "plugward/error";

/// Output that did not fit and lies in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpilledOutput {
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The end of one run. Expected failures are in here and not an `Err`: whoever calls reads one form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandResult {
    /// Whether the command did what it was asked for.
    pub success: bool,
    /// stdout, and after it what stands on stderr; the seed's view of a result.
    pub output: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What it wrote to stdout, as text.
    pub stdout: String,
    /// What it wrote to stderr, as text.
    pub stderr: String,
    /// Its exit code, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was ended because its time was up.
    pub timed_out: bool,
    /// Whether `stdout` or `stderr` is not all that was written.
    pub truncated: bool,
    /// The output as the tool says it is to be read.
    pub structured: Option<Value>,
    /// Files with all of an output that did not fit.
    pub spilled: Vec<SpilledOutput>,
    /// Why it failed.
    pub error: Option<CommandError>,
}

impl CommandResult {
    /// A run that did not come to a process.
    pub(crate) fn refused(error: CommandError) -> Self {
        Self { output: format!("Error: {}", error.message), error: Some(error), ..Self::default() }
    }

    /// What a run came to.
    pub(super) fn of(tool: &CommandTool, timeout: Duration, finished: Finished) -> Self {
        let Finished { ended, stdout, stderr, duration, reached, .. } = finished;
        let mut result = Self {
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            truncated: stdout.is_cut || stderr.is_cut,
            spilled: [("stdout", &stdout), ("stderr", &stderr)].into_iter().filter_map(spilled).collect(),
            output: combined(&stdout, &stderr),
            ..Self::default()
        };
        let (written, complained) = (stdout.total_bytes, stderr.total_bytes);
        result.stdout = stdout.text;
        result.stderr = stderr.text;
        match ended {
            Ended::Own(MainExit::Code(code)) => result.exited(tool, code),
            Ended::Own(MainExit::Signal(signal)) => {
                result.signal = Some(signal);
                result.fail(CommandErrorCode::Signalled, format!("command was ended by signal {signal}"));
            }
            Ended::Exceeded(exceeded) => {
                result.fail(CommandErrorCode::Signalled, format!("command was ended at a limit: {exceeded}"));
            }
            Ended::Own(MainExit::Unknown) => {
                result.fail(CommandErrorCode::Signalled, "command ended in a way nobody saw".to_owned());
            }
            Ended::TimedOut => {
                result.timed_out = true;
                let message = format!("Timeout: command exceeded {}ms limit", timeout.as_millis());
                // What it said until then often tells what it was waiting for (B042).
                let separator = if result.output.is_empty() { "" } else { "\n" };
                result.output = format!("{message}{separator}{}", result.output);
                result.fail(CommandErrorCode::TimedOut, message);
            }
            Ended::Cancelled => result.fail(CommandErrorCode::Cancelled, "command was cancelled".to_owned()),
            Ended::Stopped => result.fail(CommandErrorCode::Stopping, "the tool was stopped".to_owned()),
            Ended::TooLarge => {
                let which = if written > tool.max_output_bytes { "stdout" } else { "stderr" };
                let message = format!(
                    "command wrote more than {} bytes to {which} (limit `max_output_bytes`; `output_limit` says what \
                     happens then)",
                    tool.max_output_bytes
                );
                result.truncated = written.max(complained) > tool.max_output_bytes;
                result.output.clone_from(&message);
                result.fail(CommandErrorCode::OutputTooLarge, message);
            }
            Ended::SpillTooLarge => {
                let message =
                    format!("command wrote more than {SPILL_BYTES_MAX} bytes, the most a file of output may have");
                result.truncated = true;
                result.fail(CommandErrorCode::OutputTooLarge, message);
            }
            Ended::NotKept { dir, error } => {
                let message = format!(
                    "output over `max_output_bytes` could not be written to `{}`: {error}; make room on that disk, or \
                     choose another `output_limit`",
                    dir.display()
                );
                result.truncated = true;
                result.fail(CommandErrorCode::OutputNotKept, message);
            }
        }
        if let Some(error) = &mut result.error {
            // What the command made of a refusal is its own affair; what it was refused is worth knowing.
            reached.iter().for_each(|limit| error.message.push_str(&format!("; at a limit: {limit}")));
        }
        result
    }

    fn fail(&mut self, code: CommandErrorCode, message: String) {
        self.success = false;
        self.error = Some(CommandError::new(code, CommandStage::Run, message));
    }

    fn exited(&mut self, tool: &CommandTool, code: i32) {
        self.exit_code = Some(code);
        let meaning = tool.exit_meaning(code);
        let says = meaning.message.clone();
        if meaning.success {
            self.success = true;
            match structured(tool, &self.stdout, self.truncated) {
                Ok(structured) => self.structured = structured,
                Err(message) => {
                    self.success = false;
                    let stage = CommandStage::Normalisation;
                    self.error = Some(CommandError::new(CommandErrorCode::OutputInvalid, stage, message));
                }
            }
        } else {
            let message = says.clone().unwrap_or_else(|| format!("command ended with exit code {code}"));
            self.fail(CommandErrorCode::Failed, message);
        }
        if self.output.is_empty()
            && let Some(says) = says
        {
            self.output = says;
        }
    }

    /// The result as MCP clients get it.
    pub(crate) fn to_mcp(&self) -> Box<RawValue> {
        let mut text = self.output.clone();
        let error = self.error.as_ref();
        // What a command says itself comes first; how it ended follows (B065).
        if let Some(error) = error.filter(|error| !text.starts_with(&error.message)) {
            let separator = if text.is_empty() { "" } else { "\n" };
            text = format!("{text}{separator}{}", error.message);
        }
        let mut content = vec![json!({ "type": "text", "text": text })];
        content.extend(self.spilled.iter().map(|file| {
            json!({
                "type": "resource_link",
                "uri": file_uri(&file.path),
                "name": format!("{}.txt", file.stream),
                "description": format!("all of {}", file.stream),
                "mimeType": "text/plain",
                "size": file.bytes,
            })
        }));
        let mut result = Map::new();
        result.insert("content".to_owned(), Value::Array(content));
        if let Some(structured) = &self.structured {
            result.insert("structuredContent".to_owned(), structured.clone());
        }
        if !self.success {
            result.insert("isError".to_owned(), json!(true));
        }
        let mut meta = Map::new();
        meta.insert(META_KEY.to_owned(), self.facts());
        if self.timed_out {
            // As for a server that does not answer, so that programs need not tell them apart.
            let code = ErrorCode::McpToolCallFailed.as_str();
            meta.insert(ERROR_META_KEY.to_owned(), json!({ "code": code, "cause": "timed_out" }));
        }
        result.insert("_meta".to_owned(), Value::Object(meta));
        to_raw_value(&Value::Object(result)).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }

    /// Everything about the run but its output.
    fn facts(&self) -> Value {
        json!({
            "exit_code": self.exit_code,
            "signal": self.signal,
            "timed_out": self.timed_out,
            "truncated": self.truncated,
            "duration_ms": self.duration_ms,
            "error": self.error.as_ref().map(|error| json!({
                "code": error.code.as_str(), "stage": error.stage.as_str(), "message": error.message,
            })),
        })
    }
}

fn spilled((stream, captured): (&'static str, &Captured)) -> Option<SpilledOutput> {
    let (path, bytes) = captured.file.clone()?;
    Some(SpilledOutput { stream, path, bytes })
}

/// stdout, then stderr, each saying so when it was cut (W10: not said).
fn combined(stdout: &Captured, stderr: &Captured) -> String {
    let with_note = |captured: &Captured, name: &str| {
        // Columns of a first line stay where they are.
        let mut text = captured.text.trim_end().trim_start_matches('\n').to_owned();
        if captured.is_cut {
            let left_out = captured.total_bytes.saturating_sub(captured.kept_bytes);
            let note = format!("\n[{name} is cut: {left_out} of its {} bytes are left out]", captured.total_bytes);
            text.push_str(&note);
        }
        text
    };
    let (out, err) = (with_note(stdout, "stdout"), with_note(stderr, "stderr"));
    match (out.is_empty(), err.is_empty()) {
        (_, true) => out,
        (true, false) => err,
        (false, false) => format!("{out}\n{err}"),
    }
}

/// A file as a URI: every byte that could mean something else is escaped.
fn file_uri(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let escape = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    format!("file://{}", path.as_os_str().as_bytes().iter().map(escape).collect::<String>())
}

/// The structured form of `stdout`; the reason when it does not have it.
fn structured(tool: &CommandTool, stdout: &str, is_cut: bool) -> Result<Option<Value>, String> {
    match &tool.output {
        OutputForm::Text => Ok(None),
        OutputForm::Json if is_cut => Err("output was cut, so it is no JSON any more".to_owned()),
        // Programs that have nothing to say often say nothing.
        OutputForm::Json if stdout.trim().is_empty() => Ok(Some(json!({ "value": null }))),
        OutputForm::Json => match serde_json::from_str::<Value>(stdout) {
            Ok(value @ Value::Object(_)) => Ok(Some(value)),
            Ok(value) => Ok(Some(json!({ "value": value }))),
            Err(error) => Err(format!("output is no JSON, at line {} column {}", error.line(), error.column())),
        },
        OutputForm::Lines => Ok(Some(json!({ "lines": stdout.lines().collect::<Vec<_>>() }))),
        OutputForm::Regex { pattern, every } => {
            // It was compiled when the tool was loaded; a second time costs less than a process.
            let regex =
                regex::RegexBuilder::new(pattern).multi_line(true).build().map_err(|error| error.to_string())?;
            let groups = |captures: &regex::Captures<'_>| {
                let names = regex.capture_names().flatten();
                let found = names.filter_map(|name| Some((name.to_owned(), json!(captures.name(name)?.as_str()))));
                Value::Object(found.collect())
            };
            if *every {
                let matches: Vec<Value> =
                    regex.captures_iter(stdout).take(MATCHES_MAX + 1).map(|it| groups(&it)).collect();
                if matches.len() > MATCHES_MAX {
                    return Err(format!("output fits the tool's pattern more than {MATCHES_MAX} times"));
                }
                return Ok(Some(json!({ "matches": matches })));
            }
            let first = regex.captures(stdout).ok_or_else(|| "output does not fit the tool's pattern".to_owned())?;
            Ok(Some(groups(&first)))
        }
    }
}

#[cfg(test)]
mod tests {
    use plugward_sandbox::{Exceeded, Reached};

    use super::*;

    fn tool(lines: &str) -> CommandTool {
        let text = format!("type: mcp_tool\nname: demo\ndescription: d\ncommand: ls\n{lines}");
        plugward_policy::parse_manifest(&text, "t").unwrap().manifest.backend.command_tool().unwrap().clone()
    }

    fn captured(text: &str) -> Captured {
        let bytes = text.len() as u64;
        Captured { text: text.to_owned(), kept_bytes: bytes, total_bytes: bytes, is_cut: false, file: None }
    }

    fn finished(ended: Ended, stdout: &str, stderr: &str) -> Finished {
        let (stdout, stderr) = (captured(stdout), captured(stderr));
        Finished { ended, stdout, stderr, duration: Duration::from_millis(5), tree_gone: true, reached: Vec::new() }
    }

    fn result(lines: &str, exit: MainExit, stdout: &str, stderr: &str) -> CommandResult {
        CommandResult::of(&tool(lines), Duration::from_secs(1), finished(Ended::Own(exit), stdout, stderr))
    }

    // Requirement 93: a command that meets a limit of its sandbox says which, and one that succeeds says nothing of it.
    #[test]
    fn a_limit_of_the_sandbox_is_named() {
        let of = |ended: Ended, reached: Vec<Reached>| {
            let finished = Finished { reached, ..finished(ended, "", "") };
            let result = CommandResult::of(&tool(""), Duration::from_secs(1), finished);
            result.error.map(|error| error.message)
        };
        let ended = Ended::Exceeded(Exceeded::CpuTime { limit_s: 2 });
        assert!(of(ended, Vec::new()).unwrap().contains("ended at a limit: it used up its 2 s"));
        let full = vec![Reached::Processes { limit: 24 }];
        let message = of(Ended::Own(MainExit::Code(1)), full.clone()).unwrap();
        assert!(message.starts_with("command ended with exit code 1; at a limit: it has 24 processes"), "{message}");
        assert_eq!(of(Ended::Own(MainExit::Code(0)), full), None);
    }

    // Requirements 177, 198; W21: exit code and signal are told, stdout and stderr stand apart.
    #[test]
    fn a_result_tells_all_it_knows() {
        let ok = result("", MainExit::Code(0), "out\n", "warn\n");
        assert_eq!((ok.success, ok.output.as_str(), ok.exit_code), (true, "out\nwarn", Some(0)));
        assert_eq!((ok.stdout.as_str(), ok.stderr.as_str(), ok.duration_ms), ("out\n", "warn\n", 5));
        let failed = result("", MainExit::Code(3), "", "");
        assert_eq!((failed.success, failed.exit_code, failed.signal), (false, Some(3), None));
        assert_eq!(failed.error.as_ref().unwrap().code.as_str(), "COMMAND_FAILED");
        assert!(failed.to_mcp().get().contains(r#""text":"command ended with exit code 3""#));
        let killed = result("", MainExit::Signal(9), "", "");
        assert_eq!((killed.success, killed.exit_code, killed.signal), (false, None, Some(9)));
        assert_eq!(killed.error.unwrap().stage.as_str(), "run");
    }

    #[test]
    fn exit_codes_mean_what_the_tool_says() {
        let lines =
            "exit_codes: {1: {result: success, message: no match}, 2: {result: failure, message: bad pattern}}\n";
        let none = result(lines, MainExit::Code(1), "", "");
        assert_eq!((none.success, none.output.as_str()), (true, "no match"));
        let bad = result(lines, MainExit::Code(2), "", "");
        assert_eq!((bad.success, bad.error.unwrap().message.as_str()), (false, "bad pattern"));
        assert!(!result(lines, MainExit::Code(3), "", "").success);
    }

    // Requirement 202: whoever calls does not have to take text apart.
    #[test]
    fn output_is_read_as_the_tool_says() {
        let structured = |lines: &str, stdout: &str| result(lines, MainExit::Code(0), stdout, "").structured;
        assert_eq!(structured("output: json\n", "{\"a\": 1}\n"), Some(json!({ "a": 1 })));
        assert_eq!(structured("output: json\n", "[1]\n"), Some(json!({ "value": [1] })));
        assert_eq!(structured("output: lines\n", "a\n\nb\n"), Some(json!({ "lines": ["a", "", "b"] })));
        let lines = "output: {pattern: '^(?P<file>[^:]+):(?P<line>\\d+)(?P<none>x)?'}\n";
        let wanted = json!({ "matches": [{ "file": "a", "line": "1" }, { "file": "b", "line": "22" }] });
        assert_eq!(structured(lines, "a:1:x\nb:22:y\nnothing\n"), Some(wanted));
        let first = "output: {pattern: 'v(?P<version>[0-9.]+)', matches: first}\n";
        assert_eq!(structured(first, "tool v1.2 v3"), Some(json!({ "version": "1.2" })));
        // More than a result may hold is said, and not left out.
        let many = result(lines, MainExit::Code(0), &"a:1:x\n".repeat(MATCHES_MAX + 1), "");
        assert!(!many.success && many.error.unwrap().message.contains("more than 10000 times"));
        assert!(result(lines, MainExit::Code(0), &"a:1:x\n".repeat(MATCHES_MAX), "").success);
        let bad = result(first, MainExit::Code(0), "none", "");
        assert_eq!((bad.success, bad.error.as_ref().unwrap().stage.as_str()), (false, "normalisation"));
        let bad = result("output: json\n", MainExit::Code(0), "oops", "");
        assert_eq!(bad.error.as_ref().unwrap().code.as_str(), "COMMAND_OUTPUT_INVALID");
        assert!(bad.to_mcp().get().contains("oops\\noutput is no JSON, at line 1 column 1"));
    }

    #[test]
    fn a_file_is_a_link_whatever_its_name() {
        assert_eq!(file_uri(std::path::Path::new("/a b/%/ü.txt")), "file:///a%20b/%25/%C3%BC.txt");
    }
}
