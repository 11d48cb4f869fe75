//! The count of the session's ephemeral nodes, and its comparison with the server.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::ephemeral_nodes::NodeChanges;
use crate::zookeeper::{ReplyFuture, Request};

/// The shortest time between two lists of the session's nodes. A list is as long as the limit, and a client that has
/// reached the limit may ask for a node again and again.
const RECOUNT_PAUSE: Duration = Duration::from_secs(1);

impl Session {
    /// Submits a request unless it has too many ephemeral nodes. Then returns the request.
    ///
    /// # Errors
    ///
    /// `Error::SessionExpired`, `Error::Closed`. The request was not sent.
    pub(super) fn submit_if_it_fits(
        &self,
        request: Request,
        changes: &mut NodeChanges,
    ) -> Result<std::result::Result<ReplyFuture, Box<Request>>> {
        if self.end_reason().is_some() {
            return Err(self.closed_error(request.to_string()));
        }
        Ok(match self.count(changes) {
            Ok(()) => Ok(self.inner.handle.submit(request, self.epoch())),
            Err(_too_many) => Err(Box::new(request)),
        })
    }

    /// Counts the ephemeral nodes of a request that is about to be sent.
    fn count(&self, changes: &mut NodeChanges) -> Result<()> {
        if changes.is_empty() { Ok(()) } else { self.inner.ephemeral_nodes.lock().ask(changes) }
    }

    /// Submits a request with too many ephemeral nodes if they fit after a new count. Boxed: a rare branch must not
    /// enlarge every waiter's future, and the count sends requests of its own.
    ///
    /// # Errors
    ///
    /// `Error::TooManyEphemeralNodes`; `Error::ConnectionLoss`, always from a pinned session, which keeps the order of its
    /// requests; `Error::SessionExpired`, `Error::Closed`. The request was not sent.
    pub(super) fn submit_after_recount<'a>(
        &'a self,
        request: Box<Request>,
        changes: &'a mut NodeChanges,
    ) -> Pin<Box<dyn Future<Output = Result<ReplyFuture>> + Send + 'a>> {
        Box::pin(async move {
            let not_sent = |cause| Error::ConnectionLoss { request: request.to_string().into(), sent: false, cause };
            match self.recount().await {
                Err(Error::ConnectionLoss { cause, .. }) => return Err(not_sent(cause)),
                _ if self.end_reason().is_some() => return Err(self.closed_error(request.to_string())),
                // Later requests on this connection may have passed this one.
                _ if self.pinned.is_some() => {
                    self.inner.ephemeral_nodes.lock().check(changes)?;
                    return Err(not_sent(None));
                }
                // Without a list the count stays.
                _ => self.count(changes)?,
            }
            Ok(self.inner.handle.submit(*request, self.epoch()))
        })
    }

    /// Records the owner of the node at a path, as of a transaction. Another session may have created the node again.
    pub(super) fn has_owner(&self, path: &str, zxid: i64, owner: i64) {
        let is_counted = self.inner.ephemeral_nodes.lock().has(path);
        if is_counted && self.id().is_some_and(|own| own.get() != owner) {
            self.inner.ephemeral_nodes.lock().is_gone(path, zxid);
        }
    }

    /// Counts the session's ephemeral nodes again, from the server's list. Other clients may have deleted some, and the
    /// replies to some creates may be lost, or were not awaited.
    async fn recount(&self) -> Result<()> {
        let is_before_3_6 = &self.inner.is_before_3_6;
        if !self.inner.handle.capabilities().ephemerals {
            return Ok(());
        }
        // Requests that are refused at once wait for one list, but not for long: the future that lists may not be polled.
        let mut last = tokio::time::timeout(self.timeout() / 10, self.inner.recounted.lock()).await.ok();
        let counted = last.as_deref().copied().flatten();
        let is_too_soon = counted.is_some_and(|counted| self.inner.clock.now() < counted + RECOUNT_PAUSE);
        if is_too_soon || is_before_3_6.load(Ordering::Acquire) {
            return Ok(());
        }
        let at = self.unpinned().pinned();
        self.inner.ephemeral_nodes.lock().recount_begins();
        // After its reply, the creates of earlier connections are applied, or never will be.
        at.write_barrier().await?;
        let listed = at.request(Request::GetEphemerals { path: "/".into() }).await;
        match &listed {
            Err(Error::ConnectionLoss { .. }) => {}
            // Such a server closes the connection, so it is asked once.
            Err(Error::Unsupported { .. }) => is_before_3_6.store(true, Ordering::Release),
            _ => last.iter_mut().for_each(|last| **last = Some(self.inner.clock.now())),
        }
        listed.map(drop)
    }
}
