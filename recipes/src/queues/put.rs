//! Puts: one transaction, which counts once even if its reply is lost.

use std::sync::Arc;

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::spi::Operation;
use curator_framework::{CreateMode, CuratorFramework, Error, RetryLoop, Session, make_path};

use crate::queues::error::QueueError;
use crate::queues::paths::PathsMade;
use crate::queues::proving::{Markers, Proving, Settled, Tried};

/// A node to create, with a number that the server appends.
#[derive(Debug, Clone)]
pub(super) struct NewNode {
    /// The name without the number.
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// The outcome of an attempt.
enum Attempt {
    Done,
    /// The node that the put deletes does not exist.
    Gone,
    NoPath,
    Again,
    /// An earlier try may have been applied, and nothing can prove it.
    Unknown,
}

/// The path of a queue as its producers create it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuePath {
    /// Persistent, with the client's default data, as Java's `DistributedQueue` creates it.
    Persistent,
    /// A container, as Java's `SimpleDistributedQueue` creates it.
    Container,
}

/// Puts nodes into one queue.
#[derive(Debug)]
pub(super) struct Producer {
    client: CuratorFramework,
    path: String,
    kind: QueuePath,
    markers: Arc<Markers>,
}

impl Producer {
    pub(super) fn new(client: CuratorFramework, path: String, kind: QueuePath, markers: Arc<Markers>) -> Self {
        Self { client, path, kind, markers }
    }

    /// Puts all of the nodes or none.
    pub(super) async fn put(&self, nodes: &[NewNode]) -> Result<(), QueueError> {
        self.put_within(nodes, Budget::ENDLESS).await.map(drop)
    }

    /// Puts all of the nodes or none. Returns `Ok(None)` if the budget ends before a request was sent, while the client is
    /// connected.
    pub(super) async fn put_within(&self, nodes: &[NewNode], budget: Budget) -> Result<Option<()>, QueueError> {
        if nodes.is_empty() {
            return Ok(Some(()));
        }
        let mut putting = Putting::new(self, None, nodes);
        match budget.limit(putting.run()).await {
            Some(done) => done.map(|_| Some(())),
            None => match putting.proving.give_up() {
                Some(error) => Err(error.into()),
                None => end_of_budget(&self.client, format!("put into the queue {}", self.path), putting.is_sent),
            },
        }
    }

    /// Deletes the node of this operation, and puts another one, in one transaction. Returns `false` if there is nothing
    /// to delete. Does not create the queue's path.
    pub(super) async fn put_for(&self, delete: Operation, node: NewNode) -> Result<bool, QueueError> {
        Putting::new(self, Some(delete), &[node]).run().await
    }
}

/// A put under way.
struct Putting<'a> {
    producer: &'a Producer,
    /// The first operation of the transaction: a node moves to the queue.
    delete: Option<Operation>,
    nodes: &'a [NewNode],
    retries: RetryLoop,
    paths_made: PathsMade,
    proving: Proving,
    /// A request that creates the nodes is on its way.
    is_sent: bool,
}

impl<'a> Putting<'a> {
    fn new(producer: &'a Producer, delete: Option<Operation>, nodes: &'a [NewNode]) -> Self {
        let (retries, paths_made, proving) = (producer.client.retry_loop(), PathsMade::default(), Proving::default());
        Self { producer, delete, nodes, retries, paths_made, proving, is_sent: false }
    }

    async fn run(&mut self) -> Result<bool, QueueError> {
        let Producer { client, path, kind, .. } = self.producer;
        loop {
            let tried = match self.retries.connected(path).await {
                Ok(session) => self.attempt(&session).await,
                Err(error) => return Err(self.first_error(error)),
            };
            let failed = match tried {
                Ok(Attempt::Done) => return Ok(true),
                Ok(Attempt::Gone) => return Ok(false),
                Ok(Attempt::Again) => Ok(()),
                Ok(Attempt::NoPath) => self.paths_made.create(client, &mut self.retries, path, *kind).await,
                Ok(Attempt::Unknown) => return Err(self.first_error(Error::Closed)),
                Err(error) => self.retries.failed(error).await,
            };
            if let Err(error) = failed {
                return Err(self.first_error(error));
            }
        }
    }

