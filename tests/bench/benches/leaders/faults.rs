//! Faults under a leader on a cluster of three Apache servers: the old leader's last moment beside the next one's first.
//!
//! Candidate `a` leads over a follower, through proxies; `b` waits, connected to the other two servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use curator_bench::clients::connect;
use curator_bench::harness::{CURATOR, Figures, OURS, Report, Suite, Target};
use curator_bench::process::{Process, Program, Result, now};
use curator_framework::CuratorFramework;
use curator_test::{ApacheCluster, FaultProxy, kill_session};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::SESSION_POLICY;
use crate::outcome::{Outcome, Term, cell, outcome};

/// The session timeout of all candidates.
const SESSION: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(500);
/// With the tick: 10 s, as in Apache's own configuration.
const SYNC_LIMIT: u32 = 20;
/// The time for which all servers are away.
const AWAY: Duration = Duration::from_millis(4_600);
const POLL: Duration = Duration::from_millis(2);
/// The limit of the wait for another leader.
const LIMIT: Duration = Duration::from_secs(12);

/// The terms of each candidate, which all processes fill.
type Terms = Arc<Mutex<BTreeMap<String, Vec<Term>>>>;

/// Records a term that starts or ends. Returns `false` for other lines.
fn record(line: &str, terms: &Terms) -> bool {
    let words: Vec<_> = line.split(' ').collect();
    let at = |nanos: &str| nanos.parse().map(Duration::from_nanos).unwrap_or_default();
    match words[..] {
        ["up", name, nanos] => {
            let term = Term { from: at(nanos), until: None };
            terms.lock().entry(name.to_owned()).or_default().push(term);
        }
        ["down", name, nanos] => {
            if let Some(term) = terms.lock().get_mut(name).and_then(|terms| terms.last_mut()) {
                term.until = Some(at(nanos));
            }
        }
        _ => return false,
    }
    true
}

/// A fault under the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Reset,
    ServerKilled,
    OnlyServerKilled,
    Partition,
    CutFromLeader,
    ServerFrozen,
    ClientFrozen,
    AllAway,
    SessionKilled,
    NodeDeleted,
    ParentRemoved,
    ProcessKilled,
}

/// All faults, with their titles.
pub(crate) const FAULTS: [(Fault, &str); 12] = [
    (Fault::Reset, "TCP connection reset"),
    (Fault::ServerKilled, "leader's server killed, it knows the others"),
    (Fault::OnlyServerKilled, "leader's server killed, it knows no other"),
    (Fault::Partition, "leader's network silent"),
    (Fault::CutFromLeader, "leader's server cut off from the servers' leader"),
    (Fault::ServerFrozen, "leader's server frozen"),
    (Fault::ClientFrozen, "leader's process frozen for longer than its session"),
    (Fault::AllAway, "all servers away for 4.6 s"),
    (Fault::SessionKilled, "session killed by the server"),
    (Fault::NodeDeleted, "own node deleted"),
    (Fault::ParentRemoved, "path removed with all nodes"),
    (Fault::ProcessKilled, "leader's process killed"),
];

impl Fault {
    /// True if the leader can prove its loss before another candidate leads.
    const fn is_provable(self) -> bool {
        !matches!(self, Self::SessionKilled | Self::NodeDeleted | Self::ParentRemoved)
    }

    /// True if the leader knows all servers.
    const fn leaves_a_way(self) -> bool {
        matches!(self, Self::Reset | Self::ServerKilled | Self::ClientFrozen | Self::AllAway)
    }

    /// True if a session survives the fault.
    const fn spares_the_session(self) -> bool {
        matches!(self, Self::Reset | Self::ServerKilled)
    }
}

/// The servers and processes of all rounds.
struct Stage {
    cluster: ApacheCluster,
    sides: Vec<&'static str>,
    terms: Terms,
    /// For Java's and for our candidates: the process of the leaders, and the process of the others.
    processes: [[Process; 2]; 2],
}

/// The servers of a round.
struct Ground {
    /// The follower to which the leaders are connected.
    server: usize,
    /// The leaders' ways to each server.
    proxies: Vec<FaultProxy>,
    client: CuratorFramework,
    folder: String,
}

impl Ground {
    fn path(&self, side: &str) -> String {
        format!("{}/{side}", self.folder)
    }

