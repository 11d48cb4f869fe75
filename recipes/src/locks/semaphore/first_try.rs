//! An optimisation: a client takes a free lease without the queue, on Curator's layout and beside Java's clients.
//!
//! Most leases are taken while some are free, and then the queue would cost two requests and a round trip for nothing.
//! So a client creates its lease node, lists the leases and checks the queue, in one write. The lease is held if fewer
//! than `max_leases` nodes are older and no contender is queued. A queued client lists the leases after it has got the
//! turn, so it counts this lease too.
//!
//! Until a refused try has deleted its node, a queued client may count one lease too many. A stream of tries would
//! starve the queue. So a client creates no lease node before it has seen the path free or has joined the queue.

use curator_framework::recipe::{OwnedNode, RecipeClient as _};
use curator_framework::{CreateMode, Error, LossReason, RetryLoop, Session, Watch};
use futures_util::future::{join, join_all};

use crate::engine::driver::SortedChildren;
use crate::engine::error::LockError;
use crate::engine::semaphore_protocol::SemaphoreProtocol;
use crate::engine::{Acquired, WaitMode, adopt, children_of};
use crate::locks::semaphore::state::{LEASE_NAME, LastLook, LeaseAttempt};

/// The most leases of a first try, because it creates their nodes in one write.
const MOST: usize = 64;

/// The leases and the state of the queue, from two reads on one connection.
struct Look {
    leases: Vec<String>,
    /// The watch that the listing of the leases has set, if it was to.
    watch: Option<Watch>,
    is_queue_empty: bool,
}

/// The first step of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstStep {
    Try,
    Queue,
    /// The caller asks once, and too few leases are free.
    Refuse,
}

/// The outcome of a first try.
pub(super) enum FirstTry {
    Granted(Vec<Acquired>),
    /// The owned nodes, which the caller deletes.
    Refused(Vec<OwnedNode>),
}

/// Returns whether all `own` leases are held, by a listing that was sent after their creates. Children that are not
/// leases count as older leases, because Java's clients count them too.
fn are_held(sorted: &SortedChildren, listed: usize, own: &[&str], max_leases: usize) -> bool {
    let positions: Option<Vec<usize>> = own.iter().map(|name| sorted.position(name)).collect();
    let Some(last) = positions.and_then(|positions| positions.into_iter().max()) else { return false };
    // Near the end, sequence numbers do not order the nodes, so all others count as older.
    let older = if sorted.is_near_the_end() { listed.saturating_sub(1) } else { listed - sorted.len() + last };
    older < max_leases
}

