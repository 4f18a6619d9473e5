//! `review --trial`: a plugin runs once without permissions, and a person reads what it wanted.
//!
//! Owns the question and the report. Refuses running anything that was not confirmed: as for an approval, at a terminal the
//! command is shown first, and elsewhere only its exact digest counts.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr, stdin};

use plugward_host::ErrorCode;

use super::approve::read_answer;
use super::link::Link;
use super::output::{Tone, paint, safe, safe_lines, strong};
use super::review::{self, screen};
use super::{Context, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::TrialBody;

pub(super) async fn run(context: &Context, id: String, digest: Option<String>, seconds: u64) -> Result<Exit, Failure> {
    let link = Link::open(&context.settings).await?;
    let work = async {
        let Some((id, digest)) = confirmed(context, &link, id, digest).await? else { return Ok(None) };
        context
            .output
            .note(&format!("runs for {seconds} s at most, without permissions, and nothing leaves this machine"));
        let limit_ms = seconds.saturating_mul(1000);
        link.run(Operation::Trial { id, digest, limit_ms }).await.map(Some)
    };
    let outcome = context.unless_interrupted(work).await;
    link.close().await;
    let trial = match outcome? {
        Some(Outcome::Trial(trial)) => trial,
        Some(_) => return Err(unexpected()),
        None => {
            context.output.to_stderr("nothing was run");
            return Ok(Exit::Denied);
        }
    };
    if context.output.json {
        context.output.object(&trial);
        return Ok(Exit::Ok);
    }
    context.output.text(&report(&trial));
    context
        .output
        .next(&format!("put the permissions you agree with into its manifest, then: plugward review {}", trial.id));
    Ok(Exit::Ok)
}

/// The plugin and the digest that a person stands for; none if the answer is no.
async fn confirmed(
    context: &Context,
    link: &Link,
    id: String,
    digest: Option<String>,
) -> Result<Option<(String, String)>, Failure> {
    if let Some(digest) = digest {
        return Ok(Some((id, digest)));
    }
    let review = review::fetch(link, id).await?;
    let id = &review.id;
    if context.output.json || !stdin().is_terminal() || !stderr().is_terminal() {
        let message = format!(
            "a trial of plugin `{id}` runs its command, which needs a person at a terminal, or the exact digest"
        );
        let hint = format!(
            "look at `plugward review {id}`, then pass the digest it shows: `plugward review {id} --trial --digest sha256:HEX`"
        );
        return Err(Failure::coded(ErrorCode::McpTrustApprovalRequired, message).with_hint(hint));
    }
    context.output.to_stderr(&screen(&review));
    context.output.prompt(&format!(
        "This runs the command above once, without permissions. To go on, type `{id}` or `try`; Enter cancels: "
    ));
    let agreed = read_answer().await?.is_some_and(|typed| typed == *id || typed == "try");
    Ok(agreed.then(|| (review.id.clone(), review.digest.clone())))
}

/// What it wanted, what would give it, and the text for its manifest.
fn report(trial: &TrialBody) -> String {
    let mut text = String::new();
    let lasted = trial.lasted_ms / 1000;
    let reached = match (trial.tools, &trial.fault) {
        (Some(count), _) => format!("it listed {count} tools"),
        (None, Some(fault)) => format!("it did not get as far as listing its tools: {}", safe(fault)),
        (None, None) => "it did not get as far as listing its tools".to_owned(),
    };
    line(&mut text, &strong(&format!("Trial of {}: {lasted} s without permissions", safe(&trial.id))));
    line(&mut text, &format!("  {reached}"));
    line(&mut text, "  it was not approved by this, and no tool was called: in use it may want more");
    for warning in &trial.warnings {
        line(&mut text, &format!("{} {}", paint(Tone::Warn, "!"), safe(warning)));
    }
    line(&mut text, "");
    if trial.attempts.is_empty() {
        line(&mut text, &strong("It wanted nothing beyond its sandbox"));
    } else {
        line(&mut text, &strong("It wanted"));
    }
    for attempt in &trial.attempts {
        let times = if attempt.count == 1 { String::new() } else { format!(" ({} times)", attempt.count) };
        line(&mut text, &format!("  {:<8} {}{times}", safe(&attempt.what), safe(&attempt.target)));
        match (&attempt.permission, &attempt.reason) {
            (Some(permission), _) => line(&mut text, &format!("           given by {}", safe(permission))),
            (None, Some(reason)) => {
                line(&mut text, &format!("           {} not proposed: {}", paint(Tone::Warn, "!"), safe(reason)));
            }
            (None, None) => {}
        }
    }
    if !trial.unused.is_empty() {
        line(&mut text, "");
        line(&mut text, &strong("It asks for these and did not need them"));
        for permission in &trial.unused {
            line(&mut text, &format!("  {}", safe(permission)));
        }
    }
    line(&mut text, "");
    line(&mut text, &strong("For its manifest, if you agree with each line"));
    text.push_str(&safe_lines(&trial.fragment, ""));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn line(text: &mut String, words: &str) {
    // Writing into a `String` cannot fail.
    let _ = writeln!(text, "{}", words.trim_end());
}
