//! A member of a round, and what it learns when it leaves.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use curator_framework::recipe::Budget;
use curator_framework::{Error, EventType, LossReason, WakeReason, Zxid, make_path, node_from_path};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::attempt::Own;
use super::leave::leave;
use super::nodes::{Nodes, drift};
use super::plan::Reading;
use super::plan::entering::Entering;
use super::plan::leaving::Leaving;
use crate::barriers::checks::found;
use crate::barriers::checks::{lost, verify};
use crate::barriers::error::BarrierError;
use crate::held::{FencingToken, impl_held};
use crate::node_hold::NodeHold;

/// A member that has entered a [`DistributedDoubleBarrier`](crate::DistributedDoubleBarrier), until it leaves.
///
/// The other members wait for it in [`leave`](Self::leave). Dropping it deletes its node in the background, which the
/// others count as a death. If its node is lost, they do not wait for it: see [`lost`](Self::lost).
#[must_use = "if unused the member leaves the barrier at once"]
pub struct BarrierMember {
    nodes: Arc<Nodes>,
    opened: bool,
    hold: NodeHold,
    round: OnceLock<i64>,
    leave: tokio::sync::Mutex<Leave>,
}

/// The leave of a member, which a later call continues.
struct Leave {
    plan: Leaving,
    own: Own,
    departure: Option<Departure>,
}

impl BarrierMember {
    pub(super) fn new(nodes: Arc<Nodes>, mut own: Own, entered: &Entering) -> Result<Self, BarrierError> {
        let hold = NodeHold::new(&nodes.client, &nodes.path, own.node(&nodes)?);
        let plan = Leaving::new(own.name(), hold.token().czxid().get(), entered.round);
        let round = entered.round.map(OnceLock::from).unwrap_or_default();
        let leave = tokio::sync::Mutex::new(Leave { plan, own, departure: None });
        Ok(Self { nodes, opened: entered.opened, hold, round, leave })
    }

    fn name(&self) -> &str {
        node_from_path(self.hold.node_path())
    }

