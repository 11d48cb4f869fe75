//! Logins by SASL that break: by the mechanism, by the server, by the connection, by a close.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::{
    Chain, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, Error, EventType, RetryForever,
    RetryNTimes, SaslConversation, SaslError, SaslMechanism, SaslServer, WakeReason,
};
use curator_integration::env::{connected, eventually, in_time, tasks};
use curator_recipes::InterProcessMutex;
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{FaultProxy, SaslAnswer, TestingServer};

use crate::client::scripted::{Scripted, Then};

/// The course of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    Succeeds,
    Hangs,
    HangsAndPanicsWhenDropped,
    HasExpired,
}

/// A mechanism with one token, empty or not, which behaves as the test has set it last.
#[derive(Debug, Clone)]
struct Ticket(Arc<State>);

#[derive(Debug)]
struct State {
    next: parking_lot::Mutex<Login>,
    token: &'static [u8],
    begun: AtomicUsize,
    /// The conversations and starts that exist.
    live: AtomicUsize,
}

impl Ticket {
    fn new(next: Login, token: &'static [u8]) -> Self {
        let (begun, live) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(State { next: parking_lot::Mutex::new(next), token, begun, live }))
    }

    fn then(&self, next: Login) {
        *self.0.next.lock() = next;
    }

    fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }

    fn live(&self) -> usize {
        self.0.live.load(Ordering::SeqCst)
    }
}

/// Lives as long as a login.
struct Alive(Arc<State>, AtomicBool);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.1.load(Ordering::SeqCst), "dropped on purpose");
    }
}

#[async_trait]
impl SaslMechanism for Ticket {
    fn name(&self) -> &'static str {
        "TICKET"
    }

    async fn start(&self, _server: SaslServer) -> Result<(Vec<u8>, Box<dyn SaslConversation>), SaslError> {
        let next = *self.0.next.lock();
        let panics = AtomicBool::new(next == Login::HangsAndPanicsWhenDropped);
        self.0.live.fetch_add(1, Ordering::SeqCst);
        let alive = Alive(Arc::clone(&self.0), panics);
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        match next {
            Login::Succeeds => Ok((self.0.token.to_vec(), Box::new(Sent(alive)))),
            Login::Hangs | Login::HangsAndPanicsWhenDropped => std::future::pending().await,
            Login::HasExpired => Err(SaslError::Credentials("the ticket has expired".to_owned())),
        }
    }
}

struct Sent(Alive);

#[async_trait]
impl SaslConversation for Sent {
    async fn step(&mut self, token: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError> {
        match token {
            None => Ok(None),
            Some(more) => Err(SaslError::Protocol(format!("{more:?} of {}", self.0.0.begun.load(Ordering::SeqCst)))),
        }
    }
}

fn server() -> TestingServer {
    TestingServer::builder().sasl(|_| SaslAnswer::Accept("ada".to_owned())).start().unwrap()
}

fn options(address: String) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(address)
        .zookeeper_factory(DefaultZooKeeperFactory::new())
        .session_timeout(Duration::from_secs(20))
        .connection_timeout(Duration::from_secs(1))
        .retry_policy(RetryForever::new(Duration::from_millis(20)).unwrap())
}

async fn begun(mechanism: &Ticket, logins: usize) {
    eventually("the mechanism is asked", async || mechanism.begun() >= logins).await;
}

