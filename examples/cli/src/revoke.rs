//! `revoke`: asks a holder to release, or deletes its node.

use clap::Args;
use curator_cli::fields::shown_data;
use curator_cli::kinds::{is_candidate, lock_of_name};
use curator_cli::text::shown_session;
use curator_framework::recipe::owning_session;
use curator_framework::{CuratorFramework, Error, node_from_path};
use curator_recipes::{RevokeOutcome, Revoker};

use crate::failure::Failure;
use crate::output::{print, tell};
use crate::question::agrees;
use crate::site::Site;

/// The options of `curator revoke`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Revoke {
    /// Delete the node, whatever its owner does: a holder loses the lock at once, and its `curator` stops the command. A
    /// persistent node that blocks the lock is deleted too. Shows the node, and asks on the terminal
    #[arg(long)]
    force: bool,
    /// With --force: delete without a question
    #[arg(long, short, requires = "force")]
    yes: bool,
    /// The path of the contender's node, as `curator ls` and `curator status` print it
    node: String,
}

const NOTES: &str = "\
Without --force this is a request. A holder gets it only if its `curator` runs with --revocable: it stops the command, and
ends with 73. The request overwrites the data of the node, so the data is printed before. A leader gets no request.

Exit status:
    0  the request was made, or the node was deleted
    1  no such node, or the answer was no
    2  the node is not a contender's, or the question needs a terminal
    69, 70, 77  an error, as in `curator --help`";

/// ZooKeeper does not show the watches of another session.
const UNKNOWN_LISTENER: &str =
    "only a holder that listens is notified (`curator` with --revocable); ZooKeeper does not show whether it does";

/// Asks the owner of the node, and returns the exit status.
pub(crate) async fn revoke(site: &Site, options: &Revoke) -> Result<u8, Failure> {
    let (client, node) = (&site.client, &options.node);
    site.first_session(None).await?;
    if options.force {
        return force(client, node, options.yes).await;
    }
    if is_candidate(node_from_path(node)) {
        return Err(Failure(
            2,
            format!(
                "{node} is a candidate's node, and candidates do not listen: stop its process, or --force deletes the node"
            ),
        ));
    }
    let before = match client.get_data().for_path(node).await {
        Ok((data, _)) => Some(data).filter(|data| !Revoker::is_request(data)),
        // The request reports it.
        Err(_reported) => None,
    };
    let requested = match Revoker::attempt_revoke(client, node).await.map_err(|error| with_hint(error.into(), node))? {
        RevokeOutcome::NodeGone => return Err(Failure(1, format!("no node {node}"))),
        RevokeOutcome::RequestedAgain => "requested again",
        _ => "requested",
    };
    // The request overwrites it.
    let was = before.map(|data| format!("its data was {}\n", shown_data(&data))).unwrap_or_default();
    let text = format!("{requested} the release of {node}\n{was}{UNKNOWN_LISTENER}\n");
    print(text).await?;
    Ok(0)
}

/// Names the way to the nodes of a lock, if that is not one.
fn with_hint(Failure(code, text): Failure, node: &str) -> Failure {
    let is_a_path = code == 2 && lock_of_name(node).is_none();
    let hint = if is_a_path { format!("; curator ls {node} lists the nodes of a lock") } else { String::new() };
    Failure(code, text + &hint)
}

/// Deletes the node of a contender or a candidate, exactly the one that was shown.
async fn force(client: &CuratorFramework, node: &str, is_agreed: bool) -> Result<u8, Failure> {
    let missing = || Failure(1, format!("no node {node}"));
    let Some(lock) = lock_of_name(node) else {
        let text = format!("{node} does not have the name of a contender's node; nothing was deleted");
        return Err(with_hint(Failure(2, text), node));
    };
    let (data, stat) = match client.get_data().for_path(node).await {
        Err(Error::NoNode { .. }) => return Err(missing()),
        read => read?,
    };
    let session = owning_session(stat.ephemeral_owner);
    if session.is_none() && stat.num_children > 0 {
        let text = format!("{node} is not ephemeral and has children, so it is not a contender's; nothing was deleted");
        return Err(Failure(2, text));
    }
    tell(&format!("{node} of the lock {lock}: session {}, data {}", shown_session(session), shown_data(&data)));
    let effect = match session {
        Some(_) => "its owner loses the lock at once",
        None => "no session owns it: it blocks the lock as long as it exists",
    };
    if !is_agreed && !agrees(&format!("{effect}. Delete {node}?")).await? {
        return Err(Failure(1, "nothing was deleted".to_owned()));
    }
    if !delete_exactly(client, node, stat.czxid).await? {
        return Err(missing());
    }
    print(format!("deleted {node}\n")).await?;
    Ok(0)
}

/// Deletes the node that this transaction has created. Returns `false` if it does not exist any more: a node that was
/// created again at its path is another one, and stays.
async fn delete_exactly(client: &CuratorFramework, node: &str, czxid: i64) -> Result<bool, Error> {
    loop {
        let version = match client.check_exists().for_path(node).await? {
            Some(stat) if stat.czxid == czxid => stat.version,
            _ => return Ok(false),
        };
        match client.delete().with_version(version).for_path(node).await {
            Ok(()) => return Ok(true),
            Err(Error::NoNode { .. }) => return Ok(false),
            // A request to release has written the node.
            Err(Error::BadVersion { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use curator_framework::{CreateMode, RetryOneTime};
    use curator_test::TestingServer;

    use super::*;

    #[tokio::test]
    async fn node_that_was_created_again_is_another_one() {
        let server = TestingServer::start().unwrap();
        let retry = RetryOneTime::new(Duration::from_millis(50));
        let client = CuratorFramework::new_client(server.connect_string(), retry).unwrap();
        client.start().unwrap();
        let create = async || {
            client.create().with_mode(CreateMode::Ephemeral).for_path("/node").await.unwrap();
            client.check_exists().for_path("/node").await.unwrap().unwrap().czxid
        };
        let first = create().await;
        client.delete().for_path("/node").await.unwrap();
        let second = create().await;
        assert!(!delete_exactly(&client, "/node", first).await.unwrap());
        client.set_data().for_path("/node", "__REVOKE__").await.unwrap();
        assert!(server.exists("/node"));
        assert!(delete_exactly(&client, "/node", second).await.unwrap());
        assert!(!server.exists("/node") && !delete_exactly(&client, "/node", second).await.unwrap());
    }
}