impl LeaseAttempt<'_> {
    /// Chooses the first step. The first try needs Curator's protocol, a limit that never changes, and a last look that
    /// showed enough free leases and an empty queue.
    pub(super) async fn first_step(&self) -> Result<FirstStep, Error> {
        let is_direct = self.semaphore.protocol == SemaphoreProtocol::Direct;
        let asks_once = self.mode == WaitMode::Once;
        let may_try = !is_direct && self.semaphore.leases.limit().is_fixed() && self.wanted <= MOST;
        let last_look = *self.semaphore.last_look.lock();
        match last_look {
            LastLook::Free if may_try => return Ok(FirstStep::Try),
            LastLook::None if may_try => {}
            // The queue lists the leases anyway.
            _ if !asks_once || (is_direct && self.wanted == 1) => return Ok(FirstStep::Queue),
            _ => {}
        }
        // A caller that asks once looks twice: the node of a just-dropped guard may still be in the first look.
        let is_free = self.is_free().await? || (asks_once && self.is_free().await?);
        if !is_free {
            *self.semaphore.last_look.lock() = LastLook::TooFew;
            self.contention.is_shown();
        }
        Ok(match is_free {
            true if may_try => FirstStep::Try,
            false if asks_once => FirstStep::Refuse,
            _ => FirstStep::Queue,
        })
    }

    /// Returns whether no contender is queued and enough leases are free.
    async fn is_free(&self) -> Result<bool, Error> {
        let Look { leases, is_queue_empty, .. } = self.look(&self.session.pinned(), false).await?;
        let limit = self.semaphore.leases.limit().get();
        Ok(is_queue_empty && limit.checked_sub(leases.len()).is_some_and(|left| self.wanted <= left))
    }

    /// Creates the nodes of the leases and looks at the path, in one write.
    pub(super) async fn try_first(&self, retries: &mut RetryLoop) -> Result<FirstTry, LockError> {
        let (leases, session) = (&self.semaphore.leases, self.session);
        let new_node = || session.owned_node(leases.base_path(), LEASE_NAME, CreateMode::EphemeralSequential);
        let mut nodes: Vec<OwnedNode> = (0..self.wanted).map(|_| new_node()).collect();
        let Look { leases: listed, watch, is_queue_empty } = match self.create_and_look(&mut nodes, retries).await? {
            Some(look) => look,
            None => self.look_for_own(&mut nodes, retries).await?,
        };
        let count = listed.len();
        let sorted = leases.sort(listed);
        let own: Vec<&str> = nodes.iter().filter_map(OwnedNode::node_name).collect();
        let max_leases = leases.limit().get();
        // Another request of this session may have found a node deleted since the look.
        let is_gone = |node: &OwnedNode| node.loss_signal().loss() == Some(LossReason::NodeDeleted);
        let is_granted = is_queue_empty
            && own.len() == self.wanted
            && are_held(&sorted, count, &own, max_leases)
            && !nodes.iter().any(is_gone);
        *self.semaphore.last_look.lock() = if is_granted { LastLook::Free } else { LastLook::TooFew };
        if !is_granted {
            // The deletes of the refused nodes use it up.
            watch.into_iter().for_each(Watch::leave);
            if !nodes.iter().any(is_gone) {
                self.contention.is_shown();
            }
            return Ok(FirstTry::Refused(nodes));
        }
        if !session.is_alive() {
            return Err(session.closed_error("taking leases").into());
        }
        let another = || watch.as_ref().and_then(Watch::another);
        let granted = nodes.into_iter().map(|node| leases.acquired_from(node, another()));
        Ok(FirstTry::Granted(granted.collect()))
    }

    /// Creates the nodes. Returns the look of the same write, if it certainly shows all of them.
    async fn create_and_look(
        &self,
        nodes: &mut [OwnedNode],
        retries: &mut RetryLoop,
    ) -> Result<Option<Look>, LockError> {
        let leases = &self.semaphore.leases;
        let stored = leases.stored_data()?;
        let spec = leases.node_spec(&stored).with_parents(leases.client().lock_parents());
        let at = self.session.pinned();
        let creates = join_all(nodes.iter_mut().map(|node| node.create(&spec)));
        let (created, look) = if self.mode == WaitMode::Once {
            // Looks after the reply: the node of a just-dropped guard may be in an earlier look.
            (creates.await, None)
        } else {
            let (created, look) = at.in_one_write(join(creates, self.look(&at, true))).await;
            (created, look.ok())
        };
        let (mut is_sure, mut failed) = (true, None);
        for created in created {
            match created {
                Ok(created) => is_sure &= created.epoch == at.epoch(),
                Err(error) => (is_sure, failed) = (false, failed.or(Some(error))),
            }
        }
        // One retry for all creates: a lost connection fails all of them at once.
        if let Some(error) = failed {
            retries.failed_in(self.session, error).await?;
            for node in nodes.iter_mut().filter(|node| node.node_name().is_none()) {
                leases.create(node, retries).await?;
            }
        }
        let has_own = |look: &Look| nodes.iter().all(|node| node.node_name().is_some_and(|own| look.has(own)));
        Ok(look.filter(|look| is_sure && has_own(look)))
    }

    /// Reads the leases, if need be with a watch, and the queue, in one write.
    async fn look(&self, at: &Session, watched: bool) -> Result<Look, Error> {
        let (leases, queue) = (self.semaphore.leases.base_path(), self.semaphore.lock.base_path());
        let listing = async {
            if !watched {
                return Ok((children_of(at, leases).await?, None));
            }
            match at.get_children_watched(leases).await {
                Ok((children, watch)) => Ok((children, Some(watch))),
                Err(Error::NoNode { .. }) => Ok((Vec::new(), None)),
                Err(error) => Err(error),
            }
        };
        let (listed, queue) = at.in_one_write(join(listing, at.exists(queue))).await;
        let (leases, watch) = listed?;
        Ok(Look { leases, watch, is_queue_empty: queue?.is_none_or(|queue| queue.num_children == 0) })
    }

    /// Looks after the creates, and adopts the nodes of creates that lost their replies.
    async fn look_for_own(&self, nodes: &mut [OwnedNode], retries: &mut RetryLoop) -> Result<Look, Error> {
        loop {
            match self.look_for_own_on(&self.session.pinned(), nodes).await {
                Ok(look) => return Ok(look),
                Err(error) => retries.failed_in(self.session, error).await?,
            }
        }
    }

    async fn look_for_own_on(&self, at: &Session, nodes: &mut [OwnedNode]) -> Result<Look, Error> {
        if nodes.iter().any(OwnedNode::is_uncertain) {
            at.write_barrier().await?;
        }
        let mut look = self.look(at, true).await?;
        for node in nodes.iter_mut().filter(|node| node.is_uncertain()) {
            adopt(node, self.semaphore.leases.base_path(), &look.leases).await?;
            look.forget_deleted(node);
        }
        Ok(look)
    }
}

impl Look {
    fn has(&self, own: &str) -> bool {
        self.leases.iter().any(|name| name == own)
    }

    /// Removes the names of the nodes that `adopt` has deleted.
    fn forget_deleted(&mut self, node: &OwnedNode) {
        let (prefix, kept) = (node.protected_id().prefix(), node.node_name());
        if !node.is_uncertain() {
            self.leases.retain(|name| !name.starts_with(&prefix) || kept == Some(name.as_str()));
        }
    }
}
