//! `queue put`: an item, or each line of standard input.

use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, SystemTime};

use clap::Args;
use curator_framework::Error;
use curator_recipes::{
    DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue, QueueError, RawCodec,
};

use super::Paths;
use crate::each::{Parts, input};
use crate::failure::{Failure, UNKNOWN};
use crate::signals::Signals;
use crate::site::Site;
use crate::values::{Access, duration};

/// The options of `queue put`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Put {
    /// Put the item into a queue with priorities; a lower number comes first
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with_all = ["delay", "id"])]
    priority: Option<i32>,
    /// Put the item into a delay queue, for delivery after this time
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "id")]
    delay: Option<Duration>,
    /// Put the item into a queue with ids
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Put each line of standard input as an item
    #[arg(long, conflicts_with = "item")]
    each: bool,
    #[command(flatten)]
    pub(super) access: Access,
    #[command(flatten)]
    paths: Paths,
    /// The item [default: standard input up to its end, byte for byte]
    item: Option<OsString>,
}

const NOTES: &str = "\
Without --priority, --delay and --id the queue is plain. All items of a queue must be of one kind, and its consumers give
it with --kind. The time of --delay begins at the put, by the clock of this machine.

The queue is that of Curator's DistributedQueue, DistributedPriorityQueue, DistributedDelayQueue or DistributedIdQueue, in
Java too. It has room for some thousand items of some kilobytes. An item has at most about 1 MiB.

Exit status:
    0  the servers have the item; with --each all lines
   76  the connection was lost, and the item may be in the queue
    2, 69, 70, 77  an error, as in `curator --help`";

/// A queue with what each put gives beside the item.
enum Target {
    Plain(DistributedQueue<Vec<u8>>),
    Id(DistributedIdQueue<Vec<u8>>, String),
    Priority(DistributedPriorityQueue<Vec<u8>>, i32),
    Delay(DistributedDelayQueue<Vec<u8>>, Duration),
}

impl Target {
    fn of(site: &Site, put: &Put) -> Result<Self, QueueError> {
        let (client, path, options) = (site.client.clone(), &put.paths.path, put.paths.options());
        Ok(match (put.priority, put.delay, &put.id) {
            (Some(priority), ..) => {
                Self::Priority(DistributedPriorityQueue::with_options(client, path, RawCodec, options)?, priority)
            }
            (_, Some(delay), _) => {
                Self::Delay(DistributedDelayQueue::with_options(client, path, RawCodec, options)?, delay)
            }
            (.., Some(id)) => Self::Id(DistributedIdQueue::with_options(client, path, RawCodec, options)?, id.clone()),
            _ => Self::Plain(DistributedQueue::with_options(client, path, RawCodec, options)?),
        })
    }

    async fn put(&self, item: &Vec<u8>) -> Result<(), Failure> {
        let put = match self {
            Self::Plain(queue) => queue.put(item).await,
            Self::Id(queue, id) => queue.put(item, id).await,
            Self::Priority(queue, priority) => queue.put(item, *priority).await,
            Self::Delay(queue, delay) => match SystemTime::now().checked_add(*delay) {
                Some(due) => queue.put(item, due).await,
                None => return Err(Failure(2, "--delay is too long".to_owned())),
            },
        };
        put.map_err(|error| match error.outcome_unknown() {
            _ if matches!(error, QueueError::Framework(Error::RequestTooLarge { .. })) => {
                let Failure(code, text) = error.into();
                Failure(code, format!("the item has {} bytes: {text}", item.len()))
            }
            true => {
                let Failure(_, text) = error.into();
                Failure(UNKNOWN, format!("{text}; the item may be in the queue"))
            }
            false => error.into(),
        })
    }
}

/// Puts the item, or each line, and returns the exit status.
pub(super) async fn put(site: &Site, put: &Put, signals: &mut Signals) -> Result<u8, Failure> {
    let count = Cell::new(0_u64);
    let outcome = signals.unless_ended(put_all(site, put, &count)).await;
    outcome.map_err(|Failure(code, text)| match put.each && (count.get() > 0 || code > 128) {
        true => Failure(code, format!("{text}; {} lines were put before", count.get())),
        false => Failure(code, text),
    })
}

/// Puts the item, or each line, and counts.
async fn put_all(site: &Site, put: &Put, count: &Cell<u64>) -> Result<u8, Failure> {
    let target = Target::of(site, put)?;
    site.first_session(None).await?;
    site.check_chroot().await?;
    if let Some(item) = &put.item {
        target.put(&item.clone().into_vec()).await?;
        return Ok(0);
    }
    let mut read = input(if put.each { Parts::Lines } else { Parts::Whole })?;
    while let Some(item) = read.recv().await {
        let item = item?;
        if put.each && item.is_empty() {
            continue;
        }
        target.put(&item).await?;
        count.set(count.get() + 1);
    }
    Ok(0)
}
