//! Reads behind a lost connection: of one cache, and of a hundred.

use curator_bench::process::Result;

use crate::Side;
use crate::ground::{Ground, leaf};

const CLIENTS: usize = 100;

/// Prints the requests of one cache behind a lost connection with and without changes.
pub(crate) async fn of_one(ground: &Ground, sides: &mut [Side], nodes: usize) -> Result<()> {
    let all = ground.plant("/flat", 1, nodes).await?;
    println!(
        "\n| a bounce of {all} nodes | side | reads | all requests | bytes sent a node |\n| --- | --- | --- | --- | --- |"
    );
    for side in &mut *sides {
        side.load(1, &ground.counted(), "/flat", all).await?.complete()?;
        for changes in [0, 1, 100] {
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
            #[allow(clippy::cast_precision_loss, reason = "not that many")]
            let sent = counts.sent as f64 / all as f64;
            println!("| {changes} changes | {} | {} | {} | {sent:.1} |", side.name, counts.reads, counts.cell());
        }
        side.end().await?;
    }
    println!("\nThe path of a node has {} bytes.", leaf("/flat", 0).len());
    Ok(())
}

/// Prints the requests of many caches behind a restart of the server.
pub(crate) async fn of_many(ground: &Ground, sides: &mut [Side], nodes: usize) -> Result<()> {
    let all = ground.plant("/thousand", 1, nodes).await?;
    println!(
        "\n| the server restarts, {CLIENTS} clients with {all} nodes each | reads | all requests |\n| --- | --- | --- |"
    );
    for side in sides.iter_mut().filter(|side| side.name != crate::KAZOO) {
        side.load(CLIENTS, &ground.counted(), "/thousand", all).await?.complete()?;
        ground.settled(&ground.counts()).await;
        let before = ground.counts();
        ground.restart(CLIENTS).await?;
        let counts = ground.settled(&before).await;
        println!("| {} | {} | {} |", side.name, counts.reads, counts.cell());
        // All follow the tree.
        let data = format!("restart-{}", side.name);
        ground.set(&leaf("/thousand", 0), &data).await?;
        side.process.tell(&format!("shows {} {data}", leaf("/thousand", 0)), "shown").await?;
        side.end().await?;
    }
    Ok(())
}
