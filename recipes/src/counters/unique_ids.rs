//! Ids that are unique over all clients of a path.

use std::sync::Arc;

use curator_framework::recipe::{NodeSpec, Parents, RecipeClient as _};
use curator_framework::spi::{Done, Operation};
use curator_framework::{CreateMode, CuratorFramework, Error, Session, Stat, make_path, validate_path};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::counters::error::CounterError;

/// The number of bits for the version of an epoch's node.
const VERSION_BITS: u32 = 31;
/// The largest epoch that fits into an id.
const LAST_EPOCH: u64 = u64::MAX >> VERSION_BITS;
/// The largest number of ids in one transaction.
const LARGEST_BATCH: usize = 256;

/// Ids that are unique over all clients of a path, and rise. Curator does not have them.
///
/// Each id is the version of a node after a write without a condition. The server refuses no such write, so any number
/// of clients can take ids at once.
///
/// # Gaps
///
/// An id is never returned twice, but may be lost: with a reply, a dropped future or a crash. A call that starts after
/// the end of another one returns a larger id, whichever clients make them.
///
/// Do not delete the nodes: a later object may return the same ids again.
///
/// After a restore of the servers from a backup, an object never repeats an id that it has returned: it starts the next
/// epoch. It does not know the ids of other objects. These may repeat if no object with a larger id has drawn since.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::UniqueIds;
///
/// let orders = UniqueIds::new(client, "/orders/ids")?;
/// let first = orders.next().await?;
/// let more = orders.take(100).await?;
/// assert!(more.iter().all(|id| *id > first));
/// # Ok(())
/// # }
/// ```
///
/// # ZooKeeper layout
///
/// `<path>/<epoch>`, persistent and empty, with an epoch of 10 digits. An id is the epoch, times 2^31, plus the node's
/// version. When the versions of an epoch end after 2^31 − 1 ids, the next epoch starts. Missing parents, and the path
/// itself, are created as containers.
///
/// # Cost
///
/// | call | requests |
/// | --- | --- |
/// | the first of an object | 1 read more |
/// | the first of a path | 2 reads and 1 create more; with missing parents also a create that fails, and 1 for each parent |
/// | `next` | 1 write |
/// | `take` | 1 transaction for up to 256 ids; with `zookeeper-async` 1 write for each id, sent together |
#[derive(Debug, Clone)]
pub struct UniqueIds {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: CuratorFramework,
    path: String,
    /// The newest epoch that this object knows.
    epoch: Mutex<Option<u64>>,
    /// The largest id that this object has returned. Servers that were restored from a backup give out versions again.
    last: Mutex<u64>,
}

impl UniqueIds {
    /// Creates a source of the ids of a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: the path is not valid in ZooKeeper.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, CounterError> {
        let path = path.into();
        validate_path(&path)?;
        Ok(Self { shared: Arc::new(Shared { client, path, epoch: Mutex::default(), last: Mutex::default() }) })
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// Returns a new id. The first one of a path is 1.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss` and `Error::SessionExpired` when the client's retry policy gives up: call again. An
    ///   id may be lost.
    /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`: the node cannot be written or
    ///   created.
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, an id may be lost.
    pub async fn next(&self) -> Result<u64, CounterError> {
        // Never empty.
        Ok(self.take(1).await?.pop().unwrap_or_default())
    }

    /// Returns `count` new ids, which rise. Other clients may get ids between them.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. Call again; ids may be
    ///   lost.
    /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`: the node cannot be written or
    ///   created.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the ids are lost.
    pub async fn take(&self, count: usize) -> Result<Vec<u64>, CounterError> {
        let (mut ids, mut retries) = (Vec::new(), self.shared.client.retry_loop());
        while ids.len() < count {
            let left = count - ids.len();
            let session = retries.connected(&self.shared.path).await?;
            let drawn = self.shared.draw(&session, left.min(LARGEST_BATCH), &mut ids).await;
            if retries.done(drawn, &self.shared.path).await?.is_some() {
                retries.progressed();
            }
        }
        Ok(ids)
    }
}

