//! An acquire of one or several leases: all or none.
//!
//! ```text
//! choose ─┬─▶ first try ─▶ granted, or refused ─▶ queue
//!         ├─▶ queue: the turn in the mutex ─▶ n leases ─▶ the check of all ─▶ the end of the turn
//!         └─▶ refuse
//! ```

use std::future::Future;
use std::sync::Arc;

use curator_framework::recipe::OwnedNode;
use curator_framework::{Chain, Error, LossReason, RetryLoop, Session};
use futures_util::future::join;

use crate::engine::driver::Predicate;
use crate::engine::error::LockError;
use crate::engine::label::Label;
use crate::engine::semaphore_protocol::SemaphoreProtocol;
use crate::engine::while_held::Losses;
use crate::engine::{AcquireOnce, Acquired, Contention, LockInternals, Places, WaitMode, children_of};
use crate::locks::semaphore::first_try::{FirstStep, FirstTry};
use crate::locks::semaphore::pool::{PoolBatch, TurnSign};
use crate::locks::semaphore::state::{Inner, LastLook, LeaseAttempt};

/// An acquire of one or several leases.
pub(super) struct LeaseRequest<'a> {
    pub(super) semaphore: &'a Inner,
    pub(super) wanted: usize,
    /// The batch of the request.
    pub(super) batch: Option<PoolBatch<'a>>,
}

/// The nodes that a queued attempt holds so far. Dropping it deletes them in the background.
#[derive(Default)]
struct HeldSoFar<'a> {
    /// In front of the turn: its drop precedes the delete of that.
    sign: Option<TurnSign<'a>>,
    leases: Vec<Acquired>,
    turn: Option<Acquired>,
}

impl AcquireOnce for LeaseRequest<'_> {
    type Granted = Vec<Acquired>;

    fn label(&self) -> &Label {
        self.semaphore.leases.label()
    }

    fn places(&self) -> Option<&Arc<Places>> {
        self.semaphore.lock.places()
    }

    async fn acquire_once(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        mode: WaitMode,
        contention: &Contention,
    ) -> Result<Option<Vec<Acquired>>, LockError> {
        let &LeaseRequest { semaphore, wanted, batch } = self;
        let attempt = LeaseAttempt { semaphore, wanted, batch, session, mode, contention };
        let Some(leases) = attempt.take(retries).await? else { return Ok(None) };
        attempt.check_signals(&leases, retries).await?;
        if !semaphore.is_protocol_known() {
            loop {
                // A client of the other protocol may have created the path in the meantime. One write for both: a lease
                // that is lost during this check is not granted.
                let both = join(semaphore.check_protocol(session, retries), attempt.check(&leases));
                match Box::pin(session.in_one_write(both)).await {
                    (Ok(()), Ok(())) => break,
                    (Err(error), _) | (_, Err(error)) => retry_request(error, session, retries).await?,
                }
            }
        }
        // These checks take time. A reply or a notification after theirs may have shown a loss.
        check_losses(session, &leases)?;
        Ok(Some(leases))
    }
}

