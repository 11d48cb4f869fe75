//! The queue of bytes that ZooKeeper's own recipe describes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::{CuratorFramework, Error, RetryLoop, Session, WakeReason, Watch, make_path, validate_path};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::queues::backlog::{Apart, Backlog};
use crate::queues::error::QueueError;
use crate::queues::names::{Kind, SIMPLE_PREFIX};
use crate::queues::proving::Markers;
use crate::queues::put::{NewNode, Producer, QueuePath, end_of_budget};
use crate::queues::taking::{Item, Taken, Taking};

/// The number of names in a row that others have taken before the path is listed again.
const MOST_MISSES: u32 = 8;

/// A queue of bytes: Curator's `SimpleDistributedQueue`, with the names of ZooKeeper's queue recipe. Items are delivered
/// at most once, in the order of the offers.
///
/// An item is deleted, then returned, so a crash in between loses it. A lost reply does not lose it, and does not return an
/// item twice, unless the session ends before the next reply. Then the call fails with `QueueError::Unknown`. For delivery at
/// least once use a [`DistributedQueue`](crate::DistributedQueue) with a lock path.
///
/// Over `zookeeper-async`, which has no transactions, an item that is gone after a lost reply counts as taken. If another
/// client has deleted it in the meantime, both return it.
///
/// [Clones](crate#handles) are cheap, and all clones are one object: they share the known names. They keep the client
/// open.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::SimpleDistributedQueue;
///
/// let queue = SimpleDistributedQueue::new(client, "/jobs")?;
/// queue.offer("first").await?;
/// queue.offer("second").await?;
/// assert_eq!(queue.take().await?, b"first");
/// assert_eq!(queue.poll().await?.as_deref(), Some(&b"second"[..]));
/// assert_eq!(queue.poll().await?, None);
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * A lost reply does not put an item twice, and does not lose one.
/// * `peek` and `poll` return `None` for an empty queue. Curator's `element` and `remove` throw.
/// * Known names are used up before the path is listed again. Curator lists it for each item.
/// * A wait leaves no watch behind. Curator's `poll` with a time leaves one for each call.
///
/// # Permissions
///
/// An `offer` creates children of the path. `peek` reads the path and the item. `poll` and `take` also delete children of the
/// path. `offer`, `poll` and `take` create a child of the path's parent, which proves the request. Without that right a lost
/// reply may add an item twice, and return one twice.
///
/// # ZooKeeper layout
///
/// `<path>/qn-<number>`, persistent and sequential, with the item as data. Missing parents, and the path itself, are
/// created as containers. Other children are ignored. An ephemeral node `_c_<uuid>-<name>-marker` beside the path proves
/// after a lost reply whether a request was applied.
///
/// # Cost
///
/// | call | requests |
/// | --- | --- |
/// | `offer` | 1 transaction: a create, and a write of the node beside the path; over `zookeeper-async` 1 create; more for missing parents |
/// | `poll`, `take` of a known name | 2: a read, and a transaction: a delete, and a write of the node beside the path |
/// | the first one, and the next one after all known names are used up | 1 listing more |
/// | `peek` | 1 read, and a listing without a known name |
/// | `poll` of an empty queue | 1 listing |
/// | a `take` that waits | 1 listing for each change of the path's children, and for each waiting task |
#[derive(Clone)]
pub struct SimpleDistributedQueue {
    shared: Arc<Simple>,
}

struct Simple {
    client: CuratorFramework,
    path: String,
    producer: Producer,
    markers: Arc<Markers>,
    /// Wakes a call that waits for an item, when another call gives its item back.
    returned: Notify,
    known: Mutex<Known>,
}

/// The knowledge that the calls of all clones share.
struct Known {
    backlog: Backlog,
    /// Items with a delete of an unknown outcome. The calls that sent it have failed or were dropped.
    unsettled: Vec<Taking<Vec<u8>>>,
    /// The number of names in a row that others have taken.
    misses: u32,
}

