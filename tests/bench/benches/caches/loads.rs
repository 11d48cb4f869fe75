//! The cost of a load: requests, time, memory.

use curator_bench::figures::float;
use curator_bench::harness::{CURATOR, Figures, KAZOO, Report, Side, Suite, Target, names};
use curator_bench::process::Result;
use curator_bench::servers::cell;

use crate::ground::Ground;
use crate::{end, load, load_again};

/// A tree: its path, its folders, its nodes below them.
type Tree = (&'static str, usize, usize);

fn trees(nodes: usize) -> [Tree; 2] {
    [("/flat", 1, nodes), ("/folders", 100, nodes)]
}

fn title((_, folders, nodes): Tree) -> String {
    if folders == 1 { format!("{nodes} nodes below one") } else { format!("{nodes} nodes in {folders} folders") }
}

/// Prints the requests of a load, and the bytes that are sent.
pub(crate) async fn requests(ground: &Ground, sides: &mut [Side], nodes: usize, report: &mut Report) -> Result<()> {
    report.table("requests", &names(sides), &[CURATOR]);
    for tree @ (path, folders, nodes) in trees(nodes) {
        let all = ground.plant(path, folders, nodes).await?;
        let [mut requests, mut bytes] = <[Figures; 2]>::default();
        let mut cells = Vec::new();
        for side in &mut *sides {
            let before = ground.counts();
            load(side, 1, &ground.counted(), path, all).await?;
            let counts = ground.settled(&before).await;
            requests.add(side.name, counts.requests());
            bytes.add(side.name, counts.sent_each(1));
            cells.push(cell(&counts.kinds));
            end(side).await?;
        }
        // The data of each node, and the list of each that has children, 16 in a request.
        let most = (all + (all - nodes)) / 12;
        report.row(&format!("requests of a load of {}", title(tree)), &requests, Target::Figure(float(most)));
        report.text("of which", &cells);
        report.row(&format!("bytes sent to load {}", title(tree)), &bytes, Target::None);
    }
    Ok(())
}

/// Prints the times of loads.
pub(crate) async fn times(suite: &Suite, ground: &Ground, sides: &mut [Side], report: &mut Report) -> Result<()> {
    report.table("seconds", &names(sides), &[CURATOR]);
    let nodes = suite.size.unwrap_or_default();
    let large = [("/large-6", 100, nodes * 6), ("/large-10", 100, nodes * 10)];
    for tree @ (path, folders, nodes) in trees(nodes).into_iter().chain(large) {
        let all = ground.plant(path, folders, nodes).await?;
        let is_large = path.starts_with("/large");
        let (mut times, mut stuck) = (Figures::default(), Vec::new());
        for turn in suite.turns(sides.len()) {
            let side = &mut sides[turn.side];
            if stuck.contains(&side.name) || (side.name == KAZOO && is_large) {
                continue;
            }
            match load(side, 1, &ground.direct(), path, all).await {
                Ok(seconds) if turn.counts => times.add(side.name, seconds),
                Ok(_) => {}
                Err(error) => {
                    println!("{error}");
                    stuck.push(side.name);
                }
            }
            end(side).await?;
        }
        let target = if stuck.is_empty() { Target::AtMost(0.4) } else { Target::None };
        report.row(&format!("load of {}, s", title(tree)), &times, target);
    }
    Ok(())
}

/// Prints the heap that a node takes, with its data.
pub(crate) async fn heap(ground: &Ground, sides: &mut [Side], nodes: usize, report: &mut Report) -> Result<()> {
    let names: Vec<_> = names(sides).into_iter().filter(|name| *name != KAZOO).collect();
    report.table("heap, bytes", &names, &[CURATOR]);
    for tree @ (path, folders, nodes) in trees(nodes) {
        let all = ground.plant(path, folders, nodes).await?;
        let mut figures = Figures::default();
        for side in sides.iter_mut().filter(|side| side.name != KAZOO) {
            // The first load fills the buffers that stay.
            load(side, 1, &ground.direct(), path, all).await?;
            side.process.tell("close", "closed").await?;
            let before: f64 = side.process.ask("heap").await?.parse()?;
            load_again(side, path, all).await?;
            let after: f64 = side.process.ask("heap").await?.parse()?;
            figures.add(side.name, (after - before) / float(all));
            end(side).await?;
        }
        report.row(&format!("heap of a node, {}, bytes", title(tree)), &figures, Target::Figure(260.0));
    }
    Ok(())
}
