//! tonic and reqwest follow instances that come, end and are drained. No request hangs while one instance lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use curator_discovery::{Registration, ServiceCache, ServiceDiscovery, ServiceInstance};
use curator_discovery_clients::{over_reqwest, over_tonic};
use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::TestingServer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Longer than any answer of a server in this process takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn page_has_the_code_that_runs_here() {
    let page = include_str!("../../../recipes/discovery/docs/clients.md");
    for code in [include_str!("../src/over_tonic.rs"), include_str!("../src/over_reqwest.rs")] {
        assert!(page.contains(code), "recipes/discovery/docs/clients.md lacks:\n{code}");
    }
}

#[derive(Clone, Copy)]
enum Protocol {
    Grpc,
    Http,
}

/// A server of the service `web`, and its registration.
struct Backend {
    served: Arc<AtomicUsize>,
    server: JoinHandle<()>,
    registration: Registration<()>,
}

impl Backend {
    async fn start(discovery: &ServiceDiscovery<()>, protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&served);
        let server = match protocol {
            Protocol::Grpc => tokio::spawn(async move {
                let (_, health) = tonic_health::server::health_reporter();
                let layer = tonic::service::InterceptorLayer::new(move |request: tonic::Request<()>| {
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok(request)
                });
                let server = tonic::transport::Server::builder().layer(layer).add_service(health);
                server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
            }),
            Protocol::Http => tokio::spawn(async move {
                let answer = move || async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    "ok"
                };
                let app = axum::Router::new().route("/", axum::routing::get(answer));
                axum::serve(listener, app).await.unwrap();
            }),
        };
        let instance = ServiceInstance::builder("web").address("127.0.0.1").port(port).build().unwrap();
        let registration = discovery.register(instance).await.unwrap();
        Self { served, server, registration }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

/// Sends requests until each of these servers has answered another one.
async fn until_all_serve(backends: &[&Backend], send: &impl AsyncFn() -> bool) {
    let before: Vec<usize> = backends.iter().map(|backend| backend.served()).collect();
    let begin = Instant::now();
    while backends.iter().zip(&before).any(|(backend, before)| backend.served() == *before) {
        assert!(begin.elapsed() < PATIENCE, "a server gets no requests");
        timeout(PATIENCE, send()).await.expect("no request hangs");
    }
}

/// Sends requests to two servers while one is drained, is back, ends without a word, and is unregistered.
async fn follows_the_instances<S: AsyncFn() -> bool>(
    protocol: Protocol,
    client_of: impl FnOnce(&ServiceCache<()>) -> S,
) {
    let zookeeper = TestingServer::start().unwrap();
    let retry = RetryOneTime::new(Duration::from_millis(50));
    let client = CuratorFramework::new_client(zookeeper.connect_string(), retry).unwrap();
    client.start().unwrap();
    let discovery = ServiceDiscovery::new(client.clone(), "/services").unwrap();
    let first = Backend::start(&discovery, protocol).await;
    let second = Backend::start(&discovery, protocol).await;
    let cache = ServiceCache::new(&discovery, "web").unwrap();
    cache.start().unwrap();
    cache.initialized().await.unwrap();
    let mut changes = cache.changes();
    let send = client_of(&cache);
    until_all_serve(&[&first, &second], &send).await;

    // Drained: after the change has arrived, it gets no request.
    second.registration.set_enabled(false).await.unwrap();
    gets_nothing(&second, &first, &send).await;
    second.registration.set_enabled(true).await.unwrap();
    until_all_serve(&[&first, &second], &send).await;

    // The server ends, and its instance is still registered: requests may fail, none hangs.
    second.server.abort();
    until_all_serve(&[&first], &send).await;
    second.registration.unregister().await.unwrap();
    gets_only_answers(&send).await;

    // The other one ends, and a third one is there in time.
    let third = Backend::start(&discovery, protocol).await;
    until_all_serve(&[&first, &third], &send).await;
    first.registration.unregister().await.unwrap();
    gets_nothing(&first, &third, &send).await;
    first.server.abort();
    gets_only_answers(&send).await;
    assert!(changes.try_recv().is_ok());
    cache.close().await;
    client.close().await;
}

/// Sends requests until ten in a row have passed a server by.
async fn gets_nothing(idle: &Backend, busy: &Backend, send: &impl AsyncFn() -> bool) {
    let (begin, mut passed) = (Instant::now(), 0);
    let mut before = (idle.served(), busy.served());
    while passed < 10 {
        assert!(begin.elapsed() < PATIENCE, "it still gets requests");
        timeout(PATIENCE, send()).await.expect("no request hangs");
        let now = (idle.served(), busy.served());
        passed = if now.0 == before.0 && now.1 > before.1 { passed + 1 } else { 0 };
        before = now;
    }
}

/// Sends requests until ten in a row have been answered.
async fn gets_only_answers(send: &impl AsyncFn() -> bool) {
    let (begin, mut answered) = (Instant::now(), 0);
    while answered < 10 {
        assert!(begin.elapsed() < PATIENCE, "requests still fail");
        let is_answered = timeout(PATIENCE, send()).await.expect("no request hangs");
        answered = if is_answered { answered + 1 } else { 0 };
    }
}

#[tokio::test]
async fn tonic_follows_the_instances() {
    follows_the_instances(Protocol::Grpc, |cache| {
        let client = HealthClient::new(over_tonic::channel(cache));
        async move || client.clone().check(HealthCheckRequest::default()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn reqwest_follows_the_instances() {
    follows_the_instances(Protocol::Http, |cache| {
        let instances = over_reqwest::Instances(cache.clone());
        // Without idle connections, each request asks for the instances again.
        let client = reqwest::Client::builder().dns_resolver(Arc::new(instances)).pool_max_idle_per_host(0);
        let client = client.connect_timeout(Duration::from_secs(2)).build().unwrap();
        async move || client.get("http://web/").send().await.is_ok()
    })
    .await;
}
