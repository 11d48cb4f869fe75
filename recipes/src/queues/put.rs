//! Puts: one transaction, which counts once even if its reply is lost.

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::spi::Operation;
use curator_framework::{
    CreateMode, CuratorFramework, Error, RetryLoop, Session, make_path, node_from_path, parent_of,
};
use parking_lot::Mutex;

use crate::marker::{self, Marker};
use crate::queues::error::QueueError;
use crate::queues::paths::PathsMade;

/// The most markers that stay for further puts.
const MOST_UNUSED: usize = 16;

/// A node that is to be created, with a number that the server appends.
#[derive(Debug, Clone)]
pub(super) struct NewNode {
    /// The name without the number.
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// A marker, and the number of the newest try that it has recorded.
#[derive(Debug)]
pub(super) struct Proof {
    marker: Marker,
    attempt: u64,
}

/// A try with an unknown outcome.
struct Unsettled {
    proof: Proof,
    /// The try was to create the marker, so a missing marker proves that it was not applied.
    creates_marker: bool,
    error: Error,
}

/// The outcome of a try.
enum Tried {
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
    /// The markers that no put uses now.
    proofs: Mutex<Vec<Proof>>,
}

impl Producer {
    pub(super) fn new(client: CuratorFramework, path: String, kind: QueuePath) -> Self {
        Self { client, path, kind, proofs: Mutex::default() }
    }

    /// Keeps a marker for the next put. The drop of one too many deletes its node.
    fn keep(&self, proof: Proof) {
        let mut proofs = self.proofs.lock();
        if proofs.len() < MOST_UNUSED {
            proofs.push(proof);
        }
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
            has_marker: true,
            unsettled: None,
            is_sent: false,
        };
        match budget.limit(putting.run()).await {
            Some(done) => done.map(Some),
            None => match putting.unsettled.take() {
                Some(earlier) => Err(earlier.error.into()),
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
    /// `false` once the server has refused a marker.
    has_marker: bool,
    unsettled: Option<Unsettled>,
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
                Ok(Tried::Done) => return Ok(()),
                Ok(Tried::Again) => Ok(()),
                Ok(Tried::NoPath) => self.paths_made.create(client, &mut self.retries, path, *kind).await,
                Ok(Tried::Unknown) => return Err(self.first_error(Error::Closed)),
                Err(error) => self.retries.failed(error).await,
            };
            if let Err(error) = failed {
                return Err(self.first_error(error));
            }
        }
    }

    /// Returns the error of a try that may have been applied, otherwise this one.
    fn first_error(&mut self, error: Error) -> QueueError {
        self.unsettled.take().map_or(error, |earlier| earlier.error).into()
    }

    /// Settles an earlier try, and sends the nodes if that was not applied.
    async fn attempt(&mut self, session: &Session) -> Result<Tried, Error> {
        if let Some(earlier) = &mut self.unsettled {
            if !earlier.proof.marker.is_of(session) {
                return Ok(Tried::Unknown);
            }
            let proof = earlier.proof.marker.proof(earlier.proof.attempt).await?;
            if proof == marker::Proof::None && !earlier.creates_marker {
                return Ok(Tried::Unknown);
            }
            if let Some(earlier) = self.unsettled.take() {
                self.producer.keep(earlier.proof);
            }
            if proof == marker::Proof::Applied {
                return Ok(Tried::Done);
            }
        }
        let creates = self.creates(session)?;
        self.is_sent = true;
        let sent = match session.has_transactions() && self.has_marker {
            true => self.send(session, creates).await,
            false => send_unproven(session, creates).await,
        };
        // Without a marker nothing settles a lost reply.
        self.is_sent = self.unsettled.is_none() && sent.as_ref().is_err_and(Error::outcome_unknown);
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

    /// Sends the creates and the marker's operation in one transaction.
    async fn send(&mut self, session: &Session, creates: Vec<Operation>) -> Result<Tried, Error> {
        let mut proof = self.proof(session);
        let creates_marker = !proof.marker.stands();
        proof.attempt += 1;
        let record = match creates_marker {
            true => proof.marker.create(proof.attempt),
            false => proof.marker.record(proof.attempt),
        };
        if let Operation::Create { path, data, acl, mode } = &record {
            if self.producer.client.check_create(path, *mode, data, acl).is_err() {
                return Ok(self.without_marker(proof));
            }
        }
        let (index_of_marker, mut operations) = (creates.len(), creates);
        operations.push(record);
        let Err(error) = session.transaction(operations).await else {
            proof.marker.applied();
            self.producer.keep(proof);
            return Ok(Tried::Done);
        };
        match error {
            Error::Transaction { index, cause, .. } if index >= index_of_marker => Ok(match *cause {
                // It was deleted by hand. The next try creates another one.
                Error::NoNode { .. } if !creates_marker => Tried::Again,
                _ => self.without_marker(proof),
            }),
            Error::Transaction { cause, .. } => {
                proof.marker.refused();
                self.producer.keep(proof);
                if let Error::NoNode { .. } = *cause { Ok(Tried::NoPath) } else { Err(*cause) }
            }
            error if error.outcome_unknown() => {
                self.unsettled = Some(Unsettled { proof, creates_marker, error: error.clone() });
                Err(error)
            }
            error => {
                proof.marker.refused();
                self.producer.keep(proof);
                Err(error)
            }
        }
    }

    /// Continues without a marker: the server allows none beside the queue's path.
    fn without_marker(&mut self, mut proof: Proof) -> Tried {
        proof.marker.refused();
        self.has_marker = false;
        Tried::Again
    }

    /// Returns a marker of this session that no other put uses.
    fn proof(&self, session: &Session) -> Proof {
        let unused = {
            let mut proofs = self.producer.proofs.lock();
            let (of_session, of_others) =
                std::mem::take(&mut *proofs).into_iter().partition(|proof: &Proof| proof.marker.is_of(session));
            *proofs = of_session;
            (proofs.pop(), of_others)
        };
        let (unused, of_others): (_, Vec<_>) = unused;
        // Outside of the lock: a drop leaves the node to the session.
        drop(of_others);
        unused.unwrap_or_else(|| {
            let (parent, name) = (parent_of(&self.producer.path), node_from_path(&self.producer.path));
            Proof { marker: Marker::new(session, parent, &format!("{name}-put")), attempt: 0 }
        })
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
async fn send_unproven(session: &Session, creates: Vec<Operation>) -> Result<Tried, Error> {
    let sent = match <[Operation; 1]>::try_from(creates) {
        Ok([Operation::Create { path, data, acl, mode }]) => session.create(&path, data, acl, mode).await.map(drop),
        Ok([other]) => session.transaction(vec![other]).await.map(drop),
        Err(several) => session.transaction(several).await.map(drop),
    };
    let sent = if let Err(Error::Transaction { cause, .. }) = sent { Err(*cause) } else { sent };
    match sent {
        Ok(()) => Ok(Tried::Done),
        Err(Error::NoNode { .. }) => Ok(Tried::NoPath),
        Err(error) => Err(error),
    }
}
