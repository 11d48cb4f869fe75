//! Several real Apache ZooKeeper servers that make one ensemble.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::link::Link;
use super::{ApacheError, ApacheServer, ApacheServerBuilder, Launcher, POLL_PAUSE, START_LIMIT, START_TRIES};
use super::{command, data_folder, free_address};

/// How many ticks a follower may be behind its leader, or without a word from it.
const SYNC_LIMIT: u32 = 5;
/// How many ticks a follower may take to join, and a leader waits for followers before it looks for another one.
const INIT_LIMIT: u32 = 5;

/// Options of an [`ApacheCluster`]; made by [`ApacheCluster::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `start`"]
pub struct ApacheClusterBuilder {
    server: ApacheServerBuilder,
    servers: usize,
}

impl ApacheClusterBuilder {
    /// Sets how many servers there are. The default is 3.
    pub const fn servers(mut self, servers: usize) -> Self {
        self.servers = servers;
        self
    }

    /// Sets the servers' unit of time, as [`ApacheServerBuilder::tick`]. The default is one second.
    ///
    /// A follower that hears nothing from its leader for five ticks stops serving.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.server = self.server.tick(tick);
        self
    }

    /// Sets the shortest and the longest session timeout, as [`ApacheServerBuilder::session_timeouts`].
    pub fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.server = self.server.session_timeouts(min, max);
        self
    }

    /// Starts the servers and waits until all of them serve.
    ///
    /// # Errors
    /// As [`ApacheServerBuilder::start`]; [`ApacheError::InvalidOption`] also for less than three servers.
    pub fn start(self) -> Result<ApacheCluster, ApacheError> {
        self.server.check()?;
        if !(3..=100).contains(&self.servers) {
            return Err(ApacheError::InvalidOption("a cluster has 3 to 100 servers"));
        }
        let launcher = Launcher::find(self.server.java.as_deref(), &self.server.jars)?;
        let mut tries = START_TRIES;
        loop {
            tries -= 1;
            match self.start_once(&launcher) {
                // Another process may take a port between our look and the bind.
                Err(ApacheError::Ended { log, .. } | ApacheError::NotServing { log, .. })
                    if tries > 0 && log.contains("in use") => {}
                done => return done,
            }
        }
    }

    fn start_once(&self, launcher: &Launcher) -> Result<ApacheCluster, ApacheError> {
        let free = || free_address().map_err(ApacheError::io("find a free port"));
        let mut peers = Vec::new();
        for _ in 0..self.servers {
            peers.push(Peer { quorum: free()?, election: free()? });
        }
        let link = |to| Link::to(to).map_err(ApacheError::io("open a link between servers"));
        let mut members = Vec::new();
        for number in 0..self.servers {
            let mut links = Vec::new();
            let mut lines = format!("initLimit={INIT_LIMIT}\nsyncLimit={SYNC_LIMIT}\nreconfigEnabled=false\n");
            for (other, peer) in peers.iter().enumerate() {
                let (mut quorum, mut election) = (peer.quorum.port(), peer.election.port());
                if other != number {
                    // Each server sees each other one behind links of its own.
                    let (to_quorum, to_election) = (link(peer.quorum)?, link(peer.election)?);
                    (quorum, election) = (to_quorum.port(), to_election.port());
                    links.push((other, to_quorum));
                    links.push((other, to_election));
                }
                // Writing to a string cannot fail.
                let _ = writeln!(lines, "server.{}=127.0.0.1:{quorum}:{election}", other + 1);
            }
            let server = self.server.prepare(launcher.clone(), &lines)?;
            write_number(server.folder.path(), number)?;
            members.push(Member { server, links });
        }
        let mut cluster = ApacheCluster { members, version: String::new() };
        for member in &cluster.members {
            member.server.begin(&mut member.server.child.lock())?;
        }
        cluster.wait_until_all_serve()?;
        cluster.version = cluster.members[0].server.ask_version()?;
        Ok(cluster)
    }
}

fn write_number(folder: &Path, number: usize) -> Result<(), ApacheError> {
    let data = data_folder(folder);
    let written = fs::create_dir_all(&data).and_then(|()| fs::write(data.join("myid"), format!("{}\n", number + 1)));
    written.map_err(ApacheError::io("write the server's number"))
}

/// Where a server talks to the others.
#[derive(Debug, Clone, Copy)]
struct Peer {
    quorum: SocketAddr,
    election: SocketAddr,
}

#[derive(Debug)]
struct Member {
    server: ApacheServer,
    /// To the other servers, as this one sees them.
    links: Vec<(usize, Link)>,
}

/// Several real Apache ZooKeeper servers that make one ensemble, for tests; each in a process of its own.
///
/// Servers are named by their index, from 0. What the servers say to each other goes through links that can be
/// [cut](Self::isolate) in silence while clients still reach them. Everything else is as of an [`ApacheServer`]: data in
/// temporary folders, nothing forced to the disk, killed when it is dropped or when this process dies.
///
/// All calls are synchronous and may be made from any thread. A start takes about two seconds.
///
/// # Examples
/// ```no_run
/// use curator_test::ApacheCluster;
///
/// let cluster = ApacheCluster::start()?;
/// println!("give {} to the client", cluster.connect_string());
/// if let Some(leader) = cluster.leader() {
///     cluster.kill(leader)?;
///     cluster.restart(leader)?;
/// }
/// # Ok::<(), curator_test::ApacheError>(())
/// ```
#[derive(Debug)]
pub struct ApacheCluster {
    members: Vec<Member>,
    version: String,
}

