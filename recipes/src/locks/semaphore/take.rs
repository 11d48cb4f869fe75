//! An acquire of one or several leases: all or none.

use std::future::Future;

use curator_framework::{Error, LossReason, OwnedNode, RetryLoop, Session};
use futures_util::future::join;

use crate::locks::engine::driver::Predicate;
use crate::locks::engine::{AcquireOnce, Acquired, retry_in_session};
use crate::locks::error::{LockError, Result};
use crate::locks::semaphore::first_try::{LastLook, Tried, Way};
use crate::locks::semaphore::{Inner, SemaphoreProtocol};

/// An acquire of one or several leases.
pub(super) struct LeaseRequest<'a> {
    pub(super) semaphore: &'a Inner,
    pub(super) wanted: usize,
}

impl AcquireOnce for LeaseRequest<'_> {
    type Granted = Vec<Acquired>;

    async fn acquire_once(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        asks_once: bool,
    ) -> Result<Option<Vec<Acquired>>> {
        let way = self.prepare(session, retries, asks_once).await?;
        let taken = self.take(way, session, retries, asks_once).await?;
        if taken.is_some() && !self.semaphore.is_protocol_known() {
            // A client of the other protocol may have created the path meanwhile.
            while let Err(error) = self.semaphore.check_protocol(session, retries).await {
                retry_request(error, session, retries).await?;
            }
        }
        Ok(taken)
    }
}

impl LeaseRequest<'_> {
    /// Agrees on the protocol and chooses the way to take the leases. The reads of both leave in one write.
    async fn prepare(&self, session: &Session, retries: &mut RetryLoop, asks_once: bool) -> Result<Way> {
        loop {
            let both = join(self.semaphore.check_protocol(session, retries), self.way(session, asks_once));
            match Box::pin(session.in_one_write(both)).await {
                (Ok(()), Ok(way)) => return Ok(way),
                (Err(error), _) => retry_request(error, session, retries).await?,
                (_, Err(error)) => retry_in_session(error, session, retries).await?,
            }
        }
    }

    async fn take(
        &self,
        way: Way,
        session: &Session,
        retries: &mut RetryLoop,
        asks_once: bool,
    ) -> Result<Option<Vec<Acquired>>> {
        match way {
            Way::FirstTry => {}
            Way::InTurn => return self.take_in_turn(session, retries, asks_once).await,
            Way::Refused => return Ok(None),
        }
        match Box::pin(self.try_first(session, retries, asks_once)).await? {
            Tried::Granted(leases) => Ok(Some(leases)),
            Tried::Refused(claims) if asks_once => {
                give_back(claims).await;
                Ok(None)
            }
            // The deletes and the queue node's create leave together.
            Tried::Refused(claims) => {
                let queued = Box::pin(self.take_in_turn(session, retries, false));
                session.in_one_write(Box::pin(join(give_back(claims), queued))).await.1
            }
        }
    }

    /// Takes the leases under the mutex. A single lease of the direct protocol needs no mutex. Without the mutex, two
    /// clients that each take several leases could wait for each other.
    async fn take_in_turn(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        asks_once: bool,
    ) -> Result<Option<Vec<Acquired>>> {
        let Inner { protocol, lock, leases, last_look, .. } = self.semaphore;
        // Dropped at an early return, which deletes its node in the background.
        let turn = match (protocol, self.wanted) {
            (SemaphoreProtocol::Direct, 1) => None,
            _ => match self.fail_if_limit_drops(Box::pin(lock.acquire_once(session, retries, asks_once))).await? {
                Some(turn) => Some(turn),
                None => return Ok(None),
            },
        };
        let mut taken: Vec<Acquired> = Vec::new();
        while taken.len() < self.wanted {
            let lease = self.fail_if_limit_drops(Box::pin(leases.acquire_once(session, retries, asks_once)));
            match keep(session, &turn, &taken, lease).await? {
                Some(lease) => taken.push(lease),
                // Drops the taken leases, which deletes their nodes.
                None => return Ok(None),
            }
        }
        if self.wanted > 1 {
            while let Err(error) = keep(session, &turn, &taken, self.check(session, &taken)).await {
                retry_request(error, session, retries).await?;
            }
        }
        if let Some(turn) = turn {
            let max_leases = leases.limit().get();
            let was_free = turn.queue_position == 0 && taken.iter().all(|lease| lease.queue_position < max_leases);
            *last_look.lock() = if was_free { LastLook::Free } else { LastLook::Taken };
            // Begins the delete at once: the next contender waits for it.
            turn.claim.delete_in_background();
        }
        Ok(Some(taken))
    }

    /// Fails if not all leases are held in one listing.
    async fn check(&self, session: &Session, taken: &[Acquired]) -> Result<()> {
        let leases = &self.semaphore.leases;
        let children = match session.get_children(leases.base_path()).await {
            Err(Error::NoNode { .. }) => Vec::new(),
            children => children?,
        };
        let sorted = leases.in_order(session, children).await?;
        let is_held = |lease: &Acquired| leases.decide(&sorted, lease.name()) == Predicate::Acquired;
        match taken.iter().find(|lease| !is_held(lease)) {
            Some(lost) => Err(Error::NoNode { path: lost.path().to_owned() }.into()),
            None => Ok(()),
        }
    }

    /// Runs `attempt`, and fails when the limit falls below the wanted number. An attempt at one lease continues even
    /// at a limit of zero.
    ///
    /// Pass a boxed `attempt`: a future that is passed by value takes its size twice.
    async fn fail_if_limit_drops<T>(&self, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        let mut limit = self.semaphore.leases.limit().follow();
        let too_few = async {
            match self.wanted {
                1 => std::future::pending().await,
                wanted => limit.wait_for(|limit| wanted > limit).await,
            }
        };
        tokio::select! {
            biased;
            () = too_few => Err(self.semaphore.too_many(self.wanted)),
            granted = attempt => granted,
        }
    }
}

