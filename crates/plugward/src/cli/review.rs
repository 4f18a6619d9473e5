//! `review`: the consent screen.
//!
//! Owns the order and the wording of what a person reads before agreeing (SEP-1024: the exact command, untruncated).
//! Refuses to cut anything.

use std::fmt::Write as _;

use super::link::Link;
use super::output::{Tone, paint, safe, strong};
use super::{Context, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::{AccessLineBody, ChangeBody, ReviewBody, ReviewToolBody};

pub(super) async fn run(context: &Context, id: String) -> Result<Exit, Failure> {
    let link = Link::open(&context.settings).await?;
    let review = context.unless_interrupted(fetch(&link, id)).await;
    link.close().await;
    let review = review?;
    if context.output.json {
        context.output.object(&review);
        return Ok(Exit::Ok);
    }
    context.output.text(&screen(&review));
    if review.approved {
        context.output.note("exactly this is approved");
        context.output.next(&format!("plugward enable {}", review.id));
    } else {
        context.output.next(&format!("plugward approve {}", review.id));
    }
    Ok(Exit::Ok)
}

pub(super) async fn fetch(link: &Link, id: String) -> Result<ReviewBody, Failure> {
    match link.run(Operation::Review { id }).await? {
        Outcome::Review(review) => Ok(*review),
        _ => Err(unexpected()),
    }
}

/// The screen. Most urgent first, the digest and the command that approves it last.
pub(super) fn screen(review: &ReviewBody) -> String {
    let mut text = String::new();
    let state = if review.approved { "approved as it is now" } else { "NOT approved" };
    line(&mut text, &strong(&format!("Review of {} {} - {state}", safe(&review.name), safe(&review.version))));
    for words in review.description.lines() {
        line(&mut text, &format!("  {}", safe(words)));
    }
    line(&mut text, &format!("  id        {}", review.id));
    line(&mut text, &format!("  from      {}", safe(&review.source)));
    line(&mut text, &format!("  package   {} files, {} bytes", review.package_files, review.package_bytes));
    line(&mut text, &format!("            {}", review.package_digest));
    line(&mut text, "  signed    no");
    for warning in &review.warnings {
        line(&mut text, &format!("{} {}", paint(Tone::Warn, "!"), safe(warning)));
    }
    changes(&mut text, &review.changes);
    command(&mut text, review);
    if has_program(review) {
        permissions(&mut text, review);
        tools(&mut text, review);
    } else {
        host_does(&mut text, review);
    }
    line(&mut text, "");
    line(&mut text, last_words(review));
    line(&mut text, &format!("{} {}", strong("Digest of all this:"), review.digest));
    line(&mut text, &format!("In a script: plugward approve {} --digest {}", review.id, review.digest));
    text
}

fn changes(text: &mut String, changes: &[ChangeBody]) {
    if changes.is_empty() {
        return;
    }
    line(text, "");
    line(text, &strong("Changed since you approved it"));
    for change in changes {
        line(text, &format!("  {}", safe(&change.what)));
        if let Some(before) = &change.before {
            line(text, &format!("    - {}", safe(before)));
        }
        if let Some(after) = &change.after {
            line(text, &format!("    + {}", safe(after)));
        }
    }
}

fn command(text: &mut String, review: &ReviewBody) {
    line(text, "");
    if review.runs == "remote" {
        return remote(text, review);
    }
    let title = match review.runs.as_str() {
        "command" => {
            "For each call it runs exactly this, one argument per line, never through a shell; {{params...}} is a value"
        }
        "prompt" => "No program of it runs. It offers this prompt to your agents; {{params...}} is a value",
        "webhook" => "No program of it runs. The host itself sends this, with the values below",
        "script" => "For each call a SHELL runs this script; $1, $2 and so on are the values, one argument per line",
        _ => "It runs exactly this, one argument per line, never through a shell",
    };
    line(text, &strong(title));
    if !has_program(review) {
        for words in &review.argv {
            line(text, &format!("  {}", safe(words)));
        }
        for variable in &review.environment {
            line(text, &format!("  {}  {}", safe(&variable.name), whole(&variable.value)));
        }
        return;
    }
    for argument in &review.argv {
        line(text, &format!("  {}", whole(argument)));
    }
    line(text, &format!("  program   {}", safe(&review.executable)));
    line(text, &format!("            {}", review.executable_digest));
    line(text, &format!("  in        {}", safe(&review.cwd)));
    if review.environment.is_empty() {
        line(text, "  sets      no variables");
    }
    for variable in &review.environment {
        line(text, &format!("  sets      {}={}", safe(&variable.name), whole(&variable.value)));
    }
    let inherited = match review.inherited_environment.len() {
        0 => "nothing of your environment".to_owned(),
        _ => format!("{}, and no other variable of yours", review.inherited_environment.join(" ")),
    };
    line(text, &format!("  inherits  {}", safe(&inherited)));
}

/// A server elsewhere: where its requests go, and what goes with each.
fn remote(text: &mut String, review: &ReviewBody) {
    line(text, &strong("It runs elsewhere. Every call is sent to exactly this address, and to no other"));
    for address in &review.argv {
        line(text, &format!("  {}", whole(address)));
    }
    line(text, &format!("            {}", review.executable_digest));
    if review.environment.is_empty() {
        line(text, "  headers   none beside those of the protocol");
    }
    for header in &review.environment {
        line(text, &format!("  header    {}: {}", safe(&header.name), whole(&header.value)));
    }
}

/// Whether a program of the plugin's ever runs.
fn has_program(review: &ReviewBody) -> bool {
    !matches!(review.runs.as_str(), "prompt" | "webhook")
}

/// What a plugin without a program has the host do.
fn host_does(text: &mut String, review: &ReviewBody) {
    line(text, "");
    line(text, &strong("For that the host"));
    for permission in &review.permissions {
        let refusal = if permission.effect == "deny" { ", which this deployment denies" } else { "" };
        line(text, &format!("  - may use {}{refusal}", safe(&permission.name)));
    }
    access(text, &review.access);
    line(text, &format!("  {}", safe(&review.isolation)));
}

/// What a person should have in mind when agreeing.
fn last_words(review: &ReviewBody) -> &'static str {
    match review.runs.as_str() {
        "prompt" => "These are words of somebody else. Your agent reads them as if you had said them.",
        "remote" => "This is a server of somebody else. Whatever your agent sends to its tools, it sees.",
        "webhook" => "Whoever runs that address learns what happens in this host.",
        _ => "This is a program of somebody else. Whatever your agent sends to its tools, it sees.",
    }
}

