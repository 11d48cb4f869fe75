//! Requests about the nodes of a lock, with what their errors mean there.

use curator_framework::recipe::LossSignal;
use curator_framework::{CuratorFramework, Error, LossReason, Session};

/// Returns the children of a lock. Its node cannot be deleted before its children: if it is missing, this contender's
/// node is deleted too.
pub(crate) async fn children_of(at: &Session, base_path: &str) -> Result<Vec<String>, Error> {
    match at.get_children(base_path).await {
        Err(Error::NoNode { .. }) => Ok(Vec::new()),
        children => children,
    }
}

/// Asks the leader of the ensemble whether an owned node is there, with retries in its session. Returns the reason of a
/// loss.
pub(crate) async fn verify_in_session(
    client: &CuratorFramework,
    session: &Session,
    signal: &LossSignal,
    path: &str,
) -> Result<Option<LossReason>, Error> {
    let mut retries = client.retry_loop();
    loop {
        let error = match signal.verify().await {
            Ok(loss) => return Ok(loss),
            Err(error) => error.about(path),
        };
        if let Err(error) = retries.failed_in(session, error).await {
            // The session may have ended in the meantime.
            return signal.loss().map(Some).ok_or_else(|| error.about(path));
        }
    }
}