/// Runs `step` while the turn and all taken leases are held, and fails when one of them is lost. Without the turn, two
/// clients could wait for each other's leases. If a taken lease ended, this acquire could be granted it a second time.
async fn keep<T>(
    session: &Session,
    turn: &Option<Acquired>,
    taken: &[Acquired],
    step: impl Future<Output = Result<T>>,
) -> Result<T> {
    let held: Vec<&Acquired> = turn.iter().filter(|_| !taken.is_empty()).chain(taken).collect();
    if held.is_empty() {
        return step.await;
    }
    let losses = held.iter().map(|held| {
        let signal = held.claim.loss_signal();
        Box::pin(async move { (signal.lost().await, held.path()) })
    });
    let losses = futures_util::future::select_all(losses);
    let lost = |(reason, path): (LossReason, &str)| -> LockError {
        match reason {
            LossReason::Session(_) => session.closed_error("taking leases").into(),
            // The caller attempts again, at the end of the queue.
            _ => Error::NoNode { path: path.to_owned() }.into(),
        }
    };
    tokio::select! {
        biased;
        (first, ..) = losses => Err(lost(first)),
        done = step => {
            let done = done?;
            match held.iter().find_map(|held| Some((held.claim.loss_signal().loss()?, held.path()))) {
                Some(first) => Err(lost(first)),
                None => Ok(done),
            }
        }
    }
}

/// Calls [`retry_in_session`] for an error of the framework, and returns any other error.
async fn retry_request(error: LockError, session: &Session, retries: &mut RetryLoop) -> Result<()> {
    match error {
        LockError::Framework(error) => Ok(retry_in_session(error, session, retries).await?),
        error => Err(error),
    }
}

/// Deletes nodes. After a lost reply, the session's housekeeping deletes the node.
async fn give_back(claims: Vec<OwnedNode>) {
    let deletes = claims.into_iter().map(|mut claim| async move { claim.delete().await.map(drop) });
    for deleted in futures_util::future::join_all(deletes).await {
        if let Err(error) = deleted {
            tracing::debug!(%error, "a lease that was refused is deleted in the background");
        }
    }
}
