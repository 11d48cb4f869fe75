//! What the suites have in common: options, sides, rounds, ratios, targets, tables, JSON, and the exit status.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use crate::chart;
use crate::figures::{median, ratio, short, spread};
use crate::process::{Commands, Process, Program, Result, exit_code, serve};

pub const OURS: &str = "this";
pub const CURATOR: &str = "Curator";
pub const KAZOO: &str = "kazoo";
/// The least that the requests cost, with a thread for each session.
pub const SOCKETS: &str = "bare sockets";

/// Draws the rows in a file.
pub type Plot = fn(&[Value], &Path) -> Result<()>;

/// A suite. Its options leave of it what is meant.
#[derive(Debug, Default)]
pub struct Suite {
    pub name: &'static str,
    /// Ours first.
    pub sides: Vec<(&'static str, Program)>,
    pub parts: Vec<&'static str>,
    /// The parts that have no rounds.
    pub without_rounds: &'static [&'static str],
    pub rounds: Option<usize>,
    pub warm_up: Option<usize>,
    pub millis: Option<usize>,
    pub size: Option<usize>,
    pub plot: Option<Plot>,
}

/// The turn of a side.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub round: usize,
    pub side: usize,
    /// False while all get warm.
    pub counts: bool,
}

/// Returns the turns of all rounds: each second round goes backwards, so that no side always comes behind the same one.
#[must_use]
pub fn turns(rounds: usize, warm_up: usize, sides: usize) -> Vec<Turn> {
    let side = |round: usize, place| if round % 2 == 0 { place } else { sides - 1 - place };
    let all = (0..warm_up + rounds).flat_map(|round| (0..sides).map(move |place| (round, place)));
    all.map(|(round, place)| Turn { round, side: side(round, place), counts: round >= warm_up }).collect()
}

/// An implementation, and its process.
#[derive(Debug)]
pub struct Side {
    pub name: &'static str,
    pub process: Process,
}

/// Returns the names of sides.
#[must_use]
pub fn names(sides: &[Side]) -> Vec<&'static str> {
    sides.iter().map(|side| side.name).collect()
}

/// Sends a line to all sides that has this answer.
pub async fn tell(sides: &mut [Side], line: &str, answer: &str) -> Result<()> {
    for side in sides {
        side.process.tell(line, answer).await?;
    }
    Ok(())
}

impl Suite {
    fn numbers(&mut self) -> [(&'static str, &'static str, &mut Option<usize>); 4] {
        [
            ("rounds", "Rounds that count", &mut self.rounds),
            ("warm-up", "Rounds before them, for all to get warm", &mut self.warm_up),
            ("millis", "The time of a round", &mut self.millis),
            ("size", "The nodes of a tree, or the waiters of a queue", &mut self.size),
        ]
    }

    /// Returns the options that this suite has.
    fn command(&mut self) -> Command {
        let file = |name, help| Arg::new(name).long(name).help(help).value_parser(value_parser!(PathBuf));
        let text = |name, help| Arg::new(name).long(name).help(help).action(ArgAction::Append);
        let mut command = Command::new(self.name)
            .about("A suite beside its peers. The exit status is 1 if a target is missed or not measured")
            .arg(file(
                "json",
                "Where all rows are written as JSON. Rows with a target to Curator are drawn in the same place, as SVG",
            ))
            .arg(
                file(
                    "ratios",
                    "Only prints one table of ratios, of the rows in these files, and draws each file again",
                )
                .num_args(1..)
                .exclusive(true),
            )
            .arg(Arg::new("serve").long("serve").action(ArgAction::SetTrue).hide(true).exclusive(true));
        if self.plot.is_some() {
            command = command.arg(file("plot", "Where the bytes of a hand-off are drawn as SVG"));
        }
        for (name, help, default) in self.numbers() {
            if let Some(default) = default {
                let help = format!("{help} [default: {default}]");
                command = command.arg(Arg::new(name).long(name).help(help).value_parser(value_parser!(usize)));
            }
        }
        if self.parts.len() > 1 {
            let help = format!("Only the parts with this text, as often as given: {}", self.parts.join("; "));
            command = command.arg(text("only", help));
        }
        if self.sides.len() > 1 {
            let names = PossibleValuesParser::new(self.sides.iter().map(|(name, _)| *name));
            command = command.arg(text("side", "Only this side, as often as given".to_owned()).value_parser(names));
        }
        command
    }

