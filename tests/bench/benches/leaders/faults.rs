//! Faults under a leader on a cluster of three Apache servers: the old leader's last moment beside the next one's first.
//!
//! Candidate `a` leads over a follower, through proxies; `b` waits, connected to the other two servers.

use std::net::SocketAddr;
use std::time::Duration;

use curator_bench::process::{Java, Process};
use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
use curator_test::{ApacheCluster, FaultProxy, kill_session};
use futures_util::future::try_join_all;
use rustix::process::Signal;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::outcome::{Outcome, outcome};
use crate::process::{self, Result, Term, Terms, now};

/// The session timeout of all candidates.
pub(crate) const SESSION: Duration = Duration::from_secs(4);
pub(crate) const TICK: Duration = Duration::from_millis(500);
/// With the tick: 10 s, as in Apache's own configuration.
pub(crate) const SYNC_LIMIT: u32 = 20;
/// The time for which all servers are away.
const AWAY: Duration = Duration::from_millis(4_600);
const POLL: Duration = Duration::from_millis(2);
/// The limit of the wait for another leader.
const LIMIT: Duration = Duration::from_secs(12);

/// The implementations that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    /// Curator with its default error policy, which ends a term with the connection.
    Curator,
    /// Curator with the policy that ends a term with the session.
    CuratorSession,
}

impl Side {
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::Curator, Self::CuratorSession];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Curator => "curator",
            Self::CuratorSession => "curator-session",
        }
    }

    const fn policy(self) -> &'static str {
        match self {
            Self::CuratorSession => "session",
            _ => "default",
        }
    }
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

