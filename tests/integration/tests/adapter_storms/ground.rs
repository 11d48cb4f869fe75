//! Where a storm takes place: a server, a proxy for each client, an administrator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::{Acl, CuratorFramework, CuratorFrameworkBuilder, Error, RetryNTimes};
use curator_integration::clients::with_client;
use curator_recipes::SemaphoreProtocol;
use curator_test::{ApacheServer, FaultProxy, TestingServer, kill_session, unique_root};
use tokio::time::{Instant, sleep};

use curator_simulate::contenders::Recipe;

/// Without credentials no client may do anything below a storm's root.
const CREDENTIALS: (&str, &str) = ("digest", "storm:of clients");
const TICK: Duration = Duration::from_secs(1);
const SESSIONS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Before which server.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Each storm has one to itself.
    InProcess,
    /// One for all storms.
    Apache(Arc<Apache>),
}

/// An Apache ZooKeeper.
#[derive(Debug)]
pub(crate) enum Apache {
    Own(Box<ApacheServer>),
    /// The one that the test script has started for the whole run.
    Shared(SocketAddr),
}

impl Kind {
    pub(crate) fn apache() -> Self {
        Self::Apache(Arc::new(match std::env::var("CURATOR_TEST_APACHE") {
            Ok(address) => Apache::Shared(address.parse().expect("CURATOR_TEST_APACHE is host:port")),
            Err(_) => {
                let server = ApacheServer::builder().tick(TICK).session_timeouts(SESSIONS.0, SESSIONS.1);
                Apache::Own(Box::new(server.start().expect("it starts")))
            }
        }))
    }
}

#[derive(Debug)]
enum Server {
    InProcess(TestingServer),
    Apache(SocketAddr),
}

/// A contender's node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) session: i64,
    created: i64,
    client: Option<usize>,
}

/// One storm's.
#[derive(Debug)]
pub(crate) struct Ground {
    server: Server,
    proxies: Vec<FaultProxy>,
    /// Which clients are partitioned for a while.
    cut: Vec<AtomicBool>,
    administrator: CuratorFramework,
    recipe: Recipe,
    root: String,
}

impl Ground {
    pub(crate) async fn new(kind: &Kind, recipe: Recipe, clients: usize) -> Self {
        let (server, address) = match kind {
            Kind::InProcess => {
                let server =
                    TestingServer::builder().tick(TICK).session_timeouts(SESSIONS.0, SESSIONS.1).start().unwrap();
                let address = server.address();
                (Server::InProcess(server), address)
            }
            Kind::Apache(apache) => {
                let address = match &**apache {
                    Apache::Own(server) => server.address(),
                    Apache::Shared(address) => *address,
                };
                (Server::Apache(address), address)
            }
        };
        let proxies: Vec<_> = (0..clients).map(|_| FaultProxy::start(address).unwrap()).collect();
        let administrator = with_credentials(with_client(CuratorFramework::builder(address.to_string())))
            .session_timeout(Duration::from_secs(5))
            .connection_timeout(Duration::from_secs(20))
            .retry_policy(RetryNTimes::new(100, Duration::from_millis(50)))
            .build()
            .unwrap();
        administrator.start().unwrap();
        let root = unique_root("storm");
        let cut = proxies.iter().map(|_| AtomicBool::new(false)).collect();
        let ground = Self { server, proxies, cut, administrator, recipe, root };
        // Direct clients take no path over that lacks their mark.
        let is_direct =
            matches!(recipe, Recipe::Semaphore(_, SemaphoreProtocol::Direct) | Recipe::Many(SemaphoreProtocol::Direct));
        for part in recipe.parts(&ground.path()) {
            ground.make(&part, if is_direct { "__DIRECT__" } else { "" }).await;
        }
        for client in 0..clients {
            let echo = ground.echo(client);
            ground.make(&echo, &echo).await;
        }
        ground
    }

    async fn make(&self, path: &str, data: &str) {
        let mut end = "";
        // Each parent with credentials as well.
        for name in path[1..].split('/') {
            end = &path[..end.len() + 1 + name.len()];
            let data = if end == path { data } else { "" };
            match self.administrator.create().with_acl(Acl::creator_all()).with_data(data).for_path(end).await {
                Ok(_) | Err(Error::NodeExists { .. }) => {}
                Err(error) => panic!("failed to make {end}: {error}"),
            }
        }
    }

    /// The options of one of the clients. Its nodes carry its number.
    pub(crate) fn client(&self, client: usize) -> CuratorFrameworkBuilder {
        with_credentials(with_client(CuratorFramework::builder(self.proxies[client].connect_string())))
            .default_data(client.to_string())
    }

