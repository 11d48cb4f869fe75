//! The readers of one client that wait at one lock together: they share one node, which is closed once it is granted.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use curator_framework::Error;
use curator_framework::recipe::RecipeClient as _;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tracing::Instrument as _;

use crate::engine::acquire::{Log, acquire, attempts, no_end, span};
use crate::engine::acquired::{Acquired, HeldNode, SharedNode};
use crate::engine::batch::key::Key;
use crate::engine::by_key::ByKey;
use crate::engine::error::LockError;
use crate::engine::internals::LockInternals;
use crate::engine::metrics;
use crate::engine::revocation::Revocation;
use crate::engine::wait_mode::{Contention, WaitMode};
use crate::held::FencingToken;

/// The readers of one client at one lock.
#[derive(Default)]
pub(crate) struct Readers {
    /// The readers that wait now.
    waiting: Mutex<Weak<Group>>,
}

/// The readers that wait for one node.
struct Group {
    /// The attempt's evidence of other contenders.
    contention: Arc<Contention>,
    /// Each reader polls it. The drop of the last one ends it.
    attempt: Shared<BoxFuture<'static, Result<Grant, LockError>>>,
}

/// The grant of each reader of a group.
#[derive(Clone)]
struct Grant {
    node: Arc<SharedNode>,
    fencing_token: FencingToken,
    revocation: Option<Revocation>,
    queue_position: usize,
}

impl Readers {
    pub(super) fn of(internals: &LockInternals) -> Arc<Self> {
        if internals.options.revocation.is_some() {
            return Arc::default();
        }
        internals.client.extension::<ByKey<Key, Self>>().get(Key::of(internals), Arc::default)
    }

    /// Acquires the lock, with the readers that wait at the same time.
    pub(crate) async fn acquire(
        &self,
        internals: &Arc<LockInternals>,
        mode: WaitMode,
    ) -> Result<Option<Acquired>, LockError> {
        let (client, path) = (internals.client(), internals.base_path());
        if mode == WaitMode::Once {
            return acquire(client, path, mode, &**internals).await;
        }
        let span = span(path, internals.label());
        // Boxed: the future of an acquire stays small wherever a caller keeps it.
        let waits = async {
            let mut log = Log::new(path, internals.label());
            let outcome = self.wait(internals, mode).await;
            log.ends(outcome)
        };
        Box::pin(waits.instrument(span)).await
    }

    async fn wait(&self, internals: &Arc<LockInternals>, mode: WaitMode) -> Result<Option<Acquired>, LockError> {
        let (client, path) = (internals.client(), internals.base_path());
        let _waiting = metrics::Waiting::new(internals.label());
        let mut has_failed = false;
        loop {
            let (group, is_first) = self.join(internals);
            let (attempt, contention) = (group.attempt.clone(), Arc::clone(&group.contention));
            let granted = mode.bound(client, path, &*contention, async { Ok(attempt.await) }).await;
            drop(group);
            match granted? {
                None => return Ok(None),
                // The node may be deleted by the time at which the reader is polled.
                Some(Ok(grant)) if grant.node.is_lost() => {}
                Some(Ok(grant)) => return Ok(Some(grant.into())),
                // An error ends the readers that were there when the attempt started.
                Some(Err(_)) if !is_first && !has_failed => has_failed = true,
                Some(Err(error)) => return Err(error),
            }
        }
    }

    /// Joins the readers that wait. Returns whether this one is the first.
    fn join(&self, internals: &Arc<LockInternals>) -> (Arc<Group>, bool) {
        let mut waiting = self.waiting.lock();
        // Its drop may be the last one, so it follows the lock's.
        let earlier = waiting.upgrade();
        match earlier {
            Some(group) if group.attempt.peek().is_none() => (group, false),
            _ended => {
                let group = Arc::new(Group::new(Arc::clone(internals)));
                *waiting = Arc::downgrade(&group);
                drop(waiting);
                (group, true)
            }
        }
    }
}

impl Group {
    fn new(internals: Arc<LockInternals>) -> Self {
        let contention = Arc::<Contention>::default();
        let evidence = Arc::clone(&contention);
        let attempt = async move {
            let granted = attempts(internals.client(), WaitMode::Forever, &evidence, &*internals).await?;
            granted.map(Grant::from).ok_or_else(no_end)
        };
        // A panic of the program's code ends one reader, and the others get an error.
        let attempt =
            AssertUnwindSafe(attempt).catch_unwind().map(|done| done.unwrap_or_else(|_| Err(Error::Closed.into())));
        Self { contention, attempt: attempt.boxed().shared() }
    }
}

impl From<Acquired> for Grant {
    fn from(acquired: Acquired) -> Self {
        let Acquired { owned, entry, fencing_token, revocation, queue_position, .. } = acquired;
        let node = match owned {
            HeldNode::Own(owned) => SharedNode::new(owned, entry),
            HeldNode::Shared(shared) => shared,
        };
        Self { node, fencing_token, revocation, queue_position }
    }
}

impl From<Grant> for Acquired {
    fn from(grant: Grant) -> Self {
        let Grant { node, fencing_token, revocation, queue_position } = grant;
        let owned = HeldNode::Shared(node);
        Self { owned, entry: None, fencing_token, revocation, queue_position, limit: 1, turn: None }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}
