//! The order of contenders near the end of ZooKeeper's counter.
//!
//! The server counts the children of a node in 32 bits. Near 2^31 it gives one number to several nodes, and goes on
//! below zero. There, contenders are ordered by the transactions that created them, which costs one read for each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use curator_framework::{Error, Session, make_path};

use crate::locks::engine::driver::{SortedChildren, is_far_from_the_end};

/// The transactions that created the nodes that were looked at.
pub(crate) type CreationOrder = HashMap<String, i64>;

/// Puts contenders in order; reads those that `known` lacks.
pub(super) async fn by_creation(
    session: &Session,
    base_path: &str,
    sorted: SortedChildren,
    known: &mut CreationOrder,
    warned: &AtomicBool,
) -> Result<SortedChildren, Error> {
    if !warned.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            path = base_path,
            "the sequence numbers are near their end: contenders are ordered by their creation, which Java's Curator does not do"
        );
    }
    for (sequence, name) in sorted.numbered() {
        if is_far_from_the_end(sequence) || known.contains_key(name) {
            continue;
        }
        if let Some(stat) = session.exists(&make_path(base_path, name)).await? {
            known.insert(name.to_owned(), stat.czxid);
        }
    }
    Ok(sorted.sorted_by(|name| known.get(name).copied()))
}
