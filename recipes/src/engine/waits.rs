//! The watches of a contender, and their events.
//!
//! The listing that grants a lock watches the children, and the holder keeps that watch. Its event is the deletion of
//! the holder's node, which costs a read to confirm, or a change of other children. After such a change the holder
//! watches its node. The holder's delete uses the watch up. So a lock without contention costs no further request, and
//! a holder always has a watch.
//!
//! A contender that has to wait drops its listing's watch without a request (`Watch::leave`): the delete of its node
//! uses it up at the latest. A listing that contenders share sets no watch. If it grants the lock, the holder watches
//! its node.

use std::time::Duration;

use curator_framework::recipe::{OwnedNode, ProtectedId, owning_session};
use curator_framework::{Error, EventType, Session, WakeReason, Watch, node_from_path};

use crate::engine::plan::{DeletedBy, Epoch, Input, Watched};
use crate::engine::same_session::SharedFacts;

/// Watches a node if it exists, without a request if the session watches it already.
pub(super) async fn watch_node(at: &Session, path: Option<&str>) -> Result<Option<Watch>, Error> {
    let Some(path) = path else { return Ok(None) };
    if let Some(watch) = at.share_watch(path) {
        return Ok(Some(watch));
    }
    match at.get_data_watched(path).await {
        Ok(read) => Ok(Some(read.watch)),
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has the deletion of a held node noticed, with a watch that is set on it or on its siblings, or else with a read.
pub(super) fn watch_held(owned: &OwnedNode, watch: Option<Watch>) {
    match watch {
        Some(watch) => owned.watch_node_with(watch),
        None => owned.watch_node(Duration::ZERO),
    }
}

/// Returns the result of setting a watch on the node at this path. The watch is `None` if the node does not exist.
pub(super) fn watched(watch: &Option<Watch>, path: &str) -> Watched {
    match watch.as_ref().and_then(Watch::found) {
        Some(found) => {
            // A node that no session owns never signals, nor does one without an id: another program has created it. The
            // waiter watches the children at once.
            let signals =
                owning_session(found.ephemeral_owner).is_some() && ProtectedId::of(node_from_path(path)).is_some();
            Watched::Set { epoch: found.epoch, has_signalled: found.version > 0 || !signals }
        }
        None => Watched::Gone,
    }
}

/// Resolves with the next event of this contender's node. Without a watch it resolves after `looks_after`: a watch
/// costs a request, and few waits last that long.
pub(super) async fn own_event(own: &mut Option<Watch>, looks_after: Duration) -> Input<'static> {
    let Some(watch) = own else {
        tokio::time::sleep(looks_after).await;
        return Input::WaitsLong;
    };
    let reason = watch.await;
    *own = None;
    match reason {
        WakeReason::Event(EventType::NodeDeleted) => Input::OwnDeleted,
        _ => Input::OwnChanged,
    }
}

/// Resolves with the event of a watch. Resolves at once without a watch, which the caller then sets again.
pub(super) async fn resolved(watch: Option<&mut Watch>) -> Option<WakeReason> {
    match watch {
        Some(watch) => Some(watch.await),
        None => None,
    }
}

pub(super) async fn first(holder: Option<(&str, &SharedFacts)>) -> Epoch {
    match holder {
        // Boxed: few waiters have a predecessor in their own session.
        Some((node, holder)) => Box::pin(holder.first_with(node)).await,
        None => std::future::pending().await,
    }
}

/// Finds the owner of the transaction that deleted a watched node. The node's owner may never record a reply to its
/// delete, so this waits for a tenth of the session timeout only. `Unknown` costs a listing.
pub(super) async fn deleted_by(session: &Session, watch: &Watch, owner: Option<(&str, &SharedFacts)>) -> DeletedBy {
    let is_ours = watch.found().is_none_or(|found| session.id().is_none_or(|own| own.get() == found.ephemeral_owner));
    match owner {
        _ if !is_ours => DeletedBy::OtherSession,
        Some((node, owner)) => tokio::select! {
            biased;
            by_owner = owner.has_deleted(node) => if by_owner { DeletedBy::Owner } else { DeletedBy::Unknown },
            _ = session.ended() => DeletedBy::Unknown,
            () = tokio::time::sleep(session.timeout() / 10) => DeletedBy::Unknown,
        },
        None => DeletedBy::Unknown,
    }
}
