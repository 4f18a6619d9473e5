//! `approve`: a person agrees to exactly what the review shows.
//!
//! Owns the question. Refuses every shorter way: no `--yes`, Enter never approves, and without a terminal only the
//! exact digest counts.

use std::io::{IsTerminal as _, stderr, stdin};

use plugward_host::ErrorCode;

use super::link::Link;
use super::output::Output;
use super::plugins::plugin;
use super::review::{self, screen};
use super::{Context, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::ReviewBody;

pub(super) async fn run(context: &Context, id: String, digest: Option<String>) -> Result<Exit, Failure> {
    let link = Link::open(&context.settings).await?;
    let work = async {
        match digest {
            Some(digest) => link.run(Operation::Approve { id, digest }).await.map(Some),
            None => interactive(context, &link, id).await,
        }
    };
    let outcome = context.unless_interrupted(work).await;
    link.close().await;
    let Some(outcome) = outcome? else {
        context.output.to_stderr("nothing was approved");
        return Ok(Exit::Denied);
    };
    let plugin = plugin(outcome)?;
    if context.output.json {
        context.output.keyed("plugin", &plugin);
    } else {
        context.output.text(&format!("approved {} {}", plugin.id, super::output::safe(&plugin.version)));
    }
    if plugin.enabled {
        context.output.next(&format!("plugward info {}", plugin.id));
    } else {
        context.output.next(&format!("plugward enable {}", plugin.id));
    }
    context.output.undo(&format!("plugward remove {}", plugin.id));
    Ok(Exit::Ok)
}

/// Shows the review and asks; none if the answer is no.
async fn interactive(context: &Context, link: &Link, id: String) -> Result<Option<Outcome>, Failure> {
    let review = review::fetch(link, id).await?;
    if context.output.json || !stdin().is_terminal() || !stderr().is_terminal() {
        let id = &review.id;
        let message = format!("approval of plugin `{id}` needs a person at a terminal, or the exact digest");
        let hint = format!(
            "look at `plugward review {id}`, then pass the digest it shows: `plugward approve {id} --digest sha256:HEX`"
        );
        return Err(Failure::coded(ErrorCode::McpTrustApprovalRequired, message).with_hint(hint));
    }
    context.output.to_stderr(&screen(&review));
    if review.approved {
        context.output.to_stderr("exactly this is approved already");
    }
    if !ask(&context.output, &review).await? {
        return Ok(None);
    }
    link.run(Operation::Approve { id: review.id, digest: review.digest }).await.map(Some)
}

async fn ask(output: &Output, review: &ReviewBody) -> Result<bool, Failure> {
    output.prompt(&format!("To approve, type `{}` or `approve`; Enter cancels: ", review.id));
    Ok(read_answer().await?.is_some_and(|typed| typed == review.id || typed == "approve"))
}

/// One line from the terminal; none at its end.
pub(super) async fn read_answer() -> Result<Option<String>, Failure> {
    /// Nobody types a longer answer.
    const ANSWER_BYTES_MAX: u64 = 4096;
    let read = tokio::task::spawn_blocking(|| {
        use std::io::{BufRead as _, Read as _};
        let mut line = String::new();
        let read = stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut line);
        read.ok().filter(|count| *count > 0).map(|_| line.trim().to_owned())
    });
    read.await.map_err(|_| unexpected())
}
