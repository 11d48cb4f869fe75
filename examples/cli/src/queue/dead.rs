//! `queue retry-dead` and `queue purge`: dead letters, and items that are not to be worked on.

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::queues::{list, split};
use curator_framework::{CreateMode, CuratorFramework, CuratorOp, CuratorTransaction, Error, make_path};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::Paths;
use crate::failure::{Failure, UNKNOWN};
use crate::output::{print, tell};
use crate::site::Site;
use crate::values::Access;

/// The most requests at once.
pub(super) const AT_ONCE: usize = 32;
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
Each dead letter is moved in one transaction. It keeps its id, priority or time, comes last among these, and has a new count
of deliveries.

Exit status:
    0  done; also without dead letters
    1  a named dead letter does not exist
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
    #[command(flatten)]
    pub(super) access: Access,
    #[command(flatten)]
    paths: Paths,
}

const PURGE_NOTES: &str = "\
Items that a consumer works on stay. So do nodes that are not items. Items that are put in the meantime may stay.

Exit status:
    0  done; also without items
   76  the connection was lost, and some items may have been deleted
    2, 69, 70, 77  an error, as in `curator --help`";

/// Moves dead letters back, and returns the exit status.
pub(super) async fn retry(site: &Site, retry: &RetryDead) -> Result<u8, Failure> {
    let (client, paths) = (&site.client, &retry.paths);
    site.first_session(None).await?;
    site.check_chroot().await?;
    let dead = paths.dead();
    let listed = list(client, &dead).await?;
    if let Some(missing) = retry.names.iter().find(|name| !listed.contains(name)) {
        return Err(Failure(NONE, format!("{dead} has no dead letter {missing}")));
    }
    let mut names = if retry.names.is_empty() { listed } else { retry.names.clone() };
    names.sort_unstable();
    let (mut moved, mut code) = (0_u64, 0);
    // One after the other, so that they keep their order.
    for name in &names {
        match move_back(client, &dead, &paths.path, name).await {
            Ok(was_there) => moved += u64::from(was_there),
            Err(Failure(70, text)) => {
                tell(&text);
                code = 70;
            }
            Err(Failure(code, text)) => {
                return Err(Failure(code, format!("{text}; {moved} dead letters were moved before")));
            }
        }
    }
    print(format!("dead letters moved to {}: {moved}\n", paths.path)).await?;
    Ok(code)
}

/// Moves one dead letter. Returns `false` if another client has moved or deleted it.
async fn move_back(client: &CuratorFramework, dead: &str, queue: &str, name: &str) -> Result<bool, Failure> {
    let path = make_path(dead, name);
    let (data, stat) = match client.get_data().for_path(&path).await {
        Err(Error::NoNode { .. }) => return Ok(false),
        read => read?,
    };
    let (Some((start, _)), Some(letter)) = (split(name), DeadLetter::of(&data)) else {
        return Err(Failure(70, format!("{path} is not an item of a queue: it stays")));
    };
    let back = CuratorOp::create(make_path(queue, start)).with_mode(CreateMode::PersistentSequential);
    let back = back.with_data(&data[..letter.length]);
    let transaction = client.transaction().operation(CuratorOp::delete(&*path).with_version(stat.version));
    match commit(transaction.operation(back)).await? {
        None => Ok(true),
        Some((0, Error::NoNode { .. } | Error::BadVersion { .. })) => Ok(false),
        Some((1, Error::NoNode { .. })) => {
            Err(Failure(NONE, format!("no queue {queue}: put an item first, or correct the path")))
        }
        Some((_, cause)) => Err(cause.into()),
    }
}

