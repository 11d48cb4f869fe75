//! A periodic job that exactly one of three clients runs, while their networks fail. A connection that breaks and comes
//! back does not cost leadership. A silent network does: the job stops before the next leader starts.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say, until};
use curator_framework::{CuratorFramework, CuratorOp};
use curator_recipes::{
    Leader, LeaderError, LeaderObserver, LeaderSelector, LeaderSelectorOptions, Leadership, ObserverState,
};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Runs a periodic job on one of three clients.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The election's path
    #[arg(long, default_value = "/examples/leader")]
    path: String,
}

/// Shows jobs that overlap: all clients are in this process.
static AT_WORK: Mutex<()> = Mutex::const_new(());
static OVERLAPS: AtomicUsize = AtomicUsize::new(0);

/// Runs the job again and again. The selector drops this future when the term ends.
async fn job(client: CuratorFramework, log: String, name: &str, term: Leadership) -> Result<(), LeaderError> {
    loop {
        match tick(&client, &log, name, &term).await {
            Err(error) if !error.is_retryable() => return Err(error),
            // The connection broke, perhaps after a write that the servers have carried out: read the log again.
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Runs one tick. The servers add it only to this version of the log, and only while the term continues.
async fn tick(client: &CuratorFramework, log: &str, name: &str, term: &Leadership) -> Result<(), LeaderError> {
    let alone = AT_WORK.try_lock();
    OVERLAPS.fetch_add(usize::from(alone.is_err()), Ordering::Relaxed);
    let (mut ticks, stat) = client.get_data().for_path(log).await?;
    tokio::time::sleep(Duration::from_millis(10)).await; // the work
    ticks.extend(format!("{name} ").bytes());
    term.transaction().operation(CuratorOp::set_data(log, ticks).with_version(stat.version)).commit().await?;
    drop(alone);
    Ok(())
}

/// Waits until a client leads.
async fn leads(observer: &LeaderObserver, name: &str) -> Outcome<Leader> {
    let is_it = |seen: &ObserverState| matches!(seen, ObserverState::Leader(leader) if leader.id == name);
    observer.watch().wait_for(is_it).await?;
    Ok(observer.leader().ok_or("the leader has gone")?)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let (log, election) = (format!("{path}/log"), format!("{path}/election"));
        let office = ensemble.client().await?;
        office.create().creating_parents_if_needed().or_set_data().with_data("").for_path(&log).await?;
        let observer = LeaderObserver::new(office.clone(), &election)?;
        observer.start()?;
        let (mut candidates, mut jobs) = (Vec::new(), JoinSet::new());
        for name in ["ann", "ben", "cleo"] {
            let (client, network) = ensemble.client_behind_a_proxy().await?;
            let options = LeaderSelectorOptions::new().id(name);
            let selector = LeaderSelector::with_options(client.clone(), &election, options)?;
            candidates.push((selector.clone(), network));
            let (runs, log) = (selector.clone(), log.clone());
            jobs.spawn(async move { runs.run(|term| job(client.clone(), log.clone(), name, term)).await });
            until(|| async { Ok(selector.participants().await?.len() == candidates.len()) }).await?;
        }
        let ticks = async || Outcome::Ok(String::from_utf8(office.get_data().for_path(&log).await?.0)?);
        let some_more = async || {
            let before = ticks().await?.len();
            until(|| async { Ok(ticks().await?.len() > before + 20) }).await
        };

        let before = leads(&observer, "ann").await?;
        some_more().await?;
        candidates[0].1.reset();
        some_more().await?;
        let same = leads(&observer, "ann").await? == before;
        say(format!("ann's connection breaks and comes back; ann leads in the same term: {same}"));
        candidates[0].1.partition();
        leads(&observer, "ben").await?;
        say("ann's network is silent; ben leads");
        some_more().await?;
        candidates[1].0.close().await;
        leads(&observer, "cleo").await?;
        say("ben leaves the election; cleo leads");
        some_more().await?;
        candidates[0].1.repair();
        for (selector, _) in &candidates {
            selector.close().await;
        }
        while let Some(ended) = jobs.join_next().await {
            ended??;
        }
        let (ticks, mut number) = (ticks().await?, 1);
        for term in ticks.split_whitespace().collect::<Vec<_>>().chunk_by(|one, next| one == next) {
            say(format!("{} ran the ticks {number} to {}", term[0], number + term.len() - 1));
            number += term.len();
        }
        match OVERLAPS.load(Ordering::Relaxed) {
            0 => say("no tick overlapped another"),
            count => return Err(format!("{count} ticks overlapped others").into()),
        }
        Ok(office.delete().for_path(&log).await?)
    })
    .await
}
