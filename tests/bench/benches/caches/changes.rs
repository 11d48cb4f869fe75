//! Many writes under one cache: how many changes it tells, and how late.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use curator_bench::figures::{float, quantile};
use curator_bench::harness::{CURATOR, Figures, Report, Side, Suite, Target, names};
use curator_bench::process::{Result, now};
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::ground::{Ground, SIZE, leaf};
use crate::{end, load};

/// The writes of each node.
const EACH: usize = 20;
/// The writes that are on their way at a time.
const AT_ONCE: usize = 64;

/// The number and the version of a node, and the time.
type Moment = (usize, i32, Duration);

/// Writes each node so often; returns the time of each reply.
async fn write(ground: &Ground, path: &str, nodes: usize) -> Result<Vec<Moment>> {
    let writes = (0..nodes * EACH).map(|write| async move {
        let node = write % nodes;
        let stat = ground.client().set_data().for_path(&leaf(path, node), vec![b'y'; SIZE]).await?;
        Result::Ok((node, stat.version, now()))
    });
    futures_util::stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
}

fn told(text: &str) -> Result<Vec<Moment>> {
    text.lines()
        .map(|line| {
            let [path, version, nanos] = line.split(' ').collect::<Vec<_>>()[..] else {
                return Err(format!("{line:?} is not a change").into());
            };
            let node = path.rsplit_once('-').ok_or("a path without a number")?.1.parse()?;
            Ok((node, version.parse()?, Duration::from_nanos(nanos.parse()?)))
        })
        .collect()
}

/// Returns how long after the reply of each write the cache reported that version or a later one, in milliseconds.
fn delays(replies: &[Moment], told: &[Moment]) -> Result<Vec<f64>> {
    let mut by_node = BTreeMap::<usize, Vec<(i32, Duration)>>::new();
    for (node, version, at) in told {
        by_node.entry(*node).or_default().push((*version, *at));
    }
    let delay = |(node, version, replied): &Moment| {
        let told = by_node.get(node).and_then(|told| told.iter().find(|(told, _)| told >= version));
        let (_, at) = told.ok_or_else(|| format!("version {version} of node {node} was never told"))?;
        Ok(at.saturating_sub(*replied).as_secs_f64() * 1e3)
    };
    replies.iter().map(delay).collect()
}

/// Lets a side tell all changes of a tree. Returns the changes, the delay at the 99th percentile in milliseconds, and the
/// writes per second.
async fn round(ground: &Ground, side: &mut Side, path: &str, nodes: usize) -> Result<[f64; 3]> {
    let all = ground.plant(path, 1, nodes).await?;
    let file = tempfile::NamedTempFile::new()?;
    load(side, 1, &ground.direct(), path, all).await?;
    side.process.tell("record", "recording").await?;
    let began = now();
    let replies = write(ground, path, nodes).await?;
    let wrote = now() - began;
    side.process.tell(&format!("recorded {nodes} {EACH} {}", file.path().display()), "recorded").await?;
    end(side).await?;
    let told = told(&std::fs::read_to_string(file.path())?)?;
    let different: HashSet<_> = told.iter().map(|(node, version, _)| (node, version)).collect();
    if different.len() < told.len() {
        println!("{} told {} changes twice.", side.name, told.len() - different.len());
    }
    let delay = quantile(&delays(&replies, &told)?, 0.99).unwrap_or(f64::NAN);
    Ok([float(different.len()), delay, float(replies.len()) / wrote.as_secs_f64()])
}

/// Prints the figures of all sides.
pub(crate) async fn run(suite: &Suite, ground: &Ground, sides: &mut [Side], report: &mut Report) -> Result<()> {
    let nodes = suite.size.unwrap_or_default().div_ceil(10);
    let mut rows = <[Figures; 3]>::default();
    for turn in suite.turns(sides.len()) {
        let side = &mut sides[turn.side];
        let figures = round(ground, side, &format!("/busy-{}-{}", side.name, turn.round), nodes).await?;
        if turn.counts {
            rows.iter_mut().zip(figures).for_each(|(row, figure)| row.add(side.name, figure));
        }
    }
    let writes = format!("{} writes over {nodes} nodes", nodes * EACH);
    report.table(&writes, &names(sides), &[CURATOR]);
    let [told, delay, rate] = &rows;
    report.row(&format!("{writes}: changes told"), told, Target::AtLeast(1.0));
    report.row("told after the reply to the write, 99th percentile, ms", delay, Target::AtMost(0.5));
    report.row("writes/s", rate, Target::None);
    Ok(())
}
