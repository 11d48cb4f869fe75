//! Requests about the nodes of a lock, with what their errors mean there.

use curator_framework::recipe::{LossSignal, OwnedNode};
use curator_framework::{CuratorFramework, Error, LossReason, Session, Stat, make_path};

/// Keeps the oldest node of an owner in its own session, and deletes the others, which lost replies have left. The owned
/// node stays uncertain if no node is found.
pub(crate) async fn adopt(owned: &mut OwnedNode, base_path: &str, children: &[String]) -> Result<(), Error> {
    let mut oldest: Option<(Stat, String)> = None;
    let mut own: Vec<String> = owned.own(children).into_iter().map(ToOwned::to_owned).collect();
    for name in &own {
        let path = make_path(base_path, name);
        let Some(stat) = owned.session().exists(&path).await? else { return Err(Error::NoNode { path: path.into() }) };
        if owned.is_own(&stat) && oldest.as_ref().is_none_or(|(other, _)| stat.czxid < other.czxid) {
            oldest = Some((stat, name.clone()));
        }
    }
    let Some((stat, oldest)) = oldest else { return Ok(()) };
    own.retain(|name| *name != oldest);
    let others: Vec<&str> = own.iter().map(String::as_str).collect();
    owned.adopt(&oldest, &stat, &others).await
}

/// Returns the children of a lock. Its node cannot be deleted before its children: without it the own node is gone too.
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