    pub(crate) fn clients(&self) -> usize {
        self.proxies.len()
    }

    /// The lock's path.
    pub(crate) fn path(&self) -> String {
        format!("{}/lock", self.root)
    }

    /// A node of one of the clients. Its data is its path.
    pub(crate) fn echo(&self, client: usize) -> String {
        format!("{}/echo-{client}", self.root)
    }

    pub(crate) fn proxy(&self, client: usize) -> &FaultProxy {
        &self.proxies[client]
    }

    pub(crate) fn partition(&self, client: usize) {
        self.cut[client].store(true, Ordering::SeqCst);
        self.proxies[client].partition();
    }

    pub(crate) fn repair(&self, client: usize) {
        self.cut[client].store(false, Ordering::SeqCst);
        self.proxies[client].repair();
    }

    /// Nothing passes until [`go_on`](Self::go_on).
    pub(crate) fn hold_on(&self) {
        self.proxies.iter().for_each(FaultProxy::partition);
    }

    /// But those that are partitioned stay so.
    pub(crate) fn go_on(&self) {
        for (proxy, cut) in self.proxies.iter().zip(&self.cut) {
            if !cut.load(Ordering::SeqCst) {
                proxy.repair();
            }
        }
    }

    /// The server, if it is the storm's own and may be mistreated.
    pub(crate) const fn own_server(&self) -> Option<&TestingServer> {
        match &self.server {
            Server::InProcess(server) => Some(server),
            Server::Apache(_) => None,
        }
    }

    /// The contenders' nodes.
    pub(crate) async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let mut nodes = Vec::new();
        for part in self.recipe.parts(&self.path()) {
            for name in self.administrator.get_children().for_path(&part).await? {
                let path = format!("{part}/{name}");
                match self.administrator.get_data().for_path(&path).await {
                    Ok((data, stat)) => nodes.push(Node {
                        path,
                        created: stat.czxid,
                        session: stat.ephemeral_owner,
                        client: String::from_utf8_lossy(&data).parse().ok(),
                    }),
                    Err(Error::NoNode { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(nodes)
    }

    /// The client that holds the lock or is about to, if there is one.
    pub(crate) async fn holder(&self) -> Option<usize> {
        let nodes = self.nodes().await.ok()?;
        let part = self.recipe.parts(&self.path()).swap_remove(0);
        nodes.into_iter().filter(|node| node.path.starts_with(&part)).min_by_key(|node| node.created)?.client
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), Error> {
        match self.administrator.delete().for_path(path).await {
            Err(Error::NoNode { .. }) => Ok(()),
            done => done,
        }
    }

    pub(crate) async fn kill_session(&self, session: i64) -> std::io::Result<()> {
        match &self.server {
            Server::InProcess(server) => {
                server.kill_session(session);
                Ok(())
            }
            Server::Apache(address) => kill_session(*address, session).await,
        }
    }

    /// Lets sequence numbers start a little before their end, where that is possible.
    pub(crate) fn near_the_last_number(&self) -> bool {
        let near = |part: &String| self.own_server().is_some_and(|server| server.set_next_sequence(part, i32::MAX - 6));
        self.recipe.parts(&self.path()).iter().all(near)
    }

    /// Everything works again.
    pub(crate) fn mend(&self) {
        if let Some(server) = self.own_server() {
            server.thaw();
            server.stale_reads(false);
        }
        for client in 0..self.clients() {
            self.repair(client);
            let proxy = self.proxy(client);
            proxy.accept();
            proxy.latency(Duration::ZERO);
            proxy.late_connect_answer(Duration::ZERO);
        }
    }

    /// Clears away what the storm needed.
    pub(crate) async fn clear(&self) {
        let mut paths = self.recipe.parts(&self.path());
        paths.extend((0..self.clients()).map(|client| self.echo(client)));
        paths.extend([self.path(), self.root.clone()]);
        for path in paths {
            // What was left behind has been reported.
            if let Err(error) = self.delete(&path).await {
                drop(error);
            }
        }
        self.administrator.close().await;
    }
}

fn with_credentials(builder: CuratorFrameworkBuilder) -> CuratorFrameworkBuilder {
    builder.authorization(CREDENTIALS.0, CREDENTIALS.1)
}

/// Polls until something is true that must become true.
pub(crate) async fn until(limit: Duration, mut is_true: impl AsyncFnMut() -> bool) -> Result<(), ()> {
    let end = Instant::now() + limit;
    while !is_true().await {
        if Instant::now() > end {
            return Err(());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
