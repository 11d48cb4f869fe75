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
use curator_framework::{Chain, CreateMode, Error, LossReason, RetryLoop, Session, Watch};
use futures_util::future::{join, join_all};

use crate::engine::error::LockError;
use crate::engine::lease_driver::{LEASE_NAME, are_held};
use crate::engine::semaphore_protocol::SemaphoreProtocol;
use crate::engine::{Acquired, WaitMode, adopt, children_of};
use crate::locks::semaphore::state::{LastLook, LeaseAttempt};

/// The most leases that one write creates.
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

/// The way to the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    At(FirstStep),
    /// A read of the path decides.
    Look {
        if_free: FirstStep,
        if_not: FirstStep,
    },
}

/// Decides by the last read and the caller's mode. A first try needs Curator's protocol, a limit that never changes,
/// and a read that shows enough free leases and an empty queue.
fn choose(
    last_look: LastLook,
    mode: WaitMode,
    protocol: SemaphoreProtocol,
    is_limit_fixed: bool,
    wanted: usize,
) -> Choice {
    let is_direct = protocol == SemaphoreProtocol::Direct;
    let may_try = !is_direct && is_limit_fixed && wanted <= MOST;
    let if_free = if may_try { FirstStep::Try } else { FirstStep::Queue };
    match (last_look, mode) {
        (LastLook::Free, _) if may_try => Choice::At(FirstStep::Try),
        // The queue lists the leases anyway.
        (_, WaitMode::Once) if is_direct && wanted == 1 => Choice::At(FirstStep::Queue),
        (_, WaitMode::Once) => Choice::Look { if_free, if_not: FirstStep::Refuse },
        (LastLook::None, _) if may_try => Choice::Look { if_free, if_not: FirstStep::Queue },
        _ => Choice::At(FirstStep::Queue),
    }
}

/// The outcome of a first try.
pub(super) enum FirstTry {
    Granted(Vec<Acquired>),
    /// The owned nodes, which the caller deletes.
    Refused(Vec<OwnedNode>),
}

