//! Locks that an owner may acquire again.

use curator_framework::recipe::RecipeClient as _;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::engine::batch::Batch;
use crate::engine::caller::{Caller, Origin};
use crate::engine::error::LockError;
use crate::engine::hold::{Hold, HoldShare};
use crate::engine::owner::LockOwner;
use crate::engine::{LockInternals, WaitMode, acquire};

#[derive(Debug, Default)]
struct OwnerHold {
    held: Mutex<Weak<Hold>>,
}

/// A mutex for each owner, so that its acquires do not overlap. Shared by the halves of a read-write lock.
#[derive(Debug, Default)]
pub(crate) struct OwnerLocks {
    by_owner: Mutex<HashMap<LockOwner, Arc<tokio::sync::Mutex<()>>>>,
}

impl OwnerLocks {
    fn of(&self, owner: &LockOwner) -> Arc<tokio::sync::Mutex<()>> {
        let mut by_owner = self.by_owner.lock();
        make_room(&mut by_owner, |lock| Arc::strong_count(lock) > 1);
        Arc::clone(by_owner.entry(owner.clone()).or_default())
    }
}

/// The only acquire of an owner at this time.
pub(crate) struct OwnerPermit {
    record: Arc<OwnerHold>,
    _acquiring: tokio::sync::OwnedMutexGuard<()>,
}

impl OwnerPermit {
    /// Records the owner's hold.
    pub(crate) fn record(&self, hold: &Arc<Hold>) {
        *self.record.held.lock() = Arc::downgrade(hold);
    }
}

/// A lock of the engine, with the owners that hold it through this object.
#[derive(Debug)]
pub(crate) struct Reentrant {
    internals: Arc<LockInternals>,
    /// The batch of the client, if its tasks share a node.
    batch: Option<Batch>,
    owner_locks: Arc<OwnerLocks>,
    by_owner: Mutex<HashMap<LockOwner, Arc<OwnerHold>>>,
}

/// The state in which an owner's acquire starts.
pub(crate) enum OwnerState {
    /// The owner holds the lock already.
    Holds(HoldShare),
    /// The owner does not hold the lock.
    MayAcquire(OwnerPermit),
    /// The budget ended during another acquire of the same owner.
    TimeOver,
}

impl Reentrant {
    pub(crate) fn new(internals: LockInternals, owner_locks: Arc<OwnerLocks>) -> Self {
        let internals = Arc::new(internals);
        let batch = Batch::of(&internals);
        Self { internals, batch, owner_locks, by_owner: Mutex::new(HashMap::new()) }
    }

    pub(crate) fn internals(&self) -> &LockInternals {
        &self.internals
    }

    /// Acquires for an owner, or without one.
    pub(crate) async fn acquire_for(&self, caller: Caller, mode: WaitMode) -> Result<Option<HoldShare>, LockError> {
        let origin = caller.origin();
        self.warn_of_self_deadlock(mode, &origin);
        match caller.owner {
            None => self.acquire_without_owner(mode, &origin).await,
            // Boxed: few waiters have an owner, and the future of the others stays small.
            Some(owner) => Box::pin(self.acquire_for_owner(owner, mode, &origin)).await,
        }
    }

    async fn acquire_for_owner(
        &self,
        owner: LockOwner,
        mode: WaitMode,
        origin: &Origin,
    ) -> Result<Option<HoldShare>, LockError> {
        match self.enter(owner, mode).await? {
            OwnerState::Holds(share) => Ok(Some(share)),
            OwnerState::TimeOver => Ok(None),
            OwnerState::MayAcquire(permit) => {
                let Some(hold) = self.acquire_hold(mode, origin).await? else { return Ok(None) };
                permit.record(&hold);
                Ok(Some(HoldShare::first(hold)))
            }
        }
    }

    pub(crate) async fn acquire_without_owner(
        &self,
        mode: WaitMode,
        origin: &Origin,
    ) -> Result<Option<HoldShare>, LockError> {
        Ok(self.acquire_hold(mode, origin).await?.map(HoldShare::first))
    }

    /// Logs a warning if the task that is about to wait holds the lock.
    pub(crate) fn warn_of_self_deadlock(&self, mode: WaitMode, waits: &Origin) {
        self.internals.warn_of_self_deadlock(self.internals.base_path(), mode, waits);
    }