    /// The nodes of a side in their order.
    async fn nodes(&self, side: &str) -> Result<Vec<String>> {
        let path = self.path(side);
        let mut nodes = self.client.get_children().for_path(&path).await?;
        nodes.sort_by_key(|node| node.rsplit('-').next().map(ToOwned::to_owned));
        Ok(nodes.into_iter().map(|node| format!("{path}/{node}")).collect())
    }

    /// Takes away what the leader of a side has on the servers.
    async fn harm(&self, fault: Fault, side: &str, server: SocketAddr) -> Result<()> {
        let nodes = self.nodes(side).await?;
        match fault {
            Fault::SessionKilled => {
                let stat = self.client.check_exists().for_path(&nodes[0]).await?.ok_or("the node is gone")?;
                kill_session(server, stat.ephemeral_owner).await?;
            }
            Fault::NodeDeleted => self.client.delete().for_path(&nodes[0]).await?,
            _ => {
                let mut all = self.client.transaction();
                for node in &nodes {
                    all = all.delete(node);
                }
                all.delete(self.path(side)).commit().await?;
            }
        }
        Ok(())
    }
}

/// A side in a round: its outcome, and the time from the fault to the first term of another candidate.
type Row = (&'static str, Outcome, Option<Duration>);

/// The programs of Java's and of our candidates.
const PROGRAMS: [Program; 2] = [Program::Java("CuratorLeaders", ""), Program::Ours];

async fn start(program: Program, terms: &Terms) -> Result<Process> {
    let terms = Arc::clone(terms);
    Process::start_beside(program, move |line| record(line, &terms)).await
}

impl Stage {
    async fn new(sides: Vec<&'static str>) -> Result<Self> {
        let cluster = block_in_place(|| ApacheCluster::builder().tick(TICK).sync_limit(SYNC_LIMIT).start())?;
        let terms = Terms::default();
        let pair = async |program| Result::Ok([start(program, &terms).await?, start(program, &terms).await?]);
        let processes = [pair(PROGRAMS[0]).await?, pair(PROGRAMS[1]).await?];
        Ok(Self { cluster, sides, terms, processes })
    }

    /// Returns the process of a side's leader, or the process of its other candidate.
    fn process(&mut self, side: &str, is_leader: bool) -> &mut Process {
        &mut self.processes[usize::from(side == OURS)][usize::from(!is_leader)]
    }

    /// Returns the terms of a candidate.
    fn terms(&self, side: &str, which: &str) -> Vec<Term> {
        self.terms.lock().get(&format!("{side}-{which}")).cloned().unwrap_or_default()
    }

    fn leads(&self, side: &str, which: &str) -> bool {
        self.terms(side, which).last().is_some_and(|term| term.until.is_none())
    }

    /// True if a candidate has started to lead since this time.
    fn has_led(&self, side: &str, which: &str, since: Duration) -> bool {
        self.terms(side, which).iter().any(|term| term.from > since)
    }

    /// Waits until this holds for all sides, or for so long.
    async fn wait(&self, limit: Duration, holds: impl Fn(&str) -> bool) -> bool {
        let began = now();
        while now() - began < limit {
            if self.sides.iter().all(|side| holds(side)) {
                return true;
            }
            sleep(POLL).await;
        }
        false
    }

    async fn ground(&self, folder: &str) -> Result<Ground> {
        block_in_place(|| (0..self.cluster.servers()).try_for_each(|index| self.cluster.wait_for_server(index)))?;
        let leader = block_in_place(|| self.cluster.wait_until_serving())?;
        let server = (leader + 1) % self.cluster.servers();
        let mut proxies = Vec::new();
        for index in 0..self.cluster.servers() {
            proxies.push(FaultProxy::start(self.cluster.server(index)?)?);
        }
        let client = connect(&self.cluster.connect_string(), Duration::from_secs(10)).await?;
        Ok(Ground { server, proxies, client, folder: folder.to_owned() })
    }

    /// The servers of the candidates that do not lead.
    fn others(&self, ground: &Ground) -> Result<Vec<SocketAddr>> {
        let others = (0..self.cluster.servers()).filter(|index| *index != ground.server);
        others.map(|index| Ok(self.cluster.server(index)?)).collect()
    }

    async fn join(&mut self, side: &str, which: &str, servers: &[SocketAddr], ground: &Ground) -> Result<()> {
        let name = format!("{side}-{which}");
        let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
        let (servers, millis, path) = (servers.join(","), SESSION.as_millis(), ground.path(side));
        let policy = if side == SESSION_POLICY { "session" } else { "default" };
        let line = format!("join {name} {policy} {servers} {millis} {path}");
        self.process(side, which == "a").tell(&line, &format!("joined {name}")).await
    }

    /// Lets the leaders join on one follower, then the other candidates.
    async fn fill(&mut self, fault: Fault, ground: &Ground) -> Result<()> {
        let all: Vec<_> = ground.proxies.iter().map(FaultProxy::address).collect();
        let first = if fault.leaves_a_way() { all } else { vec![all[ground.server]] };
        let others = self.others(ground)?;
        let away = ground.proxies.iter().enumerate().filter(|(index, _)| *index != ground.server);
        away.for_each(|(_, proxy)| proxy.refuse());
        self.terms.lock().clear();
        for side in self.sides.clone() {
            self.join(side, "a", &first, ground).await?;
        }
        if !self.wait(LIMIT, |side| self.leads(side, "a")).await {
            return Err("a first candidate does not lead".into());
        }
        for side in self.sides.clone() {
            self.join(side, "b", &others, ground).await?;
            while ground.nodes(side).await?.len() < 2 {
                sleep(POLL).await;
            }
        }
        ground.proxies.iter().for_each(FaultProxy::accept);
        Ok(())
    }

    /// Starts the processes that replace the leaders' processes.
    async fn spares(&self, fault: Fault) -> Result<Vec<Process>> {
        let programs = if fault == Fault::ProcessKilled { &PROGRAMS[..] } else { &[] };
        try_join_all(programs.iter().map(|program| start(*program, &self.terms))).await
    }

    async fn act(&mut self, fault: Fault, ground: &Ground, spares: Vec<Process>) -> Result<()> {
        let (server, cluster) = (ground.server, &self.cluster);
        match fault {
            Fault::Reset => ground.proxies.iter().for_each(FaultProxy::reset),
            Fault::ServerKilled | Fault::OnlyServerKilled => block_in_place(|| cluster.kill(server))?,
            Fault::Partition => ground.proxies.iter().for_each(FaultProxy::partition),
            Fault::CutFromLeader => drop(block_in_place(|| cluster.cut_from_leader(server))?),
            Fault::ServerFrozen => block_in_place(|| cluster.freeze(server))?,
            Fault::ClientFrozen => self.processes.iter().try_for_each(|[first, _]| first.signal(Signal::STOP))?,
            Fault::AllAway => {
                block_in_place(|| cluster.stop())?;
                sleep(AWAY).await;
                block_in_place(|| (0..cluster.servers()).try_for_each(|index| cluster.restart(index)))?;
                block_in_place(|| cluster.wait_until_serving())?;
            }
            Fault::SessionKilled | Fault::NodeDeleted | Fault::ParentRemoved => {
                let address = cluster.server(server)?;
                try_join_all(self.sides.iter().map(|side| ground.harm(fault, side, address))).await?;
            }
            Fault::ProcessKilled => {
                for (processes, spare) in self.processes.iter_mut().zip(spares) {
                    std::mem::replace(&mut processes[0], spare).kill().await?;
                }
            }
        }
        Ok(())
    }

    /// Waits until the outcome is clear.
    async fn observe(&mut self, fault: Fault, ground: &Ground, since: Duration) -> Result<()> {
        match fault {
            fault if fault.spares_the_session() => sleep(SESSION * 3 / 2).await,
            Fault::AllAway => sleep(LIMIT).await,
            Fault::ParentRemoved => {
                self.wait(SESSION, |side| ["a", "b"].iter().any(|which| self.has_led(side, which, since))).await;
                let others = self.others(ground)?;
                for side in self.sides.clone() {
                    self.join(side, "c", &others, ground).await?;
                }
                sleep(SESSION).await;
            }
            _ => {
                self.wait(LIMIT, |side| self.has_led(side, "b", since)).await;
                if fault == Fault::ClientFrozen {
                    self.processes.iter().try_for_each(|[first, _]| first.signal(Signal::CONT))?;
                    // The first look behind the stop.
                    sleep(SESSION / 4).await;
                }
                // A deleted node is forgotten forever.
                let limit = if fault == Fault::NodeDeleted { SESSION } else { LIMIT };
                if fault != Fault::ProcessKilled {
                    self.wait(limit, |side| !self.leads(side, "a")).await;
                }
            }
        }
        Ok(())
    }

    async fn heal(&mut self, fault: Fault, ground: &Ground) -> Result<()> {
        let server = ground.server;
        match fault {
            Fault::ServerKilled | Fault::OnlyServerKilled => block_in_place(|| self.cluster.restart(server))?,
            Fault::Partition => ground.proxies.iter().for_each(FaultProxy::repair),
            Fault::CutFromLeader => block_in_place(|| self.cluster.repair(server))?,
            Fault::ServerFrozen => block_in_place(|| self.cluster.thaw(server))?,
            _ => {}
        }
        for side in self.sides.clone() {
            for which in ["a", "b", "c"] {
                let has_left = which == "a" && fault == Fault::ProcessKilled;
                if has_left || which == "c" && fault != Fault::ParentRemoved {
                    continue;
                }
                let name = format!("{side}-{which}");
                self.process(side, which == "a").tell(&format!("leave {name}"), &format!("left {name}")).await?;
            }
        }
        Ok(())
    }

    /// Runs one round of all sides under one fault.
    async fn round(&mut self, fault: Fault, round: usize) -> Result<Vec<Row>> {
        let ground = self.ground(&format!("/{fault:?}-{round}")).await?;
        let spares = self.spares(fault).await?;
        self.fill(fault, &ground).await?;
        // The fault comes at another point of the heartbeats in each round.
        sleep(Duration::from_millis(900 + 130 * round as u64)).await;
        let since = now();
        self.act(fault, &ground, spares).await?;
        self.observe(fault, &ground, since).await?;
        let until = now();
        let sides = self.sides.iter().map(|side| {
            let mut terms = ["a", "b", "c"].map(|which| self.terms(side, which));
            if fault == Fault::ProcessKilled {
                // The process took its last look with it.
                terms[0].last_mut().map(|term| term.until.get_or_insert(since));
            }
            let led = terms[1..].iter().flatten().map(|term| term.from).filter(|from| *from > since);
            (*side, outcome(&terms, since, until), led.min().map(|from| from - since))
        });
        let rows = sides.collect();
        self.heal(fault, &ground).await?;
        ground.client.close().await;
        Ok(rows)
    }
}

/// Prints what comes of each fault that is meant. Ours may not overlap where the old leader can prove its loss.
pub(crate) async fn run(suite: &Suite, report: &mut Report) -> Result<()> {
    let faults: Vec<_> = FAULTS.into_iter().filter(|(_, title)| suite.wants(title)).collect();
    if faults.is_empty() {
        return Ok(());
    }
    let sides: Vec<_> = suite.sides.iter().map(|(name, _)| *name).collect();
    let mut stage = Stage::new(sides.clone()).await?;
    let servers = format!("three servers, session {SESSION:?}, tick {TICK:?}, syncLimit {SYNC_LIMIT}");
    report.table(&format!("fault; Apache ZooKeeper {}, {servers}", stage.cluster.version()), &sides, &[CURATOR]);
    for (fault, title) in faults {
        let (mut outcomes, mut takeovers) = (BTreeMap::<_, Vec<_>>::new(), Figures::default());
        for round in 0..suite.rounds.unwrap_or_default() {
            for (side, outcome, takeover) in stage.round(fault, round).await? {
                eprintln!("{title}, round {round}, {side}: {outcome:?}");
                report.judge(side != OURS || !fault.is_provable() || !outcome.overlaps());
                outcomes.entry(side).or_default().push(outcome);
                takeover.into_iter().for_each(|takeover| takeovers.add(side, takeover.as_secs_f64()));
            }
        }
        let provable = if fault.is_provable() { "provable" } else { "not provable" };
        let cells: Vec<_> = sides.iter().map(|side| cell(&outcomes[side])).collect();
        report.text(&format!("{title}, {provable}"), &cells);
        report.row(&format!("{title}: next leader after, s"), &takeovers, Target::None);
    }
    Ok(())
}
