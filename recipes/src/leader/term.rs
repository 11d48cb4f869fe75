//! One term: the leader's view of it, its end, its writes.
//!
//! The number of a term is the `czxid` of the leader's node, as with a lock. It costs no request, and Java's leaders
//! have one too. A hand-over lets a younger node lead before older ones. A leader with an older node then takes a
//! larger number: the transaction of a write (`claim` in `leader/candidate.rs`).
//!
//! `Leadership` is a view, and its drop does not resign. Many tasks ask a latch whether it leads, and its channels
//! carry the view. The drop of one copy must not end the term of the others.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::recipe::{OwnedNode, RecipeClient as _, report};
use curator_framework::spi::Operation;
use curator_framework::{
    Chain, CreateMode, CuratorFramework, CuratorOp, Error, LossReason, PathText, Session, SessionEnd, Stat,
    node_from_path, validate_path,
};
use parking_lot::Mutex;
use tokio::sync::{SetOnce, watch};
use tokio::time::timeout;

use crate::engine::candidacy::Record;
use crate::engine::guarded_transaction::GuardedTransaction;
use crate::engine::guarded_transaction::Tenure;
use crate::engine::hold::{HoldShare, Release};
use crate::engine::while_held::while_held;
use crate::held::{FencingToken, impl_held};
use crate::leader::error::{LeaderError, TermEnd};
use crate::leader::held_nodes::{Held, HeldNodes};
use crate::leader::record_io::{Found, IfUnknown, LeaderNode};

/// One future under protection. Its drop counts it as ended.
struct Work<'a>(&'a watch::Sender<usize>);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|works| *works -= 1);
    }
}

/// Has the session delete the nodes of a term when it is dropped, unless that was done.
struct InBackground<'a>(&'a Term);

impl Drop for InBackground<'_> {
    fn drop(&mut self) {
        self.0.nodes.abandon();
        self.0.share.delete_in_background("dropped");
    }
}

/// The number of attempts to create a node for a term, while other clients change its path.
const HOLD_ATTEMPTS: u32 = 16;

/// Returns `true` if a path, at which a node existed or not, has changed since then.
const fn is_news(cause: &Error, existed: bool) -> bool {
    match cause {
        Error::NodeExists { .. } | Error::BadVersion { .. } => true,
        // Otherwise the parent is missing.
        Error::NoNode { .. } => existed,
        _ => false,
    }
}

/// The state that all views of one term share.
pub(super) struct Term {
    share: HoldShare,
    nodes: HeldNodes,
    number: i64,
    /// The election's path.
    path: String,
    client: CuratorFramework,
    /// The first end.
    over: SetOnce<TermEnd>,
    /// The number of futures in [`Leadership::protect`].
    works: watch::Sender<usize>,
    /// The end of the term's node, as the latch's task reports it.
    released: SetOnce<Result<Release, LeaderError>>,
    /// Locked by a hand-over or a proclamation: they write the same record.
    writing: tokio::sync::Mutex<()>,
    /// The path's data as the leader knows it, if it records its resignation there.
    marks: Mutex<Option<Found>>,
    /// The path's data may be newer than the marks: a write is under way or had no reply, or a wish is recorded.
    marks_may_be_old: AtomicBool,
}

impl Term {
    /// Creates a term. `client` does not keep the session.
    pub(super) fn new(
        share: HoldShare,
        number: i64,
        path: &str,
        client: CuratorFramework,
        marks: Option<Found>,
    ) -> Arc<Self> {
        Arc::new(Self {
            nodes: HeldNodes::new(share.hold().session()),
            share,
            number,
            path: path.to_owned(),
            client,
            writing: tokio::sync::Mutex::default(),
            over: SetOnce::new(),
            works: watch::Sender::new(0),
            released: SetOnce::new(),
            marks: Mutex::new(marks),
            marks_may_be_old: AtomicBool::new(false),
        })
    }

    /// Resolves when no other call of this term writes the path's record.
    pub(super) async fn writes_alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn number(&self) -> i64 {
        self.number
    }

    pub(super) fn node_path(&self) -> &str {
        self.share.path()
    }

