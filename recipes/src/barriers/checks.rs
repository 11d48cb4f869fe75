//! The checks of paths, of clients, and of replies.

use curator_framework::{CuratorFramework, Error, validate_path};

use crate::barriers::error::BarrierError;

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

/// Returns `None` for a node that does not exist.
pub(super) fn found<T>(reply: Result<T, Error>) -> Result<Option<T>, Error> {
    match reply {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