    /// Returns the barrier's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.nodes.path
    }

    /// Returns the path of this member's node.
    #[must_use]
    pub fn node_path(&self) -> &str {
        self.hold.node_path()
    }

    /// Returns `true` if this member has opened the barrier for its round: one member at most. If Java's client has
    /// opened it, or the session of the member that did has ended, no member of the round has.
    #[must_use]
    pub const fn has_opened(&self) -> bool {
        self.opened
    }

    /// Returns the number of the round: the transaction that opened the barrier. All members of a round have the same
    /// number, and later rounds have larger ones. At most one request, at the first call.
    ///
    /// # Errors
    ///
    /// * `BarrierError::Lost`: the round is not known, because this member has left, or has lost its node, before the
    ///   first call.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn round(&self) -> Result<Zxid, BarrierError> {
        let of_leave = || self.leave.try_lock().ok()?.plan.round;
        if let Some(round) = self.round.get().copied().or_else(of_leave) {
            return Ok(Zxid::new(round));
        }
        let mut retries = self.nodes.client.retry_loop();
        loop {
            match self.hold.session().exists(&self.nodes.ready).await {
                Ok(Some(ready)) if Zxid::new(ready.czxid) > self.token().czxid() && self.is_held() => {
                    return Ok(Zxid::new(*self.round.get_or_init(|| ready.czxid)));
                }
                Ok(_) => return Err(lost(&self.hold, self.hold.loss().unwrap_or(LossReason::NodeDeleted))),
                Err(error) => retries.failed_in(self.hold.session(), error).await?,
            }
        }
    }

    /// Returns `true` until the first call of [`leave`](Self::leave), unless the member's node is lost. Local, no request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Returns how long the member's node certainly exists if the server sends nothing more; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves with the reason when the node of the member is lost: its session has ended, or another client has
    /// deleted it. The other members do not wait for this member then. Never resolves if the member started to leave
    /// before.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        self.hold.lost().await
    }

    /// Asks the leader of the ensemble whether the member's node exists: one round trip, and a read.
    ///
    /// # Errors
    ///
    /// `BarrierError::Lost` after a loss; `BarrierError::InvalidArgument` once the member started to leave;
    /// `Error::ConnectionLoss` or another error of the framework if no server replied until the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn verify(&self) -> Result<(), BarrierError> {
        verify(&self.hold).await
    }

    /// Returns the fencing token: the `czxid` of the member's node.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Resolves with the id of a member when it dies: its node is deleted, but not by a leave. It watches the members
    /// that have nodes at the call, and never resolves if all of them leave.
    ///
    /// If the connection was lost at the time of the death, the call may name a member that left in the meantime. If
    /// the call has not read the id before, it returns the name of the node.
    ///
    /// # Errors
    ///
    /// * `BarrierError::Lost`: the node of this member is lost.
    /// * `Error::NoAuth`: the access control list of a member's node does not let this client read it.
    ///
    /// # Cancel safety
    ///
    /// A death between two calls is not reported.
    pub async fn member_lost(&self) -> Result<String, BarrierError> {
        tokio::select! {
            biased;
            reason = self.hold.lost() => Err(lost(&self.hold, reason)),
            died = self.watch_others() => died,
        }
    }

    async fn watch_others(&self) -> Result<String, BarrierError> {
        let (mut retries, mut others) = (self.nodes.client.retry_loop(), None);
        loop {
            match self.watch_others_once(&mut others).await {
                Ok(id) => return Ok(id),
                Err(error) => retries.failed_in(self.hold.session(), error).await?,
            }
        }
    }

    async fn watch_others_once(&self, others: &mut Option<(Vec<Other>, i32)>) -> Result<String, Error> {
        let (nodes, session) = (&*self.nodes, self.hold.session());
        let (others, drift_before) = match others {
            Some(others) => others,
            None => {
                let (look, _, barrier) = nodes.look(session, Reading::Data).await?;
                let names = look.names.into_iter().filter(|name| name != self.name());
                let present = names.map(|name| Other { id: name.clone(), name, has_ended: false }).collect();
                others.insert((present, drift(&barrier)))
            }
        };
        let present = others.iter_mut().filter(|other| !other.has_ended);
        let mut watches: FuturesUnordered<_> = present.map(|other| self.watch_other(other)).collect();
        while let Some(ended) = watches.next().await {
            let (other, died) = ended?;
            let died = match died {
                Some(died) => died,
                // The counts of the barrier show whether a member died.
                None => {
                    let now = session.exists(&nodes.path).await?.map_or(*drift_before, |barrier| drift(&barrier));
                    std::mem::replace(drift_before, now) != now
                }
            };
            other.has_ended = true;
            if died {
                tracing::debug!(path = nodes.path, member = other.name, "a member of a barrier has died");
                return Ok(other.id.clone());
            }
        }
        std::future::pending().await
    }

    /// Watches a member until its node is deleted. Records its id. Also returns `true` if it has died, `false` if it
    /// has left, and `None` if no notification shows that.
    async fn watch_other<'a>(&self, other: &'a mut Other) -> Result<(&'a mut Other, Option<bool>), Error> {
        let path = make_path(&self.nodes.path, &other.name);
        let mut has_changed = false;
        loop {
            let Some(mut read) = found(self.hold.session().get_data_watched(&path).await)? else {
                return Ok((other, has_changed.then_some(false)));
            };
            if !read.data.is_empty() {
                other.id = String::from_utf8_lossy(&read.data).into_owned();
            }
            match (&mut read.watch).await {
                WakeReason::Event(EventType::NodeDeleted) => {
                    let in_order = read.watch.found().map(|found| found.epoch) == read.watch.fired_in();
                    return Ok((other, in_order.then_some(true)));
                }
                // A leave changes the data first. The next read shows whether the node is deleted.
                reason => has_changed = reason == WakeReason::Event(EventType::NodeDataChanged),
            }
        }
    }

    /// Leaves the barrier, and waits until all members of the round have left or died. After a
    /// [`leave_timeout`](Self::leave_timeout) that returned `None`, or after an error, it continues the wait.
    ///
    /// # Errors
    ///
    /// * `BarrierError::Lost`: the node of this member was lost before it left. The other members did not wait for it.
    /// * `Error::ConnectionLoss`: no server has confirmed the deletion of this member's node within the client's
    ///   [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default. Call it again, or
    ///   drop the member, which deletes its node in the background.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up. Call it again, or drop the
    ///   member.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the member may have left. Call it again, or drop the member.
    pub async fn leave(&self) -> Result<Departure, BarrierError> {
        // Without a budget the wait ends only when all have left.
        self.leave_within(Budget::ENDLESS).await?.ok_or_else(|| Error::Closed.into())
    }

    /// Leaves like [`leave`](Self::leave), and waits at most for `budget`. Returns `None` if other members are still
    /// there then: this member has left, and the others do not wait for it.
    ///
    /// # Errors
    ///
    /// * `BarrierError::Lost`: the node of this member was lost before it left. The other members did not wait for it.
    /// * `Error::ConnectionLoss`: no server has replied at the end of the budget and of a further tenth of the session
    ///   timeout. Call it again, or drop the member, which deletes its node in the background.
    /// * `Error::ConnectionLoss`: no server has confirmed the deletion of this member's node within the client's
    ///   [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default. Call it again,
    ///   or drop the member.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up. Call it again, or drop the
    ///   member.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the member may have left. Call it again, or drop the member.
    pub async fn leave_timeout(&self, budget: Duration) -> Result<Option<Departure>, BarrierError> {
        self.leave_within(Budget::of(budget)).await
    }

    async fn leave_within(&self, budget: Budget) -> Result<Option<Departure>, BarrierError> {
        self.hold.give_up();
        let Some(mut leave) = budget.limit(self.leave.lock()).await else { return Ok(None) };
        let Leave { plan, own, departure } = &mut *leave;
        if departure.is_none() {
            let leaving = Box::pin(self::leave(&self.nodes, plan, own, budget));
            if self.nodes.bounded(budget, "leaving the barrier", leaving).await? {
                *departure = Some(Departure { died: own.died() });
            }
        }
        Ok(*departure)
    }
}

impl_held!(BarrierMember, BarrierError);

impl fmt::Debug for BarrierMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierMember")
            .field("path", &self.nodes.path)
            .field("node", &self.name())
            .field("opened", &self.opened)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// The end of a round for a member that has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it says whether members have died in the round"]
#[non_exhaustive]
pub struct Departure {
    /// The number of members that died since the arrival of this member. Their nodes were deleted, but not by a leave or
    /// by the end of a budget. A member that was dropped counts.
    ///
    /// Deaths before the departure count. Later ones count if this member then waited for longer than a twentieth of the
    /// session timeout, and the server replies to a last read within the same time.
    ///
    /// The number is exact in groups of this crate's members, up to these limits:
    ///
    /// * If the reply to the arrival is lost, it may miss a death directly after that.
    /// * If the reply to the departure is lost, it may include the member itself: another client may have deleted its node.
    /// * It may include a death in the next round, if that round starts at once.
    pub died: u32,
}

/// Another member that had a node at the start of a call.
struct Other {
    name: String,
    /// The id; the name until the id is known.
    id: String,
    has_ended: bool,
}
