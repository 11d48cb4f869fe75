//! Few nodes for the tasks of one client that wait at one lock: they form a *batch*.
//!
//! The tasks wait in the process, in the order in which they came. A task of the client takes one node for all of them, or
//! several leases of a semaphore, by the engine's own contender, which does not know of batches. A release passes the node
//! to the next entry without a request. [`plan`] decides, [`lobby`] has the entries, [`driver`] is the client's task,
//! [`source`] is the lock. The tasks that wait for a read lock hold one node together: [`readers`].

mod driver;
mod key;
mod lobby;
mod plan;
mod readers;
mod source;

use std::sync::Arc;

use self::readers::Readers;
use crate::engine::acquired::Acquired;
use crate::engine::error::LockError;
use crate::engine::internals::{LockInternals, Sharing};
use crate::engine::wait_mode::WaitMode;

pub(crate) use self::lobby::{GrantedNode, Lobby, Turn};
pub(crate) use self::plan::Supply;
pub(crate) use self::source::{Boxed, Source};

/// The batch of one client at one lock.
#[derive(Debug)]
pub(crate) enum Batch {
    /// One task at a time has the node.
    InTurn(Arc<Lobby>),
    /// All tasks have it at once.
    Together(Arc<Readers>),
}

impl Batch {
    /// Returns the batch of a lock's client, if its tasks share a node.
    pub(crate) fn of(internals: &LockInternals) -> Option<Self> {
        match internals.spec.sharing {
            Sharing::Together => internals.options.one_node.then(|| Self::Together(Readers::of(internals))),
            Sharing::Path | Sharing::Object => Lobby::of(internals).map(Self::InTurn),
        }
    }

    pub(crate) async fn acquire(
        &self,
        internals: &Arc<LockInternals>,
        mode: WaitMode,
    ) -> Result<Option<Acquired>, LockError> {
        match self {
            Self::InTurn(lobby) => lobby.acquire(internals.label(), mode).await,
            Self::Together(readers) => readers.acquire(internals, mode).await,
        }
    }
}
