//! Several servers that form one ensemble.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::ask::{self, Mode};
use super::error::ApacheError;
use super::launcher::Launcher;
use super::links::{Links, Ports};
use super::node::{Node, POLL_PAUSE, START_LIMIT, data_folder, new_folder};
use super::options::{ClaimedPorts, Options};

const SIZES: std::ops::RangeInclusive<usize> = 3..=9;
const PORTS_EACH: usize = 3;
const SYNC_LIMIT: u32 = 5;
/// The user `super` with the password `secret`, in Apache's form: the Base64 of the SHA-1 of `super:secret`.
const SUPER_USER: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";
/// The time that a new leader and its followers wait for each other, and the least number of ticks.
const INIT_LIMIT: (Duration, u128) = (Duration::from_secs(10), 10);

/// The options of an [`ApacheCluster`], from [`ApacheCluster::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `start`"]
pub struct ApacheClusterBuilder {
    options: Options,
    servers: usize,
    sync_limit: u32,
    read_only_mode: bool,
    properties: Vec<String>,
}

impl ApacheClusterBuilder {
    /// Sets the number of servers, from 3 to 9. The default is 3.
    ///
    /// An even number is allowed; a majority of 4 is 3.
    pub const fn servers(mut self, servers: usize) -> Self {
        self.servers = servers;
        self
    }

