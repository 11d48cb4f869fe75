//! Numbers that are taken from a counter several at a time.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::counters::content::AtomicNumber;
use crate::counters::error::{CounterError, CounterResult};
use crate::counters::number::DistributedAtomicNumber;

/// Numbers of 64 bits: Curator's `CachedAtomicLong`.
pub type CachedAtomicLong = CachedAtomicNumber<i64>;
/// Numbers of 32 bits: Curator's `CachedAtomicInteger`.
pub type CachedAtomicInteger = CachedAtomicNumber<i32>;

/// Numbers that are taken from a counter several at a time: Curator's [`CachedAtomicLong`] and [`CachedAtomicInteger`].
///
/// Several tasks may call it at once. Clones are cheap, and share the numbers. Numbers that were taken and not handed
/// out are lost with the last clone. The numbers of several processes do not rise from one to the next.
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
/// assert_eq!(tickets.next().await?, 1); // takes 100 numbers
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
    /// The newest number that was handed out, and the last one that may be.
    taken: Arc<Mutex<Option<(N, N)>>>,
}

impl<N: AtomicNumber> CachedAtomicNumber<N> {
    /// Creates a source of numbers, without a request. It adds `factor` to `number` at a time.
    ///
    /// # Errors
    ///
    /// `CounterError::InvalidArgument`: the factor is 0 or negative.
    pub fn new(number: DistributedAtomicNumber<N>, factor: N) -> CounterResult<Self> {
        if factor.to_i64() <= 0 {
            let reason = "a positive number is needed".to_owned();
            return Err(CounterError::InvalidArgument { argument: "factor", reason });
        }
        Ok(Self { number, factor, taken: Arc::default() })
    }

    /// Returns the next number: one above the counter's value when it was taken, or above the number before.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedAtomicNumber::add`]. After an unknown outcome, numbers may be lost.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, numbers may be lost.
    pub async fn next(&self) -> CounterResult<N> {
        let mut taken = self.taken.lock().await;
        let (newest, last) = match *taken {
            Some(taken) => taken,
            None => {
                let added = self.number.add(self.factor).await?;
                (*added.pre_value(), *added.post_value())
            }
        };
        // Fits: the number is not above the last one.
        let next = newest.plus(&N::ONE).unwrap_or(last);
        *taken = (next != last).then_some((next, last));
        Ok(next)
    }
}
