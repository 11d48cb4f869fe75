//! A mutex without contention beside a cache that is loaded in the same client.

use curator_bench::figures::quantile;
use curator_bench::harness::{Figures, OURS, Report, Side, Suite, Target};
use curator_bench::process::Result;

use crate::ground::Ground;

/// The cycles without a load, before each load.
const CYCLES: usize = 1_000;
const BESIDE: &str = "beside a load";
const IDLE: &str = "idle";

fn micros(answer: &str) -> Result<Vec<f64>> {
    answer.split(' ').map(|nanos| Ok(nanos.parse::<f64>()? / 1e3)).collect()
}

/// Prints the times of a cycle with and without a load.
pub(crate) async fn run(suite: &Suite, ground: &Ground, sides: &mut [Side], report: &mut Report) -> Result<()> {
    let Some(side) = sides.iter_mut().find(|side| side.name == OURS) else { return Ok(()) };
    let all = ground.plant("/large-10", 100, suite.size.unwrap_or_default() * 10).await?;
    side.process.tell(&format!("connect 1 {}", ground.direct()), "connected").await?;
    let (mut idle, mut loading) = (Vec::new(), Vec::new());
    for turn in suite.turns(1) {
        let of_idle = micros(&side.process.ask(&format!("mutex /mutex {CYCLES}")).await?)?;
        let of_loading = micros(&side.process.ask(&format!("mutex-beside /mutex /large-10 {all}")).await?)?;
        if turn.counts {
            idle.extend(of_idle);
            loading.extend(of_loading);
        }
        side.process.tell("close", "closed").await?;
    }
    side.process.tell("end", "ended").await?;
    println!("\n{} cycles {IDLE}, {} {BESIDE} of {all} nodes", idle.len(), loading.len());
    report.table("cycle of a mutex, µs", &[BESIDE, IDLE], &[IDLE]);
    for (title, share, target) in [("median", 0.5, Target::None), ("99th percentile", 0.99, Target::AtMost(2.0))] {
        let mut figures = Figures::default();
        for (name, times) in [(BESIDE, &loading), (IDLE, &idle)] {
            quantile(times, share).into_iter().for_each(|figure| figures.add(name, figure));
        }
        report.row(&format!("cycle of a mutex beside a load, {title}"), &figures, target);
    }
    Ok(())
}
