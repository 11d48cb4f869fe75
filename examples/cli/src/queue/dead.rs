//! `queue retry-dead` and `queue purge`: dead letters, and items that are not to be worked on.

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::queues::list;
use curator_framework::{Chain, Error, make_path};
use curator_recipes::QueueError;

use super::Paths;
use crate::failure::{Failure, UNKNOWN};
use crate::output::{print, tell};
use crate::question::agrees;
use crate::site::Site;
use crate::values::Access;

/// The exit status if the queue does not exist, or a named dead letter.
pub(super) const NONE: u8 = 1;

/// The options of `queue retry-dead`.
#[derive(Debug, Args)]
#[command(after_help = RETRY_NOTES)]
pub(crate) struct RetryDead {
    #[command(flatten)]
    pub(super) access: Access,
    #[command(flatten)]
    paths: Paths,
    /// The names of the dead letters, as `curator queue ls --names` prints them [default: all]
    names: Vec<String>,
}

const RETRY_NOTES: &str = "\
Each dead letter is moved in one transaction. It keeps its id, priority or time, and comes last among these. It keeps its
CURATOR_ITEM_KEY too, and has a new count of deliveries.

Exit status:
    0  done; also without dead letters
    1  no such queue, or a named dead letter does not exist
   70  a dead letter is not an item; the others were moved
   76  the connection was lost, and a dead letter may have been moved
    2, 69, 77  an error, as in `curator --help`";

/// The options of `queue purge`.
#[derive(Debug, Args)]
#[command(after_help = PURGE_NOTES)]
pub(crate) struct Purge {
    /// Delete the dead letters, and leave the queue as it is
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_DEAD_LETTERS")]
    dead_letters: bool,
    /// Delete without a question
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    pub(super) access: Access,
    #[command(flatten)]
    paths: Paths,
    /// With --dead-letters: their names, as `curator queue ls --names` prints them [default: all]
    names: Vec<String>,
}

const PURGE_NOTES: &str = "\
It asks on the terminal, and needs --yes without one. Items that a consumer works on stay. So do nodes that are not items.
Items that are put in the meantime may stay.

Exit status:
    0  done; also without items
    1  no such queue or dead letter, or the answer was no: nothing was deleted
   76  the connection was lost, and some items may have been deleted
    2, 69, 70, 77  an error, as in `curator --help`";

/// Moves dead letters back, and returns the exit status.
pub(super) async fn retry(site: &Site, retry: &RetryDead) -> Result<u8, Failure> {
    let (queue, dead) = (retry.paths.queue(site)?, retry.paths.dead());
    site.first_session(None).await?;
    site.check_chroot().await?;
    exists(site, &retry.paths).await?;
    let listed = list(&site.client, &dead).await?;
    if let Some(missing) = retry.names.iter().find(|name| !listed.contains(name)) {
        return Err(Failure(NONE, format!("{dead} has no dead letter {missing}")));
    }
    let mut names = if retry.names.is_empty() { listed } else { retry.names.clone() };
    names.sort_unstable();
    let (mut moved, mut code) = (0_u64, 0);
    // One after the other, so that they keep their order.
    for name in &names {
        match queue.retry_dead(name).await {
            Ok(was_there) => moved += u64::from(was_there),
            Err(error @ (QueueError::Corrupt { .. } | QueueError::Foreign { .. })) => {
                tell(&format!("{dead}/{name} is not moved: {}", Chain(&error)));
                code = 70;
            }
            Err(QueueError::Framework(Error::NoNode { .. })) => {
                return Err(missing(&retry.paths.path));
            }
            Err(error) => {
                let Failure(code, text) = changed(error);
                return Err(Failure(code, format!("{text}; {moved} dead letters were moved before")));
            }
        }
    }
    print(format!("dead letters moved to {}: {moved}\n", retry.paths.path)).await?;
    Ok(code)
}

/// Fails if neither the queue nor its dead letters exist: the path may be mistyped.
async fn exists(site: &Site, paths: &Paths) -> Result<(), Failure> {
    for path in [&paths.path, &paths.dead()] {
        if site.client.check_exists().for_path(path).await?.is_some() {
            return Ok(());
        }
    }
    Err(missing(&paths.path))
}

fn missing(path: &str) -> Failure {
    Failure(NONE, format!("no queue {path}: put an item first, or correct the path"))
}

/// Deletes the items that are not in work, or the dead letters, and returns the exit status.
pub(super) async fn purge(site: &Site, purge: &Purge) -> Result<u8, Failure> {
    let queue = purge.paths.queue(site)?;
    if !purge.names.is_empty() && !purge.dead_letters {
        return Err(Failure(2, "names are those of dead letters: give --dead-letters".to_owned()));
    }
    site.first_session(None).await?;
    site.check_chroot().await?;
    exists(site, &purge.paths).await?;
    let (what, from) = match purge.dead_letters {
        true => ("dead letters", purge.paths.dead()),
        false => ("items", purge.paths.path.clone()),
    };
    let listed = list(&site.client, &from).await?;
    if let Some(missing) = purge.names.iter().find(|name| !listed.contains(name)) {
        return Err(Failure(NONE, format!("{from} has no dead letter {missing}")));
    }
    let count = if purge.names.is_empty() { listed.len() } else { purge.names.len() };
    if !purge.yes && !agrees(&format!("{what} of {from}: {count}. Delete them?")).await? {
        return Err(Failure(NONE, "nothing was deleted".to_owned()));
    }
    let deleted = match (purge.dead_letters, purge.names.is_empty()) {
        (true, false) => delete(site, &from, &purge.names).await?,
        (true, true) => queue.purge_dead().await.map_err(changed)?,
        (false, _) => queue.purge().await.map_err(changed)?,
    };
    print(format!("{what} deleted from {from}: {deleted}\n")).await?;
    Ok(0)
}

/// Deletes these dead letters. Returns the number of those that were still there.
async fn delete(site: &Site, from: &str, names: &[String]) -> Result<u64, Failure> {
    let mut deleted = 0;
    for name in names {
        match site.client.delete().for_path(&make_path(from, name)).await {
            Ok(()) => deleted += 1,
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(changed(error.into())),
        }
    }
    Ok(deleted)
}

/// Returns the failure of a command that changes the queue.
fn changed(error: QueueError) -> Failure {
    match error.outcome_unknown() {
        true => {
            let Failure(_, text) = error.into();
            Failure(UNKNOWN, format!("{text}; the queue may have been changed: read it before you repeat the command"))
        }
        false => error.into(),
    }
}
