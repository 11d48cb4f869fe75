//! An HTTP service that works for each tenant under that tenant's lock, in any number of processes.
//!
//! ```text
//! cargo run --example axum_service                                   # with its own ZooKeeper server
//! cargo run --example axum_service -- --connect zk1:2181,zk2:2181 --listen 127.0.0.1:8080
//! curl -X POST http://127.0.0.1:8080/tenants/ann/report
//! ```
//!
//! | request | replies |
//! | --- | --- |
//! | `POST /tenants/{tenant}/report` | 200; 409 while another request has the tenant's lock; 503 without ZooKeeper |
//! | `GET /ready` | 200 while ZooKeeper is connected, otherwise 503: for the load balancer |
//! | `GET /metrics` | the metrics of the locks and the connection, for Prometheus |
//!
//! A client that disconnects cancels its request: axum drops the handler, and the handler's guard releases the lock.
//! SIGTERM and Ctrl-C let the requests end, then close the session.

use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, serve};
use clap::Parser;
use curator_examples::{Outcome, say, started};
use curator_framework::{Chain, CuratorFramework, LossReason};
use curator_recipes::{InterProcessMutex, LockError, MutexOptions};
use curator_test::TestingServer;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// The upper bounds of the buckets for durations, in seconds.
const WAIT_BUCKETS: [f64; 6] = [0.005, 0.02, 0.1, 0.5, 2.0, 10.0];

/// Serves reports over HTTP, one at a time for each tenant.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Servers to use, host:port[,host:port…]; without it a server is started inside of this program
    #[arg(long)]
    connect: Option<String>,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// The limit of the wait for a tenant's lock, in milliseconds
    #[arg(long, default_value_t = 500)]
    budget_ms: u64,
    /// Duration of a report, in milliseconds
    #[arg(long, default_value_t = 1000)]
    work_ms: u64,
    /// The time that requests have after SIGTERM, in milliseconds
    #[arg(long, default_value_t = 5000)]
    grace_ms: u64,
}

#[derive(Clone)]
struct Service {
    client: CuratorFramework,
    metrics: PrometheusHandle,
    budget: Duration,
    work: Duration,
}

/// The reasons to refuse a request.
enum Refusal {
    UnknownTenant,
    Busy,
    Unavailable(LockError),
    Lost(LossReason),
}

/// Every error of a lock means that ZooKeeper could not grant or keep it.
impl From<LockError> for Refusal {
    fn from(error: LockError) -> Self {
        Self::Unavailable(error)
    }
}

impl From<LossReason> for Refusal {
    fn from(reason: LossReason) -> Self {
        Self::Lost(reason)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::UnknownTenant => (StatusCode::NOT_FOUND, "no such tenant\n".to_owned()),
            Self::Busy => (StatusCode::CONFLICT, "another report of this tenant is being made\n".to_owned()),
            Self::Unavailable(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("no lock: {}\n", Chain(&error))),
            Self::Lost(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("the lock was lost: {reason}\n")),
        }
        .into_response()
    }
}

async fn report(State(service): State<Service>, Path(tenant): Path<String>) -> Result<String, Refusal> {
    // The name becomes part of a path, so it must not contain a slash.
    if !tenant.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(Refusal::UnknownTenant);
    }
    let path = format!("/examples/axum_service/{tenant}");
    // All tenants share one name in the metrics: a name for each would let their number grow without a bound.
    let options = MutexOptions::new().name("report");
    let lock = InterProcessMutex::with_options(service.client.clone(), &path, options)?;
    // `None`: the lock is held. `Err`: ZooKeeper did not answer.
    let Some(guard) = lock.acquire_timeout(service.budget).await? else { return Err(Refusal::Busy) };
    // Stops the work when the lock is lost.
    guard.protect(sleep(service.work)).await?;
    let token = guard.token();
    guard.release().await?.held()?;
    Ok(format!("the report of {tenant}, made under token {token}\n"))
}

async fn ready(State(service): State<Service>) -> (StatusCode, String) {
    let state = service.client.connection_state();
    let status = if service.client.is_connected() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, state.map_or_else(|| "connecting\n".to_owned(), |state| format!("{state}\n")))
}

async fn metrics(State(service): State<Service>) -> String {
    // Moves the recorded durations into the histograms, so that they do not pile up.
    service.metrics.run_upkeep();
    service.metrics.render()
}

/// Resolves with the first SIGTERM or Ctrl-C.
async fn told_to_stop() {
    let Ok(mut term) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

async fn run(options: Options) -> Outcome {
    // Kept until the end, because dropping the server stops it.
    let server = if options.connect.is_none() { Some(TestingServer::start()?) } else { None };
    let servers = options.connect.or(server.as_ref().map(TestingServer::connect_string)).unwrap_or_default();
    // Before the client, which reports to it from the start.
    let recorder = PrometheusBuilder::new().set_buckets(&WAIT_BUCKETS)?.install_recorder()?;
    let client = started(&servers, Duration::from_secs(10))?;
    let service = Service {
        client: client.clone(),
        metrics: recorder,
        budget: Duration::from_millis(options.budget_ms),
        work: Duration::from_millis(options.work_ms),
    };
    let router = Router::new()
        .route("/tenants/{tenant}/report", post(report))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(service);
    let listener = TcpListener::bind(&options.listen).await?;
    say(format!("listening on http://{}", listener.local_addr()?));
    tokio::select! {
        served = serve(listener, router).with_graceful_shutdown(told_to_stop()) => served?,
        () = async { told_to_stop().await; sleep(Duration::from_millis(options.grace_ms)).await } => {}
    }
    // Ends the session. So the server deletes the nodes of requests that still run, and their guards are lost.
    client.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", curator_framework::Chain(&*error));
            ExitCode::from(2)
        }
    }
}
