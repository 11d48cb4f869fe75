//! Creates an ephemeral node at an exact path, with an owner.

use curator_framework::recipe::{
    NodeSpec, Occupant, OwnedNode, Parents, ProtectedId, RecipeClient as _, owning_session,
};
use curator_framework::{CuratorFramework, Error};

use crate::barriers::error::BarrierError;

/// Creates an ephemeral node at exactly this path, over lost replies and sessions. The node has an id as data: the
/// given one, or a new one.
///
/// # Errors
///
/// * `BarrierError::AlreadySet`: another owner has a node at the path.
/// * The errors of the framework.
///
/// # Cancel safety
///
/// When the future is dropped, the node is deleted in the background if it was created.
pub(super) async fn create_exact_node(
    client: &CuratorFramework,
    path: &str,
    mut id: Option<ProtectedId>,
) -> Result<OwnedNode, BarrierError> {
    let (mut retries, mut earlier) = (client.retry_loop(), None::<OwnedNode>);
    loop {
        let session = retries.connected(path).await?;
        // All attempts have one id, by which a later one finds the node of an earlier one.
        let earlier_one = earlier.take().filter(|node| node.session().is_same(&session));
        let mut node = earlier_one.unwrap_or_else(|| session.owned_node_at(path, id));
        id = Some(node.protected_id());
        let attempt = attempt(client, path, &mut node).await;
        match retries.done(attempt, path).await? {
            Some(true) => return Ok(node),
            // The node of another session is gone, or soon will be: the next create decides.
            Some(false) => {}
            // The node may exist.
            None => earlier = Some(node),
        }
    }
}

/// Creates the node, or finds it. Returns `false` if the next create has to decide.
async fn attempt(client: &CuratorFramework, path: &str, node: &mut OwnedNode) -> Result<bool, BarrierError> {
    let data = node.protected_id().to_string();
    let spec = NodeSpec::new(data.as_bytes()).with_parents(Parents::Containers);
    match node.create(&spec).await {
        Ok(_) => return Ok(true),
        Err(Error::NodeExists { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    match node.occupant().await? {
        Occupant::Own => Ok(true),
        Occupant::OfEarlierSession(version) => match node.session().delete(path, Some(version)).await {
            Ok(()) | Err(Error::NoNode { .. } | Error::BadVersion { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        },
        Occupant::Other(session) => {
            Err(BarrierError::AlreadySet { path: client.path_text(path), session: owning_session(session) })
        }
        _ => Ok(false),
    }
}
