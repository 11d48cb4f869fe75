//! The checks of paths, of clients, and of replies.

use curator_framework::{CuratorFramework, Error, LossReason, validate_path};

use crate::barriers::error::BarrierError;
use crate::node_hold::NodeHold;

/// Checks the path of a barrier or a latch.
pub(super) fn check_path(path: &str) -> Result<(), BarrierError> {
    validate_path(path)?;
    match path {
        "/" => Err(BarrierError::InvalidArgument { argument: "path", reason: "it cannot be the root".to_owned() }),
        _ => Ok(()),
    }
}

/// Checks that the client has transactions, before the first write of a recipe that rests on them. Sends no request.
///
/// # Errors
///
/// * `Error::Unsupported`: the client has no transactions.
/// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up.
/// * `Error::NotStarted`, `Error::Closed`: the client does not run.
pub(super) async fn check_transactions(client: &CuratorFramework, recipe: &str, path: &str) -> Result<(), Error> {
    let session = client.retry_loop().connected(path).await?;
    match session.transaction(Vec::new()).await {
        Err(Error::Unsupported { client, needed, .. }) => {
            let request = format!("send the transactions of the {recipe} {path}").into();
            Err(Error::Unsupported { request, client, needed })
        }
        checked => checked.map(drop),
    }
}

/// Asks the leader whether an owner's node is held.
pub(super) async fn verify(hold: &NodeHold) -> Result<(), BarrierError> {
    if hold.is_given_up() {
        let reason = "it has given its node up".to_owned();
        return Err(BarrierError::InvalidArgument { argument: "owner", reason });
    }
    match hold.verify().await? {
        None => Ok(()),
        Some(reason) => Err(lost(hold, reason)),
    }
}

/// Returns the error of a lost node.
pub(super) fn lost(hold: &NodeHold, reason: LossReason) -> BarrierError {
    BarrierError::Lost { path: hold.path_text(), reason }
}

/// Returns `None` for a node that does not exist.
pub(super) fn found<T>(reply: Result<T, Error>) -> Result<Option<T>, Error> {
    match reply {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
