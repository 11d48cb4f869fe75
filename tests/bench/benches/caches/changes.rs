//! Many writes under one cache: how many changes it tells, and how late.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use curator_bench::figures::{median, quantile, ratio};
use curator_bench::process::{Result, now};
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::ground::{Ground, SIZE, leaf};
use crate::{CURATOR, OURS, Side};

/// The writes of each node.
const EACH: usize = 20;
/// The writes that are on their way at a time.
const AT_ONCE: usize = 64;

/// The number and the version of a node, and the time.
type Moment = (usize, i32, Duration);

/// The figures of a round: changes told, and the delay at the 99th percentile in milliseconds.
#[derive(Default)]
struct Figures {
    told: Vec<f64>,
    delays: Vec<f64>,
    rates: Vec<f64>,
}

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

/// Returns how long after the reply of each write the cache told that version or a later one, in milliseconds.
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

async fn round(ground: &Ground, side: &mut Side, path: &str, nodes: usize, figures: &mut Figures) -> Result<()> {
    let all = ground.plant(path, 1, nodes).await?;
    let file = tempfile::NamedTempFile::new()?;
    side.load(1, &ground.direct(), path, all).await?.complete()?;
    side.process.tell("record", "recording").await?;
    let began = now();
    let replies = write(ground, path, nodes).await?;
    let wrote = now() - began;
    side.process.tell(&format!("recorded {nodes} {EACH} {}", file.path().display()), "recorded").await?;
    side.end().await?;
    let told = told(&std::fs::read_to_string(file.path())?)?;
    let different: HashSet<_> = told.iter().map(|(node, version, _)| (node, version)).collect();
    if different.len() < told.len() {
        println!("{} told {} changes twice.", side.name, told.len() - different.len());
    }
    #[allow(clippy::cast_precision_loss, reason = "not that many")]
    {
        figures.told.push(different.len() as f64);
        figures.rates.push(replies.len() as f64 / wrote.as_secs_f64());
    }
    figures.delays.extend(quantile(&delays(&replies, &told)?, 0.99));
    Ok(())
}

/// Prints the figures of all sides, as medians.
pub(crate) async fn run(ground: &Ground, sides: &mut [Side], nodes: usize, rounds: usize) -> Result<()> {
    let mut figures: Vec<_> = sides.iter().map(|_| Figures::default()).collect();
    // The first round is for all to get warm.
    for number in 0..=rounds {
        for (side, figures) in sides.iter_mut().zip(&mut figures) {
            if number == 1 {
                *figures = Figures::default();
            }
            round(ground, side, &format!("/busy-{}-{number}", side.name), nodes, figures).await?;
        }
    }
    println!(
        "\n| {} writes over {nodes} nodes | changes told | told behind the reply, 99th percentile, ms | writes/s |",
        nodes * EACH
    );
    println!("| --- | --- | --- | --- |");
    for (side, figures) in sides.iter().zip(&figures) {
        let [told, delay, rate] =
            [&figures.told, &figures.delays, &figures.rates].map(|of| median(of).unwrap_or(f64::NAN));
        println!("| {} | {told:.0} | {delay:.1} | {rate:.0} |", side.name);
    }
    let of = |name| sides.iter().zip(&figures).find(|(side, _)| side.name == name).map(|(_, of)| of);
    let [told, delay] = [|of: &Figures| median(&of.told), |of: &Figures| median(&of.delays)]
        .map(|figure| ratio(of(OURS).and_then(figure), of(CURATOR).and_then(figure)));
    println!("\nTo Curator: changes told {told}, delay {delay}");
    Ok(())
}