impl Shared {
    /// Adds up to `count` ids of the newest epoch, or starts the next epoch.
    async fn draw(&self, session: &Session, count: usize, ids: &mut Vec<u64>) -> Result<(), Error> {
        let known = *self.epoch.lock();
        let epoch = match known {
            Some(epoch) => epoch,
            None => self.find_epoch(session).await?,
        };
        let path = self.path_of(epoch);
        self.client.check_change(&path, &[])?;
        let last = *self.last.lock();
        for written in write(session, &path, count).await {
            match written {
                Ok(stat) => match id(epoch, stat.version) {
                    // Other objects may have returned it too, so all ids of the epoch are given up.
                    Some(id) if id <= last => return self.begin(session, epoch + 1).await,
                    Some(id) => {
                        ids.push(id);
                        let mut last = self.last.lock();
                        *last = id.max(*last);
                    }
                    None => return self.begin(session, epoch + 1).await,
                },
                // An administrator has deleted the node of the epoch: its ids must not be returned again.
                Err(Error::NoNode { .. }) => return self.follow(session, epoch).await,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the newest epoch. Creates the first one if it is missing.
    async fn find_epoch(&self, session: &Session) -> Result<u64, Error> {
        let newest = loop {
            match self.listed_epoch(session).await? {
                Some(epoch) => break epoch,
                None => self.create(session, 0).await?,
            }
        };
        self.know(newest);
        Ok(newest)
    }

    /// Returns the newest epoch with a node.
    async fn listed_epoch(&self, session: &Session) -> Result<Option<u64>, Error> {
        let children = match session.get_children(&self.path).await {
            Err(Error::NoNode { .. }) => Vec::new(),
            children => children?,
        };
        Ok(children.iter().filter_map(|name| epoch_of(name)).max())
    }

    /// Makes a newer epoch the known one: the node of this one was deleted. Starts the next epoch if no other object
    /// has started one.
    async fn follow(&self, session: &Session, epoch: u64) -> Result<(), Error> {
        let session = session.pinned();
        session.write_barrier().await?;
        match self.listed_epoch(&session).await?.filter(|newest| *newest > epoch) {
            Some(newest) => {
                self.know(newest);
                Ok(())
            }
            None => self.begin(&session, epoch + 1).await,
        }
    }

    fn know(&self, epoch: u64) {
        let mut known = self.epoch.lock();
        *known = (*known).max(Some(epoch));
    }

    /// Makes this epoch, or a newer one, the known one.
    async fn begin(&self, session: &Session, epoch: u64) -> Result<(), Error> {
        self.create(session, epoch).await?;
        self.know(epoch);
        Ok(())
    }

    async fn create(&self, session: &Session, epoch: u64) -> Result<(), Error> {
        let node = NodeSpec::new(&[]).with_parents(Parents::Containers);
        match session.create_with_parents(&self.path_of(epoch), CreateMode::Persistent, &node).await {
            Ok(_) | Err(Error::NodeExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn path_of(&self, epoch: u64) -> String {
        make_path(&self.path, &format!("{epoch:010}"))
    }
}

/// Writes a node `count` times. Returns its stat after each write, in order.
async fn write(session: &Session, path: &str, count: usize) -> Vec<Result<Stat, Error>> {
    if count > 1 {
        let operation = Operation::SetData { path: path.to_owned(), data: Vec::new(), version: None };
        match session.transaction(vec![operation; count]).await {
            Ok(done) => {
                let stat = |done| if let Done::Set(stat) = done { Some(Ok(stat)) } else { None };
                return done.into_iter().filter_map(stat).collect();
            }
            Err(Error::Unsupported { .. }) => {}
            Err(Error::Transaction { cause, .. }) => return vec![Err(*cause)],
            Err(error) => return vec![Err(error)],
        }
    }
    session.in_one_write(join_all((0..count).map(|_| session.set_data(path, Vec::new(), None)))).await
}

/// Returns the id of a version, or `None` if the versions of the epoch have ended.
fn id(epoch: u64, version: i32) -> Option<u64> {
    let version = u64::try_from(version).ok().filter(|version| *version > 0)?;
    Some(epoch << VERSION_BITS | version)
}

/// Returns the epoch of a node's name.
fn epoch_of(name: &str) -> Option<u64> {
    let is_epoch = name.len() == 10 && name.bytes().all(|byte| byte.is_ascii_digit());
    name.parse().ok().filter(|epoch| is_epoch && *epoch <= LAST_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_within_and_across_epochs() {
        let ids = [id(0, 1), id(0, 2), id(0, i32::MAX), id(1, 1), id(LAST_EPOCH, i32::MAX)];
        assert_eq!(ids[0], Some(1));
        assert_eq!(ids[4], Some(u64::MAX));
        assert!(ids.is_sorted() && ids.iter().all(Option::is_some), "{ids:?}");
        for version in [0, -1, i32::MIN] {
            assert_eq!(id(3, version), None);
        }
    }

    #[test]
    fn epochs_have_10_digits() {
        assert_eq!((epoch_of("0000000007"), epoch_of("8589934591")), (Some(7), Some(LAST_EPOCH)));
        for name in ["8589934592", "7", "+000000007", "00000000007", "_c_x-count"] {
            assert_eq!(epoch_of(name), None, "{name}");
        }
    }
}
