//! The holders and the waiters of a lock.
//!
//! A name is not evidence of a contender. Views and the command line call `LockInternalsDriver::is_contender`, by the
//! owner in a stat that they read in any case. Grants go by names, as in Curator: a listing has no stats. So a
//! persistent node with such a name blocks, and its waiter names it in a warning.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use curator_framework::recipe::owning_session;
use curator_framework::{Error, SessionId, Stat, Zxid, make_path};

use crate::engine::LockInternals;
use crate::engine::candidacy::LATCH_NAME;
use crate::engine::driver::{LOCK_NAME, READ_NAME, SortedChildren, WRITE_NAME, standard_sequence};
use crate::engine::error::LockError;
use crate::engine::lease_driver::LEASE_NAME;

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

impl ParticipantKind {
    /// Returns the kind and the sequence number that the name of a node shows; `None` if it is not the name of a
    /// contender's node. A name is not evidence: see
    /// [`LockInternalsDriver::is_contender`](crate::LockInternalsDriver::is_contender). The queue of a semaphore and a
    /// leader selector have the names of a mutex.
    #[must_use]
    pub fn of_node(name: &str) -> Option<(Self, i64)> {
        let of = |kind, lock_name| Some((kind, standard_sequence(name, lock_name)?));
        of(Self::Lock, LOCK_NAME)
            .or_else(|| of(Self::Lease, LEASE_NAME))
            .or_else(|| of(Self::Candidate, LATCH_NAME))
            .or_else(|| of(Self::Read, READ_NAME))
            .or_else(|| of(Self::Write, WRITE_NAME))
    }

    /// Returns whether a contender of this kind waits for an earlier contender of the kind `earlier` in the same queue. A
    /// lease waits only if the semaphore has no more leases.
    #[must_use]
    pub const fn waits_for(self, earlier: Self) -> bool {
        match self {
            Self::Lock => matches!(earlier, Self::Lock),
            Self::Lease => matches!(earlier, Self::Lease),
            Self::Read => matches!(earlier, Self::Write),
            Self::Write => matches!(earlier, Self::Read | Self::Write),
            Self::Candidate => matches!(earlier, Self::Candidate),
        }
    }
}

/// One contender of a lock, as read from its node. A persistent node with a contender's name is not one: see
/// [`LockInternalsDriver::is_contender`](crate::LockInternalsDriver::is_contender).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The path of its node.
    pub path: String,
    /// The kind of lock that it wants or holds.
    pub kind: ParticipantKind,
    /// The number that the server gave the node.
    pub sequence: i64,
    /// Its position in its queue, from 0. Counts persistent nodes with a contender's name, as grants do. A semaphore has
    /// two queues: one of leases and, for clients that wait for several, one of [`Lock`](ParticipantKind::Lock)s.
    pub position: usize,
    /// `true` for a holder, `false` for a waiter.
    #[doc(alias = "isLeader")]
    pub holds: bool,
    /// The node's data.
    pub data: Vec<u8>,
    /// The path of a persistent node with a contender's name, which blocks this waiter until it is deleted.
    /// `None` for a holder. Nodes of the other half block the participants of one half of a read-write lock too. Only
    /// the participants of both halves show these nodes.
    pub blocked_by: Option<String>,
    /// The session that owns the node; `None` if the node is not ephemeral.
    pub session: Option<SessionId>,
    /// The transaction that created the node. The holder's fencing token has it too, but for a downgraded read lock and
    /// for a leader after a hand-over: see their `token`.
    pub czxid: Zxid,
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

