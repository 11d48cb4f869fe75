//! Logins by SASL with mechanisms of the test, on the testing server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::{
    Acl, Chain, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, Error, RetryForever, RetryNTimes,
    SaslConversation, SaslDigest, SaslError, SaslMechanism, SaslServer,
};
use curator_integration::env::{connected, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{SaslAnswer, TestingServer};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The start of each login, in order: the tokens that the mechanism sends, or its error. The last one is repeated.
#[derive(Debug, Default)]
struct Script {
    starts: Mutex<Vec<Result<Vec<&'static str>, SaslError>>>,
    hosts: Mutex<Vec<String>>,
    begun: AtomicUsize,
    /// The permits for a start, if it waits for one.
    permits: Option<Semaphore>,
}

#[derive(Debug, Clone)]
struct Scripted(Arc<Script>);

impl Scripted {
    fn new(starts: impl Into<Vec<Result<Vec<&'static str>, SaslError>>>) -> Self {
        Self(Arc::new(Script { starts: Mutex::new(starts.into()), ..Script::default() }))
    }

    fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl SaslMechanism for Scripted {
    fn name(&self) -> &'static str {
        "SCRIPT"
    }

    async fn start(&self, server: SaslServer) -> Result<(Vec<u8>, Box<dyn SaslConversation>), SaslError> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        self.0.hosts.lock().push(server.host().to_owned());
        if let Some(permits) = &self.0.permits {
            permits.acquire().await.unwrap().forget();
        }
        let mut starts = self.0.starts.lock();
        let start = if starts.len() > 1 { starts.remove(0) } else { starts[0].clone() };
        let mut tokens = start?.into_iter();
        assert!(tokens.len() > 0, "no token on purpose");
        let first = tokens.next().unwrap_or_default().as_bytes().to_vec();
        Ok((first, Box::new(Conversation(tokens))))
    }
}

struct Conversation(std::vec::IntoIter<&'static str>);

#[async_trait]
impl SaslConversation for Conversation {
    async fn step(&mut self, token: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError> {
        match (token, self.0.next()) {
            (Some(b"more"), Some(next)) => Ok(Some(next.as_bytes().to_vec())),
            (None, None) => Ok(None),
            (token, next) => Err(SaslError::Protocol(format!("{token:?} ahead of {next:?}"))),
        }
    }
}

/// A server that wants the tokens "one" and "two" of the user ada.
fn server() -> TestingServer {
    let answer = |tokens: &[Vec<u8>]| match tokens.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
        [b"one"] => SaslAnswer::Token(b"more".to_vec()),
        [b"one", b"two"] => SaslAnswer::Accept("ada".to_owned()),
        _ => SaslAnswer::Refuse,
    };
    TestingServer::builder().sasl(answer).start().unwrap()
}

const RIGHT: [&str; 2] = ["one", "two"];

fn options(server: &TestingServer) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(server.connect_string())
        .zookeeper_factory(DefaultZooKeeperFactory::new())
        .connection_timeout(Duration::from_secs(2))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
}

/// The requests of the sessions, but for their creation.
fn ops(server: &TestingServer) -> Vec<OpCode> {
    let all = server.requests().into_iter().map(|request| request.op);
    all.filter(|op| *op != OpCode::CreateSession).collect()
}

/// The error of an operation without a connection.
async fn refusal(server: &TestingServer, mechanism: impl SaslMechanism) -> Error {
    let client = options(server).sasl(mechanism).build().unwrap();
    client.start().unwrap();
    let error = in_time(client.check_exists().for_path("/").into_future()).await.unwrap_err();
    client.close().await;
    error
}

#[tokio::test]
async fn a_login_is_one_conversation_on_each_connection_ahead_of_all_requests() {
    let server = server();
    let mechanism = Scripted::new([Ok(RIGHT.to_vec())]);
    let credentials = options(&server)
        .authorization("digest", "eve:secret")
        .retry_policy(RetryForever::new(Duration::from_millis(20)).unwrap());
    let ada = connected(credentials.sasl(mechanism.clone())).await;
    let mutex = InterProcessMutex::new(ada.clone(), "/lock").unwrap();
    let guard = in_time(mutex.acquire()).await.unwrap();
    ada.create().with_acl(Acl::creator_all()).for_path("/adas").await.unwrap();
    let owners = ada.get_acl().for_path("/adas").await.unwrap().0;
    let owners: Vec<_> = owners.iter().map(|acl| format!("{}:{}", acl.scheme, acl.id)).collect();
    assert!(owners.contains(&"sasl:ada".to_owned()) && owners.len() == 2, "{owners:?}");
    server.restart().unwrap();
    in_time(ada.set_data().for_path("/adas", "again").into_future()).await.unwrap();
    assert!(guard.is_held() && mechanism.begun() == 2);
    assert_eq!(*mechanism.0.hosts.lock(), ["127.0.0.1", "127.0.0.1"]);
    let ops = ops(&server);
    let logins: Vec<_> = ops.iter().enumerate().filter(|(_, op)| **op == OpCode::Sasl).map(|(at, _)| at).collect();
    let [first, _, second, _] = logins[..] else { panic!("{ops:?}") };
    for login in [first, second] {
        assert_eq!(ops[login..login + 3], [OpCode::Sasl, OpCode::Sasl, OpCode::Auth], "{ops:?}");
    }
    assert_eq!(first, 0);
    // Another user may not read it.
    let other = connected(options(&server).sasl(SaslFree)).await;
    assert!(matches!(other.get_data().for_path("/adas").await, Err(Error::NoAuth { .. })));
    assert!(in_time(guard.release()).await.unwrap().is_released());
}

