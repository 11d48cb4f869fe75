//! How the clients of a path agree on the protocol.

use std::fmt;

use curator_framework::{Error, NewNode, Permission, RetryLoop, Session, make_path};
use tokio::time::Instant;

use crate::error::{LockError, Result};
use crate::locks::engine::LockInternals;
use crate::locks::semaphore::{DIRECT_MARK, Inner, LEASE_NAME};

/// How the clients of a semaphore agree on who is next. All clients of a path must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SemaphoreProtocol {
    /// Curator's: a mutex is held while a lease is taken. For paths that Java processes use too. The default.
    #[default]
    Curator,
    /// Without the mutex, also where leases are scarce: a lease takes two requests, and a hand-off one round trip less. For
    /// paths that only this crate uses.
    ///
    /// The first client creates the path with a mark. On a path that exists without the mark, an acquire fails with
    /// [`LockError::ProtocolMismatch`]. On a path with the mark, an acquire by Curator's protocol fails so too. To change
    /// over, delete the path.
    ///
    /// Java's clients do not check the mark. At a limit of one, a waiting Java client and a direct client behind it would
    /// block each other for ever. The limit cannot follow a [`SharedCount`](crate::SharedCount).
    Direct,
}

impl fmt::Display for SemaphoreProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curator => "curator",
            Self::Direct => "direct",
        })
    }
}

/// What stands in a node of the semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Missing,
    Direct,
    /// None: the node is of Curator's protocol.
    None,
}

impl Inner {
    /// Sees that the path is used with our protocol, from time to time. `Ok(false)` if a client of the other protocol may still
    /// create it.
    pub(super) async fn agree(&self, session: &Session, retries: &mut RetryLoop) -> Result<bool> {
        let agreed = *self.agreed.lock();
        let fresh = |(number, at): (u64, Instant)| number == session.number() && at.elapsed() < session.timeout() / 10;
        if agreed.is_some_and(fresh) {
            return Ok(true);
        }
        let is_certain = match self.protocol {
            SemaphoreProtocol::Direct => {
                self.check_writable(session)?;
                self.mark(session, retries).await?;
                true
            }
            SemaphoreProtocol::Curator => self.look_at_mark(session).await?,
        };
        *self.agreed.lock() = is_certain.then(|| (session.number(), Instant::now()));
        Ok(is_certain)
    }

    fn check_writable(&self, session: &Session) -> Result<()> {
        let acl = session.acl_for(&make_path(self.leases.base_path(), LEASE_NAME));
        if acl.iter().any(|entry| entry.permissions.contains(Permission::WRITE)) {
            return Ok(());
        }
        let reason =
            "leases of the direct protocol must be writable: a client that is granted one signals to its successor";
        Err(LockError::invalid("access control list", reason))
    }

    /// Whether the path is certainly of Curator's protocol, which it is not before it is there.
    async fn look_at_mark(&self, session: &Session) -> Result<bool> {
        match self.mark_of(session, &self.leases).await? {
            Mark::Direct => Err(self.is_used_with(SemaphoreProtocol::Direct)),
            mark => Ok(mark == Mark::None),
        }
    }

    async fn mark_of(&self, session: &Session, part: &LockInternals) -> Result<Mark> {
        match session.get_data(part.base_path()).await {
            Ok((data, _)) if data == DIRECT_MARK => Ok(Mark::Direct),
            Ok(_) => Ok(Mark::None),
            Err(Error::NoNode { .. }) => Ok(Mark::Missing),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds the mark, or creates the path with it. Creates the queue's node first, as Curator's clients do: if that node
    /// exists without the mark, such a client may be about to create leases. An existing node is never taken over.
    async fn mark(&self, session: &Session, retries: &mut RetryLoop) -> Result<()> {
        match self.mark_of(session, &self.leases).await? {
            Mark::Direct => return Ok(()),
            Mark::None => return Err(self.is_used_with(SemaphoreProtocol::Curator)),
            Mark::Missing => {}
        }
        self.create_marked(session, &self.lock, retries).await?;
        let marked = self.create_marked(session, &self.leases, retries).await;
        // Only `acquire_many` uses the queue's node, and creates it. Left empty and unused, the node would stay for ever.
        match session.delete(self.lock.base_path(), None).await {
            Ok(()) | Err(Error::NoNode { .. } | Error::NotEmpty { .. }) => marked,
            Err(error) => marked.and(Err(error.into())),
        }
    }

    async fn create_marked(&self, session: &Session, part: &LockInternals, retries: &mut RetryLoop) -> Result<()> {
        let child = NewNode::new(&[]).with_parents(part.client().lock_parents()).with_parent_data(DIRECT_MARK);
        loop {
            match session.create_parents(&make_path(part.base_path(), LEASE_NAME), &child).await {
                Ok(_) => {}
                // Created and deleted at the same time.
                Err(error @ Error::NoNode { .. }) => retries.pause_after(error).await?,
                Err(error) => return Err(error.into()),
            }
            match self.mark_of(session, part).await? {
                Mark::Direct => return Ok(()),
                Mark::None => return Err(self.is_used_with(SemaphoreProtocol::Curator)),
                // Another direct client has deleted the queue's node behind the mark.
                Mark::Missing if self.mark_of(session, &self.leases).await? == Mark::Direct => return Ok(()),
                Mark::Missing => {}
            }
        }
    }

    fn is_used_with(&self, found: SemaphoreProtocol) -> LockError {
        LockError::ProtocolMismatch { path: self.path.clone(), found }
    }
}
