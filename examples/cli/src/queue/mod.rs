//! `queue`: puts items into queues, takes them out, and runs a command for each item.

mod dead;
mod ls;
mod put;
mod take;
mod work;

use clap::{Args, Subcommand, ValueEnum};
use curator_recipes::{
    DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue, QueueConsumer, QueueOptions,
    RawCodec,
};

use self::dead::{Purge, RetryDead};
use self::ls::Ls;
use self::put::Put;
use self::take::Take;
use self::work::Work;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::site::Site;
use crate::values::AccessList;

/// The commands of `curator queue`.
#[derive(Debug, Subcommand)]
pub(crate) enum Queue {
    /// Puts an item, or each line of standard input, into a queue
    Put(Put),
    /// Takes one item out of a queue, and prints it
    Take(Take),
    /// Runs a command for each item of a queue, until interrupted
    #[command(override_usage = "curator queue work [OPTIONS] <PATH> -- <COMMAND>...")]
    Work(Work),
    /// Prints how many items a queue has, the age of the oldest, how many are in work, and the dead letters
    Ls(Ls),
    /// Moves dead letters back into their queue, with a new count of deliveries
    RetryDead(RetryDead),
    /// Deletes the items of a queue that are not in work, or its dead letters
    Purge(Purge),
}

/// The paths of a queue.
#[derive(Debug, Args)]
pub(crate) struct Paths {
    /// The path of the locks; all consumers of the queue must have the same one [default: PATH-locks]
    #[arg(long, value_name = "LOCK_PATH", env = "CURATOR_LOCKS")]
    locks: Option<String>,
    /// The path of the dead letters [default: PATH-dead]
    #[arg(long, value_name = "DEAD_PATH", env = "CURATOR_DEAD")]
    dead: Option<String>,
    /// The queue's path
    path: String,
}

impl Paths {
    fn locks(&self) -> String {
        self.locks.clone().unwrap_or_else(|| format!("{}-locks", self.path))
    }

    fn dead(&self) -> String {
        self.dead.clone().unwrap_or_else(|| format!("{}-dead", self.path))
    }

    fn options(&self) -> QueueOptions {
        QueueOptions::new().lock_path(self.locks()).dead_letters(self.dead())
    }

    /// Returns the queue for a command that does not depend on its kind.
    fn queue(&self, site: &Site) -> Result<DistributedQueue<Vec<u8>>, Failure> {
        Ok(DistributedQueue::with_options(site.client.clone(), &self.path, RawCodec, self.options())?)
    }
}

/// The kind of a queue, which decides the names and the order of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// In the order of the puts
    Plain,
    /// In the order of the puts, each item with an id
    Id,
    /// A lower priority first
    Priority,
    /// Each item from its time on
    Delay,
}

/// A queue from which items are taken.
#[derive(Debug, Args)]
struct Source {
    /// The kind of the queue; all its clients must give the same one
    #[arg(long, value_enum, default_value_t = Kind::Plain, env = "CURATOR_KIND")]
    kind: Kind,
    #[command(flatten)]
    paths: Paths,
}

impl Source {
    fn consumer(&self, site: &Site) -> Result<QueueConsumer<Vec<u8>>, Failure> {
        let (client, path, options) = (site.client.clone(), &self.paths.path, self.paths.options());
        Ok(match self.kind {
            Kind::Plain => DistributedQueue::with_options(client, path, RawCodec, options)?.consumer(),
            Kind::Id => DistributedIdQueue::with_options(client, path, RawCodec, options)?.consumer(),
            Kind::Priority => DistributedPriorityQueue::with_options(client, path, RawCodec, options)?.consumer(),
            Kind::Delay => DistributedDelayQueue::with_options(client, path, RawCodec, options)?.consumer(),
        })
    }

    /// Refuses an item of another kind of queue: its order, and its time, would be ignored.
    fn check(&self, name: &str, sequence: Option<i32>) -> Result<(), Failure> {
        if self.kind != Kind::Plain || sequence.is_some() {
            return Ok(());
        }
        let path = &self.paths.path;
        let text = format!("{path} is not a plain queue, it has the item {name}: give --kind id, priority or delay");
        Err(Failure(2, text))
    }
}

impl Queue {
    /// Returns the access control list of the nodes that the command creates.
    pub(crate) const fn acl(&self) -> Option<&AccessList> {
        match self {
            Self::Put(put) => Some(&put.access.acl),
            Self::Take(take) => Some(&take.access.acl),
            Self::Work(work) => Some(&work.setting.access.acl),
            Self::RetryDead(retry) => Some(&retry.access.acl),
            Self::Purge(purge) => Some(&purge.access.acl),
            Self::Ls(_) => None,
        }
    }

    /// Returns `true` if a stopped process would lose items.
    pub(crate) const fn holds_items(&self) -> bool {
        matches!(self, Self::Work(_) | Self::Take(_))
    }
}

/// Runs the command, and returns the exit status.
pub(crate) async fn queue(site: &Site, queue: &Queue, signals: &mut Signals) -> Result<u8, Failure> {
    match queue {
        Queue::Put(put) => put::put(site, put, signals).await,
        Queue::Take(take) => signals.unless_ended(take::take(site, take)).await,
        Queue::Work(work) => work::work(site, work, signals).await,
        Queue::Ls(ls) => signals.unless_ended(ls::list(site, ls)).await,
        Queue::RetryDead(retry) => signals.unless_ended(dead::retry(site, retry)).await,
        Queue::Purge(purge) => signals.unless_ended(dead::purge(site, purge)).await,
    }
}
