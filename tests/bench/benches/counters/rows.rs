//! The rows of the tables: increments per second, shares and requests.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_bench::cycles::Ours;
use curator_bench::figures::median;
use curator_bench::harness::{Options, Report, Target, order, ratio_within};
use curator_bench::process::Result;
use curator_bench::requests::{requests, server};
use curator_framework::CuratorFramework;
use curator_test::{ApacheServer, FaultProxy};
use tokio::task::block_in_place;

use crate::{CURATOR, CURATOR_PAUSES, IDS, KAZOO, OURS, Side};

const DELAY: Duration = Duration::from_millis(5);

/// The callers of a counter.
#[derive(Debug, Clone, Copy)]
enum Callers {
    /// So many clients, each in a session of its own.
    Clients(usize),
    /// So many tasks or threads that share one object.
    Tasks(usize),
}

impl Callers {
    const fn clients(self) -> usize {
        match self {
            Self::Clients(clients) => clients,
            Self::Tasks(_) => 1,
        }
    }

    /// Returns the line of a round, or `None` if the side has no such round.
    fn line(self, side: &Side, path: &str, millis: u64) -> Option<String> {
        match self {
            Self::Clients(_) => Some(format!("{} {path} {millis}", side.verb)),
            Self::Tasks(_) if side.name == IDS => None,
            Self::Tasks(tasks) => Some(format!("share {path} {millis} {tasks}")),
        }
    }
}

/// The increments of a round.
struct Round {
    per_second: f64,
    sum: u64,
    /// The share of the client or task with the fewest.
    least: f64,
}

impl Round {
    #[allow(clippy::cast_precision_loss, reason = "not that many")]
    fn of(answer: &str) -> Result<Self> {
        let figures = answer.split(' ').map(|figure| figure.parse().map_err(|_| answer.to_owned()));
        let figures: Vec<u64> = figures.collect::<std::result::Result<_, _>>()?;
        let [nanos, ref counts @ ..] = figures[..] else { return Err(answer.into()) };
        let sum = counts.iter().sum::<u64>();
        let least = counts.iter().min().copied().unwrap_or_default() as f64 / sum as f64;
        Ok(Self { per_second: sum as f64 / nanos as f64 * 1e9, sum, least })
    }
}

/// Checks that the number at a path is the sum of all increments.
async fn check(client: &CuratorFramework, side: &Side, path: &str, sum: u64) -> Result<()> {
    let (data, _) = client.get_data().for_path(path).await?;
    let number = match <[u8; 8]>::try_from(&*data) {
        Ok(bytes) if side.name != KAZOO => u64::from_be_bytes(bytes),
        _ => String::from_utf8(data)?.parse()?,
    };
    if number == sum { Ok(()) } else { Err(format!("{}: {number}, not {sum}", side.name).into()) }
}

/// The rounds of all sides.
type Rounds = BTreeMap<&'static str, Vec<Round>>;

async fn row(sides: &mut [Side], servers: &str, callers: Callers, name: &str, options: &Options) -> Result<Rounds> {
    let path = |side: &Side| format!("/{name}-{}", side.name.replace([' ', ','], "-"));
    for side in &mut *sides {
        side.process.tell(&format!("connect {} {servers}", callers.clients()), "connected").await?;
    }
    let (mut rounds, mut sums) = (Rounds::new(), BTreeMap::<_, u64>::new());
    let warm_up = options.warm_up(2);
    for round in 0..options.rounds(7) + warm_up {
        for index in order(round, sides.len()) {
            let side = &mut sides[index];
            let Some(line) = callers.line(side, &path(side), options.millis(1_000)) else { continue };
            let answer = side.process.ask(&line).await?;
            let done = Round::of(&answer).map_err(|error| format!("{}: {error}", side.name))?;
            *sums.entry(index).or_default() += done.sum;
            if round >= warm_up {
                rounds.entry(side.name).or_default().push(done);
            }
        }
    }
    let reader = Ours::Own.connect(servers).await?;
    for (index, sum) in sums {
        if sides[index].name != IDS {
            check(&reader, &sides[index], &path(&sides[index]), sum).await?;
        }
    }
    reader.close().await;
    for side in sides {
        side.process.tell("end", "ended").await?;
    }
    Ok(rounds)
}

/// Describes the median of a side, and the medians of the ratios within the rounds to both of Curator's sides.
fn cell(rounds: &Rounds, side: &str) -> String {
    let per_second =
        |side: &str| rounds.get(side).into_iter().flatten().map(|round| round.per_second).collect::<Vec<_>>();
    let Some(figure) = median(&per_second(side)) else { return "–".to_owned() };
    let to = |other: &str| {
        ratio_within(&per_second(side), &per_second(other)).filter(|_| side != other).map(|ratio| format!("{ratio:.2}"))
    };
    let ratios: Vec<_> = [CURATOR, CURATOR_PAUSES].into_iter().filter_map(to).collect();
    format!("{figure:.0} ({})", ratios.join("; "))
}