/// An item that a call works on. Its drop gives the item back.
struct Work<'a> {
    simple: &'a Simple,
    taking: Option<Taking<Vec<u8>>>,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if let Some(taking) = self.taking.take() {
            let mut known = self.simple.known.lock();
            match taking.may_be_deleted() {
                true => known.unsettled.push(taking),
                false => taking.names().for_each(|name| known.backlog.set_ready(name, Apart::Taken)),
            }
            drop(known);
            self.simple.returned.notify_one();
        }
    }
}

/// The name of an item that a call reads. Its drop makes the item ready again.
struct Reading<'a> {
    simple: &'a Simple,
    name: Option<Box<str>>,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.simple.known.lock().backlog.set_ready(&name, Apart::Taken);
            self.simple.returned.notify_one();
        }
    }
}

/// A call that another call has woken, because it gave an item back. Unless this one waits again, its drop wakes the next
/// call: several items may be back, or this call may be dropped before it has taken one.
struct Woken<'a>(Option<&'a Notify>);

impl Drop for Woken<'_> {
    fn drop(&mut self) {
        if let Some(returned) = self.0 {
            returned.notify_one();
        }
    }
}

impl SimpleDistributedQueue {
    /// Creates an object for the queue at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path. `QueueError::InvalidArgument`: it is the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, QueueError> {
        let path = path.into();
        validate_path(&path)?;
        if path == "/" {
            return Err(QueueError::invalid("path", "it cannot be the root"));
        }
        let known = Known { backlog: Backlog::new(Kind::Simple), unsettled: Vec::new(), misses: 0 };
        let markers = Arc::new(Markers::new(client.clone(), path.clone()));
        let producer = Producer::new(client.clone(), path.clone(), QueuePath::Container, Arc::clone(&markers));
        let (returned, known) = (Notify::new(), Mutex::new(known));
        Ok(Self { shared: Arc::new(Simple { client, path, producer, markers, returned, known }) })
    }

    /// Returns the queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// Adds an item at the end. Returns once the server has it.
    ///
    /// A lost reply does not add it twice. There are three exceptions. A client over `zookeeper-async` has no transactions.
    /// The ACL may forbid creating nodes beside the queue's path. And the session may have reached the limit of ephemeral
    /// nodes.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up. The item may be in the queue.
    /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the node cannot be created.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the item may be added.
    pub async fn offer(&self, data: impl Into<Vec<u8>> + Send) -> Result<(), QueueError> {
        self.shared.producer.put(&[NewNode { name: SIMPLE_PREFIX.to_owned(), data: data.into() }]).await
    }

    /// Returns the first item, and leaves it in the queue. `None` if the queue is empty.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up.
    /// * `Error::NoAuth`, `Error::ReplyTooLarge`: the path or the item cannot be read.
    /// * `Error::Compression`: the data of the item cannot be decompressed.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "element")]
    pub async fn peek(&self) -> Result<Option<Vec<u8>>, QueueError> {
        self.shared.with_retries(Aim::Peek, &AtomicBool::new(false)).await
    }

    /// Takes the first item. `None` if the queue is empty.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up. If
    ///   [`outcome_unknown`](QueueError::outcome_unknown), an item may be deleted: a later call of this object returns
    ///   it.
    /// * `QueueError::Unknown`: the session has ended before the outcome of a delete was known, and the item is gone.
    /// * `Error::NoAuth`, `Error::ReplyTooLarge`, `Error::Compression`, `Error::NotEmpty`: the path or the item cannot
    ///   be read, or the item cannot be deleted.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the item may be taken. A later call of this object returns it.
    #[doc(alias = "remove")]
    pub async fn poll(&self) -> Result<Option<Vec<u8>>, QueueError> {
        self.shared.with_retries(Aim::Poll, &AtomicBool::new(false)).await
    }

    /// Takes the first item. Waits for one for at most `budget`. Returns `Ok(None)` if the budget ends while the client
    /// is connected. A budget of zero is a [`poll`](Self::poll).
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`: the budget ends without a connection, or without the reply to a delete.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up. If
    ///   [`outcome_unknown`](QueueError::outcome_unknown), an item may be taken: a later call of this object returns
    ///   it.
    /// * `QueueError::Unknown`: the session has ended before the outcome of a delete was known, and the item is gone.
    /// * `Error::NoAuth`, `Error::ReplyTooLarge`, `Error::Compression`, `Error::NotEmpty`: the path or the item cannot
    ///   be read, or the item cannot be deleted.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, an item may be taken. A later call of this object returns it.
    pub async fn poll_timeout(&self, budget: Duration) -> Result<Option<Vec<u8>>, QueueError> {
        if budget.is_zero() {
            return self.poll().await;
        }
        let is_sent = AtomicBool::new(false);
        match Budget::of(budget).limit(self.shared.take(&is_sent)).await {
            Some(taken) => taken.map(Some),
            None => {
                let Simple { client, path, .. } = &*self.shared;
                end_of_budget(client, format!("take an item of {path}"), is_sent.load(Ordering::Relaxed))
            }
        }
    }

    /// Takes the first item. Waits for one without a limit.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up. If
    ///   [`outcome_unknown`](QueueError::outcome_unknown), an item may be taken: a later call of this object returns
    ///   it.
    /// * `QueueError::Unknown`: the session has ended before the outcome of a delete was known, and the item is gone.
    /// * `Error::NoAuth`, `Error::ReplyTooLarge`, `Error::Compression`, `Error::NotEmpty`: the path or the item cannot
    ///   be read, or the item cannot be deleted.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, an item may be taken. A later call of this object returns it.
    pub async fn take(&self) -> Result<Vec<u8>, QueueError> {
        self.shared.take(&AtomicBool::new(false)).await
    }
}

/// The aim of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Peek,
    Poll,
    /// Waits while the queue is empty.
    Take,
}

impl Simple {
    /// Waits for an item. `is_sent` is true while the outcome of a delete is unknown.
    async fn take(&self, is_sent: &AtomicBool) -> Result<Vec<u8>, QueueError> {
        loop {
            if let Some(data) = self.with_retries(Aim::Take, is_sent).await? {
                return Ok(data);
            }
        }
    }

    /// Makes attempts until one has an answer.
    async fn with_retries(&self, aim: Aim, is_sent: &AtomicBool) -> Result<Option<Vec<u8>>, QueueError> {
        let mut retries = self.client.retry_loop();
        loop {
            let attempt = self.attempt(aim, &mut retries, is_sent).await;
            if let Some(found) = retries.done(attempt, &self.path).await? {
                return Ok(found);
            }
        }
    }

    async fn attempt(
        &self,
        aim: Aim,
        retries: &mut RetryLoop,
        is_sent: &AtomicBool,
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let (mut is_fresh, mut woken) = (false, Woken(None));
        loop {
            let session = retries.connected(&self.path).await?;
            if aim != Aim::Peek {
                if let Some(data) = self.settle(&session, is_sent).await? {
                    return Ok(Some(data));
                }
            }
            let Some(mut reading) = self.first(aim) else {
                if is_fresh && aim != Aim::Take {
                    return Ok(None);
                }
                if let Some(change) = self.list(&session, aim == Aim::Take).await? {
                    woken.0 = None;
                    tokio::select! {
                        reason = change => if let WakeReason::SessionEnded(_) = reason {
                            return Err(session.closed_error(format!("getChildren {}", self.path)).into());
                        },
                        () = self.returned.notified() => woken.0 = Some(&self.returned),
                    }
                    retries.progressed();
                }
                is_fresh = true;
                continue;
            };
            if let Some(data) = self.read(&session, (aim, is_sent), &mut reading).await? {
                return Ok(Some(data));
            }
        }
    }

    /// Returns the first known item, which no other call works on.
    fn first(&self, aim: Aim) -> Option<Reading<'_>> {
        let mut known = self.known.lock();
        if known.misses >= MOST_MISSES {
            known.misses = 0;
            known.backlog.clear_ready();
        }
        let name: Box<str> = known.backlog.due(i64::MAX).next()?.into();
        if aim == Aim::Peek {
            return Some(Reading { simple: self, name: Some(name) });
        }
        known.backlog.set_apart(&name, Apart::Taken);
        Some(Reading { simple: self, name: Some(name) })
    }

    /// Lists the path. Returns a watch if it has no item and the caller waits.
    async fn list(&self, session: &Session, waits: bool) -> Result<Option<Watch>, Error> {
        let (names, watch) = match waits {
            true => loop {
                match session.get_children_watched(&self.path).await {
                    Ok((names, watch)) => break (names, Some(watch)),
                    Err(Error::NoNode { .. }) => {
                        if let (None, created) = session.exists_watched(&self.path).await? {
                            break (Vec::new(), Some(created));
                        }
                    }
                    Err(error) => return Err(error),
                }
            },
            false => match session.get_children(&self.path).await {
                Ok(names) => (names, None),
                Err(Error::NoNode { .. }) => (Vec::new(), None),
                Err(error) => return Err(error),
            },
        };
        let mut known = self.known.lock();
        known.misses = 0;
        known.backlog.listed(names);
        Ok(watch.filter(|_| known.backlog.ready() == 0))
    }

    /// Reads an item, and takes it if the call wants that. `None` if another client has taken it.
    async fn read(
        &self,
        session: &Session,
        (aim, is_sent): (Aim, &AtomicBool),
        reading: &mut Reading<'_>,
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let Some(name) = reading.name.clone() else { return Ok(None) };
        let path = make_path(&self.path, &name);
        if aim == Aim::Peek {
            // There is nothing to give back.
            reading.name = None;
        }
        let (data, stat) = match session.get_data(&path).await {
            Ok(read) => read,
            Err(Error::NoNode { .. }) => {
                self.is_gone(&name, true);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        // Before the delete: an item that cannot be decompressed stays.
        let data = self.client.from_stored(&path, data, None)?;
        if aim == Aim::Peek {
            return Ok(Some(data));
        }
        reading.name = None;
        let mut taking = Taking::new();
        taking.add(Item { path, name, stat, content: data, is_followed: false });
        self.take_it(session, taking, is_sent).await
    }

    /// Ends the deletes with unknown outcomes. Returns an item that one of them has taken.
    async fn settle(&self, session: &Session, is_sent: &AtomicBool) -> Result<Option<Vec<u8>>, QueueError> {
        loop {
            let Some(taking) = self.known.lock().unsettled.pop() else { return Ok(None) };
            if let Some(data) = self.take_it(session, taking, is_sent).await? {
                return Ok(Some(data));
            }
        }
    }

    /// Deletes an item. `None` if another client has taken it, or if it was written.
    async fn take_it(
        &self,
        session: &Session,
        taking: Taking<Vec<u8>>,
        is_sent: &AtomicBool,
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let mut work = Work { simple: self, taking: Some(taking) };
        let Some(taking) = &mut work.taking else { return Ok(None) };
        is_sent.store(true, Ordering::Relaxed);
        let taken = taking.delete(&self.markers, session).await;
        is_sent.store(taking.may_be_deleted() && taken.is_err(), Ordering::Relaxed);
        taken?;
        let Some((item, taken)) = taking.take_decided().pop() else { return Ok(None) };
        match taken {
            Taken::Ours { .. } => {
                self.is_gone(&item.name, false);
                Ok(Some(item.content))
            }
            Taken::OfAnother => {
                self.is_gone(&item.name, true);
                Ok(None)
            }
            Taken::Changed => {
                self.known.lock().backlog.set_ready(&item.name, Apart::Taken);
                Ok(None)
            }
            Taken::HasChildren => {
                self.known.lock().backlog.set_ready(&item.name, Apart::Taken);
                Err(Error::NotEmpty { path: self.client.path_text(&item.path) }.into())
            }
            Taken::Unknown => {
                self.is_gone(&item.name, true);
                Err(QueueError::Unknown { path: self.client.path_text(&item.path) })
            }
        }
    }

    /// Forgets an item that was deleted.
    fn is_gone(&self, name: &str, by_another: bool) {
        let mut known = self.known.lock();
        known.backlog.deleted(name);
        known.misses = if by_another { known.misses + 1 } else { 0 };
    }
}

impl fmt::Debug for SimpleDistributedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimpleDistributedQueue").field("path", &self.path()).finish_non_exhaustive()
    }
}
