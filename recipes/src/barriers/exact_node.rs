//! Creates an ephemeral node at an exact path, with an owner.

use curator_framework::recipe::{
    NodeSpec, Occupant, OwnedNode, Parents, ProtectedId, RecipeClient as _, owning_session,
};
use curator_framework::{CuratorFramework, Error, RetryLoop, Session};

use crate::barriers::error::BarrierError;

/// Creates an ephemeral node at exactly this path, over lost replies and sessions. The node has an id as data: the
/// given one, or a new one.
///
/// # Errors
///
/// * `BarrierError::AlreadySet`: another owner has a node at the path.
/// * Those of the framework.
///
/// # Cancel safety
///
/// When the future is dropped, the node is deleted in the background if it was created.
pub(super) async fn create_exact_node(
    client: &CuratorFramework,
    path: &str,
    id: Option<ProtectedId>,
) -> Result<OwnedNode, BarrierError> {
    let (mut attempts, mut retries) = (Attempts { client, path, id, node: None }, client.retry_loop());
    loop {
        match attempts.attempt(&mut retries).await {
            Ok(Some(node)) => return Ok(node),
            // The node of another session is gone, or soon will be: the next create decides.
            Ok(None) => {}
            Err(BarrierError::Framework(error)) => retries.failed(error.about(path)).await?,
            Err(error) => return Err(error),
        }
    }
}

/// The attempts to create one node.
struct Attempts<'a> {
    client: &'a CuratorFramework,
    path: &'a str,
    /// The id of all attempts, by which a later one finds the node of an earlier one.
    id: Option<ProtectedId>,
    /// The node of the newest attempt, which may exist.
    node: Option<OwnedNode>,
}

impl Attempts<'_> {
    /// Creates the node, or finds it. Returns `None` if the next create has to decide.
    async fn attempt(&mut self, retries: &mut RetryLoop) -> Result<Option<OwnedNode>, BarrierError> {
        let session = retries.session().await?;
        let mut node = self.node_in(&session);
        let data = node.protected_id().to_string();
        let spec = NodeSpec::new(data.as_bytes()).with_parents(Parents::Containers);
        match node.create(&spec).await {
            Ok(_) => return Ok(Some(node)),
            Err(Error::NodeExists { .. }) => {}
            Err(error) => return self.fail(node, error),
        }
        match node.occupant().await {
            Ok(Occupant::Own) => Ok(Some(node)),
            Ok(Occupant::OfEarlierSession(version)) => match session.delete(self.path, Some(version)).await {
                Ok(()) | Err(Error::NoNode { .. } | Error::BadVersion { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            },
            Ok(Occupant::Other(session)) => {
                let path = self.client.path_text(self.path);
                Err(BarrierError::AlreadySet { path, session: owning_session(session) })
            }
            Ok(_) => Ok(None),
            Err(error) => self.fail(node, error),
        }
    }

    /// Keeps the node, which may exist, for the next attempt.
    fn fail<T>(&mut self, node: OwnedNode, error: Error) -> Result<T, BarrierError> {
        self.node = Some(node);
        Err(error.into())
    }

    /// Returns the node of the newest attempt if its session still lasts, else a new one with the same id.
    fn node_in(&mut self, session: &Session) -> OwnedNode {
        let earlier = self.node.take().filter(|node| node.session().is_same(session));
        let node = earlier.unwrap_or_else(|| session.owned_node_at(self.path, self.id));
        self.id = Some(node.protected_id());
        node
    }
}