/// Describes the smallest share of a client in any round, and the median of the smallest shares of the rounds.
fn shares(rounds: &Rounds, side: &str) -> String {
    let least: Vec<_> = rounds.get(side).into_iter().flatten().map(|round| round.least).collect();
    match (median(&least), least.iter().copied().reduce(f64::min)) {
        (Some(median), Some(least)) => format!("1/{:.0} (median 1/{:.0})", 1.0 / least, 1.0 / median),
        _ => "–".to_owned(),
    }
}

/// Returns the sides of a row of shares: all that count at one path.
fn sharing(sides: &[Side]) -> impl Iterator<Item = &'static str> {
    sides.iter().map(|side| side.name)
}

/// Prints the increments per second of all sides, and the shares of their clients.
pub(crate) async fn times(sides: &mut [Side], options: &Options, report: &mut Report) -> Result<()> {
    let builder = ApacheServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60));
    let server = block_in_place(|| builder.compiles_fully().start())?;
    let proxy = FaultProxy::start(server.address())?;
    proxy.latency(DELAY);
    let (near, far) = (server.connect_string(), proxy.connect_string());
    println!("Apache ZooKeeper {}, {} rounds of {} ms", server.version(), options.rounds(7), options.millis(1_000));
    let mut head = Vec::new();
    let mut least = Vec::new();
    for (title, name, callers, servers, target) in [
        ("1 client", "one", Callers::Clients(1), &near, Target::AtLeast(1.8)),
        ("8 clients in sessions of their own", "eight", Callers::Clients(8), &near, Target::AtLeast(2.0)),
        ("32 clients in sessions of their own", "many", Callers::Clients(32), &near, Target::AtLeast(2.0)),
        ("32 tasks that share one object", "tasks", Callers::Tasks(32), &near, Target::AtLeast(10.0)),
        ("1 client, 5 ms each way", "one-far", Callers::Clients(1), &far, Target::None),
        ("32 clients, 5 ms each way", "many-far", Callers::Clients(32), &far, Target::None),
        ("32 tasks that share one object, 5 ms each way", "tasks-far", Callers::Tasks(32), &far, Target::None),
    ] {
        let rounds = row(sides, servers, callers, name, options).await?;
        let names: Vec<_> = sharing(sides).collect();
        if head.is_empty() {
            println!("\n| increments/s (ratios to Curator; with pauses) | {} |", names.join(" | "));
            println!("| --- |{}", " --- |".repeat(names.len()));
            head.clone_from(&names);
        }
        let cells: Vec<_> = names.iter().map(|side| cell(&rounds, side)).collect();
        println!("| {title} | {} |", cells.join(" | "));
        let of = |side: &str| rounds.get(side).into_iter().flatten().map(|round| round.per_second).collect::<Vec<_>>();
        report.add(&format!("increments, {title}"), &of(OURS), &of(CURATOR), target);
        if callers.clients() > 1 {
            let cells: Vec<_> = names.iter().map(|side| shares(&rounds, side)).collect();
            least.push(format!("| {title} | {} |", cells.join(" | ")));
        }
    }
    println!("\n| smallest share of a client in any round | {} |", head.join(" | "));
    println!("| --- |{}", " --- |".repeat(head.len()));
    least.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// Prints the requests of an increment, by the log of an in-process server.
pub(crate) async fn asked(sides: &mut [Side], millis: u64) -> Result<()> {
    let names: Vec<_> = sharing(sides).collect();
    println!("\n| requests of an increment | {} |", names.join(" | "));
    println!("| --- |{}", " --- |".repeat(names.len()));
    for clients in [1, 8, 32] {
        let mut cells = Vec::new();
        for side in &mut *sides {
            let server = server()?;
            side.process.tell(&format!("connect {clients} {}", server.connect_string()), "connected").await?;
            // The first increments create the node and its parents.
            Round::of(&side.process.ask(&format!("{} /app/number 100", side.verb)).await?)?;
            requests(&server).await;
            let done = Round::of(&side.process.ask(&format!("{} /app/number {millis}", side.verb)).await?)?;
            let sent = requests(&server).await;
            let kinds: Vec<_> = sent.keys().copied().collect();
            #[allow(clippy::cast_precision_loss, reason = "not that many")]
            let each = sent.values().sum::<usize>() as f64 / done.sum as f64;
            cells.push(format!("{each:.2}: {}", kinds.join(", ")));
            side.process.tell("end", "ended").await?;
        }
        println!("| {clients} client{} | {} |", if clients > 1 { "s" } else { "" }, cells.join(" | "));
    }
    Ok(())
}

/// Returns the names of all sides, ours first.
pub(crate) const fn all() -> [&'static str; 5] {
    [OURS, IDS, CURATOR, CURATOR_PAUSES, KAZOO]
}