    /// Sets the servers' unit of time (`tickTime`). The default is one second.
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.options.tick = tick;
        self
    }

    /// Sets the number of silent ticks after which a follower and its leader disconnect (`syncLimit`), by default 5.
    ///
    /// Until then, a follower that is cut off continues to answer reads.
    pub const fn sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks;
        self
    }

    /// Sets the shortest and longest session timeout that the servers grant. The default is Apache's: 2 and 20 ticks.
    pub const fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.options.session_timeouts = Some((min, max));
        self
    }

    /// Lets a server that is cut off from the others serve reads to clients that allow it (`readonlymode.enabled`).
    /// Sessions stay local to their server until they create an ephemeral node: a read-only server creates no others.
    pub const fn read_only_mode(mut self) -> Self {
        self.read_only_mode = true;
        self
    }

    /// Lets a client change the set of servers (`reconfigEnabled`), with the credentials `super:secret` of the scheme
    /// `digest`. The servers then connect directly, so the connections between them cannot be cut.
    pub const fn reconfig(mut self) -> Self {
        self.options.reconfig = true;
        self
    }

    /// Sets the Java program, like [`ApacheServerBuilder::java`](super::ApacheServerBuilder::java).
    pub fn java(mut self, program: impl Into<PathBuf>) -> Self {
        self.options.java = Some(program.into());
        self
    }

    /// Sets the folder of `zookeeper.jar`, like [`ApacheServerBuilder::jars`](super::ApacheServerBuilder::jars).
    pub fn jars(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.jars = folder.into();
        self
    }

    /// Sets a system property of each server's Java.
    pub fn system_property(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.properties.push(format!("-D{}={}", name.as_ref(), value.as_ref()));
        self
    }

    /// Starts the servers and waits until all of them serve.
    ///
    /// # Errors
    /// As [`ApacheServerBuilder::start`](super::ApacheServerBuilder::start), and [`ApacheError::InvalidOption`]
    /// for an impossible number of servers or ticks.
    pub fn start(self) -> Result<ApacheCluster, ApacheError> {
        if !SIZES.contains(&self.servers) {
            return Err(ApacheError::InvalidOption("a cluster has 3 to 9 servers"));
        }
        if !(1..=1_000_000).contains(&self.sync_limit) {
            return Err(ApacheError::InvalidOption("the limit of silence is not 1 to 1000000 ticks"));
        }
        self.options.start(|mut launcher| {
            if self.read_only_mode {
                launcher.add_argument("-Dreadonlymode.enabled=true".to_owned());
            }
            if self.options.reconfig {
                let user = "-Dzookeeper.DigestAuthenticationProvider.superDigest";
                launcher.add_argument(format!("{user}={SUPER_USER}"));
            }
            for property in &self.properties {
                launcher.add_argument(property.clone());
            }
            self.start_once(&launcher)
        })
    }

    fn start_once(&self, launcher: &Launcher) -> Result<ApacheCluster, ApacheError> {
        let claimed = ClaimedPorts::claim(self.servers * PORTS_EACH).map_err(ApacheError::io("find free ports"))?;
        let (clients, others) = claimed.addresses.split_at(self.servers);
        let ports: Vec<Ports> = others.chunks(2).map(|ports| Ports { quorum: ports[0], election: ports[1] }).collect();
        let linked: &[Ports] = if self.options.reconfig { &[] } else { &ports };
        let links = Links::start(linked).map_err(ApacheError::io("start the links between the servers"))?;
        let mut nodes = Vec::new();
        for (index, address) in clients.iter().enumerate() {
            let folder = new_folder()?;
            let data = data_folder(folder.path());
            fs::create_dir(&data)
                .and_then(|()| fs::write(data.join("myid"), id(index).to_string()))
                .map_err(ApacheError::io("write the number of a server"))?;
            let mut config = self.options.config(folder.path(), *address);
            match self.options.reconfig {
                true => self.add_direct_ensemble(&mut config, clients, &ports),
                false => self.add_ensemble(&mut config, index, &ports, &links),
            }
            if self.read_only_mode {
                config.push_str("localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n");
            }
            nodes.push(Node::new(launcher.clone(), *address, folder, &config)?);
        }
        let version = String::new();
        let mut cluster = ApacheCluster { nodes, links, reconfig: self.options.reconfig, version, _ports: claimed };
        cluster.nodes.iter().try_for_each(Node::launch)?;
        (0..self.servers).try_for_each(|index| cluster.wait_for_server(index))?;
        cluster.wait_until_serving()?;
        cluster.version = ask::version(cluster.nodes[0].address()).map_err(ApacheError::io("ask for the version"))?;
        Ok(cluster)
    }

    fn add_limits(&self, config: &mut String) {
        let tick = self.options.tick.as_millis();
        let init_limit = INIT_LIMIT.0.as_millis().div_ceil(tick).max(INIT_LIMIT.1);
        // Writing to a string cannot fail.
        let _ = writeln!(config, "initLimit={init_limit}\nsyncLimit={}", self.sync_limit);
    }

    /// Adds the same lines for all servers, since a change writes them to all.
    fn add_direct_ensemble(&self, config: &mut String, clients: &[SocketAddr], servers: &[Ports]) {
        self.add_limits(config);
        for (index, (client, ports)) in clients.iter().zip(servers).enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(config, "{}", member(index, *client, *ports));
        }
    }

    /// Adds the addresses of all servers: the server's own one directly, the others behind proxies.
    fn add_ensemble(&self, config: &mut String, index: usize, servers: &[Ports], links: &Links) {
        self.add_limits(config);
        for (other, own) in servers.iter().enumerate() {
            let ports = if other == index { *own } else { links.ports(index, other) };
            let (quorum, election) = (ports.quorum.port(), ports.election.port());
            let _ = writeln!(config, "server.{}={}:{quorum}:{election}", id(other), ports.quorum.ip());
        }
    }
}

/// Returns the line of a server in an ensemble that can change.
fn member(index: usize, client: SocketAddr, ports: Ports) -> String {
    let (host, quorum, election) = (ports.quorum.ip(), ports.quorum.port(), ports.election.port());
    format!("server.{}={host}:{quorum}:{election}:participant;{client}", id(index))
}

/// Apache's numbers of servers start at 1.
const fn id(index: usize) -> usize {
    index + 1
}

/// Several real Apache ZooKeeper servers that form one ensemble, for tests.
///
/// Each server is a process like an [`ApacheServer`](super::ApacheServer), and ends like it. Its index, from 0,
/// names it. A start takes one or two seconds.
///
/// All connections between the servers run through proxies, so that they can be [`cut`](Self::cut) in silence. Then the
/// servers notice only by their own timers, the tick times [`sync_limit`](ApacheClusterBuilder::sync_limit). Clients
/// still reach all servers.
///
/// All calls are synchronous and may be made from any thread. Calls that wait block their thread.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use curator_test::ApacheCluster;
///
/// let cluster = ApacheCluster::builder().tick(Duration::from_millis(500)).start()?;
/// println!("give {} to the client", cluster.connect_string());
/// let first = cluster.wait_until_serving()?;
/// cluster.isolate(first)?;
/// let second = cluster.wait_until_serving()?;
/// assert_ne!(first, second);
/// # Ok::<(), curator_test::ApacheError>(())
/// ```
#[derive(Debug)]
#[doc(alias = "TestingCluster")]
pub struct ApacheCluster {
    nodes: Vec<Node>,
    links: Links,
    reconfig: bool,
    version: String,
    _ports: ClaimedPorts,
}

