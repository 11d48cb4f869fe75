//! Limits jobs to N at once, in any number of processes.
//!
//! M jobs in several client sessions share one semaphore with N leases. Each job acquires a lease, works, and releases
//! the lease. The jobs of a client that wait share one node; with `--plain` each has its own.
//!
//! ```text
//! cargo run --example throttle
//! cargo run --example throttle -- --permits 5 --jobs 100 --work-ms 50 --clients 4
//! cargo run --example throttle -- --connect zk1:2181,zk2:2181
//! cargo run --example throttle -- --svg throttle.svg
//! ```
//!
//! Without `--connect` the program starts its own ZooKeeper server. The last line shows the largest number of jobs that
//! worked at once, by the example's own count. `--svg` writes a chart of the leases over time, even after Ctrl-C.
//!
//! Exit status: 1 if that number is above the limit, or below it although the work was enough to reach it; 2 after
//! an error; 130 after Ctrl-C, which releases all leases.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use curator_examples::chart::Chart;
use curator_examples::{Outcome, first_word, say, started};
use curator_framework::CuratorFramework;
use curator_recipes::{InterProcessSemaphoreV2, LockError, LossReason, Release, SemaphoreOptions, SemaphoreProtocol};
use curator_test::TestingServer;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

/// Limits jobs to N at once through ZooKeeper.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Servers to use, host:port[,host:port…]; without it a server is started inside of this program
    #[arg(long)]
    connect: Option<String>,
    /// Number of jobs that may work at once
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    permits: usize,
    /// Number of jobs
    #[arg(long, default_value_t = 20, value_parser = at_least_one)]
    jobs: usize,
    /// Duration of a job's work, in milliseconds
    #[arg(long, default_value_t = 200)]
    work_ms: u64,
    /// Number of client sessions, which share the jobs evenly
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    clients: usize,
    /// The semaphore's path
    #[arg(long, default_value = "/examples/throttle")]
    path: String,
    /// The protocol of all clients of the path: curator works beside Java, direct is faster and works only without Java
    #[arg(long, value_enum, default_value_t = Protocol::Curator)]
    protocol: Protocol,
    /// Give each waiting job a node of its own: Curator's order between the clients. Otherwise the jobs of a client share
    /// one. The direct protocol is always plain
    #[arg(long)]
    plain: bool,
    /// Write a chart to this file: the leases over time, with the length of the queue below
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Protocol {
    Curator,
    Direct,
}

impl From<Protocol> for SemaphoreProtocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Curator => Self::Curator,
            Protocol::Direct => Self::Direct,
        }
    }
}

impl Options {
    fn of_leases(&self) -> SemaphoreOptions {
        let options = SemaphoreOptions::new().protocol(self.protocol.into());
        if self.plain || matches!(self.protocol, Protocol::Direct) { options } else { options.one_node_per_client() }
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// The example's own count of its jobs, independent of the semaphore. Each job is in one of three states.
#[derive(Debug)]
struct Counts {
    waiting: usize,
    working: usize,
    done: usize,
    /// The largest number of working jobs so far.
    most: usize,
}

impl Counts {
    fn begin(&mut self) {
        (self.waiting, self.working) = (self.waiting - 1, self.working + 1);
        self.most = self.most.max(self.working);
    }

    fn stop(&mut self) {
        (self.working, self.waiting) = (self.working - 1, self.waiting + 1);
    }

    fn finish(&mut self) {
        (self.working, self.done) = (self.working - 1, self.done + 1);
    }

    fn repeat(&mut self) {
        (self.done, self.waiting) = (self.done - 1, self.waiting + 1);
    }
}

/// One working job. Dropping it stops the job's work, even when the job fails or is cancelled.
struct Working<'a> {
    display: &'a Display,
    job: usize,
    is_finished: bool,
}

impl<'a> Working<'a> {
    fn begin(display: &'a Display, job: usize) -> Self {
        display.step(job, "works", Counts::begin);
        Self { display, job, is_finished: false }
    }

    fn finish(mut self) {
        self.is_finished = true;
        self.display.step(self.job, "is done", Counts::finish);
    }

    fn lose(mut self, reason: LossReason) {
        self.is_finished = true;
        self.display.step(self.job, &format!("lost its lease ({reason}) and begins again"), Counts::stop);
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.display.counts().stop();
        }
    }
}

/// Shows the progress: a live line on a terminal, otherwise a line for each step.
struct Display {
    bar: Option<ProgressBar>,
    permits: usize,
    counts: Mutex<Counts>,
    chart: Mutex<Chart>,
}

