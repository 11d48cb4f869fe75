//! The own node in the queue: how it comes to be, also when replies are lost.

use std::future::Future;
use std::pin::Pin;

use curator_framework::{CreateMode, Created, Error, NewNode, NodeClaim, RetryLoop, Session, Stat, make_path};

use crate::locks::engine::LockInternals;

impl LockInternals {
    /// Creates the node of a claim, again and again if need be: under the same prefix, so that all of them are found.
    /// `None` if the node of a create whose reply was lost turns out to be there.
    pub(crate) async fn create(
        &self,
        claim: &mut NodeClaim,
        retries: &mut RetryLoop,
    ) -> Result<Option<Created>, Error> {
        let stored = self.stored_data()?;
        let node =
            NewNode::new(&stored).with_parents(self.client.lock_parents()).with_parent_data(self.shape.parent_data);
        let session = claim.session().clone();
        loop {
            match claim.create(&node).await {
                Ok(created) => return Ok(Some(created)),
                // At the end of the counter the server gives the same number again.
                Err(Error::NodeExists { .. }) if claim.is_uncertain() => return Ok(None),
                // Another client, which clears away empty nodes, has deleted the parents that were just created.
                Err(error @ Error::NoNode { .. }) => Box::pin(retries.pause_after(error)).await?,
                Err(error) => survive(error, &session, retries).await?,
            }
        }
    }

    /// Creates a node of this name, without a number from the server, in a session.
    pub(crate) async fn create_named(
        &self,
        session: &Session,
        name: &str,
        retries: &mut RetryLoop,
    ) -> Result<NodeClaim, Error> {
        let stored = self.stored_data()?;
        let mut claim = session.claim(&self.base_path, name, CreateMode::Ephemeral);
        loop {
            match claim.create(&NewNode::new(&stored)).await {
                Ok(_) => return Ok(claim),
                // No other client makes this name, so it is the node whose reply was lost.
                Err(Error::NodeExists { .. }) if claim.is_uncertain() => {
                    let own = format!("{}{name}", claim.protected_id().prefix());
                    let path = make_path(&self.base_path, &own);
                    let Some(stat) = session.exists(&path).await? else { return Err(Error::NoNode { path }) };
                    claim.settle(&own, &stat, &[]).await?;
                    return Ok(claim);
                }
                Err(error) => survive(error, session, retries).await?,
            }
        }
    }
}

/// After lost replies there may be several nodes of a claim: keeps the oldest of the claim's own session, and deletes the
/// others. The claim stays uncertain if there is none.
pub(crate) async fn settle(claim: &mut NodeClaim, base_path: &str, children: &[String]) -> Result<(), Error> {
    let mut oldest: Option<(Stat, String)> = None;
    let mut own: Vec<String> = claim.own(children).into_iter().map(ToOwned::to_owned).collect();
    for name in &own {
        let path = make_path(base_path, name);
        let Some(stat) = claim.session().exists(&path).await? else { return Err(Error::NoNode { path }) };
        if claim.is_own(&stat) && oldest.as_ref().is_none_or(|(other, _)| stat.czxid < other.czxid) {
            oldest = Some((stat, name.clone()));
        }
    }
    let Some((stat, oldest)) = oldest else { return Ok(()) };
    own.retain(|name| *name != oldest);
    let others: Vec<&str> = own.iter().map(String::as_str).collect();
    claim.settle(&oldest, &stat, &others).await
}

/// Waits out a lost connection in the same session, as the retry policy allows. Gives every other error back.
///
/// On the heap, as this is rare: a future that waits is as large as the largest of what it may do.
pub(crate) fn survive<'a>(
    error: Error,
    session: &'a Session,
    retries: &'a mut RetryLoop,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
    Box::pin(async move {
        if !matches!(error, Error::ConnectionLoss { .. }) {
            return Err(error);
        }
        retries.failed(error).await?;
        retries.reconnected(session).await
    })
}
