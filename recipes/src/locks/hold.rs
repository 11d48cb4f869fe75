//! What a holder has: one node, shared by the guards of one owner.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::{CuratorFramework, Error, LossReason, LossSignal, NodeClaim, Session, SessionEnd};
use parking_lot::Mutex;

use crate::error::Result;
use crate::locks::lock_internals::Acquired;

/// What became of a lock that was to be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Release {
    /// It was held until now. An inner guard of an owner only steps back; the last one deletes the node.
    Released,
    /// It had been lost before, for this reason; somebody else may have held it meanwhile.
    AlreadyLost(LossReason),
}

/// One node that has the lock, and how many guards share it.
pub(crate) struct Hold {
    lock_path: String,
    path: String,
    fencing_token: i64,
    session: Session,
    signal: LossSignal,
    /// Keeps the session while something is held.
    client: CuratorFramework,
    claim: tokio::sync::Mutex<NodeClaim>,
    guards: Mutex<usize>,
}

impl Hold {
    pub(crate) fn new(client: CuratorFramework, lock_path: &str, acquired: Acquired) -> Arc<Self> {
        let Acquired { claim, czxid } = acquired;
        Arc::new(Self {
            lock_path: lock_path.to_owned(),
            path: claim.path().unwrap_or_default().to_owned(),
            fencing_token: czxid,
            session: claim.session().clone(),
            signal: claim.loss_signal(),
            client,
            claim: tokio::sync::Mutex::new(claim),
            guards: Mutex::new(0),
        })
    }

    pub(crate) fn lock_path(&self) -> &str {
        &self.lock_path
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.signal.loss()
    }

    /// Whether a guard has it now.
    pub(crate) fn is_shared(&self) -> bool {
        *self.guards.lock() > 0
    }

    /// Deletes the node.
    async fn delete(&self) -> Result<Release> {
        let lost =
            |end: Option<SessionEnd>| Release::AlreadyLost(LossReason::Session(end.unwrap_or(SessionEnd::Expired)));
        let mut claim = self.claim.lock().await;
        let mut retries = self.client.retry_loop();
        loop {
            let error = match claim.delete().await {
                Ok(true) => return Ok(Release::Released),
                Ok(false) => return Ok(Release::AlreadyLost(LossReason::NodeDeleted)),
                Err(error) => error,
            };
            if let (Error::SessionExpired { .. }, _) | (_, Some(_)) = (&error, self.session.end_reason()) {
                return Ok(lost(self.session.end_reason()));
            }
            retries.failed(error).await?;
            match retries.reconnected(&self.session).await {
                Err(Error::SessionExpired { .. }) => return Ok(lost(self.session.end_reason())),
                reconnected => reconnected?,
            }
        }
    }
}

/// One guard's share of a [`Hold`].
pub(crate) struct Place {
    hold: Arc<Hold>,
    left: AtomicBool,
    /// It was the last one to leave, so it deletes the node.
    last: AtomicBool,
    outcome: tokio::sync::Mutex<Option<Release>>,
}

impl Place {
    /// The first guard's place.
    pub(crate) fn first(hold: Arc<Hold>) -> Self {
        *hold.guards.lock() += 1;
        Self::new(hold)
    }

    /// A further guard's place, if there still is a guard.
    pub(crate) fn beside(hold: &Arc<Hold>) -> Option<Self> {
        let mut guards = hold.guards.lock();
        if *guards == 0 {
            return None;
        }
        *guards += 1;
        drop(guards);
        Some(Self::new(Arc::clone(hold)))
    }

    fn new(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            left: AtomicBool::new(false),
            last: AtomicBool::new(false),
            outcome: tokio::sync::Mutex::new(None),
        }
    }

    fn leave(&self) {
        if !self.left.swap(true, Ordering::SeqCst) {
            let mut guards = self.hold.guards.lock();
            *guards -= 1;
            self.last.store(*guards == 0, Ordering::SeqCst);
        }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) async fn release(&self) -> Result<Release> {
        let mut outcome = self.outcome.lock().await;
        if let Some(outcome) = *outcome {
            return Ok(outcome);
        }
        self.leave();
        let released = if self.last.load(Ordering::SeqCst) {
            self.hold.delete().await?
        } else {
            self.hold.loss().map_or(Release::Released, Release::AlreadyLost)
        };
        Ok(*outcome.insert(released))
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.left.load(Ordering::SeqCst) && self.hold.loss().is_none()
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_held() { self.hold.session.remaining() } else { Duration::ZERO }
    }

    pub(crate) async fn lost(&self) -> LossReason {
        self.hold.signal.lost().await
    }

    pub(crate) fn fencing_token(&self) -> i64 {
        self.hold.fencing_token
    }

    pub(crate) fn path(&self) -> &str {
        &self.hold.path
    }

    pub(crate) fn session(&self) -> &Session {
        &self.hold.session
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The last share drops the claim, which hands the node to the session's housekeeping.
        self.leave();
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("path", &self.hold.path)
            .field("fencing_token", &self.hold.fencing_token)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("path", &self.path).finish_non_exhaustive()
    }
}
