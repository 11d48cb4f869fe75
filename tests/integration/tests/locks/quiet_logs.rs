//! The log of a program: few lines at the level info, all of them from this project, and none with a password.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{
    CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, RetryNTimes, SaslDigest, ZooKeeperAsyncFactory,
};
use curator_integration::env::{connected, in_time, reports_are_made};
use curator_recipes::InterProcessMutex;
use curator_test::wire::session_password;
use curator_test::{ApacheServer, ClientId, FaultProxy, SimulatedEnsemble, TestingServer};
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const PASSWORD: &str = "hunter2-hunter2";
const SASL_PASSWORD: &str = "correct-horse";
const MINUTE: Duration = Duration::from_secs(60);
const MOST_LINES: usize = 6;
const CRATE: &str = "zookeeper_async";

/// An event or a span, of any crate.
#[derive(Debug, Clone)]
struct Line {
    level: Level,
    target: String,
    text: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text += &format!(" {field}={value:?}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    fn add(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        let (target, text) = (metadata.target().to_owned(), metadata.name().to_owned());
        let mut line = Line { level: *metadata.level(), target, text };
        record(&mut line);
        self.0.lock().push(line);
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.add(event.metadata(), |line| event.record(line));
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        self.add(attributes.metadata(), |line| attributes.record(line));
    }
}

/// Runs a program on one thread and returns its log, at all levels.
fn logged(paused: bool, program: impl AsyncFnOnce()) -> Vec<Line> {
    let log = Log::default();
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // The simulation has no sockets, and paused time does not wait for them.
    let builder = if paused { builder.enable_time().start_paused(true) } else { builder.enable_all() };
    builder.build().unwrap().block_on(program());
    reports_are_made();
    log.0.lock().clone()
}

/// Connects, locks, releases, rests and closes.
async fn first_program(builder: CuratorFrameworkBuilder, rest: Duration) {
    let builder = builder.session_timeout(Duration::from_secs(10)).connection_timeout(Duration::from_secs(5));
    let client = connected(builder.retry_policy(RetryNTimes::new(3, Duration::from_millis(50)))).await;
    let mutex = InterProcessMutex::new(client.clone(), "/locks/printer").unwrap();
    let guard = mutex.acquire().await.unwrap();
    sleep(rest / 2).await;
    assert!(guard.release().await.unwrap().is_released());
    sleep(rest / 2).await;
    client.close().await;
}

#[test]
fn a_first_program_logs_a_handful_of_lines_in_a_quiet_minute() {
    let simulated = logged(true, async || {
        let ensemble = SimulatedEnsemble::new(7, Duration::from_millis(10));
        first_program(ensemble.client(ClientId(0)), MINUTE).await;
    });
    let real = logged(false, async || {
        let server = TestingServer::start().unwrap();
        first_program(CuratorFramework::builder(server.connect_string()), Duration::ZERO).await;
    });
    for lines in [simulated, real] {
        // Spans are not lines.
        let shown = lines.iter().filter(|line| line.level <= Level::INFO && line.text.starts_with("event "));
        let shown: Vec<_> = shown.collect();
        for line in &shown {
            println!("{} {} {}", line.level, line.target, line.text);
        }
        assert!((1..=MOST_LINES).contains(&shown.len()), "{} lines: {shown:#?}", shown.len());
        assert!(shown.iter().all(|line| line.target.starts_with("curator_")), "{shown:#?}");
        assert!(shown.iter().all(|line| line.level == Level::INFO), "{shown:#?}");
    }
}

/// The forms in which a log may show a secret: as text, and as a list of its bytes.
fn forms(secret: &[u8]) -> Vec<String> {
    let list = format!("{secret:?}");
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = std::str::from_utf8(secret).ok().map(str::to_owned);
    [list.trim_matches(['[', ']']).to_owned(), hex].into_iter().chain(text).collect()
}