    /// Starts an owner's acquire. It waits for an earlier acquire of the owner, and then shares its hold.
    pub(crate) async fn enter(&self, owner: LockOwner, mode: WaitMode) -> Result<OwnerState, LockError> {
        let lock = self.owner_locks.of(&owner).lock_owned();
        let record = self.record_of(owner);
        let end = match mode {
            WaitMode::Forever => None,
            WaitMode::Until(end) => Some(end),
            WaitMode::Once => Some(Instant::now() + self.internals.client().connection_timeout()),
        };
        let acquiring = match end {
            None => lock.await,
            Some(end) => match tokio::time::timeout_at(end, lock).await {
                Ok(acquiring) => acquiring,
                Err(_elapsed) if self.internals.client().is_connected() => return Ok(OwnerState::TimeOver),
                Err(_elapsed) => {
                    let request = format!("acquiring {}", self.internals.base_path());
                    return Err(self.internals.client().no_answer(&request).into());
                }
            },
        };
        let held = record.held.lock().upgrade();
        if let Some(share) = held.as_ref().and_then(HoldShare::join) {
            return match share.hold().loss() {
                Some(reason) => Err(LockError::LockLost { path: share.hold().lock_path().clone(), reason }),
                None => Ok(OwnerState::Holds(share)),
            };
        }
        Ok(OwnerState::MayAcquire(OwnerPermit { record, _acquiring: acquiring }))
    }

    /// Returns the owner's hold, if a guard shares it.
    pub(crate) fn held_by(&self, owner: &LockOwner) -> Option<Arc<Hold>> {
        let record = self.by_owner.lock().get(owner).map(Arc::clone)?;
        let hold = record.held.lock().upgrade()?;
        hold.is_shared().then_some(hold)
    }

    /// Forgets the owner's hold, which the other half of a read-write lock has taken over.
    pub(crate) fn forget(&self, owner: &LockOwner) {
        self.by_owner.lock().remove(owner);
    }

    pub(crate) async fn acquire_hold(&self, mode: WaitMode, origin: &Origin) -> Result<Option<Arc<Hold>>, LockError> {
        let internals = &self.internals;
        let acquired = match &self.batch {
            Some(batch) => batch.acquire(internals, mode).await?,
            None => acquire(internals.client(), internals.base_path(), mode, &**internals).await?,
        };
        Ok(acquired.map(|acquired| internals.hold(acquired, *origin)))
    }

    /// Returns the record of an owner.
    fn record_of(&self, owner: LockOwner) -> Arc<OwnerHold> {
        let mut by_owner = self.by_owner.lock();
        make_room(&mut by_owner, |record| Arc::strong_count(record) > 1 || record.held.lock().strong_count() > 0);
        Arc::clone(by_owner.entry(owner).or_default())
    }
}

/// Removes the owners that neither hold nor acquire, if the map would grow. So the map is at most twice as large as
/// needed, and as many insertions as owners share the cost of a scan.
fn make_room<T>(by_owner: &mut HashMap<LockOwner, T>, is_used: impl Fn(&T) -> bool) {
    if by_owner.len() == by_owner.capacity() {
        by_owner.retain(|_, value| is_used(value));
        // Otherwise each insertion into a nearly full map would scan it.
        if by_owner.len() * 2 > by_owner.capacity() {
            by_owner.reserve(by_owner.len().max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn scans_are_amortised_and_unused_owners_are_removed() {
        let (mut by_owner, looks) = (HashMap::new(), Cell::new(0));
        let enter = |used: bool, by_owner: &mut HashMap<LockOwner, bool>| {
            make_room(by_owner, |used| {
                looks.set(looks.get() + 1);
                *used
            });
            by_owner.insert(LockOwner::new(), used);
        };
        for _ in 0..8000 {
            enter(true, &mut by_owner);
        }
        assert!(looks.get() < 2 * 8000, "{}", looks.get());
        by_owner.values_mut().for_each(|used| *used = false);
        for _ in 0..20_000 {
            enter(false, &mut by_owner);
        }
        assert!(by_owner.len() < 20_000, "{}", by_owner.len());
    }
}
