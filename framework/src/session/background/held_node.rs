//! Watches on owned nodes, and signals to waiters behind them.

use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::model::EventType;
use crate::session::known_node::KnownNode;
use crate::session::watches::{WakeReason, Watch};
use crate::session::{Session, WatchedData};

/// Writes a node's data, unless it was written since the create.
pub(super) async fn touch(session: &Session, node: &Weak<KnownNode>, data: &[u8]) -> Result<()> {
    let Some(path) = node.upgrade().map(|node| Arc::clone(&node.path)) else { return Ok(()) };
    match session.set_data(&path, data.to_vec(), Some(0)).await {
        // Written now or before, or deleted: each of these fires the watches.
        Ok(_) | Err(Error::BadVersion { .. } | Error::NoNode { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Marks an owned node as deleted when its watch says so, and else sets a watch on it. The watch is on the node, or on
/// the children of its parent, which cannot be deleted before the node.
pub(crate) fn rearm_watch(session: Session, node: &Weak<KnownNode>, watch: Watch) {
    let Some(turn) = node.upgrade().map(|node| node.next_turn()) else { return };
    let node = Weak::clone(node);
    watch.on_fire(move |reason| {
        let Some(held) = node.upgrade() else { return };
        match reason {
            // Another node may have been deleted at an exact path, so that is read again.
            WakeReason::Event(EventType::NodeDeleted) if !held.is_exact => held.set_deleted(),
            WakeReason::SessionEnded(_) => {}
            // A newer watch on the node takes care of it. If the owner's delete fails, the node is watched again.
            _ if !held.is_turn(turn) || held.is_being_deleted() => {}
            _ => {
                let now = session.clock().now();
                session.background().watch_from(&session, now, now, node);
            }
        }
    });
}

/// Sets a watch on an owned node, or marks it as deleted if it does not exist.
pub(super) async fn watch_held_node(session: &Session, node: &Weak<KnownNode>) -> Result<()> {
    let Some(path) = node.upgrade().map(|node| Arc::clone(&node.path)) else { return Ok(()) };
    // The barrier holds for one connection.
    let at = session.pinned();
    let mut certain = false;
    loop {
        let read = at.get_data_watched(&path).await;
        let Some(held) = node.upgrade() else { return Ok(()) };
        match read {
            Ok(WatchedData { stat, .. }) if held.is_followed_by(&stat) => {
                held.set_deleted();
                return Ok(());
            }
            Ok(WatchedData { data, stat, watch }) => {
                held.was_read(&data, &stat);
                rearm_watch(session.clone(), node, watch);
                return Ok(());
            }
            // The owner has deleted it.
            Err(Error::NoNode { .. }) if held.is_being_deleted() => return Ok(()),
            Err(Error::NoNode { .. }) if certain => {
                held.set_deleted();
                return Ok(());
            }
            // A server that lags may not have the node yet; after an answered write it has.
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
        drop(held);
        at.write_barrier().await?;
        certain = true;
    }
}
