//! The layers of `curator-tower`, in stacks of axum and over services that reserve something when they are ready.

use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::error_handling::HandleErrorLayer;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use curator_framework::CuratorFramework;
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{
    InterProcessSemaphoreV2, LeaderError, LeaderLatch, LeaderLatchOptions, LockError, LossReason, TermEnd,
};
use curator_test::TestingServer;
use curator_tower::{BoxError, ClusterConcurrencyLimitLayer, LayerError, LeaderOnlyLayer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _};

const PATH: &str = "/limit";

fn semaphore(client: &CuratorFramework, leases: usize) -> InterProcessSemaphoreV2 {
    InterProcessSemaphoreV2::new(client.clone(), PATH, leases).unwrap()
}

fn limit(client: &CuratorFramework, leases: usize) -> ClusterConcurrencyLimitLayer {
    ClusterConcurrencyLimitLayer::new(semaphore(client, leases))
}

/// The numbers of nodes of leases and of the queue, below the semaphore's path.
fn nodes(server: &TestingServer) -> [usize; 2] {
    ["leases", "locks"].map(|part| server.children(&format!("{PATH}/{part}")).map_or(0, |children| children.len()))
}

async fn has_nodes(server: &TestingServer, wanted: [usize; 2]) {
    eventually("the nodes of leases and of the queue", async || nodes(server) == wanted).await;
}

/// The work of a handler, which ends when the test lets it.
struct Work {
    inside: watch::Sender<usize>,
    most: AtomicUsize,
    may_end: Semaphore,
}

/// One handler that runs. Its drop counts it as ended.
struct Inside<'a>(&'a Work);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.send_modify(|inside| *inside -= 1);
    }
}

impl Work {
    fn new() -> Arc<Self> {
        Arc::new(Self { inside: watch::Sender::new(0), most: AtomicUsize::new(0), may_end: Semaphore::new(0) })
    }

    async fn handle(State(work): State<Arc<Self>>) -> &'static str {
        work.inside.send_modify(|inside| {
            *inside += 1;
            work.most.fetch_max(*inside, Ordering::SeqCst);
        });
        let _inside = Inside(&work);
        work.may_end.acquire().await.unwrap().forget();
        "done"
    }

    /// Waits until this number of handlers run.
    async fn runs(&self, wanted: usize) {
        in_time(self.inside.subscribe().wait_for(|&inside| inside == wanted)).await.unwrap();
    }
}

async fn refused(error: BoxError) -> (StatusCode, String) {
    let is_ours = error.is::<LayerError>();
    (if is_ours { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR }, error.to_string())
}

/// A service of axum with the work as its handler, below a layer.
macro_rules! app {
    ($work:expr, $layer:expr) => {
        Router::new()
            .route("/", get(Work::handle))
            .with_state(Arc::clone($work))
            .layer(ServiceBuilder::new().layer(HandleErrorLayer::new(refused)).layer($layer))
    };
}

type Reply = (u16, String);

/// Sends a request in a task of its own.
fn ask(app: &Router) -> JoinHandle<Reply> {
    let reply = app.clone().oneshot(Request::new(Body::empty()));
    tokio::spawn(async move {
        let reply = reply.await.unwrap();
        let status = reply.status().as_u16();
        let body = to_bytes(reply.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.into()).unwrap())
    })
}

async fn reply(reply: JoinHandle<Reply>) -> Reply {
    in_time(reply).await.unwrap()
}

fn done() -> Reply {
    (200, "done".to_owned())
}

/// The ways in which an ephemeral node is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Delete,
    KillTheSession,
}

impl Loss {
    const ALL: [Self; 2] = [Self::Delete, Self::KillTheSession];