impl Fault {
    pub(crate) const ALL: [Self; 12] = [
        Self::Reset,
        Self::ServerKilled,
        Self::OnlyServerKilled,
        Self::Partition,
        Self::CutFromLeader,
        Self::ServerFrozen,
        Self::ClientFrozen,
        Self::AllAway,
        Self::SessionKilled,
        Self::NodeDeleted,
        Self::ParentRemoved,
        Self::ProcessKilled,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Reset => "TCP connection reset",
            Self::ServerKilled => "leader's server killed, it knows the others",
            Self::OnlyServerKilled => "leader's server killed, it knows no other",
            Self::Partition => "leader's network silent",
            Self::CutFromLeader => "leader's server cut off from the servers' leader",
            Self::ServerFrozen => "leader's server frozen",
            Self::ClientFrozen => "leader's process frozen for longer than its session",
            Self::AllAway => "all servers away for 4.6 s",
            Self::SessionKilled => "session killed by the server",
            Self::NodeDeleted => "own node deleted",
            Self::ParentRemoved => "path removed with all nodes",
            Self::ProcessKilled => "leader's process killed",
        }
    }

    /// True if the leader can prove its loss before another candidate leads.
    pub(crate) const fn is_provable(self) -> bool {
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
pub(crate) struct Stage {
    cluster: ApacheCluster,
    sides: Vec<Side>,
    java: Java,
    terms: Terms,
    /// For Java's and for our candidates: the process of the leaders, and that of the others.
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
    fn path(&self, side: Side) -> String {
        format!("{}/{}", self.folder, side.name())
    }

    /// The nodes of a side in their order.
    async fn nodes(&self, side: Side) -> Result<Vec<String>> {
        let path = self.path(side);
        let mut nodes = self.client.get_children().for_path(&path).await?;
        nodes.sort_by_key(|node| node.rsplit('-').next().map(ToOwned::to_owned));
        Ok(nodes.into_iter().map(|node| format!("{path}/{node}")).collect())
    }

    /// Takes away what the leader of a side has on the servers.
    async fn harm(&self, fault: Fault, side: Side, server: SocketAddr) -> Result<()> {
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

/// The outcome of a side in a round, and the time from the fault to the first term of another candidate.
pub(crate) struct Row {
    pub(crate) side: Side,
    pub(crate) outcome: Outcome,
    pub(crate) takeover: Option<Duration>,
}

async fn processes(java: &Java, terms: &Terms) -> Result<[Process; 2]> {
    Ok([process::java(java, terms).await?, process::java(java, terms).await?])
}

impl Stage {
    pub(crate) async fn new(sides: Vec<Side>) -> Result<Self> {
        let cluster = block_in_place(|| ApacheCluster::builder().tick(TICK).sync_limit(SYNC_LIMIT).start())?;
        let (java, terms) = (process::compile().await?, Terms::default());
        let ours = [process::ours(&terms).await?, process::ours(&terms).await?];
        let processes = [processes(&java, &terms).await?, ours];
        Ok(Self { cluster, sides, java, terms, processes })
    }

    pub(crate) fn version(&self) -> &str {
        self.cluster.version()
    }

    /// Returns the process of a side's leader, or that of its other candidate.
    fn process(&mut self, side: Side, is_leader: bool) -> &mut Process {
        &mut self.processes[usize::from(side == Side::Ours)][usize::from(!is_leader)]
    }

    /// Returns the terms of a candidate.
    fn terms(&self, side: Side, which: &str) -> Vec<Term> {
        self.terms.lock().get(&format!("{}-{which}", side.name())).cloned().unwrap_or_default()
    }

    fn leads(&self, side: Side, which: &str) -> bool {
        self.terms(side, which).last().is_some_and(|term| term.until.is_none())
    }

    /// True if a candidate has begun to lead since this time.
    fn has_led(&self, side: Side, which: &str, since: Duration) -> bool {
        self.terms(side, which).iter().any(|term| term.from > since)
    }

    /// Waits until this holds for all sides, or for so long.
    async fn wait(&self, limit: Duration, holds: impl Fn(Side) -> bool) -> bool {
        let began = now();
        while now() - began < limit {
            if self.sides.iter().all(|side| holds(*side)) {
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
        let client = CuratorFramework::builder(self.cluster.connect_string())
            .session_timeout(Duration::from_secs(10))
            .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 10)?)
            .build()?;
        client.start()?;
        client.block_until_connected().await?;
        Ok(Ground { server, proxies, client, folder: folder.to_owned() })
    }

    /// The servers of the candidates that do not lead.
    fn others(&self, ground: &Ground) -> Result<Vec<SocketAddr>> {
        let others = (0..self.cluster.servers()).filter(|index| *index != ground.server);
        others.map(|index| Ok(self.cluster.server(index)?)).collect()
    }

    async fn join(&mut self, side: Side, which: &str, servers: &[SocketAddr], ground: &Ground) -> Result<()> {
        let name = format!("{}-{which}", side.name());
        let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
        let (servers, millis, path) = (servers.join(","), SESSION.as_millis(), ground.path(side));
        let line = format!("join {name} {} {servers} {millis} {path}", side.policy());
        self.process(side, which == "a").tell(&line, &format!("joined {name}")).await
    }

    /// Lets the leaders join on one follower, then the other candidates.
    async fn fill(&mut self, fault: Fault, ground: &Ground) -> Result<()> {
        let all: Vec<_> = ground.proxies.iter().map(FaultProxy::address).collect();
        let first = if fault.leaves_a_way() { all } else { vec![all[ground.server]] };
        let others = self.others(ground)?;
        (0..ground.proxies.len())
            .filter(|index| *index != ground.server)
            .for_each(|index| ground.proxies[index].refuse());
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

    /// Starts the processes that replace those of the leaders.
    async fn spares(&self, fault: Fault) -> Result<Vec<Process>> {
        match fault {
            Fault::ProcessKilled => {
                Ok(vec![process::java(&self.java, &self.terms).await?, process::ours(&self.terms).await?])
            }
            _ => Ok(Vec::new()),
        }
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
                try_join_all(self.sides.iter().map(|side| ground.harm(fault, *side, address))).await?;
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
                // A deleted node is forgotten for ever.
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
                let name = format!("{}-{which}", side.name());
                self.process(side, which == "a").tell(&format!("leave {name}"), &format!("left {name}")).await?;
            }
        }
        Ok(())
    }

    /// Runs one round of all sides under one fault.
    pub(crate) async fn round(&mut self, fault: Fault, round: usize) -> Result<Vec<Row>> {
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
            let mut terms = ["a", "b", "c"].map(|which| self.terms(*side, which));
            if fault == Fault::ProcessKilled {
                // The process took its last look with it.
                terms[0].last_mut().map(|term| term.until.get_or_insert(since));
            }
            let takeover = terms[1..]
                .iter()
                .flatten()
                .map(|term| term.from)
                .filter(|from| *from > since)
                .min()
                .map(|from| from - since);
            Row { side: *side, outcome: outcome(&terms, since, until), takeover }
        });
        let rows = sides.collect();
        self.heal(fault, &ground).await?;
        ground.client.close().await;
        Ok(rows)
    }
}
