//! A mutex without contention beside a cache that is loaded in the same client.

use curator_bench::figures::{quantile, ratio};
use curator_bench::process::Result;

use crate::ground::Ground;
use crate::{OURS, Side};

/// The cycles without a load, before each load.
const CYCLES: usize = 1_000;

fn micros(answer: &str) -> Result<Vec<f64>> {
    answer.split(' ').map(|nanos| Ok(nanos.parse::<f64>()? / 1e3)).collect()
}

/// Prints the times of a cycle with and without a load.
pub(crate) async fn run(ground: &Ground, sides: &mut [Side], nodes: usize, rounds: usize) -> Result<()> {
    let Some(side) = sides.iter_mut().find(|side| side.name == OURS) else { return Ok(()) };
    let all = ground.plant("/large-10", 100, nodes).await?;
    side.process.tell(&format!("connect 1 {}", ground.direct()), "connected").await?;
    let (mut idle, mut loading) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        // The first round is for all to get warm.
        if round == 1 {
            (idle, loading) = Default::default();
        }
        idle.extend(micros(&side.process.ask(&format!("mutex /mutex {CYCLES}")).await?)?);
        loading.extend(micros(&side.process.ask(&format!("mutex-beside /mutex /large-10 {all}")).await?)?);
        side.process.tell("close", "closed").await?;
    }
    side.process.tell("end", "ended").await?;
    println!("\n| cycle of a mutex, µs | cycles | median | 99th percentile |\n| --- | --- | --- | --- |");
    for (title, times) in [("idle", &idle), ("a cache is loaded", &loading)] {
        let [half, most] = [0.5, 0.99].map(|share| quantile(times, share).unwrap_or(f64::NAN));
        println!("| {title} | {} | {half:.0} | {most:.0} |", times.len());
    }
    let ratio = ratio(quantile(&loading, 0.99), quantile(&idle, 0.99));
    println!("\nThe 99th percentile while a cache of {all} nodes is loaded, to idle: {ratio}");
    Ok(())
}