    /// Returns the error of a try that may have been applied, otherwise this one.
    fn first_error(&mut self, error: Error) -> QueueError {
        self.proving.give_up().unwrap_or(error).into()
    }

    /// Settles an earlier try, and sends the nodes if that was not applied.
    async fn attempt(&mut self, session: &Session) -> Result<Attempt, Error> {
        let markers = &self.producer.markers;
        match self.proving.settle(markers, session).await? {
            Settled::Applied => return Ok(Attempt::Done),
            Settled::Unknown => return Ok(Attempt::Unknown),
            Settled::NotApplied => {}
        }
        let mut operations = self.creates(session)?;
        if let Some(delete) = &self.delete {
            operations.insert(0, delete.clone());
        }
        let (moves, was_sent) = (self.delete.is_some(), std::mem::replace(&mut self.is_sent, true));
        let sent = match markers.are_possible(session) {
            true => self.proving.send(markers, session, operations).await,
            false => send_unproven(session, operations).await,
        };
        let sent = sent.and_then(|tried| match tried {
            Tried::Applied => Ok(Attempt::Done),
            Tried::Again => Ok(Attempt::Again),
            Tried::Refused(0, Error::NoNode { .. }) if moves => {
                Ok(if was_sent { Attempt::Done } else { Attempt::Gone })
            }
            Tried::Refused(_, Error::NoNode { .. }) if !moves => Ok(Attempt::NoPath),
            Tried::Refused(_, cause) => Err(cause),
        });
        // Without a marker nothing settles a lost reply.
        self.is_sent = !self.proving.is_unsettled() && sent.as_ref().is_err_and(Error::outcome_unknown);
        sent
    }

    /// Returns the operations that create the nodes.
    fn creates(&self, session: &Session) -> Result<Vec<Operation>, Error> {
        let client = &self.producer.client;
        let create = |node: &NewNode| {
            let path = make_path(&self.producer.path, &node.name);
            let (acl, mode) = (session.acl_for(&path), CreateMode::PersistentSequential);
            client.check_create(&path, mode, &node.data, &acl)?;
            let data = client.to_stored(&path, node.data.clone(), None)?;
            Ok(Operation::Create { path, data, acl, mode })
        };
        self.nodes.iter().map(create).collect()
    }
}

/// Returns the outcome of a call at the end of its budget. The outcome of a request that was sent is unknown.
pub(super) fn end_of_budget<T>(
    client: &CuratorFramework,
    request: String,
    is_sent: bool,
) -> Result<Option<T>, QueueError> {
    match is_sent || !client.is_connected() {
        true => Err(Error::ConnectionLoss { request: request.into(), sent: is_sent, cause: None }.into()),
        false => Ok(None),
    }
}

/// Sends operations without a marker. After a lost reply they may be sent twice.
async fn send_unproven(session: &Session, operations: Vec<Operation>) -> Result<Tried, Error> {
    let sent = match <[Operation; 1]>::try_from(operations) {
        Ok([Operation::Create { path, data, acl, mode }]) => session.create(&path, data, acl, mode).await.map(drop),
        Ok([other]) => session.transaction(vec![other]).await.map(drop),
        Err(several) => session.transaction(several).await.map(drop),
    };
    match sent {
        Ok(()) => Ok(Tried::Applied),
        Err(Error::Transaction { index, cause, .. }) => Ok(Tried::Refused(index, *cause)),
        Err(missing @ Error::NoNode { .. }) => Ok(Tried::Refused(0, missing)),
        Err(error) => Err(error),
    }
}
