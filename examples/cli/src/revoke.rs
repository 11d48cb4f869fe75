//! `revoke`: asks a holder to release.

use clap::Args;
use curator_cli::kinds::is_candidate;
use curator_framework::{CuratorFramework, node_from_path};
use curator_recipes::{RevokeOutcome, Revoker};

use crate::failure::Failure;
use crate::output::print;

/// The options of `curator revoke`.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The node's path
    node: String,
}
/// ZooKeeper does not show the watches of another session.
const UNKNOWN_LISTENER: &str =
    "only a holder that listens is notified (`curator` with --revocable); ZooKeeper does not show whether it does";

/// Asks the owner of the node, and returns the exit status.
pub(crate) async fn revoke(client: &CuratorFramework, Revoke { node }: &Revoke) -> Result<u8, Failure> {
    client.session().await?;
    if is_candidate(node_from_path(node)) {
        return Err(Failure(
            2,
            format!("{node} is a candidate's node, and candidates do not listen: stop its process"),
        ));
    }
    let requested = match Revoker::attempt_revoke(client, node).await? {
        RevokeOutcome::NodeGone => return Err(Failure(1, format!("no node {node}"))),
        RevokeOutcome::RequestedAgain => "requested again",
        _ => "requested",
    };
    let text = format!("{requested} the release of {node}\n{UNKNOWN_LISTENER}\n");
    print(text).await?;
    Ok(0)
}
