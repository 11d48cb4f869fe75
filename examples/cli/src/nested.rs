//! `holds`, and the locks of the commands of which this program is a part.

use std::time::Duration;

use clap::Args;
use curator_cli::kinds::lock_of_contender;
use curator_framework::{CuratorFramework, Error, node_from_path, validate_path};
use curator_recipes::ParticipantKind;

use crate::failure::Failure;
use crate::site::Site;

/// The variable with the nodes of the locks under which a command runs: one in a line, the innermost last.
const HELD: &str = "CURATOR_HELD";
/// The exit status if this program does not run under the lock.
const NOT_HELD: u8 = 1;

/// The options of `curator holds`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Holds {
    /// The path of the lock or the election
    path: String,
}

const NOTES: &str = "\
This locks the rest of a script:
    curator holds /jobs/report || exec curator lock /jobs/report -- \"$0\" \"$@\"

Exit status:
    0  this program is a part of a command that `curator` runs under the lock, and that lock is not given back
    1  it is not; also if a command under the lock has started it, and has ended
    2, 69, 70, 77  an error, as in `curator --help`

The variable CURATOR_HELD has the nodes of the locks under which a command runs. The servers know which of them exist.";

/// Returns the variable for a command under the lock of this node.
pub(crate) fn variable(node: &str) -> (&'static str, String) {
    let mut nodes: Vec<String> = nodes().collect();
    nodes.push(node.to_owned());
    (HELD, nodes.join("\n"))
}

fn nodes() -> impl Iterator<Item = String> {
    let held = std::env::var(HELD).unwrap_or_default();
    held.lines().map(ToOwned::to_owned).collect::<Vec<_>>().into_iter()
}

/// Returns the nodes at this path under which this program was started.
fn nodes_at(path: &str) -> Vec<String> {
    nodes().filter(|node| lock_of_contender(node) == Some(path)).collect()
}

/// Returns a node at this path under which this program runs. A node that is gone counts no more: a daemon outlives the
/// command that has started it.
async fn held_at(client: &CuratorFramework, path: &str) -> Result<Option<String>, Error> {
    for node in nodes_at(path) {
        match client.check_exists().for_path(&node).await {
            Ok(None) => {}
            // Such a node exists.
            Ok(Some(_)) | Err(Error::NoAuth { .. }) => return Ok(Some(node)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns 0 if this program runs under the lock.
pub(crate) async fn holds(site: &Site, holds: &Holds) -> Result<u8, Failure> {
    validate_path(&holds.path)?;
    if nodes_at(&holds.path).is_empty() {
        return Ok(NOT_HELD);
    }
    site.first_session(None).await?;
    Ok(if held_at(&site.client, &holds.path).await?.is_some() { 0 } else { NOT_HELD })
}

/// Refuses a lock that would wait for a command of which this program is a part.
pub(crate) async fn refuse_itself(
    site: &Site,
    kind: ParticipantKind,
    path: &str,
    budget: Option<Duration>,
) -> Result<(), Failure> {
    if nodes_at(path).is_empty() {
        return Ok(());
    }
    site.first_session(budget).await?;
    let Some(node) = held_at(&site.client, path).await? else { return Ok(()) };
    let held = ParticipantKind::of_node(node_from_path(&node)).map(|(kind, _)| kind);
    // Readers share, and a lock of another kind is refused as such.
    if kind == ParticipantKind::Read && held != Some(ParticipantKind::Write) {
        return Ok(());
    }
    let text = format!("this program runs under {path} (CURATOR_HELD has {node}), so it would wait for itself");
    Err(Failure(2, text))
}
