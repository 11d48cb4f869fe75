//! A node that its owner knows to exist, for the tasks that watch and delete it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::SetOnce;

use super::long_hold::LongHold;
#[cfg(doc)]
use super::loss_signal::LossSignal;
use crate::model::Stat;
use crate::sync::user_code::catch_panic;
use crate::sync::watch_cell::WatchCell;

/// The callback for a node's data and stat, called after each read.
type DataObserver = Box<dyn Fn(&[u8], &Stat) + Send + Sync>;

/// A holder that learns of its node's loss even if no task awaits [`lost`](LossSignal::lost).
pub trait LossListener: Send + Sync {
    /// Called when the client learns of a reason for the loss. It must not block. A loss before the listener was set may be
    /// reported or not. An error state of the connection may be reported to a node that was granted after it and is held.
    /// So a listener asks a [signal](LossSignal::loss).
    fn node_lost(&self);
}

/// The state of a delete by the node's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeleteState {
    /// No delete is outstanding, and the newest one did not succeed.
    Idle,
    Outstanding,
    /// The leader has deleted the node for its owner.
    Done,
    /// The owner was dropped, and the background task deletes the node.
    Left,
}

/// The state of an owned node that is known to exist.
pub(crate) struct KnownNode {
    /// The path as the server knows it.
    pub(crate) path: Arc<str>,
    /// The transaction that created it.
    pub(crate) czxid: i64,
    /// The node's name has no id, so another node may follow it at its path.
    pub(crate) is_exact: bool,
    /// The owner has started to delete the node.
    pub(super) deleting: AtomicBool,
    /// The state of the owner's newest delete.
    pub(super) owner_delete: WatchCell<DeleteState>,
    /// The node was deleted, but not by its owner.
    pub(super) deleted: SetOnce<()>,
    pub(super) observer: OnceLock<DataObserver>,
    /// The callback for a long hold. It is dropped with the node if that is released before.
    pub(super) long_hold: Mutex<LongHold>,
    pub(super) loss_listener: Mutex<Option<Weak<dyn LossListener>>>,
    /// The number of watches set for the owner. Only the newest one is set again when it fires.
    turns: AtomicU64,
}

impl fmt::Debug for KnownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownNode").field("path", &self.path).field("deleted", &self.deleted).finish_non_exhaustive()
    }
}

impl KnownNode {
    pub(crate) fn new(path: Arc<str>, czxid: i64) -> Self {
        Self {
            path,
            czxid,
            is_exact: false,
            deleting: AtomicBool::new(false),
            owner_delete: WatchCell::new(DeleteState::Idle),
            deleted: SetOnce::new(),
            observer: OnceLock::new(),
            long_hold: Mutex::default(),
            loss_listener: Mutex::new(None),
            turns: AtomicU64::new(0),
        }
    }

    /// Returns `true` if a read has found another node at the path, so this one was deleted.
    pub(crate) fn is_followed_by(&self, found: &Stat) -> bool {
        self.is_exact && found.czxid != self.czxid
    }

    /// Returns the callback for a long hold.
    pub(crate) fn long_hold(&self) -> &Mutex<LongHold> {
        &self.long_hold
    }

    pub(crate) fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn is_turn(&self, turn: u64) -> bool {
        self.turns.load(Ordering::SeqCst) == turn
    }

    /// Passes the data and stat of a read to the observer.
    pub(crate) fn was_read(&self, data: &[u8], stat: &Stat) {
        if let Some(observer) = self.observer.get() {
            // The panic is logged.
            let _panicked = catch_panic("observer of a node's data", || observer(data, stat));
        }
    }

    /// Returns `true` if the owner has started to delete the node.
    pub(crate) fn is_being_deleted(&self) -> bool {
        self.deleting.load(Ordering::SeqCst)
    }

    /// Returns `true` if the owner needs the node no more: it is deleted, or will be in any case.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.owner_delete.get(), DeleteState::Done | DeleteState::Left)
    }

    /// Marks the node as deleted, unless its owner is deleting it, and reports the loss.
    pub(crate) fn set_deleted(&self) {
        if self.mark_deleted() {
            self.report_loss();
        }
    }

    /// Marks the node as deleted, unless its owner is deleting it. Returns `true` for the first deletion, which the
    /// caller reports.
    pub(crate) fn mark_deleted(&self) -> bool {
        !self.deleting.load(Ordering::SeqCst) && self.deleted.set(()).is_ok()
    }

    /// Tells the listener of a loss. The caller has recorded the loss before.
    pub(crate) fn report_loss(&self) {
        let listener = self.loss_listener.lock().as_ref().and_then(Weak::upgrade);
        if let Some(listener) = listener {
            // The panic is logged.
            let _panicked = catch_panic("listener for a loss", || listener.node_lost());
        }
    }

    /// Returns `true` if the node is known to be deleted, but not by its owner.
    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.initialized()
    }
}

/// The delete of a node by its owner in this process. It can outlive the owner.
#[derive(Debug, Clone)]
pub struct OwnerDelete(pub(super) Arc<KnownNode>);

impl OwnerDelete {
    /// Returns the path of the node as the server knows it.
    #[must_use]
    pub fn full_path(&self) -> &Arc<str> {
        &self.0.path
    }

    /// Returns `true` if the node is known to be deleted, or its owner has started to delete it.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.0.is_being_deleted() || self.0.is_deleted()
    }

    /// Resolves with `true` if the leader has deleted the node for its owner. Awaits the reply to an outstanding
    /// delete: a delete without a reply does not count, because the end of the session can overtake it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn is_done(&self) -> bool {
        self.0.owner_delete.wait_for(|state| *state != DeleteState::Outstanding).await == DeleteState::Done
    }
}