    /// Leaves what the options mean, and refuses an option that would do nothing.
    fn take(&mut self, options: &ArgMatches) -> Result<()> {
        let mut of_rounds = None;
        for (name, _, number) in self.numbers() {
            let Some(given) = number.and_then(|_| options.get_one::<usize>(name)) else { continue };
            if *given == 0 && name != "warm-up" {
                return Err(format!("--{name}: one at least").into());
            }
            *number = Some(*given);
            of_rounds = of_rounds.or((name != "size").then_some(name));
        }
        let all = |name| options.try_get_many::<String>(name).ok().flatten().into_iter().flatten();
        let is_meant = |part: &str, text: &String| part.contains(text.as_str());
        if let Some(none) = all("only").find(|text| !self.parts.iter().any(|part| is_meant(part, text))) {
            return Err(format!("--only {none:?} is none of: {}", self.parts.join("; ")).into());
        }
        self.parts.retain(|part| all("only").count() == 0 || all("only").any(|text| is_meant(part, text)));
        self.sides.retain(|(name, _)| all("side").count() == 0 || all("side").any(|side| side == name));
        match of_rounds {
            Some(name) if self.parts.iter().all(|part| self.without_rounds.contains(part)) => {
                Err(format!("--{name}: what is chosen has no rounds").into())
            }
            _ => Ok(()),
        }
    }

    #[must_use]
    pub fn wants(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }

    #[must_use]
    pub fn has(&self, side: &str) -> bool {
        self.sides.iter().any(|(name, _)| *name == side)
    }

    /// Starts the processes of all sides that are meant.
    pub async fn start(&self) -> Result<Vec<Side>> {
        let mut sides = Vec::new();
        for (name, program) in &self.sides {
            sides.push(Side { name, process: Process::start(*program).await? });
        }
        Ok(sides)
    }

    /// Returns the time of a round.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.millis.unwrap_or_default() as u64)
    }

    #[must_use]
    pub fn turns(&self, sides: usize) -> Vec<Turn> {
        turns(self.rounds.unwrap_or(1), self.warm_up.unwrap_or_default(), sides)
    }
}

/// The figures of each side, round by round.
#[derive(Debug, Default, Clone)]
pub struct Figures(BTreeMap<&'static str, Vec<f64>>);

impl Figures {
    pub fn add(&mut self, side: &'static str, figure: f64) {
        self.0.entry(side).or_default().push(figure);
    }

    #[must_use]
    pub fn of(&self, side: &str) -> &[f64] {
        self.0.get(side).map_or(&[], Vec::as_slice)
    }
}

/// What is wanted of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// Of the ratio.
    AtLeast(f64),
    /// Of the ratio.
    AtMost(f64),
    /// Of the figure itself, regardless of the others.
    Figure(f64),
    /// The row only informs.
    None,
}

impl Target {
    /// Returns true if the target is met, and describes it with the verdict.
    #[must_use]
    pub fn verdict(self, figure: Option<f64>, ratio: Option<f64>) -> (bool, String) {
        let (wanted, is_met) = match self {
            Self::AtLeast(least) => (format!("at least {least}"), ratio.map(|ratio| ratio >= least)),
            Self::AtMost(most) => (format!("at most {most}"), ratio.map(|ratio| ratio <= most)),
            Self::Figure(most) => (format!("at most {most} itself"), figure.map(|figure| figure <= most)),
            Self::None => return (true, String::new()),
        };
        let verdict = is_met.map_or("not measured", |is_met| if is_met { "met" } else { "**missed**" });
        (is_met == Some(true), format!("{wanted}: {verdict}"))
    }
}

/// What a suite has measured. Each row is printed when it is there.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Value>,
    has_missed: bool,
    /// The columns of the table that is being printed, ours first.
    sides: Vec<&'static str>,
    to: &'static [&'static str],
}

