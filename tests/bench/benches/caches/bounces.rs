//! Reads after a lost connection: of one cache, and of a hundred.

use curator_bench::figures::float;
use curator_bench::harness::{CURATOR, Figures, KAZOO, Report, Side, Target, names};
use curator_bench::process::Result;
use curator_bench::servers::cell;

use crate::ground::{Ground, leaf};
use crate::{end, load};

const CLIENTS: usize = 100;

/// Prints the requests of one cache after a lost connection with and without changes.
pub(crate) async fn of_one(ground: &Ground, sides: &mut [Side], nodes: usize, report: &mut Report) -> Result<()> {
    let all = ground.plant("/flat", 1, nodes).await?;
    let all_changes = [0, 1, 100.min(nodes)];
    let mut rows = all_changes.map(|_| (Figures::default(), Figures::default(), Vec::new()));
    for side in &mut *sides {
        load(side, 1, &ground.counted(), "/flat", all).await?;
        for (changes, (reads, bytes, cells)) in all_changes.into_iter().zip(&mut rows) {
            let data = format!("bounce-{}-{changes}", side.name);
            let before = ground.counts();
            ground
                .bounce(async {
                    for node in 0..changes {
                        ground.set(&leaf("/flat", node), &data).await?;
                    }
                    Ok(())
                })
                .await?;
            if changes > 0 {
                side.process.tell(&format!("shows {} {data}", leaf("/flat", changes - 1)), "shown").await?;
            }
            let counts = ground.settled(&before).await;
            reads.add(side.name, counts.reads());
            bytes.add(side.name, counts.sent_each(all));
            cells.push(cell(&counts.kinds));
        }
        end(side).await?;
    }
    report.table(&format!("behind a lost connection, {nodes} nodes"), &names(sides), &[CURATOR]);
    for (changes, (reads, bytes, cells)) in all_changes.into_iter().zip(&rows) {
        let title = format!("behind a lost connection, {changes} changes");
        report.row(&format!("reads {title}"), reads, Target::Figure(float(2 * changes)));
        report.text("all requests", cells);
        // The path of the node, and some more.
        let most = float(leaf("/flat", 0).len() + 60);
        report.row(&format!("bytes sent a node {title}"), bytes, Target::Figure(most));
    }
    Ok(())
}

/// Prints the requests of many caches after a restart of the server.
pub(crate) async fn of_many(ground: &Ground, sides: &mut [Side], nodes: usize, report: &mut Report) -> Result<()> {
    let all = ground.plant("/thousand", 1, nodes).await?;
    let (mut reads, mut cells, mut names) = (Figures::default(), Vec::new(), Vec::new());
    for side in sides.iter_mut().filter(|side| side.name != KAZOO) {
        load(side, CLIENTS, &ground.counted(), "/thousand", all).await?;
        ground.settled(&ground.counts()).await;
        let before = ground.counts();
        ground.restart(CLIENTS).await?;
        let counts = ground.settled(&before).await;
        reads.add(side.name, counts.reads());
        cells.push(cell(&counts.kinds));
        names.push(side.name);
        // All follow the tree.
        let data = format!("restart-{}", side.name);
        ground.set(&leaf("/thousand", 0), &data).await?;
        side.process.tell(&format!("shows {} {data}", leaf("/thousand", 0)), "shown").await?;
        end(side).await?;
    }
    report.table(&format!("the server restarts, {CLIENTS} clients with {all} nodes each"), &names, &[CURATOR]);
    report.row("reads when the server restarts", &reads, Target::Figure(0.0));
    report.text("all requests", &cells);
    Ok(())
}
