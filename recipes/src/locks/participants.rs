//! The holders and the waiters of a lock.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use curator_framework::{Error, make_path};

use crate::locks::engine::LockInternals;
use crate::locks::engine::driver::SortedChildren;
use crate::locks::error::Result;

/// The kind of lock that a contender wants or holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParticipantKind {
    /// A mutex.
    Lock,
    /// A lease of a semaphore.
    Lease,
    /// The read half of a read-write lock.
    Read,
    /// Its write half.
    Write,
    /// The leadership of an election.
    Candidate,
}

/// One contender of a lock, as read from its node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The path of its node.
    pub path: String,
    /// The kind of lock that it wants or holds.
    pub kind: ParticipantKind,
    /// The number that the server gave the node.
    pub sequence: i64,
    /// Its position in the order, from 0.
    pub position: usize,
    /// `true` for a holder, `false` for a waiter.
    pub holds: bool,
    /// The node's data.
    pub data: Vec<u8>,
    /// The ZooKeeper session that owns the node; 0 if the node is persistent.
    pub session: i64,
    /// The transaction that created the node: the holder's fencing token.
    pub czxid: i64,
    /// The time when the node was created, on the server's clock.
    pub created: SystemTime,
}

impl Participant {
    /// Returns the data as text, with U+FFFD in place of bytes that are not UTF-8: the id of a candidate.
    #[must_use]
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.data)
    }

    /// Returns the node's age, which is right if this host's clock and the server's agree.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.created.elapsed().unwrap_or_default()
    }
}

/// The kind and the state of one contender in a listing.
pub(crate) struct Standing {
    pub(crate) kind: ParticipantKind,
    pub(crate) holds: bool,
}

impl LockInternals {
    /// Reads the contenders' nodes, one after the other. Leaves out nodes that are deleted meanwhile.
    pub(crate) async fn participants(
        &self,
        standing: impl Fn(&SortedChildren, &str) -> Option<Standing>,
    ) -> Result<Vec<Participant>> {
        let sorted = self.sorted().await?;
        let mut participants = Vec::with_capacity(sorted.len());
        for (position, name) in sorted.names().enumerate() {
            // The server's number: near the end of the counter, `numbered` returns the creation instead.
            let Some(sequence) = self.sequence(name) else { continue };
            let Some(Standing { kind, holds }) = standing(&sorted, name) else { continue };
            let path = make_path(self.base_path(), name);
            let (data, stat) = match self.client().get_data().for_path(&path).await {
                Ok(read) => read,
                Err(Error::NoNode { .. }) => continue,
                // Clients may differ in compression: the stored bytes are better than an error.
                Err(Error::Compression { .. }) => {
                    match self.client().get_data().undecompressed().for_path(&path).await {
                        Err(Error::NoNode { .. }) => continue,
                        read => read?,
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let since_1970 = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
            participants.push(Participant {
                kind,
                sequence,
                position,
                holds,
                data,
                session: stat.ephemeral_owner,
                czxid: stat.czxid,
                created: SystemTime::UNIX_EPOCH + since_1970,
                path,
            });
        }
        Ok(participants)
    }

    /// Returns the paths of the contenders' nodes, in order.
    pub(crate) async fn participant_nodes(&self) -> Result<Vec<String>> {
        Ok(self.sorted().await?.names().map(|name| make_path(self.base_path(), name)).collect())
    }

    /// Lists the contenders, in order.
    async fn sorted(&self) -> Result<SortedChildren> {
        match self.client().get_children().for_path(self.base_path()).await {
            Ok(children) => {
                let session = self.client().session().await?;
                Ok(self.in_order(&session, children).await?)
            }
            Err(Error::NoNode { .. }) => Ok(SortedChildren::default()),
            Err(error) => Err(error.into()),
        }
    }
}