impl Report {
    /// Starts a table. A figure is followed by its ratios to the sides in `to`. The targets are for the ratio of the
    /// first side to the first of them.
    pub fn table(&mut self, title: &str, sides: &[&'static str], to: &'static [&'static str]) {
        (self.sides, self.to) = (sides.to_vec(), to);
        let ratios = if to.is_empty() { String::new() } else { format!(" (ratios to {})", to.join("; ")) };
        println!("\n| {title}{ratios} | {} | wanted |", sides.join(" | "));
        println!("| --- |{} --- |", " --- |".repeat(sides.len()));
    }

    /// Adds the figures of all rounds: medians, ranges, and medians of the ratios within the rounds.
    pub fn row(&mut self, title: &str, figures: &Figures, target: Target) {
        let ratio_of = |side: &str, to: &str| if side == to { None } else { ratio(figures.of(side), figures.of(to)) };
        let ours = self.sides.first().copied().unwrap_or(OURS);
        let ratio = self.to.first().and_then(|to| ratio_of(ours, to));
        let (is_met, wanted) = target.verdict(median(figures.of(ours)), ratio);
        self.judge(is_met);
        let cell = |side: &&str| {
            let ratios: Vec<_> = self.to.iter().filter_map(|to| Some(format!("{:.2}", ratio_of(side, to)?))).collect();
            let ratios = if ratios.is_empty() { String::new() } else { format!(" ({})", ratios.join("; ")) };
            format!("{}{ratios}", spread(figures.of(side), short))
        };
        println!("| {title} | {} | {wanted} |", self.sides.iter().map(cell).collect::<Vec<_>>().join(" | "));
        self.rows.push(json!({
            "row": title, "figures": figures.0, "to": self.to.first(), "ratio": ratio, "wanted": wanted,
        }));
    }

    /// Adds a row of text, with a cell for each side.
    pub fn text(&mut self, title: &str, cells: &[String]) {
        println!("| {title} | {} | |", cells.join(" | "));
        self.rows.push(json!({ "row": title, "text": self.sides.iter().zip(cells).collect::<BTreeMap<_, _>>() }));
    }

    /// The exit status is 1 if one of these is false.
    pub const fn judge(&mut self, is_met: bool) {
        self.has_missed |= !is_met;
    }
}

/// Returns the figures of a side in a row.
#[must_use]
pub fn figures_of(row: &Value, side: &str) -> Vec<f64> {
    row["figures"][side].as_array().map_or_else(Vec::new, |all| all.iter().filter_map(Value::as_f64).collect())
}

/// Returns a table in Markdown of the rows that have a target and are compared with Curator.
#[must_use]
pub fn ratios(rows: &[Value]) -> String {
    let mut table = "| workload | ours / Curator | wanted |\n| --- | --- | --- |\n".to_owned();
    for row in rows.iter().filter(|row| row["to"] == CURATOR) {
        let (title, wanted) = (row["row"].as_str().unwrap_or_default(), row["wanted"].as_str().unwrap_or_default());
        if !wanted.is_empty() {
            let ratio = row["ratio"].as_f64().map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
            table += &format!("| {title} | {ratio} | {wanted} |\n");
        }
    }
    table
}

/// Reads the rows in files, and draws them beside each file.
fn read(files: impl Iterator<Item = PathBuf>) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for file in files {
        let all: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let of_this = all["rows"].as_array().ok_or("no rows")?;
        chart::draw(all["suite"].as_str().unwrap_or_default(), of_this, &file.with_extension("svg"))?;
        rows.extend_from_slice(of_this);
    }
    Ok(rows)
}

/// Runs a suite, or carries out the commands of its own side.
pub async fn main<R>(
    mut suite: Suite,
    commands: impl Commands + 'static,
    run: impl FnOnce(Suite) -> R + Send + 'static,
) -> ExitCode
where
    R: Future<Output = Result<Report>> + Send + 'static,
{
    // `cargo bench` gives `--bench`.
    let given = std::env::args_os().filter(|argument| argument != "--bench");
    let mut options = suite.command().get_matches_from(given);
    let work = async move {
        if options.get_flag("serve") {
            return serve(commands).await.map(|()| true);
        }
        if let Some(files) = options.remove_many::<PathBuf>("ratios") {
            print!("{}", ratios(&read(files)?));
            return Ok(true);
        }
        suite.take(&options)?;
        let (name, plot) = (suite.name, suite.plot);
        let report = run(suite).await?;
        if report.rows.is_empty() {
            return Err("nothing of this was measured".into());
        }
        if let Some(file) = options.get_one::<PathBuf>("json") {
            std::fs::write(file, serde_json::to_string_pretty(&json!({ "suite": name, "rows": report.rows }))?)?;
            chart::draw(name, &report.rows, &file.with_extension("svg"))?;
        }
        if let Some((plot, file)) = plot.zip(options.try_get_one::<PathBuf>("plot").ok().flatten()) {
            plot(&report.rows, file)?;
        }
        Ok(!report.has_missed)
    };
    exit_code(work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(arguments: &[&str]) -> Result<Suite> {
        let mut suite = Suite {
            sides: vec![(OURS, Program::Ours), (CURATOR, Program::Here)],
            parts: vec!["times near", "times far", "requests"],
            without_rounds: &["requests"],
            rounds: Some(5),
            ..Suite::default()
        };
        let options = suite.command().try_get_matches_from([&["suite"], arguments].concat())?;
        suite.take(&options)?;
        Ok(suite)
    }

    #[test]
    fn options_leave_what_is_meant() {
        let suite = suite(&["--rounds", "2", "--only", "near", "--only", "requests", "--side", "this"]).unwrap();
        assert_eq!(suite.parts, ["times near", "requests"]);
        assert_eq!(suite.sides.len(), 1);
        assert_eq!(suite.turns(1).len(), 2);
    }

    #[test]
    fn an_option_that_would_do_nothing_is_refused() {
        for arguments in [
            &["--only", "nothing"][..],
            &["--side", "nobody"],
            &["--rounds", "0"],
            &["--millis", "10"],
            &["--rounds", "2", "--only", "requests"],
            &["--ratios", "file", "--rounds", "2"],
        ] {
            assert!(suite(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn each_second_round_goes_backwards() {
        let order: Vec<_> = turns(1, 1, 3).iter().map(|turn| (turn.side, turn.counts)).collect();
        assert_eq!(order, [(0, false), (1, false), (2, false), (2, true), (1, true), (0, true)]);
    }

    #[test]
    fn a_ratio_is_the_median_within_the_rounds() {
        assert_eq!(ratio(&[1.0, 9.0, 4.0], &[1.0, 3.0, 2.0]), Some(2.0));
        assert_eq!(ratio(&[], &[]), None);
    }

    #[test]
    fn a_verdict_includes_its_bound() {
        assert_eq!(Target::AtLeast(2.0).verdict(None, Some(2.0)), (true, "at least 2: met".to_owned()));
        assert_eq!(Target::AtMost(0.5).verdict(None, Some(0.51)), (false, "at most 0.5: **missed**".to_owned()));
        assert_eq!(Target::AtMost(0.5).verdict(Some(0.1), None), (false, "at most 0.5: not measured".to_owned()));
        assert_eq!(Target::Figure(260.0).verdict(Some(230.0), None), (true, "at most 260 itself: met".to_owned()));
        assert_eq!(Target::None.verdict(None, None), (true, String::new()));
    }

    #[test]
    fn the_table_of_ratios_has_what_is_wanted() {
        let mut report = Report::default();
        report.table("times", &[OURS, CURATOR], &[CURATOR]);
        let mut figures = Figures::default();
        figures.add(OURS, 1.0);
        figures.add(CURATOR, 4.0);
        report.row("not wanted", &figures, Target::None);
        report.row("load", &figures, Target::AtMost(0.5));
        assert!(!report.has_missed);
        report.row("heap", &figures, Target::Figure(0.5));
        assert!(report.has_missed);
        let rows = "| load | 0.25 | at most 0.5: met |\n| heap | 0.25 | at most 0.5 itself: **missed** |\n";
        let head = "| workload | ours / Curator | wanted |\n| --- | --- | --- |\n";
        assert_eq!(ratios(&report.rows), format!("{head}{rows}"));
    }
}
