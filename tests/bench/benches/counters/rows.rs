//! The rows of the tables: increments per second, shares and requests.

use std::collections::BTreeMap;

use curator_bench::clients::{SESSION, connect};
use curator_bench::figures::float;
use curator_bench::harness::{CURATOR, Figures, KAZOO, Report, Side, Suite, Target, names, tell};
use curator_bench::process::Result;
use curator_bench::servers::{apache, far, requests, server};
use curator_framework::CuratorFramework;

use crate::{CURATOR_PAUSES, IDS};

/// The time in which requests are counted, in milliseconds.
const COUNTED: u128 = 1_000;

/// Returns the line of a round of all clients, or of so many tasks that share one object. `None` if the side has no such
/// round.
fn line(side: &Side, path: &str, millis: u128, tasks: Option<usize>) -> Option<String> {
    match tasks {
        None if side.name == IDS => Some(format!("ids {path} {millis}")),
        None => Some(format!("count {path} {millis}")),
        Some(_) if side.name == IDS => None,
        Some(tasks) => Some(format!("share {path} {millis} {tasks}")),
    }
}

/// The increments of a round.
struct Round {
    per_second: f64,
    sum: usize,
    /// The share of the client or task with the fewest.
    least: f64,
}

impl Round {
    fn of(answer: &str) -> Result<Self> {
        let figures = answer.split(' ').map(|figure| figure.parse().map_err(|_| answer.to_owned()));
        let figures: Vec<usize> = figures.collect::<std::result::Result<_, _>>()?;
        let [nanos, ref counts @ ..] = figures[..] else { return Err(answer.into()) };
        let sum = counts.iter().sum();
        let least = float(counts.iter().min().copied().unwrap_or_default()) / float(sum);
        Ok(Self { per_second: float(sum) / float(nanos) * 1e9, sum, least })
    }
}

/// Checks that the number at a path is the sum of all increments.
async fn check(client: &CuratorFramework, side: &Side, path: &str, sum: usize) -> Result<()> {
    let (data, _) = client.get_data().for_path(path).await?;
    let number: usize = match <[u8; 8]>::try_from(&*data) {
        Ok(bytes) if side.name != KAZOO => u64::from_be_bytes(bytes).try_into()?,
        _ => String::from_utf8(data)?.parse()?,
    };
    if number == sum { Ok(()) } else { Err(format!("{}: {number}, not {sum}", side.name).into()) }
}

/// Returns the increments per second, and the smallest shares in percent.
async fn row(
    suite: &Suite,
    sides: &mut [Side],
    servers: &str,
    (clients, tasks): (usize, Option<usize>),
    name: &str,
) -> Result<(Figures, Figures)> {
    let path = |side: &Side| format!("/{name}-{}", side.name.replace([' ', ','], "-"));
    tell(sides, &format!("connect {clients} {servers}"), "connected").await?;
    let (mut rates, mut shares, mut sums) = (Figures::default(), Figures::default(), BTreeMap::<_, usize>::new());
    for turn in suite.turns(sides.len()) {
        let side = &mut sides[turn.side];
        let Some(line) = line(side, &path(side), suite.time().as_millis(), tasks) else { continue };
        let round = Round::of(&side.process.ask(&line).await?).map_err(|error| format!("{}: {error}", side.name))?;
        *sums.entry(turn.side).or_default() += round.sum;
        if turn.counts {
            rates.add(side.name, round.per_second);
            shares.add(side.name, round.least * 100.0);
        }
    }
    let reader = connect(servers, SESSION).await?;
    for (index, sum) in sums {
        if sides[index].name != IDS {
            check(&reader, &sides[index], &path(&sides[index]), sum).await?;
        }
    }
    reader.close().await;
    tell(sides, "end", "ended").await?;
    Ok((rates, shares))
}

/// Prints the increments per second of all sides, and the smallest shares of their clients.
pub(crate) async fn times(suite: &Suite, sides: &mut [Side], report: &mut Report) -> Result<()> {
    let server = apache()?;
    let proxy = far(&server)?;
    let (near, far) = (server.connect_string(), proxy.connect_string());
    let title = format!("increments/s, Apache ZooKeeper {}", server.version());
    report.table(&title, &names(sides), &[CURATOR, CURATOR_PAUSES]);
    let mut all_shares = Vec::new();
    for (title, name, callers @ (clients, _), servers, target) in [
        ("1 client", "one", (1, None), &near, Target::AtLeast(1.8)),
        ("8 clients in sessions of their own", "eight", (8, None), &near, Target::AtLeast(2.0)),
        ("32 clients in sessions of their own", "many", (32, None), &near, Target::AtLeast(2.0)),
        ("32 tasks that share one object", "tasks", (1, Some(32)), &near, Target::AtLeast(10.0)),
        ("1 client, 5 ms each way", "one-far", (1, None), &far, Target::None),
        ("32 clients, 5 ms each way", "many-far", (32, None), &far, Target::None),
        ("32 tasks that share one object, 5 ms each way", "tasks-far", (1, Some(32)), &far, Target::None),
    ] {
        let (rates, shares) = row(suite, sides, servers, callers, name).await?;
        report.row(&format!("increments, {title}"), &rates, target);
        if clients > 1 {
            all_shares.push((title, shares));
        }
    }
    report.table("smallest share of a client in a round, %", &names(sides), &[]);
    for (title, shares) in all_shares {
        report.row(&format!("smallest share, {title}"), &shares, Target::None);
    }
    Ok(())
}

/// Prints the requests of an increment, by the log of an in-process server.
pub(crate) async fn asked(sides: &mut [Side], report: &mut Report) -> Result<()> {
    report.table("requests of an increment", &names(sides), &[CURATOR, CURATOR_PAUSES]);
    for clients in [1, 8, 32] {
        let (mut figures, mut cells) = (Figures::default(), Vec::new());
        for side in &mut *sides {
            let server = server()?;
            side.process.tell(&format!("connect {clients} {}", server.connect_string()), "connected").await?;
            let line = |millis| line(side, "/app/number", millis, None).ok_or("no such round");
            let (first, counted) = (line(100)?, line(COUNTED)?);
            // The first increments create the node and its parents.
            Round::of(&side.process.ask(&first).await?)?;
            requests(&server).await;
            let done = Round::of(&side.process.ask(&counted).await?)?;
            let sent = requests(&server).await;
            figures.add(side.name, float(sent.values().sum()) / float(done.sum));
            cells.push(sent.into_keys().collect::<Vec<_>>().join(", "));
            side.process.tell("end", "ended").await?;
        }
        report.row(&format!("requests of an increment, {clients} in sessions of their own"), &figures, Target::None);
        report.text("of which", &cells);
    }
    Ok(())
}
