//! `cargo xtask attacks`: runs the attack suite of the sandbox and shows what became of each threat at each level. Owns
//! the table and its verdict. Refuses results of its own: every cell is a line that the suite printed after measuring it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::Job;
use crate::tools;

/// A cold build of the sandbox with its tests, then three runs of half a minute each on a busy machine.
const SUITE_LIMIT: Duration = Duration::from_secs(3600);
/// First word of the suite's lines for this table.
const MARK: &str = "@threat";
/// The levels in the order of the suite's cells.
const LEVELS: [&str; 3] = ["full", "partial", "limited"];

/// What became of a threat at one level.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    /// Answered by these errors at every row.
    Blocked(String),
    /// As above, at the rows the level claims.
    Part(String),
    Contained,
    Through,
    /// No control on this machine.
    Untried,
    Unclaimed,
    Elsewhere,
    Open,
}

/// One line of the suite.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    run: String,
    number: u32,
    what: String,
    layers: String,
    cells: [Cell; 3],
}

/// Runs the suite, prints the tables, and fails if a claim did not hold.
pub(crate) fn run() -> Result<()> {
    tools::prepare_attacks()?;
    let root = tools::workspace_root()?;
    let done = Job::new(tools::cargo(), "attack suite", SUITE_LIMIT)
        .args(["test", "--locked", "-p", "plugward-sandbox", "--test", "attacks"])
        .env("CARGO_TERM_COLOR", "never")
        .dir(&root)
        .run()?;
    let lines = parse(&done.stdout)?;
    let mut runs: Vec<&str> = lines.iter().map(|line| line.run.as_str()).collect();
    runs.dedup();
    for run in &runs {
        let of_run: Vec<&Line> = lines.iter().filter(|line| line.run == *run).collect();
        println!("\nas {run}");
        print_table(&of_run);
        print_totals(&of_run);
    }
    print_never_tried(&lines);
    let broken = broken_claims(&lines);
    if !broken.is_empty() {
        bail!("these claims do not hold:\n{}\n{}", broken.join("\n"), done.tail());
    }
    if lines.is_empty() || done.code != Some(0) {
        bail!("the attack suite failed\n{}", done.tail());
    }
    println!("\nevery claim that could be tried holds");
    Ok(())
}

fn parse(output: &str) -> Result<Vec<Line>> {
    let marked = output.lines().filter_map(|line| line.strip_prefix(MARK)?.strip_prefix('\t'));
    marked.map(|line| parse_line(line).with_context(|| format!("attack suite: cannot read `{line}`"))).collect()
}

fn parse_line(line: &str) -> Option<Line> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [run, number, what, layers, cells @ ..] = fields.as_slice() else { return None };
    let cells = cells.iter().map(|cell| parse_cell(cell)).collect::<Option<Vec<_>>>()?.try_into().ok()?;
    let (run, what, layers) = ((*run).to_owned(), (*what).to_owned(), (*layers).to_owned());
    Some(Line { run, number: number.parse().ok()?, what, layers, cells })
}

fn parse_cell(cell: &str) -> Option<Cell> {
    let (word, detail) = cell.split_once(' ').unwrap_or((cell, ""));
    Some(match word {
        "blocked" => Cell::Blocked(detail.to_owned()),
        "part" => Cell::Part(detail.to_owned()),
        "contained" => Cell::Contained,
        "through" => Cell::Through,
        "untried" => Cell::Untried,
        "unclaimed" => Cell::Unclaimed,
        "elsewhere" => Cell::Elsewhere,
        "open" => Cell::Open,
        _ => return None,
    })
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Blocked(errors) => errors.clone(),
        Cell::Part(errors) => format!("part {errors}"),
        Cell::Contained => "contained".to_owned(),
        Cell::Through => "THROUGH".to_owned(),
        Cell::Untried => "no control".to_owned(),
        Cell::Unclaimed => "not claimed".to_owned(),
        Cell::Elsewhere => "elsewhere".to_owned(),
        Cell::Open => "not stopped".to_owned(),
    }
}

