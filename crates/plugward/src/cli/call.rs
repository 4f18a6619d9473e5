//! `call`: runs one tool and prints its result.
//!
//! Owns reading the arguments and asking the person at the terminal. Refuses to touch the result: it goes out as the
//! tool wrote it.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Read as _, stderr, stdin};

use plugward_host::ErrorCode;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;

use super::approve::read_answer;
use super::arguments::CallArguments;
use super::link::Link;
use super::output::safe;
use super::{Context, unexpected};
use crate::control::{CallBody, Failure, Notice, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::{AnswerBody, AskBody};

/// Most bytes read from standard input: more than any plugin takes in one message.
const STDIN_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Permission requests of one call that wait to be shown.
const NOTICE_QUEUE: usize = 16;

pub(super) async fn run(context: &Context, typed: CallArguments) -> Result<Exit, Failure> {
    let reads_stdin = typed.json_arguments.as_deref() == Some("-");
    let operation = Operation::Call {
        arguments: arguments(&typed).await?,
        timeout_ms: typed.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)),
        tool: typed.tool,
    };
    let can_ask = !reads_stdin && !context.output.json && stdin().is_terminal() && stderr().is_terminal();
    let link = Link::open(&context.settings).await?;
    let outcome = call(context, &link, operation, can_ask).await;
    link.close().await;
    let Outcome::Call(call) = outcome? else { return Err(unexpected()) };
    Ok(show(context, &call))
}

fn show(context: &Context, call: &CallBody) -> Exit {
    if context.output.json {
        context.output.object(call);
    } else {
        context.output.json_text(call.result.get());
    }
    for warning in &call.warnings {
        context.output.note(&format!("warning: {}", safe(warning)));
    }
    if call.is_error {
        context.output.to_stderr("the tool says that it failed (isError)");
    }
    context.output.next(&format!("plugward trace show {}", call.trace_id.get(..12).unwrap_or("last")));
    match call.is_error {
        false => Exit::Ok,
        true if is_timed_out(call.result.get()) => Exit::Timeout,
        true => Exit::Failure,
    }
}

/// Whether the result is that of a command whose time was up: it has what the command said until then, and is a time-out
/// to scripts all the same.
fn is_timed_out(result: &str) -> bool {
    let result: serde_json::Value = serde_json::from_str(result).unwrap_or_default();
    result["_meta"]["plugward/command"]["timed_out"] == true
}

/// Runs the call and deals with its permission requests meanwhile.
async fn call(context: &Context, link: &Link, operation: Operation, can_ask: bool) -> Result<Outcome, Failure> {
    let (sender, mut notices) = mpsc::channel(NOTICE_QUEUE);
    let stop = context.stop.child_token();
    let work = link.watch(operation, &sender, &stop);
    tokio::pin!(work);
    loop {
        let notice = tokio::select! {
            outcome = &mut work => return outcome,
            Some(notice) = notices.recv() => notice,
        };
        let Notice::Ask(ask) = notice else { continue };
        if can_ask {
            // The call may end while the person thinks; its end is the answer then.
            let answer = tokio::select! {
                outcome = &mut work => return outcome,
                answer = question(context, &ask) => answer?,
            };
            let operation = Operation::Answer { request: ask.request_id, answer };
            if let Err(failure) = link.run(operation).await {
                context.output.failure(&failure);
            }
        } else if link.is_running() {
            context.output.note(&format!(
                "waiting for your permission: plugward answer {} allow|allow-session|deny",
                ask.request_id
            ));
        } else {
            stop.cancel();
            let _ = work.await;
            return Err(nobody_to_ask(&ask));
        }
    }
}

async fn question(context: &Context, ask: &AskBody) -> Result<AnswerBody, Failure> {
    context.output.to_stderr(&format!("{} needs permission {}: {}", ask.tool, ask.permission, safe(&ask.reason)));
    context.output.prompt("Type `yes` for this call, `session` until the host ends; Enter refuses: ");
    Ok(match read_answer().await?.as_deref() {
        Some("yes") => AnswerBody::AllowOnce,
        Some("session") => AnswerBody::AllowSession,
        _ => AnswerBody::Deny,
    })
}

fn nobody_to_ask(ask: &AskBody) -> Failure {
    let message = format!(
        "call of `{}` needs a person's permission `{}`, and nobody can be asked here",
        ask.tool, ask.permission
    );
    let hint = format!(
        "run it at a terminal; or run `plugward serve` and answer with `plugward answer`; or set \"{}\" = \"allow\" under \
         [permissions] in config.toml",
        ask.permission
    );
    Failure::coded(ErrorCode::PermissionDenied, message).with_hint(hint)
}

async fn arguments(typed: &CallArguments) -> Result<Option<Box<RawValue>>, Failure> {
    let text = match typed.json_arguments.as_deref() {
        Some("-") => tokio::task::spawn_blocking(read_stdin).await.map_err(|_| unexpected())??,
        Some(text) => text.to_owned(),
        None if typed.pairs.is_empty() => return Ok(None),
        None => return pairs(&typed.pairs).map(Some),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim();
    RawValue::from_string(text.to_owned()).map(Some).map_err(|error| {
        // The position and the kind of mistake; never the text, which may be a secret.
        let message = format!("arguments are no JSON: {error}");
        Failure::coded(ErrorCode::ToolArgumentInvalid, message)
            .with_hint("pass one JSON object: '{\"key\": \"value\"}'")
    })
}

fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let read = stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text);
    let invalid = |message: String| Failure::coded(ErrorCode::ToolArgumentInvalid, message);
    let read = read.map_err(|error| invalid(format!("standard input cannot be read as text: {error}")))?;
    if u64::try_from(read).unwrap_or(u64::MAX) > STDIN_BYTES_MAX {
        return Err(invalid(format!("standard input has more than {STDIN_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// `--arg key=value` as an object.
fn pairs(pairs: &[String]) -> Result<Box<RawValue>, Failure> {
    // Kept as they were typed: a number of many digits would not survive being read as one.
    let mut object: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::usage("`--arg` needs the form KEY=VALUE"));
        };
        let value = RawValue::from_string(value.trim().to_owned()).or_else(|_| to_raw_value(value));
        if object.insert(key, value.map_err(|_| unexpected())?).is_some() {
            return Err(Failure::usage(format!("`--arg` gives `{}` twice", safe(key))));
        }
    }
    to_raw_value(&object).map_err(|_| unexpected())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number must arrive as a number and a word as text, without quoting rules to learn.
    #[test]
    fn pairs_are_json_where_they_can_be() {
        let given = ["a=1", "b=x y", "c=[1]", "d=", "e=x=y", "f=true", "g=12345678901234567890123"].map(str::to_owned);
        let object = r#"{"a":1,"b":"x y","c":[1],"d":"","e":"x=y","f":true,"g":12345678901234567890123}"#;
        assert_eq!(pairs(&given).unwrap().get(), object);
        for bad in [&["novalue"][..], &["=x"], &["a=1", "a=2"]] {
            let bad: Vec<String> = bad.iter().map(|pair| (*pair).to_owned()).collect();
            assert_eq!(pairs(&bad).unwrap_err().exit, Exit::Usage, "{bad:?}");
        }
    }
}