#[tokio::test]
async fn a_login_that_panics_when_it_is_dropped_breaks_its_connection_alone() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mechanism = Ticket::new(Login::HangsAndPanicsWhenDropped, b"one");
    let client = options(proxy.connect_string()).sasl(mechanism.clone()).build().unwrap();
    client.start().unwrap();
    begun(&mechanism, 1).await;
    mechanism.then(Login::Succeeds);
    in_time(client.block_until_connected()).await.unwrap();
    let session = client.session().await.unwrap();
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    mechanism.then(Login::HangsAndPanicsWhenDropped);
    let before = mechanism.begun();
    proxy.reset();
    begun(&mechanism, before + 1).await;
    mechanism.then(Login::Succeeds);
    in_time(async {
        while session.epoch() == 1 || !session.is_connected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(guard.is_held() && session.end_reason().is_none());
}

#[tokio::test]
async fn a_connection_that_is_lost_in_a_login_ends_its_conversation_alone() {
    let server = server();
    for lose in [FaultProxy::drop_reply, FaultProxy::drop_request, FaultProxy::cut_frame] {
        let proxy = FaultProxy::start(server.address()).unwrap();
        // An empty token is a token.
        let mechanism = Ticket::new(Login::Succeeds, b"");
        lose(&proxy, OpCode::Sasl, 1);
        let client = connected(options(proxy.connect_string()).sasl(mechanism.clone())).await;
        let session = client.session().await.unwrap();
        assert_eq!((proxy.faults_done(), mechanism.begun(), mechanism.live()), (1, 2, 0));
        lose(&proxy, OpCode::Sasl, 1);
        proxy.reset();
        in_time(client.check_exists().for_path("/").into_future()).await.unwrap();
        assert_eq!((proxy.faults_done(), mechanism.begun(), mechanism.live()), (2, 4, 0));
        assert!(session.end_reason().is_none());
        client.close().await;
    }
    assert!(server.sessions().is_empty());
}

#[tokio::test]
async fn a_close_in_the_middle_of_a_login_ends_in_time_and_leaves_no_task() {
    let server = server();
    let before = tasks();
    for is_reconnect in [false, true] {
        let mechanism = Ticket::new(Login::Hangs, b"one");
        let options =
            options(server.connect_string()).sasl(mechanism.clone()).connection_timeout(Duration::from_secs(60));
        let client = options.session_timeout(Duration::from_secs(60)).build().unwrap();
        if is_reconnect {
            mechanism.then(Login::Succeeds);
            client.start().unwrap();
            in_time(client.block_until_connected()).await.unwrap();
            mechanism.then(Login::Hangs);
            server.restart().unwrap();
            begun(&mechanism, 2).await;
        } else {
            client.start().unwrap();
            begun(&mechanism, 1).await;
        }
        let start = std::time::Instant::now();
        client.close().await;
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
        assert_eq!(mechanism.live(), 0, "reconnect: {is_reconnect}");
        drop(client);
        eventually("no task is left", async || tasks() == before).await;
    }
}

#[tokio::test]
async fn a_client_that_is_dropped_in_the_middle_of_a_login_leaves_no_task_and_no_session() {
    let server = server();
    let before = tasks();
    let mechanism = Ticket::new(Login::Hangs, b"one");
    let client = options(server.connect_string()).sasl(mechanism.clone()).build().unwrap();
    client.start().unwrap();
    begun(&mechanism, 1).await;
    drop(client);
    eventually("no task is left", async || tasks() == before && mechanism.live() == 0).await;
    eventually("no session is left", async || server.sessions().is_empty()).await;
}

/// Else the locks of such a client would stay until the session expires.
#[tokio::test]
async fn the_session_is_closed_when_its_credentials_have_become_useless() {
    let server = server();
    let mechanism = Ticket::new(Login::Succeeds, b"one");
    let long = Duration::from_secs(40);
    let client = connected(options(server.connect_string()).sasl(mechanism.clone()).session_timeout(long)).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    let session = client.session().await.unwrap();
    mechanism.then(Login::HasExpired);
    server.restart().unwrap();
    in_time(guard.lost()).await;
    let error = in_time(client.check_exists().for_path("/").into_future()).await.unwrap_err();
    assert!(matches!(error, Error::AuthFailed { .. }), "{error}");
    in_time(session.ended()).await;
    let start = std::time::Instant::now();
    eventually("the lock is free", async || server.children("/lock").is_some_and(|nodes| nodes.is_empty())).await;
    assert!(start.elapsed() < long / 4, "{:?}", start.elapsed());
}

/// The client closes while its connection is lost: at the next one the server or the mechanism refuses the credentials.
#[tokio::test]
async fn a_closing_session_is_closed_without_credentials_that_have_become_useless() {
    for is_sasl in [false, true] {
        let server = server();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let mechanism = Ticket::new(Login::Succeeds, b"one");
        let long = Duration::from_secs(40);
        let options = options(proxy.connect_string()).session_timeout(long).max_close_wait(Duration::from_secs(20));
        let client = connected(if is_sasl { options.sasl(mechanism.clone()) } else { options }).await;
        let mut state = client.watch_connection_state();
        state.mark_unchanged();
        proxy.refuse();
        proxy.reset();
        in_time(state.changed()).await.unwrap();
        mechanism.then(Login::HasExpired);
        if !is_sasl {
            client.add_authorization("nothing", "x");
        }
        let (mut closing, start) = (std::pin::pin!(client.close()), std::time::Instant::now());
        assert!(futures_util::poll!(&mut closing).is_pending());
        tokio::task::yield_now().await;
        proxy.accept();
        in_time(closing).await;
        assert!(server.sessions().is_empty(), "SASL: {is_sasl}");
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    }
}

/// Watches are set again behind the login. Credentials that are added during the login count.
#[tokio::test]
async fn watches_and_new_credentials_survive_a_login_that_is_repeated() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mechanism = Ticket::new(Login::Succeeds, b"one");
    let client = connected(options(proxy.connect_string()).sasl(mechanism.clone())).await;
    let direct = connected(options(server.connect_string())).await;
    client.create().with_data("old").for_path("/watched").await.unwrap();
    let (_, fired) = client.get_data().watched().for_path("/watched").await.unwrap();
    mechanism.then(Login::Hangs);
    let begun_before = mechanism.begun();
    proxy.reset();
    begun(&mechanism, begun_before + 1).await;
    client.add_authorization("digest", "ann:one");
    direct.set_data().for_path("/watched", "new").await.unwrap();
    mechanism.then(Login::Succeeds);
    assert_eq!(in_time(fired).await, WakeReason::Event(EventType::NodeDataChanged));
    let users: Vec<_> = in_time(client.who_am_i()).await.unwrap().into_iter().map(|who| who.user).collect();
    assert!(["ada", "ann"].iter().all(|user| users.contains(&(*user).to_owned())), "{users:?}");
}

