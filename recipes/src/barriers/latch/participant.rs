//! Participants, and the wait for the death of one.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{OwnedNode, ProtectedId};
use curator_framework::{LossReason, Session, Watch, make_path};

use super::call::run;
use super::counting::Counting;
use super::plan::{ParticipantNode, Record};
use super::store::Store;
use crate::barriers::checks::found;
use crate::barriers::checks::verify;
use crate::barriers::error::BarrierError;
use crate::barriers::exact_node::create_exact_node;
use crate::barriers::waiting::{Awaited, Look};
use crate::held::{FencingToken, impl_held};
use crate::node_hold::NodeHold;

/// A process that has announced its count: [`CountDownLatch::participate`](crate::CountDownLatch::participate).
///
/// If it is dropped without a count, or its session ends before, the other processes learn that it was
/// [lost](crate::CountDownLatch::participant_lost).
#[must_use = "if unused the participant is reported as lost at once"]
pub struct LatchParticipant {
    store: Arc<Store>,
    round: Record,
    operation: String,
    name: String,
    hold: NodeHold,
    count: tokio::sync::Mutex<Count>,
}

/// The count of a participant.
enum Count {
    /// The participant makes it, and deletes this node with it.
    Due(OwnedNode),
    /// It was made, and this many were left.
    Made(u32),
}

impl LatchParticipant {
    pub(super) async fn join(
        store: &Arc<Store>,
        round: Record,
        name: &str,
        id: ProtectedId,
    ) -> Result<Self, BarrierError> {
        let (operation, name) = (id.to_string(), name.to_owned());
        let node = ParticipantNode { operation: &operation, round: round.round, name: &name }.to_name();
        let node = create_exact_node(&store.client, &make_path(&store.participants(), &node), Some(id)).await?;
        node.watch_node(Duration::ZERO);
        let hold = NodeHold::new(&store.client, &store.path, &node);
        let count = tokio::sync::Mutex::new(Count::Due(node));
        Ok(Self { store: Arc::clone(store), round, operation, name, hold, count })
    }

    /// Returns `true` if the latch still has the participant's round, in a read after the create.
    pub(super) async fn is_in_present_round(&self) -> Result<bool, BarrierError> {
        let mut retries = self.store.client.retry_loop();
        loop {
            let session = retries.connected(self.path()).await?;
            let read = self.store.record(&session).await;
            if let Some(read) = retries.done(read, self.path()).await? {
                return Ok(read.is_some_and(|(record, _)| record.is_same_round(&self.round)));
            }
        }
    }

    /// Returns the latch's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.store.path
    }

    /// Returns the path of the participant's node.
    #[must_use]
    pub fn node_path(&self) -> &str {
        self.hold.node_path()
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of the participant's round.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round.round
    }

    /// Returns the operation id of the participant's count, for
    /// [`count_down_as`](crate::CountDownLatch::count_down_as) after a [`count_down`](Self::count_down) that failed.
    #[must_use]
    pub fn operation_id(&self) -> &str {
        &self.operation
    }

    /// Returns `true` until the first [`count_down`](Self::count_down), unless the participant's node is known to be lost:
    /// its session's deadline has passed, or another client has deleted it. Local, no request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Returns how long the participant's node certainly exists if the server sends nothing more; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves with the reason when the participant's node is lost: the other processes take it for dead. It may still
    /// count. Never resolves if the participant started to count before.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        self.hold.lost().await
    }

    /// Asks the leader of the ensemble whether the participant's node exists: one round trip, and a read.
    ///
    /// # Errors
    ///
    /// `BarrierError::Lost` after a loss; `BarrierError::InvalidArgument` once it started to count;
    /// `Error::ConnectionLoss` or another error of the framework if no server replied until the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn verify(&self) -> Result<(), BarrierError> {
        verify(&self.hold).await
    }

    /// Returns the fencing token: the `czxid` of the participant's node.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Counts once, in the participant's round, and deletes its node in the same transaction. Returns how many counts
    /// are left; 0 too if the round has ended. After a success, further calls return the same number.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. With an [unknown
    ///   outcome](BarrierError::outcome_unknown) the count may be made.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`: the count is not made.
    ///
    /// After an error call it again: the count is made once. Or drop the participant, which deletes its node in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the count may be made, once. Call it again, or drop the participant.
    pub async fn count_down(&self) -> Result<u32, BarrierError> {
        self.hold.give_up();
        let mut count = self.count.lock().await;
        let node = match &mut *count {
            Count::Due(node) => node,
            Count::Made(left) => return Ok(*left),
        };
        let participant = Some((self.round.clone(), node));
        let left = run(&self.store, Counting::new(&self.store, Some(self.operation.clone()), participant)).await?;
        *count = Count::Made(left);
        Ok(left)
    }
}

impl_held!(LatchParticipant, BarrierError);

impl fmt::Debug for LatchParticipant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchParticipant")
            .field("path", &self.store.path)
            .field("name", &self.name)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// The death of a participant that was listed.
pub(super) struct Deaths<'a> {
    pub(super) store: &'a Store,
    /// The nodes of the participants that were listed and have not counted.
    pub(super) listed: BTreeSet<String>,
}

impl Deaths<'_> {
    /// Lists the participants, and leaves a watch for the next change.
    async fn list(&self, session: &Session) -> Result<(BTreeSet<String>, Watch), BarrierError> {
        let path = self.store.participants();
        loop {
            if let Some((children, watch)) = found(session.get_children_watched(&path).await)? {
                return Ok((children.into_iter().collect(), watch));
            }
            if let (None, watch) = session.exists_watched(&path).await? {
                return Ok((BTreeSet::new(), watch));
            }
        }
    }

    /// Returns `true` if the participant of a deleted node has not counted, and its round still needs that.
    async fn is_death(&self, session: &Session, node: &ParticipantNode<'_>) -> Result<bool, BarrierError> {
        if session.exists(&self.store.child(node.round, node.operation)).await?.is_some() {
            return Ok(false);
        }
        // Read second: a round's counts are deleted only after the next round has started.
        let record = self.store.record(session).await?;
        Ok(record.is_some_and(|(record, _)| record.round == node.round && !record.is_open))
    }
}

impl Awaited for Deaths<'_> {
    type Output = String;

    async fn look(&mut self, session: &Session) -> Result<Look<String>, BarrierError> {
        // Pinned: the reads after the listing are not older than it.
        let session = session.pinned();
        let (present, watch) = self.list(&session).await?;
        let gone: Vec<_> = self.listed.difference(&present).cloned().collect();
        for name in gone {
            if let Some(node) = ParticipantNode::parse(&name) {
                if self.is_death(&session, &node).await? {
                    return Ok(Look::Done(node.name.to_owned()));
                }
            }
            self.listed.remove(&name);
        }
        self.listed.extend(present);
        Ok(Look::Wait(watch))
    }
}