    /// Takes the first child of a path away from its session.
    async fn happens(self, server: &TestingServer, parent: &str) {
        let other = client(server).await;
        let node = format!("{parent}/{}", server.children(parent).unwrap().into_iter().min().unwrap());
        match self {
            Self::Delete => other.delete().for_path(&node).await.unwrap(),
            Self::KillTheSession => {
                let stat = other.check_exists().for_path(&node).await.unwrap().unwrap();
                assert!(server.kill_session(stat.ephemeral_owner));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_one_limit() {
    let (server, work) = (server(), Work::new());
    let apps = [app!(&work, limit(&client(&server).await, 2)), app!(&work, limit(&client(&server).await, 2))];
    let mut replies: JoinSet<Reply> = JoinSet::new();
    for app in apps.iter().cycle().take(12) {
        let asked = ask(app);
        replies.spawn(async move { asked.await.unwrap() });
    }
    for ended in 0..12 {
        // Each request that ends lets another one run.
        work.runs((12 - ended).min(2)).await;
        work.may_end.add_permits(1);
        assert_eq!(in_time(replies.join_next()).await.unwrap().unwrap(), done());
    }
    assert_eq!(work.most.load(Ordering::SeqCst), 2);
    has_nodes(&server, [0, 0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shed_load_is_answered_while_the_other_request_runs() {
    let (server, work) = (server(), Work::new());
    let client = client(&server).await;
    let app = app!(&work, limit(&client, 1).load_shed());
    let running = ask(&app);
    work.runs(1).await;
    assert_eq!(reply(ask(&app)).await, (503, "no lease of /limit is free".to_owned()));
    assert!(!running.is_finished());
    has_nodes(&server, [1, 0]).await;
    work.may_end.add_permits(1);
    assert_eq!(reply(running).await, done());
    has_nodes(&server, [0, 0]).await;
    work.may_end.add_permits(1);
    assert_eq!(reply(ask(&app)).await, done());
    assert_eq!(work.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_for_a_lease_ends_with_its_budget() {
    const BUDGET: Duration = Duration::from_millis(300);
    let (server, work) = (server(), Work::new());
    let client = client(&server).await;
    let running = ask(&app!(&work, limit(&client, 1)));
    work.runs(1).await;
    let (hasty, patient) = (limit(&client, 1).acquire_timeout(BUDGET), limit(&client, 1).acquire_timeout(BUDGET * 100));
    let patient = ask(&app!(&work, patient));
    has_nodes(&server, [2, 1]).await;
    let start = Instant::now();
    assert_eq!(reply(ask(&app!(&work, hasty))).await, (503, "no lease of /limit is free".to_owned()));
    assert!(start.elapsed() >= BUDGET, "{:?}", start.elapsed());
    // It has left the queue.
    has_nodes(&server, [2, 1]).await;
    work.may_end.add_permits(2);
    assert_eq!((reply(running).await, reply(patient).await), (done(), done()));
    has_nodes(&server, [0, 0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_lease_cancels_its_request() {
    for loss in Loss::ALL {
        let (server, work) = (server(), Work::new());
        let client = client(&server).await;
        let running = ask(&app!(&work, limit(&client, 1)));
        work.runs(1).await;
        loss.happens(&server, "/limit/leases").await;
        let (status, text) = reply(running).await;
        assert!(status == 503 && text.starts_with("the lock /limit is lost: "), "{loss:?}: {status} {text}");
        work.runs(0).await;
        has_nodes(&server, [0, 0]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_may_finish_without_its_lease() {
    for loss in Loss::ALL {
        let (server, work) = (server(), Work::new());
        let semaphore = semaphore(&client(&server).await, 1);
        let running = ask(&app!(&work, ClusterConcurrencyLimitLayer::new(semaphore.clone()).finish_requests()));
        work.runs(1).await;
        loss.happens(&server, "/limit/leases").await;
        eventually("the lease is lost", async || !semaphore.is_acquired_in_this_process()).await;
        work.may_end.add_permits(1);
        assert_eq!(reply(running).await, done(), "{loss:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_is_dropped_leaves_no_node() {
    let (server, work) = (server(), Work::new());
    let app = app!(&work, limit(&client(&server).await, 1));
    let running = ask(&app);
    work.runs(1).await;
    let waiting = ask(&app);
    has_nodes(&server, [2, 1]).await;
    waiting.abort();
    has_nodes(&server, [1, 0]).await;
    running.abort();
    has_nodes(&server, [0, 0]).await;
    work.runs(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_does_not_wait_for_the_release() {
    for finishes in [false, true] {
        let (server, work) = (server(), Work::new());
        // An awaited release would wait for that long.
        let options = options(&server).max_close_wait(Duration::from_secs(60));
        let limit = limit(&connected(options).await, 1);
        let running = ask(&app!(&work, if finishes { limit.finish_requests() } else { limit }));
        work.runs(1).await;
        server.freeze();
        work.may_end.add_permits(1);
        assert_eq!(timeout(Duration::from_secs(10), running).await.unwrap().unwrap(), done());
        server.thaw();
        has_nodes(&server, [0, 0]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_their_cause() {
    let server = server();
    let client = client(&server).await;
    let mut limited = limit(&client, 1).layer(Reserving::new());
    // Without `poll_ready`: a mistake of the caller, which only the inner service notices.
    let error = in_time(limited.call(())).await.unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().to_string(), "called before it was ready");
    in_time(client.close()).await;
    let error = in_time(limited.ready().await.unwrap().call(())).await.unwrap_err();
    let error = error.downcast_ref::<LayerError>();
    assert!(matches!(error, Some(LayerError::Acquire(LockError::Framework(_)))), "{error:?}");
}

/// A service that reserves its only place when it is ready, as a limit of concurrency does. A clone has no place.
#[derive(Debug)]
struct Reserving {
    places: Arc<Semaphore>,
    place: Option<OwnedSemaphorePermit>,
}

impl Reserving {
    fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(1)), place: None }
    }
}

impl Clone for Reserving {
    fn clone(&self) -> Self {
        Self { places: Arc::clone(&self.places), place: None }
    }
}

impl Service<()> for Reserving {
    type Response = ();
    type Error = io::Error;
    type Future = Ready<io::Result<()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.place.is_none() {
            self.place = Arc::clone(&self.places).try_acquire_owned().ok();
        }
        Poll::Ready(self.place.as_ref().map(drop).ok_or_else(|| io::Error::other("an earlier request has the place")))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(self.place.take().map(drop).ok_or_else(|| io::Error::other("called before it was ready")))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_that_was_polled_is_the_one_that_is_called() {
    let server = server();
    let client = client(&server).await;
    let inner = Reserving::new();
    let places = Arc::clone(&inner.places);
    let limit = limit(&client, 1);
    let mut limited = limit.layer(inner);
    for _ in 0..3 {
        // A second poll keeps the place of the first one.
        limited.ready().await.unwrap();
        in_time(limited.ready().await.unwrap().call(())).await.unwrap();
        assert_eq!(places.available_permits(), 1);
    }
    has_nodes(&server, [0, 0]).await;
    let lease = semaphore(&client, 1).acquire().await.unwrap();
    // A request that is dropped while it waits gives its place back.
    let waiting = tokio::spawn(limited.ready().await.unwrap().call(()));
    has_nodes(&server, [2, 1]).await;
    assert_eq!(places.available_permits(), 0);
    waiting.abort();
    eventually("the place is free", async || places.available_permits() == 1).await;
    // So does a request that is refused.
    let mut shedding = limit.load_shed().layer(Reserving { places: Arc::clone(&places), place: None });
    let error = in_time(shedding.ready().await.unwrap().call(())).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(LayerError::Overloaded { path }) if *path == PATH), "{error:?}");
    assert_eq!(places.available_permits(), 1);
    lease.release().await.unwrap().held().unwrap();
}

fn latch(client: &CuratorFramework, id: &str) -> LeaderLatch {
    LeaderLatch::with_options(client.clone(), "/leader", LeaderLatchOptions::new().id(id)).unwrap()
}

/// A latch that leads.
async fn leader(client: &CuratorFramework) -> LeaderLatch {
    let latch = latch(client, "id0");
    latch.start().unwrap();
    in_time(latch.leading()).await.unwrap();
    latch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_leader_serves() {
    let (server, work) = (server(), Work::new());
    let clients = [client(&server).await, client(&server).await];
    let (first, second) = (leader(&clients[0]).await, latch(&clients[1], "id1"));
    let observer = second.observe().unwrap();
    in_time(observer.initialized()).await.unwrap();
    let apps = [
        app!(&work, LeaderOnlyLayer::new(first.clone())),
        app!(&work, LeaderOnlyLayer::new(second.clone()).observer(observer.clone())),
        app!(&work, LeaderOnlyLayer::new(second.clone())),
    ];
    work.may_end.add_permits(2);
    let another = || (503, "the election /leader is led by another process, or by none".to_owned());
    // Before its start, and then in the queue.
    for _ in 0..2 {
        assert_eq!(reply(ask(&apps[0])).await, done());
        assert_eq!(reply(ask(&apps[1])).await, (503, "the election /leader is led by id0".to_owned()));
        assert_eq!(reply(ask(&apps[2])).await, another());
        if matches!(second.state(), curator_recipes::LeaderState::Latent) {
            second.start().unwrap();
        }
    }
    in_time(first.close()).await;
    in_time(second.leading()).await.unwrap();
    assert_eq!(reply(ask(&apps[0])).await, another());
    work.may_end.add_permits(1);
    assert_eq!(reply(ask(&apps[1])).await, done());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_a_term_cancels_its_requests() {
    for loss in [Some(Loss::Delete), Some(Loss::KillTheSession), None] {
        let (server, work) = (server(), Work::new());
        let latch = leader(&client(&server).await).await;
        let app = app!(&work, LeaderOnlyLayer::new(latch.clone()));
        let running = ask(&app);
        work.runs(1).await;
        match loss {
            Some(loss) => loss.happens(&server, "/leader").await,
            None => {
                in_time(latch.resign()).await.unwrap();
                // The resignation waits for the request.
                assert_eq!(*work.inside.borrow(), 0);
            }
        }
        let (status, text) = reply(running).await;
        assert!(status == 503 && text.starts_with("the leadership of /leader is over: "), "{loss:?}: {status} {text}");
        work.runs(0).await;
        // The latch joins again, and its next term serves.
        in_time(latch.leading()).await.unwrap();
        work.may_end.add_permits(1);
        assert_eq!(reply(ask(&app)).await, done());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_may_finish_after_its_term() {
    let (server, work) = (server(), Work::new());
    let latch = leader(&client(&server).await).await;
    let running = ask(&app!(&work, LeaderOnlyLayer::new(latch.clone()).finish_requests()));
    work.runs(1).await;
    in_time(latch.close()).await;
    assert_eq!(*work.inside.borrow(), 1);
    work.may_end.add_permits(1);
    assert_eq!(reply(running).await, done());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_that_does_not_lead_stays_ready() {
    let server = server();
    let client = client(&server).await;
    let latch = latch(&client, "id0");
    let inner = Reserving::new();
    let places = Arc::clone(&inner.places);
    let mut led = LeaderOnlyLayer::new(latch.clone()).layer(inner);
    let error = in_time(led.ready().await.unwrap().call(())).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(LayerError::NotLeader { leader: None, .. })), "{error:?}");
    assert_eq!(places.available_permits(), 0);
    latch.start().unwrap();
    let leadership = in_time(latch.leading()).await.unwrap();
    in_time(led.ready().await.unwrap().call(())).await.unwrap();
    // A term that ends between the call and the first poll.
    let request = led.ready().await.unwrap().call(());
    Loss::Delete.happens(&server, "/leader").await;
    in_time(leadership.ended()).await;
    let error = in_time(request).await.unwrap_err();
    let reason = match error.downcast_ref() {
        Some(LayerError::LeadershipLost(LeaderError::LeadershipLost { reason, .. })) => *reason,
        _ => panic!("{error:?}"),
    };
    assert_eq!(reason, TermEnd::Lost(LossReason::NodeDeleted));
}
