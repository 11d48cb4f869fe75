//! The mark in the path, by which its clients agree on the protocol.

use curator_framework::recipe::{NodeSpec, RecipeClient as _};
use curator_framework::{Acl, Error, Permission, RetryLoop, Session, Watch, make_path};

use crate::engine::LockInternals;
use crate::engine::error::LockError;
use crate::engine::lease_driver::LEASE_NAME;
use crate::engine::semaphore_protocol::SemaphoreProtocol;
use crate::locks::semaphore::state::{DIRECT_MARK, Inner};

/// The mark in a node of the semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Missing,
    Direct,
    /// The node has no mark, so it is of Curator's protocol.
    None,
}

impl Mark {
    fn of(data: &[u8]) -> Self {
        if data == DIRECT_MARK { Self::Direct } else { Self::None }
    }
}

impl Inner {
    /// Fails if the path is used with the other protocol. Does not record a path that does not exist as agreed, because
    /// a client of the other protocol may still create it.
    pub(super) async fn check_protocol(&self, session: &Session, retries: &mut RetryLoop) -> Result<(), LockError> {
        if self.is_protocol_known() {
            return Ok(());
        }
        let (mut mark, mut watch) = self.watched_mark(session).await?;
        if self.protocol == SemaphoreProtocol::Direct {
            self.check_writable(session)?;
            while mark == Mark::Missing {
                self.create_with_mark(session, retries).await?;
                (mark, watch) = self.watched_mark(session).await?;
            }
        }
        match (self.protocol, mark) {
            (SemaphoreProtocol::Curator, Mark::Direct) => return Err(self.is_used_with(SemaphoreProtocol::Direct)),
            (SemaphoreProtocol::Direct, Mark::None) => return Err(self.is_used_with(SemaphoreProtocol::Curator)),
            _ => {}
        }
        *self.protocol_watch.lock() = watch;
        Ok(())
    }

    /// Returns whether the path is known to be used with this protocol. The notification of a deleted path precedes
    /// every reply that reflects the deletion.
    pub(super) fn is_protocol_known(&self) -> bool {
        self.protocol_watch.lock().as_ref().is_some_and(|watch| !watch.has_fired())
    }

    async fn watched_mark(&self, session: &Session) -> Result<(Mark, Option<Watch>), LockError> {
        match session.get_data_watched(self.leases.base_path()).await {
            Ok(read) => Ok((Mark::of(&read.data), Some(read.watch))),
            Err(Error::NoNode { .. }) => Ok((Mark::Missing, None)),
            Err(error) => Err(error.into()),
        }
    }

    fn check_writable(&self, session: &Session) -> Result<(), LockError> {
        match self.writers(session).is_empty() {
            true => Err(Self::is_not_writable()),
            false => Ok(()),
        }
    }

    /// Returns the entries of a lease's access control list that allow a write.
    fn writers(&self, session: &Session) -> Vec<Acl> {
        let acl = self.leases.acl(session, LEASE_NAME);
        acl.into_iter().filter(|entry| entry.permissions.contains(Permission::WRITE)).collect()
    }

    /// Returns whether the client may certainly write its leases: every client may, or the creator.
    pub(super) fn is_open(&self, session: &Session) -> bool {
        self.writers(session).iter().any(|entry| ["world", "auth"].contains(&&*entry.scheme))
    }

    pub(super) fn is_not_writable() -> LockError {
        let reason = "leases of the direct protocol must be writable: a client that is granted one signals to a waiter";
        LockError::invalid("access control list", reason)
    }

    async fn mark_of(&self, session: &Session, part: &LockInternals) -> Result<Mark, LockError> {
        match session.get_data(part.base_path()).await {
            Ok((data, _)) => Ok(Mark::of(&data)),
            Err(Error::NoNode { .. }) => Ok(Mark::Missing),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the path with the mark. Creates the queue's node first, as Curator's clients do: if that node
    /// exists without the mark, such a client may be about to create leases. An existing node is never taken over.
    async fn create_with_mark(&self, session: &Session, retries: &mut RetryLoop) -> Result<(), LockError> {
        self.create_marked(session, &self.lock, retries).await?;
        let marked = self.create_marked(session, &self.leases, retries).await;
        // Only `acquire_many` uses the queue's node, and creates it. An unused empty node would never be deleted.
        match session.delete(self.lock.base_path(), None).await {
            Ok(()) | Err(Error::NoNode { .. } | Error::NotEmpty { .. }) => marked,
            Err(error) => marked.and(Err(error.into())),
        }
    }

    async fn create_marked(
        &self,
        session: &Session,
        part: &LockInternals,
        retries: &mut RetryLoop,
    ) -> Result<(), LockError> {
        let child = NodeSpec::new(&[]).with_parents(part.client().lock_parents()).with_parent_data(DIRECT_MARK);
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
                // Another direct client has deleted the queue's node after marking the path.
                Mark::Missing if self.mark_of(session, &self.leases).await? == Mark::Direct => return Ok(()),
                Mark::Missing => {}
            }
        }
    }

    fn is_used_with(&self, found: SemaphoreProtocol) -> LockError {
        LockError::ProtocolMismatch { path: self.lock.client().path_text(&self.path), found }
    }
}
