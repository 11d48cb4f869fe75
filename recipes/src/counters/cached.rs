//! Ids from a counter, which are reserved in blocks.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::content::AtomicNumber;
use crate::counters::error::CounterError;
use crate::counters::number::DistributedAtomicNumber;

/// Ids of 64 bits: Curator's `CachedAtomicLong`.
pub type CachedAtomicLong = CachedAtomicNumber<i64>;
/// Ids of 32 bits: Curator's `CachedAtomicInteger`.
pub type CachedAtomicInteger = CachedAtomicNumber<i32>;

/// Ids from a counter, which are reserved in blocks: Curator's [`CachedAtomicLong`] and [`CachedAtomicInteger`].
///
/// One change of the counter reserves a block of numbers; [`next`](Self::next) returns them one by one, without a
/// request. Clones share the block. A future of `next` that is kept without being polled holds up the
/// other calls. The rest of a block is lost with the last clone. Each process has blocks of its own, so ids are unique
/// over all processes, but do not rise from call to call. The ids of [`UniqueIds`](crate::UniqueIds) do.
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
/// use std::time::Duration;
/// use curator_framework::RetryNTimes;
/// use curator_recipes::{CachedAtomicLong, DistributedAtomicLong};
///
/// let retry = RetryNTimes::new(100, Duration::from_millis(10));
/// let tickets = CachedAtomicLong::new(DistributedAtomicLong::new(client, "/tickets", retry)?, 100)?;
/// assert_eq!(tickets.next().await?, 1); // one write, which reserves 100 numbers
/// assert_eq!(tickets.next().await?, 2); // no request
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// `next` returns the number itself, Curator's `postValue`. A factor that is not positive is refused.
#[derive(Debug, Clone)]
pub struct CachedAtomicNumber<N: AtomicNumber> {
    number: DistributedAtomicNumber<N>,
    factor: N,
    /// The newest number that was returned, and the last one of its block.
    block: Arc<Mutex<Option<(N, N)>>>,
}

impl<N: AtomicNumber> CachedAtomicNumber<N> {
    /// Creates a source of ids, without a request. `factor` is the size of a block, by which `number` is raised.
    ///
    /// # Errors
    ///
    /// `CounterError::InvalidArgument`: the factor is 0 or negative.
    pub fn new(number: DistributedAtomicNumber<N>, factor: N) -> Result<Self, CounterError> {
        if factor.to_i64() <= 0 {
            let reason = "a positive number is needed".to_owned();
            return Err(CounterError::InvalidArgument { argument: "factor", reason });
        }
        Ok(Self { number, factor, block: Arc::default() })
    }

    /// Returns the path of the counter's node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.number.path()
    }

    /// Returns the next number of the block. Reserves another block if it is used up.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the counter's retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::Overflow`: the end of the block does not fit into the number.
    /// * `CounterError::NotANumber`: the data of the node does not have the length of the number.
    /// * `CounterError::VersionsExhausted`: the node has the version −1, as once in 2^32 changes.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: no block was reserved.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. If
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true, the numbers of a block may be lost.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the numbers of a block may be lost.
    pub async fn next(&self) -> Result<N, CounterError> {
        let mut block = self.block.lock().await;
        let (newest, last) = match *block {
            Some(block) => block,
            None => {
                let added = self.number.add(self.factor).await?;
                (added.pre_value, added.post_value)
            }
        };
        // Fits: the number is not above the last one.
        let next = newest.plus(&N::ONE).unwrap_or(last);
        *block = (next != last).then_some((next, last));
        Ok(next)
    }
}
