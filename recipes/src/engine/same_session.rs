//! An optimisation: contenders of one session in one process share what they would otherwise read from the server.
//!
//! A holder records here that it is first. A successor in the same session then knows without a listing that only the
//! holder is ahead. It also reads here whether the server has answered the holder's delete. In a queue of one session a
//! hand-off therefore costs one request, the delete: the benchmark's row *300 waiters of one session, drained* shows
//! it.
//!
//! A contender of a queue also finds here the nearest contender of its session ahead. It is not granted before that one
//! is gone, so it waits for it without a listing, and the cost of joining does not grow with the queue. A reader waits
//! for the nearest writer ahead that the session knows: one of its own, or another client's that a contender has found.
//! What is known only says where to wait. If it is out of date, that costs a read and a listing, and never grants.
//!
//! The session keeps this table for the recipes (`Session::extension`), and knows nothing of its contents.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use curator_framework::recipe::{OwnedNode, OwnerDelete, ProtectedId};
use curator_framework::{Session, node_from_path};
use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::engine::driver::{WRITE_NAME, is_far_from_the_end, standard_sequence};
use crate::engine::plan::{Ahead, Epoch};
use crate::engine::shared_reads::SharedReads;

/// The most readers that list with their creates at once. Later ones share a listing after these.
const MOST_LISTING: usize = 8;

/// The contenders of one session in this process.
#[derive(Debug, Default)]
pub(super) struct Contenders(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the ids in the names of their nodes.
    by_id: HashMap<ProtectedId, Arc<SharedFacts>>,
    queues: HashMap<QueueKey, Queue>,
}

/// The path of a lock as the server knows it, and the name of its nodes. Both halves of a read-write lock have the name
/// of its writers.
type QueueKey = (Arc<str>, &'static str);

/// A contender's part in a queue of contenders that share what they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// One contender holds the lock at a time.
    Exclusive,
    Reader,
    /// As `Exclusive`, but a node may come ahead: a writer ahead may become a reader.
    Writer,
}

/// The contenders of one lock.
#[derive(Debug, Default)]
struct Queue {
    /// The number of those that have entered, and have no certain node yet.
    coming: usize,
    /// Those with one certain node, by its number.
    nodes: BTreeMap<i64, Arc<SharedFacts>>,
    /// The nodes of writers, by their numbers: of the session, and others that its contenders have found ahead.
    writers: BTreeMap<i64, Arc<str>>,
    reads: Arc<SharedReads>,
}

impl Queue {
    /// Returns the nearest writer's node below a number, as far as the process knows.
    fn writer_below(&self, number: i64) -> Option<&Arc<str>> {
        let is_there = |(number, node): &(&i64, &Arc<str>)| {
            // Without a contender of the session it is another client's.
            self.nodes.get(number).is_none_or(|own| !own.has_kept(node) || own.is_there())
        };
        self.writers.range(..number).rev().find(is_there).map(|(_, node)| node)
    }
}

/// Removes a writer's node. Another node may have the number after the deletion of all nodes.
fn forget(writers: &mut BTreeMap<i64, Arc<str>>, number: i64, node: &str) {
    if writers.get(&number).is_some_and(|known| **known == *node) {
        writers.remove(&number);
    }
}

/// The facts of a contender that the session's other contenders may read.
#[derive(Debug)]
pub(super) struct SharedFacts {
    id: ProtectedId,
    /// The connection that has shown that the contender is first.
    is_first: SetOnce<Epoch>,
    delete: OnceLock<OwnerDelete>,
}

impl SharedFacts {
    /// Resolves when the contender is first in the queue with this node, for good, with the connection that has shown
    /// it.
    pub(super) async fn first_with(&self, node: &str) -> Epoch {
        let epoch = *self.is_first.wait().await;
        if !self.has_kept(node) {
            std::future::pending().await
        }
        epoch
    }

    /// Returns whether the server has answered the contender's own delete of this node. Waits for an outstanding reply.
    pub(super) async fn has_deleted(&self, node: &str) -> bool {
        match self.delete.get() {
            Some(delete) if self.has_kept(node) => delete.is_done().await,
            _ => false,
        }
    }