/// The answers of a server to the first token, and what the error says.
#[tokio::test]
async fn what_a_server_answers_to_a_token_is_told() {
    let session_closed = -124;
    for (err, replies, is_final, words) in [
        (ErrorCode::AuthFailed.code(), 1, true, "did not accept the credentials of the scheme sasl"),
        (session_closed, 1, true, "did not accept the credentials of the scheme sasl"),
        (0, 2, false, "a reply to request"),
    ] {
        let server = Scripted::start(move |frame, peer| match frame.op() {
            Some(OpCode::Sasl) => {
                (0..replies).for_each(|_| peer.reply(frame.xid(), err, |to| _ = to.optional_buffer(None)));
                Then::Done
            }
            _ => Then::Usual,
        });
        let mechanism = Ticket::new(Login::Succeeds, b"one");
        let address = server.address().to_string();
        let client = options(address).sasl(mechanism).retry_policy(RetryNTimes::new(0, Duration::ZERO));
        let client = client.build().unwrap();
        client.start().unwrap();
        let error = in_time(client.check_exists().for_path("/").into_future()).await.unwrap_err();
        let text = Chain(&error).to_string();
        assert_eq!(matches!(error, Error::AuthFailed { .. }), is_final, "{text}");
        assert!(text.contains(words), "{err}: {text}");
        client.close().await;
    }
}