impl LeaseAttempt<'_> {
    async fn take(&self, retries: &mut RetryLoop) -> Result<Option<Vec<Acquired>>, LockError> {
        match self.choose(retries).await? {
            FirstStep::Try => {}
            FirstStep::Queue => return self.take_in_turn(retries).await,
            FirstStep::Refuse => return Ok(None),
        }
        match Box::pin(self.try_first(retries)).await? {
            FirstTry::Granted(mut leases) => {
                leases.extend(self.take_more(false).await);
                Ok(Some(leases))
            }
            FirstTry::Refused(nodes) if self.mode == WaitMode::Once => {
                give_back(nodes).await;
                Ok(None)
            }
            // The deletes and the queue node's create leave together.
            FirstTry::Refused(nodes) => {
                let queued = Box::pin(self.take_in_turn(retries));
                self.session.in_one_write(Box::pin(join(give_back(nodes), queued))).await.1
            }
        }
    }

    /// Agrees on the protocol and chooses the first step. The reads of both leave in one write.
    async fn choose(&self, retries: &mut RetryLoop) -> Result<FirstStep, LockError> {
        loop {
            let both = join(self.semaphore.check_protocol(self.session, retries), self.first_step());
            match Box::pin(self.session.in_one_write(both)).await {
                (Ok(()), Ok(step)) => return Ok(step),
                (Err(error), _) => retry_request(error, self.session, retries).await?,
                (_, Err(error)) => retries.failed_in(self.session, error).await?,
            }
            self.contention.is_unknown();
        }
    }

    /// Takes the turn in the mutex, then one lease after the other, and checks all of them together.
    async fn take_in_turn(&self, retries: &mut RetryLoop) -> Result<Option<Vec<Acquired>>, LockError> {
        let mut held = HeldSoFar::default();
        // A single lease of the direct protocol needs no turn. Without turns, two clients that each take several leases
        // could wait for each other.
        if self.semaphore.protocol != SemaphoreProtocol::Direct || self.wanted > 1 {
            let sign = held.sign.insert(TurnSign::joins(self.batch.map(|batch| batch.turn)));
            let Some(turn) = self.contend(&self.semaphore.lock, retries).await? else { return Ok(None) };
            sign.has_turn();
            held.turn = Some(turn);
        }
        // The losses of the leases, and after the first lease of the turn. A batch relies on its turn from the start: a
        // check for other contenders counts it.
        let mut losses = Losses::default();
        if self.batch.is_some() {
            held.turn.iter().for_each(|turn| add_loss(&mut losses, turn));
        }
        while held.leases.len() < self.wanted {
            let leases = self.contend(&self.semaphore.leases, retries);
            let Some(lease) = self.keeping(&mut losses, leases).await? else { return Ok(None) };
            if held.leases.is_empty() && self.batch.is_none() {
                held.turn.iter().for_each(|turn| add_loss(&mut losses, turn));
            }
            add_loss(&mut losses, &lease);
            held.leases.push(lease);
        }
        if self.wanted > 1 {
            while let Err(error) = self.keeping(&mut losses, self.check(&held.leases)).await {
                self.contention.is_unknown();
                retry_request(error, self.session, retries).await?;
            }
            check_losses(self.session, held.turn.iter().chain(&held.leases))?;
        }
        if self.batch.is_some() {
            let more = Box::pin(async { Ok(self.take_more(true).await) });
            held.leases.extend(self.keeping(&mut losses, more).await?);
        }
        Ok(Some(self.end_turn(held)))
    }

    /// Runs `step` while the turn and all leases are held, and fails when one of them is lost. Without the turn, two
    /// clients could wait for each other's leases. If a lease ended, this acquire could be granted it a second time.
    async fn keeping<T>(
        &self,
        losses: &mut Losses,
        step: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        losses.keep(step).await.unwrap_or_else(|(reason, path)| Err(lost(self.session, reason, &path)))
    }

    /// Contends in one of the two queues, and fails when the limit falls below the wanted number. An attempt at one
    /// lease continues even at a limit of zero.
    async fn contend(&self, queue: &LockInternals, retries: &mut RetryLoop) -> Result<Option<Acquired>, LockError> {
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
            granted = Box::pin(queue.acquire_once(self.session, retries, self.mode, self.contention)) => granted,
        }
    }

    /// Fails if not all leases are held in one listing.
    async fn check(&self, taken: &[Acquired]) -> Result<(), LockError> {
        let leases = &self.semaphore.leases;
        let children = children_of(self.session, leases.base_path()).await?;
        let sorted = leases.in_order(self.session, children).await?;
        let is_held = |lease: &Acquired| leases.decide(&sorted, lease.name()) == Predicate::Acquired;
        match taken.iter().find(|lease| !is_held(lease)) {
            Some(lost) => Err(Error::NoNode { path: lost.path().into() }.into()),
            None => Ok(()),
        }
    }

    /// Fails if the server would refuse the signal of a lease to a waiter, which would wait beside a free lease then.
    /// Only the server knows the identities of the connection. So it is asked, unless every client may write, by a write
    /// that names a version which the node does not have.
    async fn check_signals(&self, leases: &[Acquired], retries: &mut RetryLoop) -> Result<(), LockError> {
        if self.semaphore.protocol != SemaphoreProtocol::Direct || self.semaphore.is_open(self.session) {
            return Ok(());
        }
        for lease in leases {
            loop {
                match self.session.set_data(lease.path(), Vec::new(), Some(i32::MAX)).await {
                    Err(Error::NoAuth { .. }) => return Err(Inner::is_not_writable()),
                    Ok(_) | Err(Error::BadVersion { .. }) => break,
                    Err(error) => retries.failed_in(self.session, error).await?,
                }
            }
        }
        Ok(())
    }

    /// Ends the turn, and records whether the leases were free.
    fn end_turn(&self, held: HeldSoFar<'_>) -> Vec<Acquired> {
        let HeldSoFar { sign, leases, turn } = held;
        drop(sign);
        if let Some(turn) = turn {
            let max_leases = self.semaphore.leases.limit().get();
            let was_free = turn.queue_position == 0 && leases.iter().all(|lease| lease.queue_position < max_leases);
            *self.semaphore.last_look.lock() = if was_free { LastLook::Free } else { LastLook::TooFew };
            // Starts the delete at once: the next contender waits for it.
            turn.owned.into_last().into_iter().for_each(OwnedNode::delete_in_background);
        }
        leases
    }
}

fn add_loss(losses: &mut Losses, held: &Acquired) {
    losses.add(held.owned.loss_signal(), held.owned.path_text().unwrap_or_else(|| "".into()));
}

/// Fails if one of the nodes is lost, or the deadline of the session has passed.
fn check_losses<'a>(session: &Session, held: impl IntoIterator<Item = &'a Acquired>) -> Result<(), LockError> {
    if !session.is_alive() {
        return Err(session.closed_error("taking leases").into());
    }
    let lose = |held: &'a Acquired| Some(lost(session, held.owned.loss_signal().loss()?, held.path()));
    held.into_iter().find_map(lose).map_or(Ok(()), Err)
}

/// Returns the error of an attempt that loses a node.
fn lost(session: &Session, reason: LossReason, path: &str) -> LockError {
    match reason {
        LossReason::Session(_) => session.closed_error("taking leases").into(),
        // The caller attempts again, at the end of the queue.
        _ => Error::NoNode { path: path.into() }.into(),
    }
}

/// Books an error of the framework, and returns any other error.
async fn retry_request(error: LockError, session: &Session, retries: &mut RetryLoop) -> Result<(), LockError> {
    match error {
        LockError::Framework(error) => Ok(retries.failed_in(session, error).await?),
        error => Err(error),
    }
}

/// Deletes nodes. After a lost reply, the session's background task deletes the node.
async fn give_back(nodes: Vec<OwnedNode>) {
    let deletes = nodes.into_iter().map(|mut node| async move { node.delete().await.map(drop) });
    for deleted in futures_util::future::join_all(deletes).await {
        if let Err(error) = deleted {
            tracing::debug!(error = %Chain(&error), "a lease that was refused is deleted in the background");
        }
    }
}