fn print_table(lines: &[&Line]) {
    let width = |text: fn(&Line) -> &str| lines.iter().map(|line| text(line).len()).max().unwrap_or(0);
    let (what, layers) = (width(|line| &line.what), width(|line| &line.layers));
    println!("{:>2}  {:what$}  {:layers$}  {:16}{:20}{}", "#", "threat", "layers", LEVELS[0], LEVELS[1], LEVELS[2]);
    for line in lines {
        let [full, partial, limited] = &line.cells.each_ref().map(shown);
        println!("{:>2}  {:what$}  {:layers$}  {full:16}{partial:20}{limited}", line.number, line.what, line.layers);
    }
}

fn print_totals(lines: &[&Line]) {
    for (at, level) in LEVELS.iter().enumerate() {
        let count = |wanted: fn(&Cell) -> bool| lines.iter().filter(|line| wanted(&line.cells[at])).count();
        let held = count(|cell| matches!(cell, Cell::Blocked(_) | Cell::Contained));
        let part = count(|cell| matches!(cell, Cell::Part(_)));
        let through = count(|cell| *cell == Cell::Through);
        println!(
            "{level}: {held} of {} tried blocked or contained, {part} in part, {} not claimed, {} without control, {} \
             elsewhere, {} not stopped",
            held + part + through,
            count(|cell| *cell == Cell::Unclaimed),
            count(|cell| *cell == Cell::Untried),
            count(|cell| *cell == Cell::Elsewhere),
            count(|cell| *cell == Cell::Open),
        );
    }
}

/// Threats that no run could try, which says nothing about the sandbox and must not look as if it did.
fn print_never_tried(lines: &[Line]) {
    let mut tried: BTreeMap<u32, (bool, &str)> = BTreeMap::new();
    for line in lines {
        tried.entry(line.number).or_insert((false, &line.what)).0 |= line.cells[0] != Cell::Untried;
    }
    for (number, (_, what)) in tried.iter().filter(|(_, (tried, _))| !tried) {
        println!("not tried by anybody here: {number} {what}");
    }
}

/// Claims that did not hold, and threats that the strongest level says nothing about.
fn broken_claims(lines: &[Line]) -> Vec<String> {
    let mut broken = Vec::new();
    for line in lines {
        for (cell, level) in line.cells.iter().zip(LEVELS) {
            if *cell == Cell::Through {
                broken.push(format!("{} {} got through at {level} (as {})", line.number, line.what, line.run));
            }
        }
        if line.cells[0] == Cell::Unclaimed {
            broken.push(format!("{} {} is not claimed at full (as {})", line.number, line.what, line.run));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "noise\n@threat\troot\t2\tsee\tfile tree\tblocked ENOENT\tunclaimed\tunclaimed\n\
                          @threat\troot\t9\tchange\tfilter\tthrough\tpart EPERM\tuntried\n";

    /// A claim that did not hold must fail the command, whatever else was printed.
    #[test]
    fn a_claim_that_did_not_hold_is_named() {
        let lines = parse(OUTPUT).unwrap();
        assert_eq!(lines[0].cells, [Cell::Blocked("ENOENT".into()), Cell::Unclaimed, Cell::Unclaimed]);
        assert_eq!(broken_claims(&lines), ["9 change got through at full (as root)"]);
        let silent = parse("@threat\troot\t2\tsee\tfile tree\tunclaimed\tunclaimed\tunclaimed").unwrap();
        assert_eq!(broken_claims(&silent), ["2 see is not claimed at full (as root)"]);
    }

    /// A word the table does not know must not be read as one it knows.
    #[test]
    fn unknown_words_are_refused() {
        assert!(parse("@threat\troot\t2\tsee\tfile tree\tfine\tunclaimed\tunclaimed").is_err());
        assert!(parse("@threat\troot\t2\tsee\tfile tree\tcontained\tunclaimed").is_err());
    }
}
