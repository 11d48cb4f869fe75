//! The cost of a drain: requests, bytes, time, memory.

use std::time::Duration;

use curator_bench::clients::{SESSION, connect};
use curator_bench::figures::float;
use curator_bench::harness::{CURATOR, Figures, OURS, Report, Side, Suite, Target, names, tell};
use curator_bench::process::Result;
use curator_bench::servers::{Requests, apache, cell};
use curator_framework::CuratorFramework;
use curator_test::wire::OpCode;
use curator_test::{ApacheServer, FaultProxy};
use tokio::time::sleep;

use crate::ours::queue;

/// The items of a transaction.
const PART: usize = 500;
/// All requests have their replies when no more come for so long.
const QUIET: Duration = Duration::from_secs(1);
/// The largest backlog that Curator drains, and the largest one in each of its modes.
const CURATOR_MOST: (usize, usize) = (10_000, 1_000);
/// The backlog of the times.
const TIMED: usize = 1_000;
/// The heap that may stay after a drain, in KiB: the buffers of a connection.
const MOST_LEFT: f64 = 1_024.0;
const OPERATIONS: [OpCode; 14] = [
    OpCode::Create,
    OpCode::Create2,
    OpCode::CreateContainer,
    OpCode::Delete,
    OpCode::Exists,
    OpCode::GetData,
    OpCode::SetData,
    OpCode::GetChildren,
    OpCode::GetChildren2,
    OpCode::Multi,
    OpCode::MultiRead,
    OpCode::AddWatch,
    OpCode::RemoveWatches,
    OpCode::Sync,
];

/// A drain: the mode, the items, the consumers.
#[derive(Debug, Clone, Copy)]
struct Drain {
    mode: &'static str,
    items: usize,
    consumers: usize,
}

impl Drain {
    fn title(self) -> String {
        let consumers = if self.consumers == 1 { String::new() } else { format!(", {} consumers", self.consumers) };
        format!("{} items, {}{consumers}", self.items, self.mode)
    }

    /// Returns whether a side has this drain.
    fn is_of(self, side: &str) -> bool {
        let (most, usual) = CURATOR_MOST;
        let most = if self.mode == "plain" && self.consumers == 1 { most } else { usual };
        side == OURS || (self.mode != "batches" && self.items <= most)
    }

    /// Returns the most requests and bytes for an item.
    fn targets(self) -> [Target; 2] {
        match (self.mode, self.consumers) {
            ("plain", 1) => [2.1, 200.0].map(Target::Figure),
            ("locked", 1) => [3.1, 400.0].map(Target::Figure),
            ("batches", _) => [Target::Figure(0.2), Target::None],
            _ => [Target::None; 2],
        }
    }
}

/// One Apache ZooKeeper, with a client that writes to it directly.
pub(crate) struct Ground {
    server: ApacheServer,
    client: CuratorFramework,
    most: usize,
}

/// The requests that were answered, and the bytes from the server.
struct Counts {
    kinds: Requests,
    bytes: u64,
}

impl Counts {
    fn of(proxy: &FaultProxy) -> Self {
        let kinds = OPERATIONS.into_iter().map(|op| (op.name(), proxy.replies(op)));
        Self { kinds: kinds.filter(|(_, count)| *count > 0).collect(), bytes: proxy.traffic().sent }
    }

    fn requests(&self) -> usize {
        self.kinds.values().sum()
    }

    /// Returns the counts, when no more come.
    async fn settled(proxy: &FaultProxy) -> Self {
        let mut last = Self::of(proxy);
        loop {
            sleep(QUIET).await;
            let now = Self::of(proxy);
            if now.requests() == last.requests() {
                return now;
            }
            last = now;
        }
    }
}

impl Ground {
    /// The backlogs have at most so many items.
    pub(crate) async fn new(most: usize) -> Result<Self> {
        let server = apache()?;
        println!("Apache ZooKeeper {}", server.version());
        let client = connect(&server.connect_string(), SESSION).await?;
        Ok(Self { server, client, most })
    }

    /// Returns the drains of a mode.
    fn drains(&self, mode: &'static str) -> Vec<Drain> {
        let of = |consumers, sizes: &[usize]| {
            let sizes = sizes.iter().copied().filter(|items| *items <= self.most);
            sizes.map(move |items| Drain { mode, items, consumers }).collect::<Vec<_>>()
        };
        [of(1, &[100, 1_000, 10_000, 100_000]), of(3, &[1_000, 10_000])].concat()
    }

    async fn fill(&self, path: &str, items: usize) -> Result<()> {
        let queue = queue(&self.client, "plain", path)?;
        let texts: Vec<_> = (0..items).map(|item| format!("item {item:06}")).collect();
        for part in texts.chunks(PART) {
            queue.put_all(part).await?;
        }
        Ok(())
    }
}

