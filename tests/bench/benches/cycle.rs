//! One client that takes and releases a mutex again and again, for tools that count:
//! `cargo bench -p curator-bench --bench cycle -- --cycles N --connect HOST:PORT --client ours`.
//!
//! It prints one line of figures, each for one cycle: microseconds, microseconds of processor time, allocations, bytes
//! allocated. `tests/bench/costs` runs it under `strace` and Callgrind.

use std::alloc::System;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use curator_bench::cycles::{Client, Cycler, processor_time};
use curator_bench::figures::float;
use curator_bench::process::{Result, exit_code};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Cycles before those that count: buffers have grown, and the path is known to exist.
const WARM_UP: u32 = 100;

#[derive(Parser)]
#[command(about = "One client that takes and releases a mutex again and again")]
struct Options {
    /// A ZooKeeper server, as an address and a port.
    #[arg(long)]
    connect: SocketAddr,
    /// Cycles that count.
    #[arg(long, default_value_t = 1000)]
    cycles: u32,
    #[arg(long, value_enum, default_value = "ours")]
    client: Client,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

async fn run(options: Options) -> Result<bool> {
    let mut cycler = Cycler::connect(options.client, options.connect, "/cycle").await?;
    for _ in 0..WARM_UP {
        cycler.cycle().await?;
    }
    let (began, time, before) = (Instant::now(), processor_time(), ALLOCATOR.stats());
    for _ in 0..options.cycles {
        cycler.cycle().await?;
    }
    let (elapsed, time, allocated) = (began.elapsed(), processor_time() - time, ALLOCATOR.stats() - before);
    cycler.close().await?;
    let cycles = f64::from(options.cycles);
    let each = |count: usize| float(count) / cycles;
    println!(
        "{:.1} {:.1} {:.2} {:.0}",
        elapsed.as_secs_f64() * 1e6 / cycles,
        time.as_secs_f64() * 1e6 / cycles,
        each(allocated.allocations + allocated.reallocations),
        each(allocated.bytes_allocated),
    );
    Ok(true)
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(run(Options::parse())).await
}