    pub(super) fn node_name(&self) -> &str {
        node_from_path(self.share.path())
    }

    pub(super) fn session(&self) -> &Session {
        self.share.hold().session()
    }

    pub(super) fn loss(&self) -> Option<LossReason> {
        self.share.hold().loss()
    }

    pub(super) fn is_held(&self) -> bool {
        !self.over.initialized() && self.share.is_held()
    }

    /// Ends the term for all its views. The node stays until [`release`](Self::release).
    pub(super) fn resign(&self) {
        // Fails if the term was over before: the first end stays.
        let _first = self.over.set(self.loss().map_or(TermEnd::Resigned, TermEnd::Lost));
    }

    /// Ends the term, and resolves when the latch's task has dealt with its node.
    pub(super) async fn resigned(&self) -> Result<Release, LeaderError> {
        self.resign();
        let released = self.client.within(self.client.close_budget(), self.released.wait()).await;
        released.cloned().unwrap_or_else(|| Err(self.client.no_answer("delete").into()))
    }

    /// Resolves when all protected work is dropped: at the latest after a tenth of the session timeout, for work that
    /// blocks its thread or is not polled.
    pub(super) async fn works_have_ended(&self) {
        let mut works = self.works.subscribe();
        if timeout(self.session().timeout() / 10, works.wait_for(|&works| works == 0)).await.is_err() {
            let path = self.path.clone();
            report(move || tracing::warn!(path, "protected work has not ended with its term"));
        }
    }

    /// Records the end of the term's node.
    pub(super) fn was_released(&self, outcome: Result<Release, LeaderError>) {
        // Fails if it was recorded before.
        let _first = self.released.set(outcome);
    }

    pub(super) async fn ended(&self) -> TermEnd {
        tokio::select! {
            biased;
            end = async { *self.over.wait().await } => end,
            reason = self.share.lost() => TermEnd::Lost(reason),
        }
    }

    /// Returns the end of the term, if it has ended.
    pub(super) fn end(&self) -> Option<TermEnd> {
        self.over.get().copied().or_else(|| self.loss().map(TermEnd::Lost))
    }

    /// Returns the end of a term that was seen over: without another one, its deadline had passed, and a reply has moved it
    /// since.
    pub(super) fn end_or_passed(&self) -> TermEnd {
        self.end().unwrap_or(TermEnd::Lost(LossReason::Session(SessionEnd::DeadlinePassed)))
    }

    pub(super) fn path_text(&self) -> PathText {
        self.client.path_text(&self.path)
    }

    pub(super) fn over(&self, end: TermEnd) -> LeaderError {
        LeaderError::LeadershipLost { path: self.path_text(), reason: end }
    }

    /// Fails if the term has ended.
    pub(super) fn check(&self) -> Result<(), LeaderError> {
        self.end().map_or(Ok(()), |end| Err(self.over(end)))
    }

    /// Ends the term, waits for the end of protected work, and deletes the node. Records in the path's data that the
    /// leader has resigned, if the term wants that. The session deletes a node that cannot be deleted now.
    pub(super) async fn release(&self) -> Result<Release, LeaderError> {
        self.resign();
        let budget = self.client.close_budget();
        self.works_have_ended().await;
        if self.marks_may_be_old.load(Ordering::SeqCst) {
            // Without an answer the mark fails, and the end counts as a crash.
            let read = self.client.within(budget, self.session().get_data(&self.path)).await;
            if let Some(Ok((data, stat))) = read {
                self.keep(Found::new(&data, stat));
            }
        }
        let marked = |found: &Found| {
            let mut record = Record::of_leader(self.number, self.node_name()).above(found.highest_term());
            record.resigned = true;
            found.change_to(&self.path, &record)
        };
        let mark = self.marks.lock().as_ref().map(marked);
        // Views may keep the term, so a release that fails or is dropped must not keep the node.
        let _in_any_case = InBackground(self);
        // Ahead of the leader's node: the next leader does not meet them. The rest follows in the background.
        let deleted = timeout(self.session().timeout() / 10, self.nodes.delete());
        let _deleted = self.client.within(budget, deleted).await;
        let released = self.share.release_with(mark, budget).await;
        Ok(released.inspect_err(|error| {
            tracing::debug!(error = %Chain(&error), path = self.path, "the node of a term is deleted in the background");
        })?)
    }