    /// Returns whether the contender's one node is certain, and was not deleted as far as this process knows.
    fn is_there(&self) -> bool {
        self.delete.get().is_some_and(|delete| !delete.has_begun())
    }

    /// Returns whether the contender has kept this node. Lost replies may have left other nodes of its id in the queue,
    /// for which its reports do not hold.
    fn has_kept(&self, node: &str) -> bool {
        self.delete.get().is_some_and(|delete| node_from_path(delete.full_path()) == node)
    }
}

impl Contenders {
    pub(super) fn of(session: &Session) -> Arc<Self> {
        session.extension()
    }

    /// Returns the facts of the contender that owns the node with this name.
    pub(super) fn get(&self, name: &str) -> Option<Arc<SharedFacts>> {
        self.0.lock().by_id.get(&ProtectedId::of(name)?).map(Arc::clone)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        ProtectedId::of(name).is_some_and(|id| self.0.lock().by_id.contains_key(&id))
    }
}

/// The entry of a contender, removed when dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    contenders: Arc<Contenders>,
    facts: Arc<SharedFacts>,
    // Boxed: waiters are many, and have one place in an acquire's future.
    queue: Option<Box<Place>>,
}

/// The place of a contender in a queue.
#[derive(Debug)]
struct Place {
    key: QueueKey,
    role: Role,
    /// Set once the contender's node is certain: its number, if that orders the node.
    number: OnceLock<Option<i64>>,
    reads: Arc<SharedReads>,
}