/// Connects, logs in, locks, reconnects, locks again and closes. Returns the password of the session.
async fn secretive_program(builder: CuratorFrameworkBuilder, reset: impl FnOnce()) -> Vec<u8> {
    let builder = builder.session_timeout(Duration::from_secs(10)).connection_timeout(Duration::from_secs(10));
    let client = connected(builder.retry_policy(RetryNTimes::new(100, Duration::from_millis(50)))).await;
    let mutex = InterProcessMutex::new(client.clone(), "/locks/printer").unwrap();
    let guard = in_time(mutex.acquire()).await.unwrap();
    let stat = in_time(client.check_exists().for_path(guard.node_path())).await.unwrap().unwrap();
    let session = client.session().await.unwrap();
    let epoch = session.epoch();
    reset();
    in_time(async {
        while session.epoch() == epoch {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(in_time(guard.release()).await.unwrap().is_released());
    drop(in_time(mutex.acquire()).await.unwrap());
    in_time(client.close()).await;
    session_password(stat.ephemeral_owner).to_vec()
}

/// Returns the lines that show a secret.
fn leaks(lines: &[Line], secrets: &[&[u8]]) -> Vec<Line> {
    let forms: Vec<_> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    lines.iter().filter(|line| forms.iter().any(|form| line.text.contains(form))).cloned().collect()
}

fn runs_with_digest(
    builder: impl FnOnce(CuratorFrameworkBuilder) -> CuratorFrameworkBuilder,
) -> (Vec<Line>, Vec<Line>) {
    let mut password = Vec::new();
    let lines = logged(false, async || {
        let server = TestingServer::start().unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let options = CuratorFramework::builder(proxy.connect_string());
        let options = builder(options).authorization("digest", format!("ann:{PASSWORD}")).default_data("");
        password = secretive_program(options, || proxy.reset()).await;
    });
    let leaks = leaks(&lines, &[&password, PASSWORD.as_bytes()]);
    (lines, leaks)
}

#[test]
fn no_password_is_logged_at_any_level() {
    let (lines, leaks) = runs_with_digest(|options| options.zookeeper_factory(DefaultZooKeeperFactory::new()));
    assert!(lines.iter().any(|line| line.level == Level::TRACE && line.target.starts_with("curator_framework")));
    assert!(lines.iter().any(|line| line.text.contains("reconnected")));
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn no_password_of_sasl_is_logged_at_any_level() {
    let mut password = Vec::new();
    let lines = logged(false, async || {
        let server = ApacheServer::builder().digest_sasl("bob", SASL_PASSWORD).require_sasl().start();
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        let proxy = FaultProxy::start(server.address()).unwrap();
        let options = CuratorFramework::builder(proxy.connect_string()).default_data("");
        let options = options.zookeeper_factory(DefaultZooKeeperFactory::new());
        let options = options.sasl(SaslDigest::new("bob", SASL_PASSWORD));
        password = secretive_program(options, || proxy.reset()).await;
    });
    let leaks = leaks(&lines, &[&password, SASL_PASSWORD.as_bytes()]);
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// The crate logs the session's password from a task of its own, which the adapter cannot silence. The docs of
/// `ZooKeeperAsyncFactory` say so.
#[test]
fn with_the_crate_zookeeper_async_only_its_own_target_shows_the_password_of_a_session() {
    let (_, leaks) = runs_with_digest(|options| options.zookeeper_factory(ZooKeeperAsyncFactory));
    let (of_crate, ours): (Vec<_>, Vec<_>) = leaks.iter().partition(|line| line.target.starts_with(CRATE));
    assert!(ours.is_empty(), "{ours:#?}");
    // Otherwise the crate is repaired, and its docs can be too.
    assert!(!of_crate.is_empty());
    assert!(
        of_crate.iter().all(|line| line.text.contains("Connected") && !line.text.contains(PASSWORD)),
        "{of_crate:#?}"
    );
}