fn path(side: &Side, Drain { mode, items, consumers }: Drain, round: usize) -> String {
    format!("/{}-{mode}-{items}-{consumers}-{round}", side.name)
}

/// Prints the requests of an item, and the bytes from the server.
pub(crate) async fn requests(ground: &Ground, sides: &mut [Side], report: &mut Report) -> Result<()> {
    report.table("requests and bytes of an item", &names(sides), &[CURATOR]);
    for mode in ["plain", "locked", "batches"] {
        for drain in ground.drains(mode) {
            let [mut requests, mut bytes] = <[Figures; 2]>::default();
            let mut cells = Vec::new();
            for side in &mut *sides {
                if !drain.is_of(side.name) {
                    cells.push("–".to_owned());
                    continue;
                }
                let path = path(side, drain, 0);
                ground.fill(&path, drain.items).await?;
                let proxy = FaultProxy::start(ground.server.address())?;
                let connects = format!("connect {} {}", drain.consumers, proxy.connect_string());
                side.process.tell(&connects, "connected").await?;
                let before = proxy.traffic().sent;
                side.process.ask(&format!("drain {mode} {path} {}", drain.items)).await?.parse::<f64>()?;
                let counts = Counts::settled(&proxy).await;
                side.process.tell("end", "ended").await?;
                requests.add(side.name, float(counts.requests()) / float(drain.items));
                bytes.add(side.name, float(usize::try_from(counts.bytes - before)?) / float(drain.items));
                cells.push(cell(&counts.kinds));
            }
            let [of_requests, of_bytes] = drain.targets();
            report.row(&format!("requests of an item, {}", drain.title()), &requests, of_requests);
            report.row(&format!("bytes from the server for an item, {}", drain.title()), &bytes, of_bytes);
            report.text("of which", &cells);
        }
    }
    Ok(())
}

/// Prints the items that are taken in a second.
pub(crate) async fn times(suite: &Suite, ground: &Ground, sides: &mut [Side], report: &mut Report) -> Result<()> {
    report.table("items/s", &names(sides), &[CURATOR]);
    for mode in ["plain", "locked"] {
        for consumers in [1, 3] {
            let drain = Drain { mode, items: TIMED.min(ground.most), consumers };
            let mut figures = Figures::default();
            tell(sides, &format!("connect {consumers} {}", ground.server.connect_string()), "connected").await?;
            for turn in suite.turns(sides.len()) {
                let side = &mut sides[turn.side];
                let path = format!("{}-timed", path(side, drain, turn.round));
                ground.fill(&path, drain.items).await?;
                let nanos: f64 = side.process.ask(&format!("drain {mode} {path} {}", drain.items)).await?.parse()?;
                if turn.counts {
                    figures.add(side.name, float(drain.items) / nanos * 1e9);
                }
            }
            tell(sides, "end", "ended").await?;
            report.row(&format!("items/s, {}", drain.title()), &figures, Target::AtLeast(3.0));
        }
    }
    Ok(())
}

/// Prints the heap that a drain takes.
pub(crate) async fn memory(ground: &Ground, sides: &mut [Side], report: &mut Report) -> Result<()> {
    let Some(side) = sides.iter_mut().find(|side| side.name == OURS) else { return Ok(()) };
    report.table("heap", &[OURS], &[]);
    let sizes = [1_000, 10_000, 100_000].into_iter().filter(|items| *items <= ground.most);
    // The first drain fills the buffers that stay.
    for (round, items) in std::iter::once(1_000.min(ground.most)).chain(sizes).enumerate() {
        let drain = Drain { mode: "plain", items, consumers: 1 };
        let path = format!("{}-heap", path(side, drain, round));
        ground.fill(&path, items).await?;
        if round == 0 {
            side.process.tell(&format!("connect 1 {}", ground.server.connect_string()), "connected").await?;
        }
        let answer = side.process.ask(&format!("memory {path} {items}")).await?;
        let (peak, left) = answer.split_once(' ').ok_or("no answer")?;
        let [mut of_item, mut stays] = <[Figures; 2]>::default();
        of_item.add(OURS, peak.parse::<f64>()? / float(items));
        stays.add(OURS, left.parse::<f64>()? / 1024.0);
        if round > 0 {
            report.row(&format!("peak of the heap for an item of {items}, bytes"), &of_item, Target::None);
            report.row(&format!("heap that stays after {items} items, KiB"), &stays, Target::Figure(MOST_LEFT));
        }
    }
    side.process.tell("end", "ended").await
}
