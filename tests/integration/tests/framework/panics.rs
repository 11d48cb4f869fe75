//! Panics of code that the program supplies: each ends its own request or object, and no session.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::recipe::{KnownNodes, Resync, SubscriptionEvent};
use curator_framework::spi::{ByteStream, ConnectConfig, Connection, Connector, ZooKeeperFactory};
use curator_framework::{
    Acl, AclProvider, AddWatchMode, CompressionProvider, ConnectError, ConnectionState, ConnectionStateErrorPolicy,
    CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, EnsembleProvider, Error, FixedEnsembleProvider,
    LossReason, OtherPaths, Randomness, RetryAttempt, RetryPolicy, Schema, SchemaSet, ThreadRandomness, Zxid,
};
use curator_integration::env::{connected, in_time, reconnected};
use curator_integration::in_process;
use curator_recipes::{InterProcessMutex, MutexGuard, NodeState, PersistentNode};
use curator_test::{ClientId, FaultProxy, SimulatedEnsemble};

const CLIENT: ClientId = ClientId(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Code of a program, which panics while it is switched on.
#[derive(Debug, Clone, Default)]
struct Faulty(Arc<AtomicBool>);

impl Faulty {
    fn breaks(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn runs(&self) {
        assert!(!self.0.load(Ordering::SeqCst), "on purpose");
    }
}

impl AclProvider for Faulty {
    fn default_acl(&self) -> Vec<Acl> {
        self.runs();
        Acl::open_unsafe()
    }
}

impl CompressionProvider for Faulty {
    fn compress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        self.runs();
        Ok(data.to_vec())
    }

    fn decompress(&self, _path: &str, compressed: &[u8]) -> io::Result<Vec<u8>> {
        self.runs();
        Ok(compressed.to_vec())
    }
}

impl ConnectionStateErrorPolicy for Faulty {
    fn is_error_state(&self, state: ConnectionState) -> bool {
        self.runs();
        state == ConnectionState::Lost
    }
}

impl RetryPolicy for Faulty {
    fn next_pause(&self, _attempt: RetryAttempt) -> Option<Duration> {
        self.runs();
        Some(Duration::from_millis(10))
    }
}

impl EnsembleProvider for Faulty {
    fn connect_string(&self) -> String {
        self.runs();
        "simulated:1".to_owned()
    }

    fn set_connect_string(&self, _connect_string: &str) {
        self.runs();
    }
}

impl Randomness for Faulty {
    fn next(&self) -> u64 {
        self.runs();
        ThreadRandomness.next()
    }
}

/// A client with a lock, on a simulated ensemble.
struct Stage {
    ensemble: SimulatedEnsemble,
    client: CuratorFramework,
    guard: MutexGuard,
    session: u64,
}

impl Stage {
    async fn new(options: impl FnOnce(CuratorFrameworkBuilder) -> CuratorFrameworkBuilder) -> Self {
        let ensemble = SimulatedEnsemble::new(7, Duration::from_millis(4));
        let client = ensemble.client(CLIENT).session_timeout(PATIENCE).connection_timeout(PATIENCE);
        let client = connected(options(client.retry_policy(Faulty::default()))).await;
        let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
        let session = client.session().await.unwrap().number();
        Self { ensemble, client, guard, session }
    }

    async fn reconnects(&self) {
        let session = self.client.session().await.unwrap();
        let epoch = session.epoch();
        self.ensemble.reset(CLIENT);
        let reconnected = async {
            while session.epoch() == epoch || !session.is_connected() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reconnected).await.expect("the session does not get another connection");
    }

    async fn has_its_lock(&self) {
        assert!(self.guard.is_held(), "the lock is lost");
        assert_eq!(self.client.session().await.unwrap().number(), self.session);
        self.client.check_exists().for_path("/lock").await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_an_acl_provider_fails_the_request() {
    let faulty = Faulty::default();
    let stage = Stage::new(|options| options.acl_provider(faulty.clone())).await;
    let node = PersistentNode::new(stage.client.clone(), "/standing", "").unwrap();
    faulty.breaks();
    let refused = stage.client.create().for_path("/a").await;
    assert!(matches!(refused, Err(Error::InvalidAcl { .. })), "{refused:?}");
    node.start().unwrap();
    let mut states = node.watch();
    let failed = states.wait_for(|state| matches!(state, NodeState::Failed(_))).await.unwrap().clone();
    assert!(format!("{failed:?}").contains("InvalidAcl"), "{failed:?}");
    stage.has_its_lock().await;
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_compression_provider_fails_the_request() {
    let faulty = Faulty::default();
    let stage = Stage::new(|options| options.compression_provider(faulty.clone())).await;
    let client = &stage.client;
    client.create().compressed().with_data("data").for_path("/a").await.unwrap();
    faulty.breaks();
    for outcome in [
        client.set_data().compressed().for_path("/a", "more").await.map(drop),
        client.get_data().decompressed().for_path("/a").await.map(drop),
    ] {
        let Err(error @ Error::Compression { .. }) = outcome else { panic!("{outcome:?}") };
        assert!(error.to_string().contains("the compression provider has panicked: on purpose"), "{error}");
    }
    stage.has_its_lock().await;
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_schema_validator_fails_the_request() {
    let faulty = Faulty::default();
    let validator = faulty.clone();
    let schema = Schema::for_path("/a").unwrap().validator(move |_, _, _| {
        validator.runs();
        true
    });
    let stage = Stage::new(|options| options.schema_set(SchemaSet::new([schema], OtherPaths::Allowed))).await;
    stage.client.create().for_path("/a").await.unwrap();
    faulty.breaks();
    let refused = stage.client.set_data().for_path("/a", "more").await.map(drop);
    let Err(error @ Error::SchemaViolation { .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("the validator has panicked: on purpose"), "{error}");
    stage.has_its_lock().await;
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_retry_policy_ends_the_retries() {
    let faulty = Faulty::default();
    let stage = Stage::new(|options| options.retry_policy(faulty.clone())).await;
    faulty.breaks();
    let loses = async {
        tokio::task::yield_now().await;
        stage.ensemble.reset(CLIENT);
    };
    let (failed, ()) = tokio::join!(async { stage.client.check_exists().for_path("/lock").await }, loses);
    assert!(matches!(failed, Err(Error::ConnectionLoss { .. })), "{failed:?}");
    stage.client.block_until_connected().await.unwrap();
    stage.has_its_lock().await;
}

#[tokio::test(start_paused = true)]
async fn panic_of_an_error_policy_counts_as_an_error_and_leaves_the_session() {
    let faulty = Faulty::default();
    let stage = Stage::new(|options| options.connection_state_error_policy(faulty.clone())).await;
    faulty.breaks();
    stage.reconnects().await;
    assert_eq!(stage.guard.lost().await, LossReason::ConnectionError);
    assert_eq!(stage.client.session().await.unwrap().number(), stage.session);
}

#[tokio::test(start_paused = true)]
async fn panic_of_an_ensemble_provider_leaves_the_servers_of_before() {
    let faulty = Faulty::default();
    let stage = Stage::new(|options| options.ensemble_provider(faulty.clone())).await;
    faulty.breaks();
    stage.reconnects().await;
    stage.has_its_lock().await;
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_source_of_random_numbers_is_made_up_for() {
    let faulty = Faulty::default();
    let stage = Stage::new(|options| options.randomness(faulty.clone())).await;
    faulty.breaks();
    stage.reconnects().await;
    stage.has_its_lock().await;
    drop(InterProcessMutex::new(stage.client.clone(), "/other").unwrap().acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_circuit_breaker_opens_no_circuit() {
    let faulty = Faulty::default();
    let stage = Stage::new(|options| options.circuit_breaking_listeners(faulty.clone())).await;
    faulty.breaks();
    stage.reconnects().await;
    stage.has_its_lock().await;
}

/// The subscriber reads everything again.
#[tokio::test(start_paused = true)]
async fn panic_of_a_resync_resets_its_subscription() {
    let stage = Stage::new(|options| options).await;
    let (session, faulty) = (stage.client.session().await.unwrap(), Faulty::default());
    let resync = || -> Arc<dyn Resync> {
        let faulty = faulty.clone();
        Arc::new(move || {
            faulty.runs();
            KnownNodes {
                zxid: Some(Zxid::new(1)),
                data: vec!["/lock".to_owned()],
                missing: Vec::new(),
                children: Vec::new(),
            }
        })
    };
    let subscribe = || session.subscribe("/lock", AddWatchMode::PersistentRecursive, Some(resync()));
    let next = async |subscription: &mut curator_framework::recipe::Subscription| {
        tokio::time::timeout(PATIENCE, subscription.recv()).await.expect("an event").expect("the session lives")
    };
    let mut before = subscribe().await.unwrap();
    while next(&mut before).await != SubscriptionEvent::Resynced {}
    faulty.breaks();
    stage.reconnects().await;
    assert_eq!(next(&mut before).await, SubscriptionEvent::Reset);
    let mut after = subscribe().await.unwrap();
    assert_eq!(next(&mut after).await, SubscriptionEvent::Reset);
    stage.has_its_lock().await;
}

#[cfg(curator_mutants)]
#[test]
fn a_panic_of_a_resync_that_is_not_caught_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let held = curator_framework::mutants::with("run-resyncs-unguarded", || {
        runtime.block_on(async {
            let stage = Stage::new(|options| options).await;
            let session = stage.client.session().await.unwrap();
            let faulty = Faulty::default();
            let runs = faulty.clone();
            let resync: Arc<dyn Resync> = Arc::new(move || {
                runs.runs();
                KnownNodes::default()
            });
            let _subscription = session.subscribe("/lock", AddWatchMode::Persistent, Some(resync)).await.unwrap();
            faulty.breaks();
            stage.ensemble.reset(CLIENT);
            tokio::time::sleep(PATIENCE / 2).await;
            stage.guard.is_held()
        })
    });
    assert!(!held);
}

/// A connector, and a factory, that panics once, at a reconnect or at the first connect.
#[derive(Debug, Clone)]
struct PanicsOnce(Faulty, DefaultZooKeeperFactory);

impl PanicsOnce {
    fn runs(&self) {
        assert!(!self.0.0.swap(false, Ordering::SeqCst), "on purpose");
    }
}

#[async_trait]
impl Connector for PanicsOnce {
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>> {
        self.runs();
        Ok(Box::new(tokio::net::TcpStream::connect(server).await?))
    }
}

#[async_trait]
impl ZooKeeperFactory for PanicsOnce {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        self.runs();
        self.1.connect(config).await
    }
}

async fn held_over_a_reset(proxy: &FaultProxy, client: &CuratorFramework, faulty: &Faulty) {
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    let session = client.session().await.unwrap();
    faulty.breaks();
    reconnected(proxy, &session).await;
    assert!(guard.is_held());
}

#[tokio::test]
async fn panic_of_a_connector_fails_the_attempt() {
    let (server, faulty) = (in_process::server(), Faulty::default());
    let proxy = FaultProxy::start(server.address()).unwrap();
    let connector = PanicsOnce(faulty.clone(), DefaultZooKeeperFactory::new());
    let factory = DefaultZooKeeperFactory::with_connector(connector);
    faulty.breaks();
    let client = in_process::options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let client = connected(client.zookeeper_factory(factory)).await;
    held_over_a_reset(&proxy, &client, &faulty).await;
}

#[tokio::test]
async fn panic_of_a_factory_fails_the_attempt() {
    let (server, faulty) = (in_process::server(), Faulty::default());
    faulty.breaks();
    let factory = PanicsOnce(faulty, DefaultZooKeeperFactory::new());
    let client = connected(in_process::options(&server).zookeeper_factory(factory)).await;
    client.check_exists().for_path("/").await.unwrap().unwrap();
}