/// A value with everything in it seen: one that is nothing, or has blanks at an end, is quoted.
fn whole(value: &str) -> String {
    let is_plain = !value.is_empty() && value.trim() == value;
    if is_plain { safe(value) } else { format!("\"{}\"", safe(value)) }
}

fn permissions(text: &mut String, review: &ReviewBody) {
    line(text, "");
    line(text, &strong("It asks for"));
    if review.permissions.is_empty() {
        line(text, "  no permissions");
    }
    for permission in &review.permissions {
        let meaning = match permission.effect.as_str() {
            "allow" => "allowed without asking you",
            "ask" => "you are asked at each call",
            _ => "denied by this deployment",
        };
        line(text, &format!("  {:<20} {meaning}", safe(&permission.name)));
    }
    line(text, "");
    if review.runs == "remote" {
        line(text, &format!("  isolation:  {}", safe(&review.isolation)));
        return;
    }
    let place = if has_program(review) { "Of this machine, inside its sandbox, it" } else { "Of this machine it" };
    line(text, &strong(place));
    access(text, &review.access);
    if !review.shared_read_only.is_empty() {
        line(text, &format!("  shared read-only: {}", safe(&review.shared_read_only.join(" "))));
    }
    line(text, &format!("  isolation wanted: {}", safe(&review.minimum_sandbox_level)));
    line(text, &format!("  isolation here:   {}", safe(&review.isolation)));
}

/// What it gets of the machine and what it does not.
pub(super) fn access(text: &mut String, lines: &[AccessLineBody]) {
    for access in lines {
        let sign = match access.risk.as_str() {
            "danger" => paint(Tone::Bad, "!"),
            "high" => paint(Tone::Warn, "!"),
            "absent" => paint(Tone::Good, "✓"),
            _ => "-".to_owned(),
        };
        let red_flag = access.red_flag.as_ref().map(|reason| format!(" - it {reason}")).unwrap_or_default();
        line(text, &format!("  {sign} {}{}", safe(&access.text), safe(&red_flag)));
    }
}

fn tools(text: &mut String, review: &ReviewBody) {
    line(text, "");
    line(text, &strong(&format!("Tools: {}", review.tools.len())));
    if review.tools.is_empty() {
        line(text, "  not known before the first start; the first list is what you agree to");
    }
    for tool in &review.tools {
        line(text, &format!("  {}", tool_line(tool)));
        for words in tool.description.iter().flat_map(|description| description.lines()) {
            line(text, &format!("      {}", safe(words)));
        }
    }
}

fn tool_line(tool: &ReviewToolBody) -> String {
    let claims =
        if tool.claims.is_empty() { String::new() } else { format!("  says of itself: {}", tool.claims.join(", ")) };
    let state = match tool.state.as_str() {
        "approved" => String::new(),
        state => format!("  [{state}]"),
    };
    format!("{}{state}{}", safe(&tool.name), safe(&claims))
}

fn line(text: &mut String, words: &str) {
    // Writing into a `String` cannot fail.
    let _ = writeln!(text, "{}", words.trim_end());
}
