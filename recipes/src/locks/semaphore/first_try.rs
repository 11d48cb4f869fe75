//! An optimisation: a client takes a free lease without the queue, on Curator's layout and beside Java's clients.
//!
//! Most leases are taken while some are free, and then the queue would cost two requests and a round trip for nothing.
//! So a client creates its lease node, lists the leases and checks the queue, in one write. The lease is held if fewer
//! than `max_leases` nodes are older and no contender is queued. A queued client lists the leases after it has got the
//! turn, so it counts this lease too.
//!
//! Until a refused try has deleted its node, a queued client may count one lease too many. A stream of tries would
//! starve the queue. So a client creates no lease node before it has seen the path free or has joined the queue.

use curator_framework::{CreateMode, Error, LossReason, NodeSpec, OwnedNode, RetryLoop, Session};
use futures_util::future::{join, join_all};

use crate::locks::engine::driver::SortedChildren;
use crate::locks::engine::{Acquired, adopt, retry_in_session};
use crate::locks::error::Result;
use crate::locks::semaphore::take::LeaseRequest;
use crate::locks::semaphore::{LEASE_NAME, SemaphoreProtocol};

/// The most leases of a first try, because it creates their nodes in one write.
const MOST: usize = 64;

/// The result of this client's last look at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LastLook {
    /// The client has not looked yet.
    #[default]
    None,
    /// No contender was queued, and enough leases were free.
    Free,
    Taken,
}

/// The leases and the state of the queue, from two reads on one connection.
struct Look {
    leases: Vec<String>,
    is_queue_empty: bool,
}

/// The way to take leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    FirstTry,
    InTurn,
    /// None: the caller tries once, and too few leases are free.
    Refused,
}

/// The outcome of a first try.
pub(super) enum Tried {
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

impl LeaseRequest<'_> {
    /// Chooses the way. The first try needs Curator's protocol, a limit that never changes, and a last look that showed
    /// enough free leases and an empty queue.
    pub(super) async fn way(&self, session: &Session, asks_once: bool) -> Result<Way, Error> {
        let is_direct = self.semaphore.protocol == SemaphoreProtocol::Direct;
        let tries_first = !is_direct && self.semaphore.leases.limit().is_fixed() && self.wanted <= MOST;
        let last_look = *self.semaphore.last_look.lock();
        match last_look {
            LastLook::Free if tries_first => return Ok(Way::FirstTry),
            LastLook::None if tries_first => {}
            // The queue lists the leases anyway.
            _ if !asks_once || (is_direct && self.wanted == 1) => return Ok(Way::InTurn),
            _ => {}
        }
        // A caller that tries once looks twice: the node of a just-dropped guard may still be in the first look.
        let is_free = self.is_free(session).await? || (asks_once && self.is_free(session).await?);
        if !is_free {
            *self.semaphore.last_look.lock() = LastLook::Taken;
        }
        Ok(match is_free {
            true if tries_first => Way::FirstTry,
            false if asks_once => Way::Refused,
            _ => Way::InTurn,
        })
    }

    /// Returns whether no contender is queued and enough leases are free.
    async fn is_free(&self, session: &Session) -> Result<bool, Error> {
        let Look { leases, is_queue_empty } = self.look(&session.pinned()).await?;
        let limit = self.semaphore.leases.limit().get();
        Ok(is_queue_empty && limit.checked_sub(leases.len()).is_some_and(|left| self.wanted <= left))
    }

