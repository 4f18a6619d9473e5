//! `logs`: what a plugin wrote beside the protocol.

use tokio::sync::mpsc;

use super::link::Link;
use super::output::safe;
use super::{Context, unexpected};
use crate::control::{Failure, Notice, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::LogLineBody;

/// Lines on their way to the terminal.
const LINE_QUEUE: usize = 256;

pub(super) async fn run(context: &Context, id: String, follow: bool, lines: usize) -> Result<Exit, Failure> {
    let link = Link::open(&context.settings).await?;
    if follow && !link.is_running() {
        // Still tells whether there is such a plugin.
        let found = link.run(Operation::Info { id: id.clone() }).await;
        link.close().await;
        found?;
        context.output.to_stderr("no host is running, so there is nothing to follow");
        context.output.next("plugward serve");
        return Ok(Exit::Failure);
    }
    let outcome = watch(context, &link, Operation::Logs { id, lines, follow }).await;
    let is_running = link.is_running();
    link.close().await;
    match outcome? {
        Outcome::Done => Ok(Exit::Ok),
        Outcome::Logs(lines) => {
            show(context, &lines, is_running);
            Ok(Exit::Ok)
        }
        _ => Err(unexpected()),
    }
}

async fn watch(context: &Context, link: &Link, operation: Operation) -> Result<Outcome, Failure> {
    let (sender, mut notices) = mpsc::channel(LINE_QUEUE);
    let work = link.watch(operation, &sender, &context.stop);
    tokio::pin!(work);
    loop {
        tokio::select! {
            outcome = &mut work => return outcome,
            Some(notice) = notices.recv() => match notice {
                Notice::Line(line) if context.output.json => context.output.object_line(&line),
                Notice::Line(line) => context.output.text(&line_text(&line)),
                Notice::LinesLost(count) => context.output.note(&format!("{count} lines were lost: they came too fast")),
                Notice::Ask(_) => {}
            },
        }
    }
}

fn show(context: &Context, lines: &[LogLineBody], is_running: bool) {
    if context.output.json {
        context.output.keyed("lines", &lines);
    } else if lines.is_empty() {
        let why = if is_running { "it has written nothing" } else { "logs are kept while `plugward serve` runs" };
        context.output.to_stderr(&format!("no log lines: {why}"));
    } else {
        let lines: Vec<String> = lines.iter().map(line_text).collect();
        context.output.text(&lines.join("\n"));
    }
}

fn line_text(line: &LogLineBody) -> String {
    format!("{} {:<6} {}", line.at, line.origin, safe(&line.text))
}
