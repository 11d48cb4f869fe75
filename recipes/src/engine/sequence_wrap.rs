//! The order of contenders near the end of ZooKeeper's counter.
//!
//! The server counts the children of a node in 32 bits. Near 2^31 it gives one number to several nodes, then continues
//! below zero. There, contenders are ordered by the transactions that created them, which costs one read for each.
//!
//! If a contender is deleted during these reads, the engine lists again. A listing with a gap could put a waiter ahead
//! of a contender that it must follow.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use curator_framework::recipe::report;
use curator_framework::{Error, Session, make_path};

use crate::engine::driver::{SortedChildren, is_far_from_the_end};
use crate::engine::internals::LockInternals;
use crate::engine::requests::children_of;

/// The transactions that created the nodes read so far.
/// Boxed: few locks come near the end.
pub(crate) type CreationOrder = Option<Box<HashMap<String, i64>>>;

impl LockInternals {
    /// Returns the contenders in order: by number, and near the end of ZooKeeper's counter by creation.
    pub(crate) async fn in_order(&self, session: &Session, children: Vec<String>) -> Result<SortedChildren, Error> {
        let sorted = self.sort(children);
        if !sorted.is_near_the_end() {
            return Ok(sorted);
        }
        by_creation(session, self, sorted, &mut CreationOrder::default()).await
    }
}

/// Sorts contenders by creation, and reads those that `known` lacks. Lists again if one is deleted in the meantime: the
/// reads show the order of a listing only if each of its nodes still exists.
pub(super) async fn by_creation(
    session: &Session,
    lock: &LockInternals,
    mut sorted: SortedChildren,
    known: &mut CreationOrder,
) -> Result<SortedChildren, Error> {
    let base_path = lock.base_path();
    if !lock.warned.swap(true, Ordering::Relaxed) {
        let path = base_path.to_owned();
        report(move || {
            tracing::warn!(
                path,
                "the sequence numbers are near their end: contenders are ordered by their creation, which Java's Curator does not do"
            );
        });
    }
    while sorted.is_near_the_end() {
        if read_unknown(session, base_path, &sorted, known).await? {
            return Ok(sorted.sorted_by(|name| known.as_ref()?.get(name).copied()));
        }
        sorted = lock.sort(children_of(session, base_path).await?);
    }
    Ok(sorted)
}

/// Reads the contenders that `known` lacks, and forgets deleted ones. Returns whether all are known then.
async fn read_unknown(
    session: &Session,
    base_path: &str,
    sorted: &SortedChildren,
    known: &mut CreationOrder,
) -> Result<bool, Error> {
    let known = known.get_or_insert_default();
    known.retain(|name, _| sorted.position(name).is_some());
    for (sequence, name) in sorted.numbered() {
        if is_far_from_the_end(sequence) || known.contains_key(name) {
            continue;
        }
        match session.exists(&make_path(base_path, name)).await? {
            Some(stat) => drop(known.insert(name.to_owned(), stat.czxid)),
            None => return Ok(false),
        }
    }
    Ok(true)
}