/// Deletes the items that are not in work, or the dead letters, and returns the exit status.
pub(super) async fn purge(site: &Site, purge: &Purge) -> Result<u8, Failure> {
    let (client, paths) = (&site.client, &purge.paths);
    site.first_session(None).await?;
    site.check_chroot().await?;
    let (from, locks) =
        if purge.dead_letters { (paths.dead(), None) } else { (paths.path.clone(), Some(paths.locks())) };
    let names = list(client, &from).await?;
    if let Some(locks) = locks.as_ref().filter(|_| !names.is_empty()) {
        // Without it the transaction of an item would fail.
        match client.create().creating_parent_containers_if_needed().for_path(locks).await {
            Ok(_) | Err(Error::NodeExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let items = names.iter().filter(|name| name.starts_with("queue-"));
    let deleted = stream::iter(items).map(|name| delete(client, &from, locks.as_deref(), name)).buffered(AT_ONCE);
    let deleted: Vec<bool> = deleted.try_collect().await?;
    let count = deleted.iter().filter(|deleted| **deleted).count();
    let what = if purge.dead_letters { "dead letters" } else { "items" };
    print(format!("{what} deleted from {from}: {count}\n")).await?;
    Ok(0)
}

/// Deletes an item, under its lock if there are locks. Returns `false` if it is in work, or deleted already.
async fn delete(client: &CuratorFramework, from: &str, locks: Option<&str>, name: &str) -> Result<bool, Failure> {
    let item = CuratorOp::delete(make_path(from, name));
    let operations = match locks {
        None => vec![item],
        Some(locks) => {
            let lock = make_path(locks, name);
            let create = CuratorOp::create(&*lock).with_mode(CreateMode::Ephemeral).with_data("");
            vec![create, item, CuratorOp::delete(lock)]
        }
    };
    match commit(client.transaction().operations(operations)).await? {
        None => Ok(true),
        Some((_, Error::NoNode { .. } | Error::NodeExists { .. })) => Ok(false),
        Some((_, cause)) => Err(cause.into()),
    }
}

/// Commits a transaction. Returns the operation that was refused, with the reason.
async fn commit(transaction: CuratorTransaction<'_>) -> Result<Option<(usize, Error)>, Failure> {
    match transaction.commit().await {
        Ok(_) => Ok(None),
        Err(Error::Transaction { index, cause, .. }) => Ok(Some((index, *cause))),
        Err(error) if error.outcome_unknown() => {
            let Failure(_, text) = error.into();
            Err(Failure(
                UNKNOWN,
                format!("{text}; the queue may have been changed: read it before you repeat the command"),
            ))
        }
        Err(error) => Err(error.into()),
    }
}

/// The data of a dead letter: the items, and what the rejection has added behind them.
pub(super) struct DeadLetter<'a> {
    pub(super) items: Vec<&'a [u8]>,
    /// The number of bytes up to the end mark, with it.
    length: usize,
    /// The number of deliveries, if it is known.
    pub(super) attempts: Option<u32>,
    pub(super) reason: Option<String>,
}

impl<'a> DeadLetter<'a> {
    /// Reads the data of a node; `None` if it is not an item's.
    pub(super) fn of(data: &'a [u8]) -> Option<Self> {
        let (mut rest, mut items) = (data.strip_prefix(&[0, 1, 0, 1])?, Vec::new());
        while let Some(item) = rest.strip_prefix(&[1]) {
            let (length, bytes) = item.split_first_chunk()?;
            let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
            items.push(bytes.get(..length)?);
            rest = &bytes[length..];
        }
        let tail = rest.strip_prefix(&[2])?;
        let attempts = tail.strip_prefix(b"RQ\x01").and_then(|tail| tail.split_first_chunk());
        let attempts =
            attempts.map(|(attempts, rest)| (u32::from_be_bytes(*attempts), rest.get(8..).unwrap_or_default()));
        let reason = attempts.map_or(tail, |(_, rest)| rest).strip_prefix(b"RJ\x01");
        let reason = reason.map(|reason| String::from_utf8_lossy(reason).into_owned());
        Some(Self { items, length: data.len() - tail.len(), attempts: attempts.map(|(attempts, _)| attempts), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letter_has_its_items_deliveries_and_reason() {
        let item = b"\0\x01\0\x01\x01\0\0\0\x02ab\x02";
        let rejected = [&item[..], b"RQ\x01\0\0\0\x05\0\0\0\0\0\0\0\x07RJ\x01exit status 65"].concat();
        for (data, attempts, reason) in [(&item[..], None, None), (&rejected, Some(5), Some("exit status 65"))] {
            let letter = DeadLetter::of(data).unwrap();
            assert_eq!((letter.items, letter.length), (vec![&b"ab"[..]], 12));
            assert_eq!((letter.attempts, letter.reason.as_deref()), (attempts, reason));
        }
        for cut in 0..item.len() {
            assert!(DeadLetter::of(&item[..cut]).is_none(), "{cut}");
        }
        assert!(DeadLetter::of(b"\0\x01\0\x01\x01\xff\xff\xff\xff\x02").is_none(), "a negative length");
    }
}