/// Ends the conversation at the server's first reply, without a user.
#[derive(Debug)]
struct SaslFree;

#[async_trait]
impl SaslMechanism for SaslFree {
    fn name(&self) -> &'static str {
        "FREE"
    }

    async fn start(&self, _server: SaslServer) -> Result<(Vec<u8>, Box<dyn SaslConversation>), SaslError> {
        Ok((b"one".to_vec(), Box::new(Done)))
    }
}

struct Done;

#[async_trait]
impl SaslConversation for Done {
    async fn step(&mut self, _token: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError> {
        Ok(None)
    }
}

#[tokio::test]
async fn requests_wait_while_the_mechanism_works() {
    let server = server();
    let script =
        Script { permits: Some(Semaphore::new(0)), starts: Mutex::new(vec![Ok(RIGHT.to_vec())]), ..Script::default() };
    let mechanism = Scripted(Arc::new(script));
    let client = options(&server).sasl(mechanism.clone()).connection_timeout(Duration::from_secs(20)).build().unwrap();
    client.start().unwrap();
    let mut read = std::pin::pin!(client.check_exists().for_path("/").into_future());
    while mechanism.begun() == 0 {
        tokio::select! {
            done = &mut read => panic!("{done:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(ops(&server), []);
    mechanism.0.permits.as_ref().unwrap().add_permits(1);
    assert!(in_time(read).await.unwrap().is_some());
    client.close().await;
}

#[tokio::test]
async fn credentials_of_no_use_are_reported_at_once() {
    let server = server();
    let mechanism = Scripted::new([Err(SaslError::Credentials("the ticket has expired".to_owned()))]);
    let error = refusal(&server, mechanism.clone()).await;
    assert!(matches!(error, Error::AuthFailed { .. }), "{error}");
    let text = Chain(&error).to_string();
    assert!(text.contains("SASL SCRIPT: the ticket has expired"), "{text}");
    assert_eq!(mechanism.begun(), 1);
    assert!(server.sessions().is_empty(), "the session is closed");
}

#[tokio::test]
async fn a_service_that_is_away_is_asked_again() {
    let server = server();
    let away = || Err(SaslError::Unavailable("no KDC answers".to_owned()));
    let mechanism = Scripted::new([away(), away(), Ok(RIGHT.to_vec())]);
    let retry = RetryForever::new(Duration::from_millis(10)).unwrap();
    let client = connected(options(&server).sasl(mechanism.clone()).retry_policy(retry)).await;
    assert_eq!(mechanism.begun(), 3);
    client.close().await;
    let error = refusal(&server, Scripted::new([away()])).await;
    let text = Chain(&error).to_string();
    assert!(matches!(error, Error::ConnectionLoss { .. }) && text.contains("SASL SCRIPT: no KDC answers"), "{text}");
}

#[tokio::test]
async fn a_mechanism_that_fails_breaks_its_connection_alone() {
    let server = server();
    for (starts, words) in [
        (vec![Ok(vec![])], "the SASL mechanism has panicked: no token on purpose"),
        (vec![Ok(vec!["one"])], "SASL SCRIPT: Some([109, 111, 114, 101]) ahead of None"),
        (vec![Ok(vec!["two"])], "the server did not accept the credentials of the scheme sasl"),
    ] {
        let text = Chain(&refusal(&server, Scripted::new(starts)).await).to_string();
        assert!(text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn a_mechanism_that_never_answers_has_the_time_of_the_connection() {
    let server = server();
    let script = Script { permits: Some(Semaphore::new(0)), ..Script::default() };
    let error = refusal(&server, Scripted(Arc::new(script))).await;
    let text = Chain(&error).to_string();
    assert!(text.contains("no answer within"), "{text}");
}

#[tokio::test]
async fn an_expired_ticket_at_a_reconnect_ends_the_session() {
    let server = server();
    let expired = Err(SaslError::Credentials("the ticket has expired".to_owned()));
    let mechanism = Scripted::new([Ok(RIGHT.to_vec()), expired, Ok(RIGHT.to_vec())]);
    let client = connected(options(&server).sasl(mechanism.clone())).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    server.restart().unwrap();
    in_time(guard.lost()).await;
    let error = in_time(client.check_exists().for_path("/").into_future()).await;
    assert!(matches!(error, Err(Error::AuthFailed { .. }) | Ok(_)), "{error:?}");
    client.close().await;
}

#[tokio::test]
async fn digest_md5_names_what_is_wrong_with_the_server() {
    let challenge = b"realm=\"r\",nonce=\"n\",qop=\"auth\"".to_vec();
    for (answers, words) in [
        ([SaslAnswer::Ignore, SaslAnswer::Ignore], "the server has no login by SASL"),
        (
            [SaslAnswer::Token(challenge.clone()), SaslAnswer::Token(b"rspauth=0".to_vec())],
            "does not know the password",
        ),
        ([SaslAnswer::Token(challenge), SaslAnswer::Refuse], "did not accept the credentials of the scheme sasl"),
    ] {
        let server = TestingServer::builder().sasl(move |tokens| answers[tokens.len() - 1].clone()).start().unwrap();
        let text = Chain(&refusal(&server, SaslDigest::new("bob", "secret")).await).to_string();
        assert!(text.contains(words), "{text}");
    }
}
