//! The table of docs/matrix.md. Owns its text; refuses to differ from what was seen.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Report;
use super::features::{FEATURES, reason};

/// One combination that was seen to work.
pub(super) struct Row {
    pub(super) behind: &'static str,
    pub(super) report: Report,
}

const HEAD: &str = "\
# Clients, eras, transports

Published clients that use plugward for real, each over both transports and in every era it speaks, before plugins of
either era: `cargo xtask real-clients` runs all of it, and fails when a cell is not as this table says.
`cargo xtask real-clients --write` writes it anew. `handshake` stands for the revisions 2024-11-05 to 2025-11-25, `stateless` for
2026-07-28.

";

/// The page.
pub(super) fn render(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| client | transport | era | plugins |");
    for number in 1..=FEATURES.len() {
        let _ = write!(page, " {number} |");
    }
    page.push_str("\n|---|---|---|---|");
    page.push_str(&"---|".repeat(FEATURES.len()));
    let mut reasons: Vec<&str> = Vec::new();
    for Row { behind, report } in rows {
        let _ = write!(page, "\n| {} | {} | {} | {behind} |", report.client, report.transport, report.era);
        for feature in &FEATURES {
            match reason(behind, report, feature.name) {
                None => page.push_str(" yes |"),
                Some(reason) => {
                    let letter = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
                        reasons.push(reason);
                        reasons.len() - 1
                    });
                    let _ = write!(page, " {} |", letter_of(letter));
                }
            }
        }
    }
    page.push_str("\n\n| column | feature |\n|---|---|\n");
    for (number, feature) in FEATURES.iter().enumerate() {
        let _ = writeln!(page, "| {} | {}: {} |", number + 1, feature.name, feature.about);
    }
    page.push_str("\n| letter | why there is no `yes` |\n|---|---|\n");
    for (number, reason) in reasons.iter().enumerate() {
        let _ = writeln!(page, "| {} | {reason} |", letter_of(number));
    }
    page
}

fn letter_of(number: usize) -> char {
    char::from(b'a'.saturating_add(u8::try_from(number).unwrap_or(u8::MAX)))
}

/// Writes the page, or compares it with what is written.
pub(super) fn keep(path: &Path, page: &str, write: bool) -> Result<()> {
    if write {
        return fs::write(path, page).with_context(|| format!("`{}` cannot be written", path.display()));
    }
    let kept = fs::read_to_string(path).with_context(|| format!("`{}` cannot be read", path.display()))?;
    if kept == page {
        return Ok(());
    }
    let line = kept.lines().zip(page.lines()).position(|(old, new)| old != new).unwrap_or_default() + 1;
    bail!(
        "`{}` is not what was seen, from line {line} on; `cargo xtask real-clients --write` writes it",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::super::features::good;
    use super::*;

    #[test]
    fn the_page_says_yes_or_why_not_and_is_compared() {
        let rows = [("handshake", "Python SDK 1", "handshake"), ("stateless", "Python SDK 2", "stateless")]
            .map(|(behind, client, era)| Row { behind, report: good(behind, client, era) });
        let page = render(&rows);
        let cells = |line: &str| page.lines().find(|one| one.starts_with(line)).unwrap().matches("yes").count();
        assert_eq!(cells("| Python SDK 1 | stdio | handshake | handshake |"), 14);
        assert_eq!(cells("| Python SDK 2 | stdio | stateless | stateless |"), 15);
        assert!(page.contains("| a | the client takes no call back |"), "{page}");

        let path = std::env::temp_dir().join(format!("plugward-matrix-{}.md", std::process::id()));
        keep(&path, &page, true).unwrap();
        keep(&path, &page, false).unwrap();
        let error = keep(&path, &page.replace("| a | the client", "| a | a client"), false).unwrap_err().to_string();
        assert!(error.contains("from line"), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