    /// Creates the nodes of the leases and looks at the path, in one write.
    pub(super) async fn try_first(&self, session: &Session, retries: &mut RetryLoop, asks_once: bool) -> Result<Tried> {
        let leases = &self.semaphore.leases;
        let new_claim = || session.owned_node(leases.base_path(), LEASE_NAME, CreateMode::EphemeralSequential);
        let mut claims: Vec<OwnedNode> = (0..self.wanted).map(|_| new_claim()).collect();
        let stored = leases.stored_data()?;
        let node = NodeSpec::new(&stored).with_parents(leases.client().lock_parents());
        let at = session.pinned();
        let creates = join_all(claims.iter_mut().map(|claim| claim.create(&node)));
        let (created, look) = match asks_once {
            // Looks after the reply: the node of a just-dropped guard may be in an earlier look.
            true => (creates.await, None),
            false => {
                let (created, look) = at.in_one_write(join(creates, self.look(&at))).await;
                (created, look.ok())
            }
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
            retry_in_session(error, session, retries).await?;
            for claim in claims.iter_mut().filter(|claim| claim.node_name().is_none()) {
                leases.create(claim, retries).await?;
            }
        }
        let has_own = |look: &Look| claims.iter().all(|claim| claim.node_name().is_some_and(|own| look.has(own)));
        let look = match look.filter(|look| is_sure && has_own(look)) {
            Some(look) => look,
            None => self.look_for_own(session, retries, &mut claims).await?,
        };
        let Look { leases: listed, is_queue_empty } = look;
        let count = listed.len();
        let sorted = leases.sort(listed);
        let own: Vec<&str> = claims.iter().filter_map(OwnedNode::node_name).collect();
        let max_leases = leases.limit().get();
        // Another request of this session may have found a node deleted since the look.
        let is_gone = |claim: &OwnedNode| claim.loss_signal().loss() == Some(LossReason::NodeDeleted);
        let is_granted = is_queue_empty
            && own.len() == self.wanted
            && are_held(&sorted, count, &own, max_leases)
            && !claims.iter().any(is_gone);
        *self.semaphore.last_look.lock() = if is_granted { LastLook::Free } else { LastLook::Taken };
        if !is_granted {
            return Ok(Tried::Refused(claims));
        }
        if !session.is_alive() {
            return Err(session.closed_error("taking leases").into());
        }
        let granted = claims.into_iter().map(|claim| leases.granted(claim));
        Ok(Tried::Granted(granted.collect()))
    }

    /// Reads the leases and the queue, in one write.
    async fn look(&self, at: &Session) -> Result<Look, Error> {
        let (leases, queue) = (self.semaphore.leases.base_path(), self.semaphore.lock.base_path());
        let (leases, queue) = at.in_one_write(join(at.get_children(leases), at.exists(queue))).await;
        let leases = match leases {
            Err(Error::NoNode { .. }) => Vec::new(),
            leases => leases?,
        };
        Ok(Look { leases, is_queue_empty: queue?.is_none_or(|queue| queue.num_children == 0) })
    }

    /// Looks after the creates, and settles those whose replies were lost.
    async fn look_for_own(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        claims: &mut [OwnedNode],
    ) -> Result<Look, Error> {
        loop {
            match self.look_for_own_on(&session.pinned(), claims).await {
                Ok(look) => return Ok(look),
                Err(error) => retry_in_session(error, session, retries).await?,
            }
        }
    }

    async fn look_for_own_on(&self, at: &Session, claims: &mut [OwnedNode]) -> Result<Look, Error> {
        if claims.iter().any(OwnedNode::is_uncertain) {
            at.write_barrier().await?;
        }
        let mut look = self.look(at).await?;
        for claim in claims.iter_mut().filter(|claim| claim.is_uncertain()) {
            adopt(claim, self.semaphore.leases.base_path(), &look.leases).await?;
            look.forget_deleted(claim);
        }
        Ok(look)
    }
}

impl Look {
    fn has(&self, own: &str) -> bool {
        self.leases.iter().any(|name| name == own)
    }

    /// Removes the names of the nodes that settling has deleted.
    fn forget_deleted(&mut self, claim: &OwnedNode) {
        let (prefix, kept) = (claim.protected_id().prefix(), claim.node_name());
        if !claim.is_uncertain() {
            self.leases.retain(|name| !name.starts_with(&prefix) || kept == Some(name.as_str()));
        }
    }
}
