//! The servers that the program is connected to, and the checks of a path before the first write.

use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use curator_cli::contenders::{blocker, other_kind};
use curator_cli::kinds::{LockKind, is_candidate, lock_of_contender, not_a_contender};
use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, Session, node_from_path};
use curator_recipes::ParticipantKind;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::tell;
use crate::show::Noun;

/// The longest time for giving back a node. After it, the end of the session deletes the node. The client itself waits
/// longer, so that the end of this time is noticed here.
pub(crate) const RELEASE: Duration = Duration::from_secs(5);
/// A connection that was broken is usually back within this time.
const RECONNECT: Duration = Duration::from_secs(1);
/// The longest time for the end of an attempt to connect, if it is of no use any more.
const ATTEMPT: Duration = Duration::from_millis(500);
/// The longest time for finding the reason of a refusal.
const REASON: Duration = Duration::from_secs(1);

/// The servers, and the chroot of the connect string.
pub(crate) struct Site {
    pub(crate) client: CuratorFramework,
    pub(crate) chroot: Option<String>,
    /// The connect string.
    servers: String,
    /// The timeout that the servers have granted to the first session.
    session_timeout: OnceLock<Duration>,
}

impl Site {
    pub(crate) fn new(client: CuratorFramework, connection: &Connection) -> Self {
        let (chroot, servers) = (connection.chroot(), connection.servers());
        Self { client, chroot, servers, session_timeout: OnceLock::new() }
    }

    /// Closes the client, at most as long as a release may take. Without a session there is nothing to give back, but the
    /// attempt that is under way may still make one.
    pub(crate) async fn close(&self) {
        let had_session = self.session_timeout.get().is_some() || self.client.is_connected();
        let longest = if had_session { RELEASE } else { ATTEMPT };
        let _in_time = tokio::time::timeout(longest, self.client.close()).await;
    }

    /// Returns the words for something that could not be given back.
    pub(crate) fn left(&self, what: &str) -> String {
        let within = self.session_timeout.get().map(|timeout| {
            let seconds = timeout.as_secs_f64();
            format!(", at most {seconds} s after the servers are back")
        });
        format!("{what} stays until its session ends{}", within.unwrap_or_default())
    }

    /// Gives something back, at most as long as a release may take.
    pub(crate) async fn give_back(&self, what: &str, closing: impl Future<Output = ()>) {
        let begin = Instant::now();
        let closed = tokio::time::timeout(RELEASE, closing).await;
        // A close ends without the reply to its deletion too. The close of the client repeats the deletion then.
        let is_back = async |budget| self.client.block_until_connected_timeout(budget).await.is_ok();
        if closed.is_err() || !is_back(RECONNECT).await {
            tell(&format!("{}: the servers did not answer when it was given back", self.left(what)));
            is_back(RELEASE.saturating_sub(begin.elapsed())).await;
        }
    }

    /// Waits for the connection, at most as long as the options allow. A budget of zero allows one look, so it does not
    /// limit the connection.
    pub(crate) async fn first_session(&self, budget: Option<Duration>) -> Result<Session, Failure> {
        let budget = budget.filter(|budget| !budget.is_zero());
        let longest = budget.unwrap_or(Duration::MAX).min(self.client.connection_timeout());
        match tokio::time::timeout(longest, self.client.session()).await {
            Ok(Ok(session)) => {
                self.session_timeout.get_or_init(|| session.timeout());
                Ok(session)
            }
            // The client waits as long, so either may end first.
            Ok(Err(error)) if !matches!(error, Error::ConnectionLoss { cause: None, .. }) => Err(error.into()),
            _too_long => Err(match self.client.no_answer("the wait for a connection") {
                // The first attempt has not ended.
                Error::ConnectionLoss { cause: None, .. } => {
                    Failure(69, format!("no answer from {} in {longest:?}", self.servers))
                }
                error => error.into(),
            }),
        }
    }

    /// Refuses a path that has the nodes of another kind of lock, before the first write: there the lock would exclude
    /// nothing, or fail. A group is not a lock, so its kind is `None`. Refuses the node of a contender too: a node that
    /// is created there, or below it, would block the lock.
    pub(crate) async fn check(&self, kind: Option<LockKind>, path: &str) -> Result<(), Failure> {
        if let Some(whole) = lock_of_contender(path) {
            let is_candidate = is_candidate(node_from_path(path));
            let (participant, noun) =
                if is_candidate { ("candidate", Noun::Election) } else { ("contender", Noun::Lock) };
            let (_, word, _) = noun.words();
            let text = format!("{path} has the name of a {participant}'s node: name the {word} itself, {whole}");
            return Err(Failure(2, text));
        }
        let children = match self.client.get_children().for_path(path).await {
            Ok(children) => children,
            Err(Error::NoNode { .. }) => return self.check_chroot().await,
            // The acquire reports other errors.
            Err(_reported) => return Ok(()),
        };
        // A part that cannot be read may have contenders.
        let Some(found) = other_kind(&self.client, path, &children, kind).await? else { return Ok(()) };
        let (name, right) = match found {
            LockKind::Mutex => ("mutex", "curator lock"),
            LockKind::ReadWrite => ("read-write lock", "curator read or curator write"),
            LockKind::Semaphore => ("semaphore", "curator semaphore"),
            LockKind::LeaderLatch => ("leader election", "curator elect"),
        };
        Err(Failure(2, format!("{path} is a {name} with contenders: use {right}, or another path")))
    }

    /// Fails if the chroot does not exist.
    pub(crate) async fn check_chroot(&self) -> Result<(), Failure> {
        let Some(chroot) = &self.chroot else { return Ok(()) };
        if self.client.check_exists().for_path("/").await?.is_some() {
            return Ok(());
        }
        let text =
            format!("the chroot {chroot} does not exist on the servers: create it, or correct the connect string");
        Err(Failure(2, text))
    }

    /// Returns the failure for a path that does not exist.
    pub(crate) async fn missing(&self, path: &str, noun: Noun) -> Result<Failure, Failure> {
        self.check_chroot().await?;
        let (_, word, _) = noun.words();
        let text = format!("no {word} {path}: no client has used it yet, or the servers have deleted its empty node");
        Ok(Failure(1, text))
    }

    /// Returns the reason of a refusal: a persistent node with a contender's name, or `other`.
    pub(crate) async fn refused_by(&self, path: &str, kind: ParticipantKind, other: String) -> Result<String, Failure> {
        let blocker = tokio::time::timeout(REASON, blocker(&self.client, path, kind)).await;
        Ok(match blocker {
            Ok(Ok(Some(node))) => not_a_contender(&node),
            _ => other,
        })
    }
}