    /// Ends the term, and has the session delete its node.
    pub(super) fn abandon(&self) {
        self.resign();
        drop(InBackground(self));
    }

    /// Ends the term, and returns its node, unless a release has taken that.
    pub(super) fn take_node(&self) -> Option<OwnedNode> {
        self.resign();
        self.nodes.abandon();
        self.share.take_node()
    }

    /// Changes the path's record, in one transaction that checks the leader's node. Returns what was written.
    pub(super) async fn write(
        &self,
        change: impl Fn(&mut Record),
        others: impl Fn() -> Vec<Operation>,
    ) -> Result<Found, LeaderError> {
        self.check()?;
        let change = |found: &Found| {
            self.check()?;
            let mut record = found.record_of(self.number, self.node_name());
            change(&mut record);
            self.client.check_change(&self.path, &record.to_bytes())?;
            self.begins_to_write();
            Ok(Some((record, others())))
        };
        let node = LeaderNode { client: &self.client, path: &self.path, share: &self.share };
        let written = node.write(&mut self.client.retry_loop(), None, IfUnknown::Fail, change).await;
        let written = written.map_err(|error| self.failed(error))?;
        self.keep(written.clone());
        Ok(written)
    }

    /// Records that the path's data may become newer than the marks.
    pub(super) fn begins_to_write(&self) {
        self.marks_may_be_old.store(true, Ordering::SeqCst);
    }

    /// Keeps the path's data as it was read or written, so that the resignation overwrites it.
    pub(super) fn keep(&self, found: Found) {
        if !found.is_foreign {
            // A candidate that follows a wish writes the path's data.
            let may_be_old = found.record.as_ref().is_some_and(|record| record.wish.is_some());
            *self.marks.lock() = Some(found);
            self.marks_may_be_old.store(may_be_old, Ordering::SeqCst);
        }
    }

    /// Returns the loss of the term in place of the error that it has caused.
    pub(super) fn failed(&self, error: impl Into<LeaderError>) -> LeaderError {
        match (self.loss(), error.into()) {
            (Some(reason), LeaderError::Framework(_)) => self.over(TermEnd::Lost(reason)),
            // Without the path its children are deleted too, the leader's node among them.
            (None, LeaderError::Framework(Error::NoNode { .. })) => self.over(TermEnd::Lost(LossReason::NodeDeleted)),
            (_, error) => error,
        }
    }

    pub(super) fn client(&self) -> &CuratorFramework {
        &self.client
    }

    pub(super) fn view(self: &Arc<Self>) -> Leadership {
        Leadership { term: Arc::clone(self) }
    }
}

impl Tenure<LeaderError> for Term {
    fn check(&self) -> Result<(), LeaderError> {
        Self::check(self)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("path", &self.path).field("number", &self.number).finish_non_exhaustive()
    }
}

/// The leader's view of one term. [Clones](crate#handles) are cheap. Dropping a view does not resign:
/// [`LeaderLatch::resign`](crate::LeaderLatch::resign) does.
///
/// # Examples
///
/// ```
/// # async fn work() {}
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::LeaderLatch;
///
/// let latch = LeaderLatch::new(client, "/leaders/indexer")?;
/// latch.start()?;
/// let leadership = latch.leading().await?;
/// leadership.protect(work()).await?; // stops when the term ends
/// latch.close().await;
/// assert!(!leadership.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leadership {
    term: Arc<Term>,
}