impl Entry {
    /// Enters a contender before its create is sent, if need be in this role into the queue with this name.
    pub(super) fn new(contenders: &Arc<Contenders>, owned: &OwnedNode, queue: Option<(&'static str, Role)>) -> Self {
        let id = owned.protected_id();
        let facts = Arc::new(SharedFacts { id, is_first: SetOnce::new(), delete: OnceLock::new() });
        let mut known = contenders.0.lock();
        known.by_id.insert(id, Arc::clone(&facts));
        let queue = queue.map(|(name, role)| {
            let key = (owned.full_parent(), name);
            let queue = known.queues.entry(key.clone()).or_default();
            queue.coming += 1;
            Box::new(Place { key, role, number: OnceLock::new(), reads: Arc::clone(&queue.reads) })
        });
        drop(known);
        Self { contenders: Arc::clone(contenders), facts, queue }
    }

    /// Returns what the contenders of the session share in the queue.
    pub(super) fn reads(&self) -> Option<&Arc<SharedReads>> {
        self.queue.as_ref().map(|place| &place.reads)
    }

    /// Returns the [reads](Self::reads) if another contender of the session is in the queue.
    pub(super) fn shared_reads(&self) -> Option<Arc<SharedReads>> {
        self.reads().filter(|_| self.has_company()).map(Arc::clone)
    }

    /// Returns the contender's number, if it has one in a queue.
    pub(super) fn number(&self) -> Option<i64> {
        self.queue.as_ref()?.number.get().copied().flatten()
    }

    /// Returns whether the contender is in a queue, and its node is not certain yet.
    fn is_coming(&self) -> bool {
        self.queue.as_ref().is_some_and(|place| place.number.get().is_none())
    }

    /// Returns whether another contender of the session is in the queue.
    fn has_company(&self) -> bool {
        let known = self.contenders.0.lock();
        let queue = self.queue.as_ref().and_then(|place| known.queues.get(&place.key));
        let own = usize::from(self.is_coming());
        let is_other = |facts: &Arc<SharedFacts>| !Arc::ptr_eq(facts, &self.facts) && facts.is_there();
        queue.is_some_and(|queue| queue.coming > own || queue.nodes.values().rev().any(is_other))
    }

    /// Returns whether the contender will probably wait for what the session knows in the queue. A reader does not wait
    /// for other readers, but of many that come at once only the [first](MOST_LISTING) list on their own.
    pub(super) fn may_wait(&self) -> bool {
        match self.queue.as_deref() {
            Some(Place { key, role: Role::Reader, .. }) => self
                .contenders
                .0
                .lock()
                .queues
                .get(key)
                .is_some_and(|queue| queue.writer_below(i64::MAX).is_some() || queue.coming > MOST_LISTING),
            _ => self.has_company(),
        }
    }

    /// Records the contender's one node: no lost reply has left another. It is in its queue from now on, if a number
    /// orders it there.
    pub(super) fn has_node(&self, owned: &OwnedNode, number: Option<i64>) {
        let Some(delete) = owned.owner_delete() else { return };
        // A second call has the same node.
        let _known = self.facts.delete.set(delete);
        let Some(place) = &self.queue else { return };
        if place.number.set(number).is_ok() {
            let mut known = self.contenders.0.lock();
            let queue = known.queues.entry(place.key.clone()).or_default();
            queue.coming = queue.coming.saturating_sub(1);
            if let Some(number) = number {
                queue.nodes.insert(number, Arc::clone(&self.facts));
                if let (Role::Writer, Some(node)) = (place.role, owned.node_name()) {
                    queue.writers.insert(number, node.into());
                }
            }
        }
    }

    /// Records that a node ahead is there, for which the contender waits. If it is a writer's, later readers wait for it.
    pub(super) fn has_found(&self, node: &str) {
        let Some(place) = self.queue.as_ref().filter(|place| place.role != Role::Exclusive) else { return };
        let number = standard_sequence(node, WRITE_NAME).filter(|number| is_far_from_the_end(*number));
        let (Some(number), mut known) = (number, self.contenders.0.lock()) else { return };
        let Some(queue) = known.queues.get_mut(&place.key) else { return };
        if queue.writers.get(&number).is_none_or(|known| **known != *node) {
            queue.writers.insert(number, node.into());
        }
    }

    /// Records that a node ahead with this number was deleted.
    pub(super) fn has_gone(&self, number: i64, node: &str) {
        let (Some(place), mut known) = (&self.queue, self.contenders.0.lock()) else { return };
        let Some(queue) = known.queues.get_mut(&place.key) else { return };
        // Its contender may not know it yet.
        if queue.nodes.get(&number).is_some_and(|facts| facts.has_kept(node)) {
            queue.nodes.remove(&number);
        }
        forget(&mut queue.writers, number, node);
    }

    /// Returns the nearest contender ahead in the queue that the session knows, and that the contender waits for: one of
    /// the session, or for a reader any writer.
    pub(super) fn ahead(&self) -> Option<Ahead> {
        let (place, own) = (self.queue.as_ref()?, self.number()?);
        let known = self.contenders.0.lock();
        let queue = known.queues.get(&place.key)?;
        if place.role == Role::Reader {
            let node = Arc::clone(queue.writer_below(own)?);
            return Some(Ahead { node, is_next: false });
        }
        let mut before = queue.nodes.range(..own).rev();
        let (number, facts) = before.find(|(_, facts)| facts.is_there())?;
        let node = node_from_path(facts.delete.get()?.full_path()).into();
        Some(Ahead { node, is_next: number + 1 == own })
    }

    /// Records that the contender is first in the queue, for good, as a connection has shown.
    pub(super) fn is_first(&self, epoch: Epoch) {
        if let Some((place, number)) = self.queue.as_ref().zip(self.number()) {
            place.reads.was_first(epoch, number);
        }
        // A contender is granted once.
        let _said = self.facts.is_first.set(epoch);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut known = self.contenders.0.lock();
        known.by_id.remove(&self.facts.id);
        let Some(Place { key, number, .. }) = self.queue.as_deref() else { return };
        let Some(queue) = known.queues.get_mut(key) else { return };
        match number.get() {
            Some(Some(number)) => {
                // After the deletion of all nodes another contender may have the number.
                if queue.nodes.get(number).is_some_and(|facts| Arc::ptr_eq(facts, &self.facts)) {
                    queue.nodes.remove(number);
                }
                if let Some(delete) = self.facts.delete.get() {
                    forget(&mut queue.writers, *number, node_from_path(delete.full_path()));
                }
            }
            Some(None) => {}
            None => queue.coming = queue.coming.saturating_sub(1),
        }
        if queue.coming + queue.nodes.len() < 2 {
            queue.reads.forget();
        }
        if queue.coming == 0 && queue.nodes.is_empty() {
            known.queues.remove(key);
        }
    }
}
