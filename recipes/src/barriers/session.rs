//! The session of a call.

use curator_framework::{CuratorFramework, Error, RetryLoop, Session};

/// Returns the client's session. Waits out a lost connection as the retry policy allows.
pub(super) async fn connected(retries: &mut RetryLoop, path: &str) -> Result<Session, Error> {
    loop {
        match retries.session().await {
            Ok(session) => return Ok(session),
            Err(error) => retries.failed(error.about(path)).await?,
        }
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
    let session = connected(&mut client.retry_loop(), path).await?;
    match session.transaction(Vec::new()).await {
        Err(Error::Unsupported { client, needed, .. }) => {
            let request = format!("send the transactions of the {recipe} {path}").into();
            Err(Error::Unsupported { request, client, needed })
        }
        checked => checked.map(drop),
    }
}