impl LockInternals {
    /// Reads the nodes of some kinds, one after the other. Leaves out nodes that are deleted in the meantime, and persistent
    /// nodes with a contender's name.
    pub(crate) async fn participants(
        &self,
        kind: impl Fn(&str) -> Option<ParticipantKind>,
        holds: impl Fn(&SortedChildren, &str) -> bool,
    ) -> Result<Vec<Participant>, LockError> {
        let listed = self.sorted().await?;
        let (mut read, mut others, mut deleted) = (HashMap::new(), Vec::new(), HashSet::new());
        for name in listed.names().filter(|name| kind(name).is_some()) {
            match self.read(&make_path(self.base_path(), name)).await? {
                Some((_, stat)) if !self.is_contender(stat.ephemeral_owner) => others.push(name),
                Some(node) => drop(read.insert(name, node)),
                None => drop(deleted.insert(name)),
            }
        }
        // Grants wait for all nodes with a contender's name, so the order has them all.
        let sorted = listed.only(|name| !deleted.contains(name));
        let mut participants = Vec::with_capacity(read.len());
        for (position, name) in sorted.names().enumerate() {
            // The server's number: near the end of the counter, `numbered` returns the creation instead.
            let (Some(sequence), Some(kind)) = (self.sequence(name), kind(name)) else { continue };
            let Some((data, stat)) = read.remove(name) else { continue };
            let holds_it = holds(&sorted, name);
            // A persistent lease takes one of several places.
            let blocks = |other: &&&str| {
                let pair = || sorted.only(|one| one == name || one == **other);
                kind == ParticipantKind::Lease || !holds(&pair(), name)
            };
            let mut ahead = others.iter().filter(|other| sorted.position(other).is_some_and(|at| at < position));
            let blocked_by = if holds_it { None } else { ahead.find(blocks) };
            let since_1970 = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
            participants.push(Participant {
                path: make_path(self.base_path(), name),
                kind,
                sequence,
                position,
                holds: holds_it,
                data,
                blocked_by: blocked_by.map(|other| make_path(self.base_path(), other)),
                session: owning_session(stat.ephemeral_owner),
                czxid: Zxid::new(stat.czxid),
                created: SystemTime::UNIX_EPOCH + since_1970,
            });
        }
        Ok(participants)
    }

    /// Reads a contender's node; `None` if it is deleted.
    async fn read(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>, LockError> {
        let read = match self.client().get_data().for_path(path).await {
            // Clients may differ in compression: the stored bytes are better than an error.
            Err(Error::Compression { .. }) => self.client().get_data().undecompressed().for_path(path).await,
            read => read,
        };
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Error::NoNode { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the paths of the nodes with contenders' names, in order.
    pub(crate) async fn participant_nodes(&self) -> Result<Vec<String>, LockError> {
        Ok(self.sorted().await?.names().map(|name| make_path(self.base_path(), name)).collect())
    }

    /// Lists the contenders, in order.
    async fn sorted(&self) -> Result<SortedChildren, LockError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::driver::{LockInternalsDriver, Predicate, StandardLockInternalsDriver};
    use crate::engine::read_write_driver::{ReadDriver, WriteDriver};

    #[test]
    fn names_show_kinds_and_numbers() {
        let id = "_c_01234567-89ab-cdef-0123-456789abcdef-";
        for (name, expected) in [
            ("lock-0000000007", Some((ParticipantKind::Lock, 7))),
            (&format!("{id}lease-2147483647"), Some((ParticipantKind::Lease, 2_147_483_647))),
            ("latch--2147483648", Some((ParticipantKind::Candidate, -2_147_483_648))),
            (&format!("{id}__READ__0000000003"), Some((ParticipantKind::Read, 3))),
            ("__WRIT__-000000003", Some((ParticipantKind::Write, -3))),
            ("report-lock-2024", Some((ParticipantKind::Lock, 2024))),
            ("lock-000000000x", None),
            ("leases", None),
            ("", None),
        ] {
            assert_eq!(ParticipantKind::of_node(name), expected, "{name}");
        }
    }

    #[test]
    fn kinds_wait_for_those_that_their_drivers_wait_for() {
        let nodes =
            |number: i64| ["lock-", "lease-", "latch-", "__READ__", "__WRIT__"].map(|name| format!("{name}{number}"));
        for (earlier, later) in nodes(1).iter().flat_map(|one| nodes(2).map(|other| (one.clone(), other))) {
            let [(other, _), (kind, _)] = [&earlier, &later].map(|node| ParticipantKind::of_node(node).unwrap());
            let (driver, lock_name): (&dyn LockInternalsDriver, _) = match kind {
                ParticipantKind::Read => (&ReadDriver, READ_NAME),
                ParticipantKind::Write => (&WriteDriver, WRITE_NAME),
                _ => (&StandardLockInternalsDriver, later.trim_end_matches('2')),
            };
            let queue = SortedChildren::new([earlier.clone(), later.clone()], lock_name, driver);
            let waits = driver.gets_the_lock(&queue, &later, 1) != Predicate::Acquired;
            assert_eq!(kind.waits_for(other), waits, "{earlier} {later}");
        }
    }
}
