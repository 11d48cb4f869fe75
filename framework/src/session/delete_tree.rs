//! Deleting a node and all that is below it.

use crate::error::{Error, Result};
use crate::session::Session;

/// Deletes a node and all nodes below it: Curator's `ZKPaths.deleteChildren`.
///
/// # Errors
///
/// * `Error::NoNode`: the node itself does not exist. A missing node below it is not an error.
/// * `Error::BadVersion`: the node itself has another version.
/// * `Error::NoAuth`: an ACL forbids deleting a node, or listing its children.
/// * `Error::ReplyTooLarge`: the list of a node's children is above the client's limit.
/// * `Error::ConnectionLoss`, `Error::SessionExpired`: a reply is missing. Some of the nodes may be deleted.
pub(crate) async fn delete_tree(session: &Session, path: &str, version: Option<i32>) -> Result<()> {
    // The nodes to delete, each after its ancestors.
    let mut open = vec![path.to_owned()];
    while let Some(node) = open.last() {
        let is_top = open.len() == 1;
        match session.delete(node, if is_top { version } else { None }).await {
            Ok(()) => {
                open.pop();
            }
            Err(Error::NoNode { .. }) if !is_top => {
                open.pop();
            }
            Err(Error::NotEmpty { .. }) => match session.get_children(node).await {
                Ok(children) => {
                    let below: Vec<_> =
                        children.iter().map(|child| crate::model::path::make_path(node, child)).collect();
                    open.extend(below);
                }
                // Another client deleted it in the meantime: the next delete reports that.
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
