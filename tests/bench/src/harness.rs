//! What the suites have in common: options, rounds, ratios to Curator, targets, tables, and the exit status.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};

use crate::figures::median;
use crate::process::{Process, Result, exit_code};

#[derive(Debug, Default, Parser)]
#[command(about = "A suite of this project beside its peers")]
pub struct Options {
    /// Rounds that count.
    #[arg(long)]
    rounds: Option<usize>,
    /// Rounds before them, for all to get warm.
    #[arg(long)]
    warm_up: Option<usize>,
    /// The time of a round.
    #[arg(long)]
    millis: Option<u64>,
    /// The nodes of a tree, where a suite has trees.
    #[arg(long)]
    nodes: Option<usize>,
    /// Only these parts of the suite, as often as given.
    #[arg(long)]
    only: Vec<String>,
    /// Only these sides, as often as given.
    #[arg(long)]
    side: Vec<String>,
    /// Where the rows with ratios are written as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only prints one table of the rows in these JSON files.
    #[arg(long, num_args = 1..)]
    report: Vec<PathBuf>,
    /// The program is a process of this project's side.
    #[arg(long, hide = true)]
    serve: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    #[must_use]
    pub fn rounds(&self, default: usize) -> usize {
        self.rounds.unwrap_or(default)
    }

    #[must_use]
    pub fn warm_up(&self, default: usize) -> usize {
        self.warm_up.unwrap_or(default)
    }

    #[must_use]
    pub fn millis(&self, default: u64) -> u64 {
        self.millis.unwrap_or(default)
    }

    #[must_use]
    pub fn nodes(&self, default: usize) -> usize {
        self.nodes.unwrap_or(default)
    }

    #[must_use]
    pub fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    #[must_use]
    pub fn has(&self, side: &str) -> bool {
        self.side.is_empty() || self.side.iter().any(|only| only == side)
    }
}

/// Returns the order of the sides in a round: each second round goes backwards.
#[must_use]
pub fn order(round: usize, sides: usize) -> Vec<usize> {
    let forwards = 0..sides;
    if round % 2 == 0 { forwards.collect() } else { forwards.rev().collect() }
}

/// Returns the median of the ratios within the rounds.
#[must_use]
pub fn ratio_within(ours: &[f64], other: &[f64]) -> Option<f64> {
    median(&ours.iter().zip(other).map(|(ours, other)| ours / other).collect::<Vec<_>>())
}

/// What a ratio to Curator has to be.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// The row only informs.
    None,
}

impl Target {
    #[must_use]
    pub fn is_met(self, ratio: Option<f64>) -> bool {
        match (self, ratio) {
            (Self::None, _) => true,
            (Self::AtLeast(least), Some(ratio)) => ratio >= least,
            (Self::AtMost(most), Some(ratio)) => ratio <= most,
            (_, None) => false,
        }
    }

    /// Describes the target and the verdict.
    #[must_use]
    pub fn verdict(self, ratio: Option<f64>) -> String {
        let wanted = match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
            Self::None => return String::new(),
        };
        format!("{wanted}: {}", if self.is_met(ratio) { "met" } else { "**missed**" })
    }
}

/// The rows with ratios that a suite has measured.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Value>,
    has_missed: bool,
}

impl Report {
    /// Adds the figures of all rounds of a workload.
    pub fn add(&mut self, workload: &str, ours: &[f64], curator: &[f64], target: Target) {
        let ratio = ratio_within(ours, curator);
        self.has_missed |= !target.is_met(ratio);
        self.rows.push(json!({
            "workload": workload, "ours": ours, "curator": curator, "ratio": ratio, "wanted": target.verdict(ratio),
        }));
    }
}

/// Returns a table in Markdown of rows as the JSON files have them.
#[must_use]
pub fn table(rows: &[Value]) -> String {
    let mut table = "| workload | ours / Curator | wanted |\n| --- | --- | --- |\n".to_owned();
    for row in rows {
        let ratio = row["ratio"].as_f64().map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        table += &format!("| {} | {ratio} | {} |\n", text("workload"), text("wanted"));
    }
    table
}

fn read(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for file in files {
        let all: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        rows.extend(all["rows"].as_array().cloned().ok_or("no rows")?);
    }
    Ok(rows)
}

fn write(file: &Path, suite: &str, rows: &[Value]) -> Result<()> {
    Ok(std::fs::write(file, serde_json::to_string_pretty(&json!({ "suite": suite, "rows": rows }))?)?)
}

/// Starts the process of this project's side.
pub async fn ours() -> Result<Process> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.arg("--serve");
    Process::start(command, |_| false).await
}

/// Runs a suite, or serves as its side. The exit status is 1 if a target is missed.
pub async fn main<S, R>(
    suite: &'static str,
    serve: impl FnOnce() -> S + Send + 'static,
    run: impl FnOnce(Options) -> R + Send + 'static,
) -> ExitCode
where
    S: Future<Output = Result<()>> + Send + 'static,
    R: Future<Output = Result<Report>> + Send + 'static,
{
    let mut options = Options::parse();
    let work = async move {
        if options.serve {
            return serve().await.map(|()| true);
        }
        if !options.report.is_empty() {
            print!("{}", table(&read(&options.report)?));
            return Ok(true);
        }
        let json = options.json.take();
        let report = run(options).await?;
        if !report.rows.is_empty() {
            print!("\n{}", table(&report.rows));
        }
        if json.is_some() && report.rows.is_empty() {
            return Err("no rows with ratios were measured".into());
        }
        if let Some(file) = json {
            write(&file, suite, &report.rows)?;
        }
        Ok(!report.has_missed)
    };
    exit_code(work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_round_goes_backwards() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
    }

    #[test]
    fn a_ratio_is_the_median_within_the_rounds() {
        assert_eq!(ratio_within(&[1.0, 9.0, 4.0], &[1.0, 3.0, 2.0]), Some(2.0));
        assert_eq!(ratio_within(&[], &[]), None);
    }

    #[test]
    fn a_verdict_includes_its_bound() {
        assert_eq!(Target::AtLeast(2.0).verdict(Some(2.0)), "at least 2: met");
        assert_eq!(Target::AtMost(0.5).verdict(Some(0.51)), "at most 0.5: **missed**");
        assert!(!Target::AtMost(0.5).is_met(None));
        assert!(Target::None.is_met(None));
    }

    #[test]
    fn a_table_has_a_row_for_each_workload() {
        let mut report = Report::default();
        report.add("load", &[1.0], &[4.0], Target::AtMost(0.5));
        report.add("alone", &[1.0], &[], Target::None);
        assert!(!report.has_missed);
        let rows = "| load | 0.25 | at most 0.5: met |\n| alone | – |  |\n";
        assert_eq!(table(&report.rows), format!("| workload | ours / Curator | wanted |\n| --- | --- | --- |\n{rows}"));
    }
}
