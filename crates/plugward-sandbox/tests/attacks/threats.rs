//! The threats a plugin poses, and which row of the table or which test shows what becomes of each.
//!
//! Owns the numbering, the agreement with `docs/threats.md`, and the lines from which `cargo xtask attacks` makes its table.
//! Refuses results that were not measured in this run: what another crate shows is named as such.

use std::sync::{Mutex, PoisonError};

use plugward_sandbox::Level;

use crate::threat_list::{Evidence, THREATS, Threat};

/// First word of a line for `cargo xtask attacks`.
const MARK: &str = "@threat";
/// The levels that claim something, strongest first.
pub(crate) const LEVELS: [Level; 3] = [Level::Full, Level::Partial, Level::Limited];
/// The page that tells people the same.
const PAGE: &str = include_str!("../../../../docs/threats.md");

/// What a row of the table came to at one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    /// Answered by an error that the level claims.
    Stopped(i32),
    /// Not answered as claimed.
    Through,
    /// Claimed, but the attack does not work on this machine without a sandbox either.
    Untried,
    /// The level claims nothing.
    Unclaimed,
}

static ROWS: Mutex<Vec<(&'static str, Level, Measured)>> = Mutex::new(Vec::new());
static PASSED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Keeps the result of a row.
pub(crate) fn note_row(what: &'static str, level: Level, measured: Measured) {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).push((what, level, measured));
}

/// Keeps that a test passed.
pub(crate) fn note_passed(test: &'static str) {
    PASSED.lock().unwrap_or_else(PoisonError::into_inner).push(test);
}

/// Prints one line per threat: the mark, who ran it, number, name, layers, and a cell per level as `state detail`.
pub(crate) fn print_lines(run: &str) {
    for threat in THREATS {
        let cells = LEVELS.map(|level| cell(threat, level));
        println!("{MARK}\t{run}\t{}\t{}\t{}\t{}", threat.number, threat.what, threat.layers, cells.join("\t"));
    }
}

fn cell(threat: &Threat, level: Level) -> String {
    match threat.evidence {
        Evidence::Rows(rows) => rows_cell(rows, level),
        Evidence::Tests { tests, held_at } if held_at.contains(&level) => tests_cell(tests),
        Evidence::Tests { .. } => "unclaimed".to_owned(),
        Evidence::Elsewhere(_) => "elsewhere".to_owned(),
        Evidence::Open(_) => "open".to_owned(),
    }
}

/// A threat is stopped at a level if every row that the level claims was, and at least one could be tried.
fn rows_cell(rows: &[&str], level: Level) -> String {
    let known = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    let results: Vec<Measured> =
        known.iter().filter(|(what, at, _)| *at == level && rows.contains(what)).map(|(.., result)| *result).collect();
    if results.len() < rows.len() || results.contains(&Measured::Through) {
        return "through".to_owned();
    }
    let mut errors: Vec<String> = Vec::new();
    for result in &results {
        if let Measured::Stopped(errno) = result {
            let name = crate::table::name(*errno);
            if !errors.contains(&name) {
                errors.push(name);
            }
        }
    }
    match (errors.is_empty(), results.contains(&Measured::Untried), results.contains(&Measured::Unclaimed)) {
        (true, true, _) => "untried".to_owned(),
        (true, false, _) => "unclaimed".to_owned(),
        (false, _, true) => format!("part {}", errors.join(" ")),
        (false, _, false) => format!("blocked {}", errors.join(" ")),
    }
}

fn tests_cell(tests: &[&str]) -> String {
    let passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    if tests.iter().all(|test| passed.contains(test)) { "contained".to_owned() } else { "through".to_owned() }
}

/// A row that belongs to no threat would be counted nowhere, and a threat whose row is gone would look untested.
pub(crate) fn every_row_belongs_to_one_threat() {
    let world = crate::world::World::new();
    let rows: Vec<&str> = crate::table::rows(&world).iter().map(|row| row.what).collect();
    let mut named = Vec::new();
    for threat in THREATS {
        match threat.evidence {
            Evidence::Rows(of_threat) => named.extend_from_slice(of_threat),
            Evidence::Tests { tests, .. } => {
                for test in tests {
                    assert!(crate::TESTS.iter().any(|(name, _)| name == test), "threat {}: {test}", threat.number);
                }
            }
            Evidence::Elsewhere(tests) => assert!(!tests.is_empty()),
            Evidence::Open(why) => assert!(!why.is_empty()),
        }
    }
    for row in &rows {
        assert_eq!(named.iter().filter(|name| *name == row).count(), 1, "`{row}` belongs to one threat");
    }
    for name in &named {
        assert!(rows.contains(name), "`{name}` is no row of the table");
    }
    assert!(
        THREATS.iter().enumerate().all(|(at, threat)| usize::from(threat.number) == at + 1),
        "numbers are in order"
    );
}

/// Somebody who reads the page must read what the suite measures.
pub(crate) fn page_and_suite_tell_the_same() {
    let page: Vec<[&str; 4]> = PAGE.lines().filter_map(page_row).collect();
    let suite: Vec<[String; 4]> = THREATS
        .iter()
        .map(|threat| [threat.number.to_string(), threat.what.to_owned(), threat.layers.to_owned(), shown(threat)])
        .collect();
    for (page, suite) in page.iter().zip(&suite) {
        assert_eq!(page, suite);
    }
    assert_eq!(page.len(), suite.len());
}

/// Number, threat, layers and evidence of a line of the page's table.
fn page_row(line: &str) -> Option<[&str; 4]> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let cells: [&str; 4] = cells.try_into().ok()?;
    cells[0].parse::<u8>().is_ok().then_some(cells)
}

/// The last column of the page.
fn shown(threat: &Threat) -> String {
    let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match threat.evidence {
        Evidence::Rows(rows) => format!("rows: {}", rows.join(", ")),
        Evidence::Tests { tests, .. } => format!("tests: {}", listed(tests)),
        Evidence::Elsewhere(tests) => format!("elsewhere: {}", listed(tests)),
        Evidence::Open(why) => format!("**not stopped**: {why}"),
    }
}

/// Prints the table of the page, for whoever has changed the list.
pub(crate) fn print_page_rows() {
    for threat in THREATS {
        println!("| {} | {} | {} | {} |", threat.number, threat.what, threat.layers, shown(threat));
    }
}