impl ApacheCluster {
    /// Starts three servers with the default options and waits until all of them serve.
    ///
    /// # Errors
    /// As [`ApacheClusterBuilder::start`].
    pub fn start() -> Result<Self, ApacheError> {
        Self::builder().start()
    }

    /// Options for a cluster, to begin with the defaults.
    pub fn builder() -> ApacheClusterBuilder {
        ApacheClusterBuilder { server: ApacheServer::builder(), servers: 3 }
    }

    /// How many servers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never: a cluster has servers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What to give a client that may use any server.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses = self.members.iter().map(|member| member.server.connect_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// One server, for its address.
    ///
    /// # Panics
    /// If there is no such server.
    #[must_use]
    pub fn server(&self, index: usize) -> &ApacheServer {
        &self.members[index].server
    }

    /// The version of Apache ZooKeeper, such as `3.8.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Which server leads now, `None` while none does.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|&index| self.mode(index).as_deref() == Some("leader"))
    }

    /// Which servers follow now.
    #[must_use]
    pub fn followers(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|&index| self.mode(index).as_deref() == Some("follower")).collect()
    }

    /// Waits until a server leads and says which.
    ///
    /// # Errors
    /// [`ApacheError::NotServing`] if none does within a minute.
    pub fn wait_for_leader(&self) -> Result<usize, ApacheError> {
        self.wait(|| self.leader())
    }

    fn mode(&self, index: usize) -> Option<String> {
        let answer = command(self.members[index].server.address, "srvr").ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Kills a server (`SIGKILL`), frozen or not.
    ///
    /// # Errors
    /// As [`ApacheServer::stop`].
    ///
    /// # Panics
    /// If there is no such server.
    pub fn kill(&self, index: usize) -> Result<(), ApacheError> {
        self.members[index].server.stop()
    }

    /// Starts a server again with its data, after it was killed if it runs. It does not wait until the server serves,
    /// which takes a majority: see [`wait_until_serving`](Self::wait_until_serving).
    ///
    /// # Errors
    /// As [`ApacheServerBuilder::start`].
    ///
    /// # Panics
    /// If there is no such server.
    pub fn restart(&self, index: usize) -> Result<(), ApacheError> {
        let server = &self.members[index].server;
        server.stop()?;
        server.begin(&mut server.child.lock())
    }

    /// Halts a server (`SIGSTOP`), as [`ApacheServer::freeze`].
    ///
    /// # Errors
    /// As [`ApacheServer::freeze`].
    ///
    /// # Panics
    /// If there is no such server.
    pub fn freeze(&self, index: usize) -> Result<(), ApacheError> {
        self.members[index].server.freeze()
    }

    /// Lets a frozen server go on, as [`ApacheServer::thaw`].
    ///
    /// # Errors
    /// As [`ApacheServer::thaw`].
    ///
    /// # Panics
    /// If there is no such server.
    pub fn thaw(&self, index: usize) -> Result<(), ApacheError> {
        self.members[index].server.thaw()
    }

    /// Cuts a server off from all others, in silence, until [`repair`](Self::repair). Its clients still reach it.
    ///
    /// A follower goes on answering reads until it misses its leader, five ticks later.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn isolate(&self, index: usize) {
        self.links_of(index).for_each(Link::cut);
    }

    /// Ends an [`isolate`](Self::isolate).
    ///
    /// # Panics
    /// If there is no such server.
    pub fn repair(&self, index: usize) {
        self.links_of(index).for_each(Link::repair);
    }

    /// A server's links, and those of the others to it.
    fn links_of(&self, index: usize) -> impl Iterator<Item = &Link> {
        assert!(index < self.members.len(), "there is no server {index}");
        self.members.iter().enumerate().flat_map(move |(from, member)| {
            member.links.iter().filter(move |(to, _)| from == index || *to == index).map(|(_, link)| link)
        })
    }

    /// Waits until a server serves.
    ///
    /// # Errors
    /// [`ApacheError::NotServing`] if it does not within a minute.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn wait_until_serving(&self, index: usize) -> Result<(), ApacheError> {
        assert!(index < self.members.len(), "there is no server {index}");
        self.wait(|| self.mode(index).map(|_| ()))
    }

    fn wait_until_all_serve(&self) -> Result<(), ApacheError> {
        for index in 0..self.members.len() {
            self.wait_until_serving(index)?;
        }
        Ok(())
    }

    fn wait<T>(&self, what: impl Fn() -> Option<T>) -> Result<T, ApacheError> {
        let began = Instant::now();
        loop {
            if let Some(there) = what() {
                return Ok(there);
            }
            for member in &self.members {
                member.server.check_running()?;
            }
            let waited = began.elapsed();
            if waited > START_LIMIT {
                let logs: Vec<_> = self.members.iter().map(|member| member.server.log_end()).collect();
                return Err(ApacheError::NotServing { waited, log: logs.join("\n…\n") });
            }
            thread::sleep(POLL_PAUSE);
        }
    }
}
