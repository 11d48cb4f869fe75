//! The leases that the tasks of one client share: a [batch](crate::engine::batch) of several nodes.

use std::time::Duration;

use curator_framework::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::engine::batch::{Boxed, GrantedNode, Lobby, Source, Supply};
use crate::engine::error::LockError;
use crate::engine::{Acquired, Contention, LockInternals, WaitMode, attempts};
use crate::locks::semaphore::state::Inner;
use crate::locks::semaphore::take::LeaseRequest;

/// The shortest time between two checks for other contenders.
const LOOKS: Duration = Duration::from_millis(100);

/// A semaphore, without its client.
pub(super) struct Pool {
    pub(super) semaphore: Inner,
    pub(super) turn: watch::Sender<OwnTurn>,
}

/// The batch of a request, to which it shows its node in the queue.
#[derive(Clone, Copy)]
pub(super) struct PoolBatch<'a> {
    pub(super) lobby: &'a Lobby,
    pub(super) turn: &'a watch::Sender<OwnTurn>,
}

/// The batch's own node in the queue, of which a check for other contenders must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OwnTurn {
    /// The queue has no such node, or its delete was sent.
    #[default]
    None,
    /// It may be there.
    Joins,
    /// It is there.
    Has,
}

/// The attempt's part of [`OwnTurn`]. Its drop precedes the delete of the node.
pub(super) struct TurnSign<'a>(Option<&'a watch::Sender<OwnTurn>>);

impl<'a> TurnSign<'a> {
    pub(super) fn joins(turn: Option<&'a watch::Sender<OwnTurn>>) -> Self {
        let sign = Self(turn);
        sign.shows(OwnTurn::Joins);
        sign
    }

    pub(super) fn has_turn(&self) {
        self.shows(OwnTurn::Has);
    }

    fn shows(&self, own: OwnTurn) {
        if let Some(turn) = self.0 {
            turn.send_replace(own);
        }
    }
}

impl Drop for TurnSign<'_> {
    fn drop(&mut self) {
        self.shows(OwnTurn::None);
    }
}

impl Source for Pool {
    fn nodes(&self) -> &LockInternals {
        &self.semaphore.leases
    }

    fn path(&self) -> &str {
        &self.semaphore.path
    }

    fn supply(&self) -> Supply {
        Supply::Many
    }

    fn attempts<'a>(
        &'a self,
        batch: Option<&'a Lobby>,
        mode: WaitMode,
        contention: &'a Contention,
    ) -> Boxed<'a, Result<Option<Vec<Acquired>>, LockError>> {
        let batch = batch.map(|lobby| PoolBatch { lobby, turn: &self.turn });
        Box::pin(async move {
            let request = LeaseRequest { semaphore: &self.semaphore, wanted: 1, batch };
            attempts(self.nodes().client(), mode, contention, &request).await
        })
    }

    /// Checks once, and waits until the result no longer counts. Nothing notifies of contenders: a watch on them would
    /// cost a listing for each.
    fn watch_others<'a>(&'a self, batch: &'a Lobby, _node: Option<GrantedNode>) -> Boxed<'a, ()> {
        Box::pin(async move {
            let until = Instant::now() + LOOKS.max(self.nodes().client().session_timeout() / 100);
            let looked = timeout_at(until, self.has_others()).await;
            // Without an answer another one may wait unseen.
            let others = looked.ok().and_then(Result::ok).unwrap_or(true);
            batch.looked(None, others, (!others).then_some(until));
            sleep_until(until).await;
            if !others {
                batch.may_have_changed(None);
            }
        })
    }
}

impl Pool {
    /// Returns whether another contender is queued.
    async fn has_others(&self) -> Result<bool, Error> {
        let session = self.nodes().client().session().await?;
        let mut turn = self.turn.subscribe();
        loop {
            let own = *turn.borrow_and_update();
            let queue = session.exists(self.semaphore.lock.base_path()).await?;
            let nodes = queue.map_or(0, |queue| queue.num_children);
            // Without a change in between, the check has met this state.
            let is_same = !turn.has_changed().unwrap_or(true);
            match (own, nodes) {
                (_, 0) => return Ok(false),
                (OwnTurn::Has, 1) if is_same => return Ok(false),
                (OwnTurn::None, _) if is_same => return Ok(true),
                (_, 1) => {}
                _ => return Ok(true),
            }
            // It may be the batch's node.
            if is_same && turn.changed().await.is_err() {
                return Ok(true);
            }
        }
    }
}
