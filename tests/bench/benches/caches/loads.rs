//! The cost of a load: requests, time, memory.

use std::collections::BTreeMap;

use curator_bench::figures::{median, quantile, ratio};
use curator_bench::process::Result;

use crate::ground::Ground;
use crate::{CURATOR, KAZOO, Load, OURS, Side};

/// A tree: its path, its folders, its nodes below them.
type Tree = (&'static str, usize, usize);

fn trees(nodes: usize) -> [Tree; 2] {
    [("/flat", 1, nodes), ("/folders", 100, nodes)]
}

/// Prints the requests of a load.
pub(crate) async fn requests(ground: &Ground, sides: &mut [Side], nodes: usize) -> Result<()> {
    println!("\n| requests to load | side | requests | sent, bytes |\n| --- | --- | --- | --- |");
    for (path, folders, nodes) in trees(nodes) {
        let all = ground.plant(path, folders, nodes).await?;
        for side in &mut *sides {
            let before = ground.counts();
            side.load(1, &ground.counted(), path, all).await?.complete()?;
            let counts = ground.settled(&before).await;
            println!("| {all} nodes, {folders} folders | {} | {} | {} |", side.name, counts.cell(), counts.sent);
            side.end().await?;
        }
    }
    Ok(())
}

/// The times of one side, in seconds, or the number of nodes that it does not get beyond.
#[derive(Default)]
struct Times {
    seconds: Vec<f64>,
    stuck: Option<usize>,
}

impl Times {
    /// A median, and the range.
    fn cell(&self) -> String {
        let [least, half, most] = [0.0, 0.5, 1.0].map(|share| quantile(&self.seconds, share));
        match (self.stuck, least, half, most) {
            (Some(nodes), ..) => format!("stops at {nodes} nodes"),
            (_, Some(least), Some(half), Some(most)) => format!("{half:.2} [{least:.2} to {most:.2}]"),
            _ => "–".to_owned(),
        }
    }
}

/// Prints the times of loads, as medians.
pub(crate) async fn times(ground: &Ground, sides: &mut [Side], nodes: usize, rounds: usize) -> Result<()> {
    println!("\n| seconds to load | this | Curator | kazoo | this to Curator |\n| --- | --- | --- | --- | --- |");
    let large = [("/large-6", 100, nodes * 6), ("/large-10", 100, nodes * 10)];
    for (path, folders, nodes) in trees(nodes).into_iter().chain(large) {
        let all = ground.plant(path, folders, nodes).await?;
        let mut times: BTreeMap<_, Times> = BTreeMap::new();
        // The first round is for all to get warm.
        for round in 0..=rounds {
            for side in &mut *sides {
                let times = times.entry(side.name).or_default();
                if times.stuck.is_some() || (side.name == KAZOO && path.starts_with("/large")) {
                    continue;
                }
                match side.load(1, &ground.direct(), path, all).await? {
                    Load::Complete { seconds } if round > 0 => times.seconds.push(seconds),
                    Load::Complete { .. } => {}
                    Load::Stuck { nodes } => times.stuck = Some(nodes),
                }
                side.end().await?;
            }
        }
        let cells = [OURS, CURATOR, KAZOO].map(|name| times.get(name).map_or("–".to_owned(), Times::cell));
        let [ours, javas] = [OURS, CURATOR].map(|name| times.get(name).and_then(|times| median(&times.seconds)));
        println!("| {all} nodes, {folders} folders | {} | {} |", cells.join(" | "), ratio(ours, javas));
    }
    Ok(())
}

/// Prints the heap that a node takes, with its data.
pub(crate) async fn heap(ground: &Ground, sides: &mut [Side], nodes: usize) -> Result<()> {
    println!("\n| heap, bytes a node | this | Curator |\n| --- | --- | --- |");
    for (path, folders, nodes) in trees(nodes) {
        let all = ground.plant(path, folders, nodes).await?;
        let mut cells = Vec::new();
        for side in sides.iter_mut().filter(|side| side.name != KAZOO) {
            // The first load fills the buffers that stay.
            side.load(1, &ground.direct(), path, all).await?.complete()?;
            side.process.tell("close", "closed").await?;
            let before: f64 = side.process.ask("heap").await?.parse()?;
            side.load_again(path, all).await?.complete()?;
            let after: f64 = side.process.ask("heap").await?.parse()?;
            #[allow(clippy::cast_precision_loss, reason = "not that many")]
            cells.push(format!("{:.0}", (after - before) / all as f64));
            side.end().await?;
        }
        println!("| {all} nodes, {folders} folders | {} |", cells.join(" | "));
    }
    Ok(())
}