impl Leadership {
    /// Returns whether this term certainly continues. Compares the clock with the session's deadline, without a
    /// request, so the first call after the machine has slept is right too.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.term.is_held()
    }

    /// Returns how long the term certainly continues if the server sends nothing more; zero if it has ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.is_held() { self.term.share.remaining() } else { Duration::ZERO }
    }

    /// Resolves with the reason when the leadership is lost, at once if it is. Never resolves if the leader has resigned
    /// before: see [`ended`](Self::ended).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn lost(&self) -> LossReason {
        match self.ended().await {
            TermEnd::Lost(reason) => reason,
            TermEnd::Resigned => std::future::pending().await,
        }
    }

    /// Resolves with the reason when the term ends, by a loss or a resignation; at once if it has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn ended(&self) -> TermEnd {
        self.term.ended().await
    }

    /// Returns the number of the term, which is larger than the number of every earlier leader: a fencing token. It
    /// survives the deletion of the path and a new leader of the ensemble, but not data restored from a backup.
    ///
    /// The number is the `czxid` of the leader's node. After a [hand-over](crate::LeaderLatch::resign_to_timeout) a leader may
    /// have an older node than an earlier leader. Its number is then the transaction of a write. Java's leaders write
    /// no number.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        FencingToken::of_node(self.term.number)
    }

    /// Returns the election's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.term.path
    }

    /// Returns the path of the leader's node.
    #[must_use]
    #[doc(alias = "getLastPathIsLeader")]
    pub fn node_path(&self) -> &str {
        self.term.share.path()
    }

    /// Asks the server whether the term continues: a round trip to the leader of the ensemble, and a read of the node.
    /// Call it before a step that cannot be undone: [`is_held`](Self::is_held) does not see a killed session at once.
    ///
    /// # Errors
    ///
    /// * `LeaderError::LeadershipLost`: the term has ended.
    /// * `Error::ConnectionLoss` or another error of the framework: no server replied until the retry policy gave up, so
    ///   the term may be over.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn verify(&self) -> Result<(), LeaderError> {
        self.term.check()?;
        self.term.share.verify().await?;
        self.term.check()
    }

    /// Runs `work` while the term lasts. Its end drops the unfinished `work`. A leader that resigns waits for that
    /// drop, for at most a tenth of the session timeout, before it deletes its node. For work that continues after
    /// that, see [`LockGuard::protect`](crate::LockGuard::protect).
    ///
    /// # Errors
    ///
    /// `LeaderError::LeadershipLost`: the term has ended before `work` was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, LeaderError> {
        self.term.works.send_modify(|works| *works += 1);
        // Declared before the future that owns the work, so dropped after it.
        let _counted = Work(&self.term.works);
        match while_held(|| self.is_held(), self.ended(), work).await {
            Ok(output) => Ok(output),
            Err(end) => Err(self.term.over(end.unwrap_or_else(|| self.term.end_or_passed()))),
        }
    }

    /// Starts a transaction that the server carries out only if the leader's node exists at that moment. The commit
    /// fails with `LeaderError::LeadershipLost` after the term. With the client `zookeeper-async` it fails with
    /// `Error::Unsupported`.
    pub fn transaction(&self) -> GuardedTransaction<'_, LeaderError> {
        GuardedTransaction::within(&*self.term, &self.term.share)
    }

    /// Creates an ephemeral node that exists as long as the term, such as one with the leader's address at a path that all
    /// clients know. Replaces a node without children at the path, an earlier leader's or its own. The parent must exist.
    ///
    /// One transaction checks the leader's node and creates this one. A leader that resigns deletes it ahead of its own
    /// node. After another end of the term the session deletes it in the background, or goes with it. The path belongs
    /// to the term until then. A deletion or a write by another client is not repaired. Another ephemeral node of this
    /// client at the path may be deleted. Costs two requests, and two at the end of the term.
    ///
    /// # Errors
    ///
    /// * `LeaderError::LeadershipLost`: the term has ended.
    /// * `Error::Unsupported`: the client is `zookeeper-async`, which has no transactions.
    /// * `Error::Transaction` with the cause: `Error::NoNode` without the parent, `Error::NotEmpty` for a node with
    ///   children, `Error::NoAuth`; `Error::NodeExists` or `Error::BadVersion` if other clients change the path all the
    ///   time.
    /// * `Error::InvalidPath`, `Error::SchemaViolation`.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have another node. Delete others, or use a shorter path.
    /// * `Error::ConnectionLoss`: the node may have been created. The term's end deletes it. Call it again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may be created. The term's end deletes it.
    pub async fn hold_node(&self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Result<Stat, LeaderError> {
        let (term, path, data) = (&*self.term, path.into(), data.into());
        validate_path(&path)?;
        let _alone = term.nodes.creating.lock().await;
        term.check()?;
        let before = term.nodes.get(&path);
        let (mut retries, mut attempts) = (term.client.retry_loop(), 0);
        let (mut is_unknown, mut existed) = (false, false);
        loop {
            attempts += 1;
            let held = async {
                let found = term.session().exists(&path).await?;
                existed = found.is_some();
                self.hold_node_once(&path, &data, found.map(|found| found.version)).await
            };
            let error = match held.await {
                Ok(stat) if term.nodes.set(&path, Some(Held::Created(stat.czxid))) => return Ok(stat),
                Ok(_) => return Err(term.over(term.end().unwrap_or(TermEnd::Resigned))),
                Err(error) => error,
            };
            is_unknown |= error.outcome_unknown();
            let failed = match error {
                LeaderError::Framework(Error::Transaction { cause, .. })
                    if is_news(&cause, existed) && attempts < HOLD_ATTEMPTS =>
                {
                    continue;
                }
                LeaderError::Framework(error) => match retries.failed(error).await {
                    Ok(()) => retries.reconnected(term.session()).await,
                    failed => failed,
                }
                .map_err(|error| term.failed(error)),
                error => Err(error),
            };
            if let Err(error) = failed {
                if !is_unknown {
                    term.nodes.set(&path, before);
                }
                return Err(error);
            }
        }
    }

    /// Creates a node in place of one in this version.
    async fn hold_node_once(&self, path: &str, data: &[u8], found: Option<i32>) -> Result<Stat, LeaderError> {
        let create = CuratorOp::create(path).with_mode(CreateMode::Ephemeral).with_data(data);
        let set = CuratorOp::set_data(path, data);
        // The earlier leader deletes its node by the version, so this one gets another. And replies have the stats of
        // nodes that are set, but not of those that are created.
        let sets = 1 + usize::from(found == Some(1));
        let delete = found.map(|version| CuratorOp::delete(path).with_version(version));
        let operations = delete.into_iter().chain([create]).chain(std::iter::repeat_n(set, sets));
        if !self.term.nodes.set(path, Some(Held::Perhaps)) {
            return Err(self.term.over(self.term.end().unwrap_or(TermEnd::Resigned)));
        }
        let results = self.transaction().operations(operations).commit().await?;
        Ok(results.into_iter().rev().find_map(|result| result.result_stat).unwrap_or_default())
    }

    /// Proclaims some data, which every [observer](crate::LeaderObserver) of the election gets with the leader: etcd's
    /// `Proclaim`. One transaction checks the leader's node and writes the data of the election's path. The data counts
    /// until this leader proclaims again or its term ends. Costs two requests. While a
    /// [hand-over](crate::LeaderLatch::resign_to_timeout) is in progress, a proclamation waits for its end.
    ///
    /// # Errors
    ///
    /// * `LeaderError::LeadershipLost`: the term has ended. The data may have been written if the session has ended.
    /// * `LeaderError::ForeignData`: another program has written the path's data.
    /// * `Error::Unsupported`: the client is `zookeeper-async`, which has no transactions.
    /// * `Error::NoAuth`, or `Error::Transaction` with that cause: the ACL forbids reading or writing the path.
    /// * `Error::SchemaViolation`: a schema of the client forbids the data.
    /// * `Error::ConnectionLoss`: the data may have been written. Proclaim again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the data may be written.
    pub async fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<(), LeaderError> {
        let data = data.into();
        let _alone = self.term.writes_alone().await;
        self.term.write(|record| record.data = Some(data.clone()), Vec::new).await?;
        Ok(())
    }

    pub(super) fn term_of(&self) -> &Arc<Term> {
        &self.term
    }
}

impl_held!(Leadership, LeaderError);

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("path", &self.node_path())
            .field("token", &self.token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
