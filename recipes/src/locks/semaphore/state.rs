//! The state that the clones of a semaphore share, and one attempt to take leases.

use curator_framework::{Session, Watch};
use parking_lot::Mutex;

use crate::engine::error::LockError;
use crate::engine::semaphore_protocol::SemaphoreProtocol;
use crate::engine::{Contention, LockInternals, WaitMode};
use crate::locks::semaphore::pool::PoolBatch;
use crate::shared::SharedCount;

pub(super) const LOCKS: &str = "locks";
pub(super) const LEASES: &str = "leases";
pub(super) const SLOTS: &str = "slots";
/// The data of the nodes `leases` and `locks` on a path of the direct protocol.
pub(super) const DIRECT_MARK: &[u8] = b"__DIRECT__";

/// The state that all clones of a semaphore share.
pub(super) struct Inner {
    pub(super) path: String,
    pub(super) protocol: SemaphoreProtocol,
    pub(super) lock: LockInternals,
    pub(super) leases: LockInternals,
    /// The watch on the node with the mark, set when the mark was as expected. It fires when the path is deleted.
    pub(super) protocol_watch: Mutex<Option<Watch>>,
    pub(super) last_look: Mutex<LastLook>,
    /// The count that the limit follows: the drop of its last clone ends it.
    pub(super) _count: Option<SharedCount>,
}

impl Inner {
    /// Returns the same semaphore for a task that does not keep the client.
    pub(super) fn without_client(&self) -> Self {
        Self {
            path: self.path.clone(),
            protocol: self.protocol,
            lock: self.lock.without_client(),
            leases: self.leases.without_client(),
            protocol_watch: Mutex::default(),
            last_look: Mutex::default(),
            // The semaphore has it.
            _count: None,
        }
    }

    pub(super) fn too_many(&self, wanted: usize) -> LockError {
        LockError::invalid(
            "number of leases",
            format!("{wanted} are more than the {} there are", self.leases.limit().get()),
        )
    }
}

/// The result of this client's last read of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LastLook {
    /// The client has not read the path yet.
    #[default]
    None,
    /// No contender was queued, and enough leases were free.
    Free,
    /// Too few leases were free, or a contender was queued.
    TooFew,
}

/// One attempt of a request, in one session.
pub(super) struct LeaseAttempt<'a> {
    pub(super) semaphore: &'a Inner,
    pub(super) wanted: usize,
    pub(super) batch: Option<PoolBatch<'a>>,
    pub(super) session: &'a Session,
    pub(super) mode: WaitMode,
    pub(super) contention: &'a Contention,
}