impl ApacheCluster {
    /// Starts a cluster of 3 to 9 servers with the default options, and waits until all of them serve.
    ///
    /// # Errors
    /// The errors of [`ApacheClusterBuilder::start`].
    pub fn start(servers: usize) -> Result<Self, ApacheError> {
        Self::builder().servers(servers).start()
    }

    /// Returns the default options for a cluster.
    pub fn builder() -> ApacheClusterBuilder {
        ApacheClusterBuilder {
            options: Options::default(),
            servers: *SIZES.start(),
            sync_limit: SYNC_LIMIT,
            read_only_mode: false,
            properties: Vec::new(),
        }
    }

    /// Returns the connect string of all servers: `127.0.0.1:<port>,127.0.0.1:<port>,…`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        addresses.join(",")
    }

    /// Returns the number of servers, running or not.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the address of one server, for clients. A [`restart`](Self::restart) keeps it.
    ///
    /// # Errors
    /// [`ApacheError::NoSuchServer`]: the index is too large.
    pub fn server(&self, index: usize) -> Result<SocketAddr, ApacheError> {
        Ok(self.node(index)?.address())
    }

    /// Returns the version of Apache ZooKeeper, such as `3.8.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the server that leads a majority now, or `None`.
    ///
    /// The servers report their roles themselves. A leader counts only if it and the connected followers are a
    /// majority: a leader that is cut off does not know it yet.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let modes: Vec<Option<Mode>> = self.nodes.iter().map(|node| ask::mode(node.address())).collect();
        let leads = |index: usize| {
            let follows = |&(other, mode): &(usize, &Option<Mode>)| {
                *mode == Some(Mode::Follower) && !self.links.is_cut(index, other)
            };
            1 + modes.iter().enumerate().filter(follows).count() > self.nodes.len() / 2
        };
        let leaders = modes.iter().enumerate().filter_map(|(index, mode)| match mode {
            Some(Mode::Leader { zxid }) if leads(index) => Some((*zxid, index)),
            _ => None,
        });
        // Of two leaders, the older has not noticed its end yet.
        leaders.max().map(|(_, index)| index)
    }

    /// Waits until a majority serves, and returns its [leader](Self::leader).
    ///
    /// # Errors
    /// [`ApacheError::NotServing`] after a minute.
    pub fn wait_until_serving(&self) -> Result<usize, ApacheError> {
        let began = Instant::now();
        loop {
            if let Some(leader) = self.leader() {
                return Ok(leader);
            }
            self.give_up_late(began, &self.nodes)?;
            thread::sleep(POLL_PAUSE);
        }
    }

    /// Waits until a server serves.
    ///
    /// # Errors
    /// - [`ApacheError::NoSuchServer`]: the index is too large.
    /// - [`ApacheError::Stopped`], [`ApacheError::Ended`], [`ApacheError::PortTaken`]: the server does not run.
    /// - [`ApacheError::NotServing`] after a minute.
    pub fn wait_for_server(&self, index: usize) -> Result<(), ApacheError> {
        let node = self.node(index)?;
        let began = Instant::now();
        while !node.serves()? {
            self.give_up_late(began, std::slice::from_ref(node))?;
            thread::sleep(POLL_PAUSE);
        }
        Ok(())
    }

    /// Kills a server as a crash does, and waits until its process has ended. Its data are kept.
    ///
    /// # Errors
    /// [`ApacheError::NoSuchServer`], and [`ApacheError::Io`] if it cannot be killed.
    pub fn kill(&self, index: usize) -> Result<(), ApacheError> {
        self.node(index)?.stop()
    }

    /// Kills all servers. Their data are kept.
    ///
    /// # Errors
    /// [`ApacheError::Io`] if one cannot be killed.
    pub fn stop(&self) -> Result<(), ApacheError> {
        self.nodes.iter().try_for_each(Node::stop)
    }

    /// Kills a server if it runs, and starts it again on the same ports with the same data.
    ///
    /// Returns at once, since a server serves only when a majority runs: see
    /// [`wait_for_server`](Self::wait_for_server).
    ///
    /// # Errors
    /// [`ApacheError::NoSuchServer`], and [`ApacheError::Io`] if the process cannot be started.
    pub fn restart(&self, index: usize) -> Result<(), ApacheError> {
        self.node(index)?.launch()
    }

    /// Halts a server, like [`ApacheServer::freeze`](super::ApacheServer::freeze).
    ///
    /// # Errors
    /// [`ApacheError::NoSuchServer`], [`ApacheError::Stopped`], and [`ApacheError::Io`] if the
    /// signal cannot be sent.
    pub fn freeze(&self, index: usize) -> Result<(), ApacheError> {
        self.node(index)?.freeze()
    }

    /// Resumes a frozen server, like [`ApacheServer::thaw`](super::ApacheServer::thaw).
    ///
    /// # Errors
    /// The errors of [`freeze`](Self::freeze).
    pub fn thaw(&self, index: usize) -> Result<(), ApacheError> {
        self.node(index)?.thaw()
    }

    /// Cuts all connections between two servers in silence: no byte passes, no connection closes, and new ones do not
    /// reach the other server.
    ///
    /// # Errors
    /// [`ApacheError::NoSuchServer`], and [`ApacheError::InvalidOption`] for a cluster with
    /// [`reconfig`](ApacheClusterBuilder::reconfig).
    pub fn cut(&self, one: usize, other: usize) -> Result<(), ApacheError> {
        self.linked()?;
        self.node(one)?;
        self.node(other)?;
        self.links.cut(one, other);
        Ok(())
    }

    /// Cuts a follower off from the leader, and returns the leader. All other connections stay.
    ///
    /// # Errors
    /// [`ApacheError::NoLeader`] if no other server leads, and the errors of [`cut`](Self::cut).
    pub fn cut_from_leader(&self, index: usize) -> Result<usize, ApacheError> {
        self.linked()?;
        self.node(index)?;
        let leader = self.leader().filter(|leader| *leader != index).ok_or(ApacheError::NoLeader)?;
        self.links.cut(index, leader);
        Ok(leader)
    }

    /// Cuts a server off from all others.
    ///
    /// # Errors
    /// The errors of [`cut`](Self::cut).
    pub fn isolate(&self, index: usize) -> Result<(), ApacheError> {
        self.linked()?;
        self.each_other(index, |other| self.links.cut(index, other))
    }

    /// Restores all connections of a server with the others.
    ///
    /// Held bytes are delivered first.
    ///
    /// # Errors
    /// [`ApacheError::NoSuchServer`].
    pub fn repair(&self, index: usize) -> Result<(), ApacheError> {
        self.each_other(index, |other| self.links.repair(index, other))
    }

    /// Returns the numbers of connections between the servers: of followers with their leader, and for elections.
    #[must_use]
    pub fn connections(&self) -> (usize, usize) {
        self.links.connections()
    }

    fn linked(&self) -> Result<(), ApacheError> {
        let direct = "the servers of a cluster that can change reach each other directly, so nothing can be cut";
        if self.reconfig { Err(ApacheError::InvalidOption(direct)) } else { Ok(()) }
    }

    fn node(&self, index: usize) -> Result<&Node, ApacheError> {
        let servers = self.nodes.len();
        self.nodes.get(index).ok_or(ApacheError::NoSuchServer { index, servers })
    }

    fn each_other(&self, index: usize, act: impl Fn(usize)) -> Result<(), ApacheError> {
        self.node(index)?;
        (0..self.nodes.len()).filter(|other| *other != index).for_each(act);
        Ok(())
    }

    fn give_up_late(&self, began: Instant, nodes: &[Node]) -> Result<(), ApacheError> {
        let waited = began.elapsed();
        if waited <= START_LIMIT {
            return Ok(());
        }
        let logs: Vec<String> =
            nodes.iter().map(|node| format!("server at {}:\n{}", node.address(), node.log_end())).collect();
        Err(ApacheError::NotServing { waited, log: logs.join("\n") })
    }
}