impl Display {
    fn new(options: &Options) -> Outcome<Self> {
        let bar = if std::io::stderr().is_terminal() {
            let style = "{elapsed_precise} [{bar:40}] {pos}/{len} jobs done, {msg}";
            let bar = ProgressBar::new(options.jobs as u64).with_style(ProgressStyle::with_template(style)?);
            bar.enable_steady_tick(Duration::from_millis(100));
            Some(bar)
        } else {
            None
        };
        let mut chart = Chart::new(options.permits);
        chart.waiting(options.jobs);
        let counts = Counts { waiting: options.jobs, working: 0, done: 0, most: 0 };
        Ok(Self { bar, permits: options.permits, counts: Mutex::new(counts), chart: Mutex::new(chart) })
    }

    fn draw(&self, what: impl FnOnce(&mut Chart)) {
        if let Ok(mut chart) = self.chart.lock() {
            what(&mut chart);
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the counts and prints them under one lock, so that each line follows from the line before.
    fn step(&self, job: usize, what: &str, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts();
        change(&mut counts);
        let Counts { waiting, working, done, .. } = *counts;
        self.draw(|chart| chart.waiting(waiting));
        match &self.bar {
            Some(bar) => {
                bar.set_position(done as u64);
                bar.set_message(format!("{working} of {} at work, {waiting} waiting", self.permits));
            }
            None => say(format!("job {job} {what}: {working} at work, {waiting} waiting, {done} done")),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", curator_framework::Chain(&*error));
            ExitCode::from(2)
        }
    }
}

async fn run(options: &Options) -> Outcome<ExitCode> {
    // Kept until the end, because dropping the server stops it.
    let server = if options.connect.is_none() { Some(TestingServer::start()?) } else { None };
    let servers = match (&options.connect, &server) {
        (Some(connect), _) => connect.clone(),
        (None, Some(server)) => server.connect_string(),
        (None, None) => String::new(),
    };
    let mut clients = Vec::new();
    let mut semaphores = Vec::new();
    for _ in 0..options.clients {
        let client = started(&servers, Duration::from_secs(10))?;
        semaphores.push(InterProcessSemaphoreV2::with_options(
            client.clone(),
            &options.path,
            options.permits,
            options.of_leases(),
        )?);
        clients.push(client);
    }
    if let Some(file) = &options.svg {
        // Before the work, so that the program reports a wrong file name at once.
        std::fs::write(file, "").map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    first_word(&clients[0]).await?;

    let display = Arc::new(Display::new(options)?);
    let mut jobs = JoinSet::new();
    for number in 1..=options.jobs {
        let client = number % semaphores.len();
        let semaphore = semaphores[client].clone();
        let work = Duration::from_millis(options.work_ms);
        jobs.spawn(job((number, client), semaphore, work, Arc::clone(&display)));
    }
    let finished = tokio::select! {
        finished = join_all(&mut jobs) => finished.map(|()| true),
        _ = tokio::signal::ctrl_c() => Ok(false),
    };
    // Dropping a job drops its lease, or its acquire. `close` waits until their nodes are deleted.
    jobs.shutdown().await;
    let reachable = clients.iter().all(CuratorFramework::is_connected);
    let mut closing = JoinSet::new();
    for client in clients {
        closing.spawn(async move { client.close().await });
    }
    tokio::select! {
        _ = closing.join_all() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    if let Some(bar) = &display.bar {
        bar.finish_and_clear();
    }
    if let Some(file) = &options.svg {
        let svg = display.chart.lock().map(|chart| chart.svg()).unwrap_or_default();
        std::fs::write(file, svg).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    if !finished? {
        if reachable {
            eprintln!("interrupted, all leases are given back");
        } else {
            eprintln!("interrupted without a connection: the server takes the leases back when the sessions end");
        }
        return Ok(ExitCode::from(130));
    }
    let Counts { most, done, .. } = *display.counts();
    say(format!("{done} jobs done, at most {most} at once (limit {})", options.permits));
    let enough_work = options.jobs >= 2 * options.permits && options.work_ms >= 20;
    let wrong = most > options.permits || (enough_work && most < options.permits);
    Ok(if wrong { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

async fn join_all(jobs: &mut JoinSet<Result<(), LockError>>) -> Outcome {
    while let Some(job) = jobs.join_next().await {
        job??;
    }
    Ok(())
}

async fn job(
    (number, client): (usize, usize),
    semaphore: InterProcessSemaphoreV2,
    work: Duration,
    display: Arc<Display>,
) -> Result<(), LockError> {
    loop {
        let lease = semaphore.acquire().await?;
        let working = Working::begin(&display, number);
        display.draw(|chart| chart.granted(number, client));
        // A job stops when its lease is lost, because another job may be granted the lease.
        let lost = tokio::select! {
            () = tokio::time::sleep(work) => None,
            reason = lease.lost() => Some(reason),
        };
        display.draw(|chart| chart.ended(number));
        match lost {
            None => {
                working.finish();
                let Release::AlreadyLost(reason) = lease.release().await? else { return Ok(()) };
                // Work that was done without a lease does not count.
                let what = format!("had lost its lease ({reason}) and begins again");
                display.step(number, &what, Counts::repeat);
            }
            Some(reason) => working.lose(reason),
        }
    }
}
