//! Puts: one transaction, which counts once even if its reply is lost.

use std::sync::Arc;

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::spi::Operation;
use curator_framework::{CreateMode, CuratorFramework, Error, RetryLoop, Session, make_path};

use crate::queues::error::QueueError;
use crate::queues::paths::PathsMade;
use crate::queues::proving::{Markers, Proving, Settled, Tried};

/// A node that is to be created, with a number that the server appends.
#[derive(Debug, Clone)]
pub(super) struct NewNode {
    /// The name without the number.
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// The outcome of an attempt.
enum Attempt {
    Done,
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
        let mut putting = Putting {
            producer: self,
            nodes,
            retries: self.client.retry_loop(),
            paths_made: PathsMade::default(),
            proving: Proving::default(),
            is_sent: false,
        };
        match budget.limit(putting.run()).await {
            Some(done) => done.map(Some),
            None => match putting.proving.give_up() {
                Some(error) => Err(error.into()),
                None => end_of_budget(&self.client, format!("put into the queue {}", self.path), putting.is_sent),
            },
        }
    }
}

/// A put under way.
struct Putting<'a> {
    producer: &'a Producer,
    nodes: &'a [NewNode],
    retries: RetryLoop,
    paths_made: PathsMade,
    proving: Proving,
    /// A request that creates the nodes is on its way.
    is_sent: bool,
}

impl Putting<'_> {
    async fn run(&mut self) -> Result<(), QueueError> {
        let Producer { client, path, kind, .. } = self.producer;
        loop {
            let tried = match self.retries.connected(path).await {
                Ok(session) => self.attempt(&session).await,
                Err(error) => return Err(self.first_error(error)),
            };
            let failed = match tried {
                Ok(Attempt::Done) => return Ok(()),
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
        let creates = self.creates(session)?;
        self.is_sent = true;
        let sent = match markers.are_possible(session) {
            true => self.proving.send(markers, session, creates).await.and_then(|tried| match tried {
                Tried::Applied => Ok(Attempt::Done),
                Tried::Again => Ok(Attempt::Again),
                Tried::Refused(_, Error::NoNode { .. }) => Ok(Attempt::NoPath),
                Tried::Refused(_, cause) => Err(cause),
            }),
            false => send_unproven(session, creates).await,
        };
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

/// Sends creates without a marker. After a lost reply they may be sent twice.
async fn send_unproven(session: &Session, creates: Vec<Operation>) -> Result<Attempt, Error> {
    let sent = match <[Operation; 1]>::try_from(creates) {
        Ok([Operation::Create { path, data, acl, mode }]) => session.create(&path, data, acl, mode).await.map(drop),
        Ok([other]) => session.transaction(vec![other]).await.map(drop),
        Err(several) => session.transaction(several).await.map(drop),
    };
    let sent = if let Err(Error::Transaction { cause, .. }) = sent { Err(*cause) } else { sent };
    match sent {
        Ok(()) => Ok(Attempt::Done),
        Err(Error::NoNode { .. }) => Ok(Attempt::NoPath),
        Err(error) => Err(error),
    }
}