impl LeaseAttempt<'_> {
    /// Chooses the first step, with a read of the path if that is needed.
    pub(super) async fn first_step(&self) -> Result<FirstStep, Error> {
        let (last_look, limit) = (*self.semaphore.last_look.lock(), self.semaphore.leases.limit());
        let choice = choose(last_look, self.mode, self.semaphore.protocol, limit.is_fixed(), self.wanted);
        let (if_free, if_not) = match choice {
            Choice::At(step) => return Ok(step),
            Choice::Look { if_free, if_not } => (if_free, if_not),
        };
        // A caller that asks once reads twice: the node of a just-dropped guard may still be in the first read.
        if self.is_free().await? || (self.mode == WaitMode::Once && self.is_free().await?) {
            return Ok(if_free);
        }
        *self.semaphore.last_look.lock() = LastLook::TooFew;
        self.contention.is_shown();
        Ok(if_not)
    }

    /// Returns whether no contender is queued and enough leases are free.
    async fn is_free(&self) -> Result<bool, Error> {
        let Look { leases, is_queue_empty, .. } = self.look(&self.session.pinned(), false).await?;
        let limit = self.semaphore.leases.limit().get();
        Ok(is_queue_empty && limit.checked_sub(leases.len()).is_some_and(|left| self.wanted <= left))
    }

    /// Creates the nodes of the leases and reads the path, in one write.
    pub(super) async fn try_first(&self, retries: &mut RetryLoop) -> Result<FirstTry, LockError> {
        let (leases, session) = (&self.semaphore.leases, self.session);
        let mut nodes = self.new_nodes(self.wanted);
        let Look { leases: listed, watch, is_queue_empty } = match self.create_and_look(&mut nodes, retries).await? {
            Some(look) => look,
            None => self.look_for_own(&mut nodes, retries).await?,
        };
        let count = listed.len();
        let sorted = leases.sort(listed);
        let own: Vec<&str> = nodes.iter().filter_map(OwnedNode::node_name).collect();
        let max_leases = leases.limit().get();
        // Another request of this session may have found a node deleted since the read.
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
        let granted = nodes.into_iter().map(|node| leases.acquired_from(node, another(), max_leases));
        Ok(FirstTry::Granted(granted.collect()))
    }

    /// Takes further leases that are free now. They are not needed, so an error ends only this step.
    pub(super) async fn take_more(&self, has_turn: bool) -> Vec<Acquired> {
        // Of the entries that wait now, one takes the first lease.
        let more = self.batch.map_or(0, |batch| batch.lobby.unserved().saturating_sub(1));
        if more == 0 {
            return Vec::new();
        }
        match Box::pin(self.try_more(more, has_turn)).await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::debug!(error = %Chain(&error), path = self.semaphore.path, "further leases were not taken");
                Vec::new()
            }
        }
    }

    async fn try_more(&self, more: usize, has_turn: bool) -> Result<Vec<Acquired>, LockError> {
        let leases = &self.semaphore.leases;
        let at = self.session.pinned();
        let look = self.look(&at, false).await?;
        let free = leases.limit().get().saturating_sub(look.leases.len()).min(more).min(MOST);
        if free == 0 || !(has_turn || look.is_queue_empty) {
            return Ok(Vec::new());
        }
        let mut nodes = self.new_nodes(free);
        let stored = leases.stored_data()?;
        let spec = leases.node_spec(&stored).with_parents(leases.client().lock_parents());
        let creates = join_all(nodes.iter_mut().map(|node| node.create(&spec)));
        let (created, look) = at.in_one_write(join(creates, self.look(&at, true))).await;
        let Look { leases: listed, watch, is_queue_empty } = look?;
        if !(has_turn || is_queue_empty) {
            return Ok(Vec::new());
        }
        let (count, max_leases) = (listed.len(), leases.limit().get());
        let sorted = leases.sort(listed);
        let is_granted = |node: &OwnedNode| {
            node.node_name().is_some_and(|own| are_held(&sorted, count, &[own], max_leases))
                && node.loss_signal().loss().is_none()
        };
        let another = || watch.as_ref().and_then(Watch::another);
        let created = nodes.into_iter().zip(created);
        // The drop of a node that is not granted deletes it.
        let granted = created.filter(|(node, created)| {
            created.as_ref().is_ok_and(|created| created.epoch == at.epoch()) && is_granted(node)
        });
        Ok(granted.map(|(node, _)| leases.acquired_from(node, another(), max_leases)).collect())
    }

    fn new_nodes(&self, number: usize) -> Vec<OwnedNode> {
        let base_path = self.semaphore.leases.base_path();
        let new = || self.session.owned_node(base_path, LEASE_NAME, CreateMode::EphemeralSequential);
        (0..number).map(|_| new()).collect()
    }

    /// Creates the nodes. Returns the result of the reads in the same write, if it certainly shows all of them.
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
            // Reads after the reply: the node of a just-dropped guard may be in an earlier read.
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

    /// Reads after the creates, and adopts the nodes of creates that lost their replies.
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

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn first_step_follows_from_the_last_look_and_the_mode() {
        use FirstStep::{Queue, Refuse, Try};
        use SemaphoreProtocol::{Curator, Direct};
        let look = |if_free, if_not| Choice::Look { if_free, if_not };
        let (once, waits) = (WaitMode::Once, [WaitMode::Forever, WaitMode::Until(Instant::now())]);
        for (protocol, is_fixed, wanted, last_look, waiting, asking) in [
            (Curator, true, 1, LastLook::Free, Choice::At(Try), Choice::At(Try)),
            (Curator, true, MOST, LastLook::None, look(Try, Queue), look(Try, Refuse)),
            (Curator, true, 1, LastLook::TooFew, Choice::At(Queue), look(Try, Refuse)),
            (Curator, true, MOST + 1, LastLook::Free, Choice::At(Queue), look(Queue, Refuse)),
            (Curator, false, 1, LastLook::Free, Choice::At(Queue), look(Queue, Refuse)),
            (Curator, false, 1, LastLook::None, Choice::At(Queue), look(Queue, Refuse)),
            (Direct, true, 1, LastLook::Free, Choice::At(Queue), Choice::At(Queue)),
            (Direct, true, 1, LastLook::None, Choice::At(Queue), Choice::At(Queue)),
            (Direct, true, 2, LastLook::Free, Choice::At(Queue), look(Queue, Refuse)),
            (Direct, true, 2, LastLook::TooFew, Choice::At(Queue), look(Queue, Refuse)),
        ] {
            let context = format!("{protocol:?} {is_fixed} {wanted} {last_look:?}");
            for mode in waits {
                assert_eq!(choose(last_look, mode, protocol, is_fixed, wanted), waiting, "{context} {mode:?}");
            }
            assert_eq!(choose(last_look, once, protocol, is_fixed, wanted), asking, "{context} once");
        }
    }
}
