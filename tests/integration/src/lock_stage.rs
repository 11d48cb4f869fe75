//! A lock in a simulation, with a holder and a waiter: time and what is left are exact.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, RetryNTimes, make_path};
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockGuard, SemaphoreOptions,
    SemaphoreProtocol,
};
use curator_test::{ClientId, SimulatedEnsemble};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::kinds::Which;

/// Under this all locks are.
pub const ROOT: &str = "/locks";
/// The client that is tested.
pub const OURS: ClientId = ClientId(1);
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// By then everything is quiet that is not waiting for something, the look after one's own node included.
pub const QUIET: Duration = Duration::from_secs(2);
/// The time after which the holder in front of us releases the lock.
pub const TURN: Duration = Duration::from_secs(2);
const LONGEST_SCENE: Duration = Duration::from_secs(600);
/// Longer than anything that must come takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is acquired: a lock, or both of two leases at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    One(Which),
    Both(SemaphoreProtocol),
}

impl Subject {
    fn semaphore(protocol: SemaphoreProtocol, client: &CuratorFramework) -> InterProcessSemaphoreV2 {
        let path = make_path(ROOT, "both");
        InterProcessSemaphoreV2::with_options(client.clone(), path, 2, SemaphoreOptions::new().protocol(protocol))
            .unwrap()
    }

    /// The semaphore of which both leases are acquired.
    pub fn of_two(self, client: &CuratorFramework) -> InterProcessSemaphoreV2 {
        let Self::Both(protocol) = self else { panic!("{self:?} is no semaphore of two") };
        Self::semaphore(protocol, client)
    }

    /// Acquires what keeps us waiting: of several things the last one only, so that we have some already.
    pub async fn block(self, client: &CuratorFramework) -> LockGuard {
        match self {
            Self::One(Which::Multi) => {
                let path = make_path(&Which::Multi.path(ROOT), "two");
                InterProcessMutex::new(client.clone(), path).unwrap().acquire().await.unwrap().into()
            }
            Self::Both(protocol) => Self::semaphore(protocol, client).acquire().await.unwrap().into(),
            one => one.take_all(client).await.remove(0),
        }
    }

    /// Acquires all of it, so that it waits for each holder of a part.
    async fn take_all(self, client: &CuratorFramework) -> Vec<LockGuard> {
        match self {
            Self::One(Which::Read) => {
                let lock = InterProcessReadWriteLock::new(client.clone(), Which::Read.path(ROOT)).unwrap();
                vec![lock.write_lock().acquire().await.unwrap().into()]
            }
            Self::One(which) => vec![which.lock(client, ROOT).acquire().await.unwrap()],
            Self::Both(protocol) => {
                let leases = Self::semaphore(protocol, client).acquire_many(2).await.unwrap();
                leases.into_iter().map(Into::into).collect()
            }
        }
    }
}

/// What there is in a process and on its servers.
#[derive(Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Those that belong to sessions.
    nodes: Vec<String>,
    /// Of the three clients.
    waiters: [Vec<String>; 3],
    /// On the servers, which keep a watch without a waiter until its event comes.
    watches: usize,
    tasks: usize,
}

impl Footprint {
    /// Without what only an event takes from the servers.
    pub fn of_clients(mut self) -> Self {
        self.watches = 0;
        self
    }
}

/// The simulation, and its clients.
#[derive(Debug)]
pub struct Stage {
    pub ensemble: SimulatedEnsemble,
    pub client: CuratorFramework,
    pub front: CuratorFramework,
    behind: CuratorFramework,
    session: i64,
}

impl Stage {
    pub async fn new(latency: Duration) -> Self {
        let ensemble = SimulatedEnsemble::new(1, latency);
        let client = connected(&ensemble, OURS).await;
        let session = ensemble.sessions()[0];
        let (front, behind) = (connected(&ensemble, ClientId(0)).await, connected(&ensemble, ClientId(2)).await);
        sleep(QUIET).await;
        Self { ensemble, client, front, behind, session }
    }

    pub fn footprint(&self) -> Footprint {
        let mut nodes = Vec::new();
        self.add_owned_below("/", &mut nodes);
        Footprint {
            nodes: nodes.into_iter().map(|(path, _)| path).collect(),
            waiters: [&self.front, &self.client, &self.behind].map(CuratorFramework::watched_paths),
            watches: self.ensemble.watch_count(),
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        }
    }

    /// The nodes of our session.
    pub fn own_nodes(&self) -> Vec<String> {
        let mut nodes = Vec::new();
        self.add_owned_below("/", &mut nodes);
        nodes.into_iter().filter(|(_, owner)| *owner == self.session).map(|(path, _)| path).collect()
    }

    fn add_owned_below(&self, path: &str, nodes: &mut Vec<(String, i64)>) {
        for child in self.ensemble.children(path) {
            let path = make_path(path, &child);
            nodes.extend(self.ensemble.owner(&path).filter(|owner| *owner != 0).map(|owner| (path.clone(), owner)));
            self.add_owned_below(&path, nodes);
        }
    }

    /// Another client acquires what keeps us waiting, and releases it after its turn.
    pub async fn holder_in_front(&self, subject: Subject) -> JoinHandle<()> {
        let held = subject.block(&self.front).await;
        sleep(QUIET).await;
        tokio::spawn(async move {
            sleep(TURN).await;
            assert!(held.release().await.unwrap().is_released());
        })
    }

    /// Another contender comes in the middle of the turn of the holder in front.
    pub fn contender_behind(&self, subject: Subject) -> JoinHandle<()> {
        let client = self.behind.clone();
        tokio::spawn(async move {
            sleep(TURN / 2).await;
            for guard in subject.take_all(&client).await {
                assert!(guard.release().await.unwrap().is_released());
            }
        })
    }

    /// Nothing of ours is left, though others may still have the lock.
    pub async fn assert_nothing_of_ours(&self, what: &str) {
        sleep(Duration::from_millis(500)).await;
        assert_eq!(self.own_nodes(), [""; 0], "{what}: nodes are left");
        assert_eq!(self.client.watched_paths(), [""; 0], "{what}: waiters are left");
    }

    /// All the others come through, and then all is as it was before.
    pub async fn assert_as_before(&self, others: Vec<JoinHandle<()>>, before: &Footprint, what: &str) {
        for other in others {
            match timeout(PATIENCE, other).await {
                Ok(done) => done.unwrap(),
                Err(_elapsed) => panic!("{what}: somebody waits for ever, {:?}", self.footprint()),
            }
        }
        sleep(QUIET).await;
        assert_eq!(self.footprint(), *before, "{what}");
    }
}

async fn connected(ensemble: &SimulatedEnsemble, client: ClientId) -> CuratorFramework {
    let options = ensemble.client(client).session_timeout(Duration::from_secs(10)).reap_interval(None);
    let options = options.connection_timeout(CONNECTION_TIMEOUT);
    let client = options.retry_policy(RetryNTimes::new(10, Duration::from_millis(50))).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

/// Runs a scene in a runtime of its own, under paused time: no other scene's tasks are there to be counted.
pub fn play<T>(scene: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { timeout(LONGEST_SCENE, scene).await.expect("the scene does not end") })
}
