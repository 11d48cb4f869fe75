//! The stream of deliveries, and the run of a handler.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use curator_framework::{Chain, Changes, Error};
use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _, unfold};

use crate::queues::delivery::Delivery;
use crate::queues::engine::Engine;
use crate::queues::error::QueueError;
use crate::queues::shared::Shared;

/// A consumer of a queue, from a queue's method `consumer`. It is a stream of deliveries, and ends when the client is
/// closed.
///
/// This is the consuming side of a queue. Java's interface `QueueConsumer` is the callback: here it is the closure of
/// [`run`](Self::run).
///
/// It has no task: it sends requests while [`next`](Self::next), the stream or a [`run`](Self::run) is polled. An item
/// that is not asked for is not taken. It keeps the client open.
///
/// Items come in the order of the queue. After another consumer was faster, a consumer chooses at random among the first 16
/// items. So rivals seldom try the same item, and the order is approximate. An item that another consumer has locked is skipped until
/// the lock is deleted.
///
/// # Errors in the stream
///
/// The stream continues after an error.
///
/// | error | after it |
/// | --- | --- |
/// | `QueueError::Corrupt`, `QueueError::Foreign`, `QueueError::Refused`, `QueueError::MixedModes` | once for each such node; the node stays and is skipped |
/// | `QueueError::Unknown`, at most once | the session has ended before the reply to a delete; the item is gone, and not delivered |
/// | `QueueError::Replaced` | the path was created again; the item is not delivered |
/// | `Error::ConnectionLoss`, `Error::SessionExpired` | the retry policy has given up; the next call tries again, after a pause of up to 1 s |
/// | `Error::NoAuth`, `Error::ReplyTooLarge` about the queue's path or the lock path, such as the right to delete items | the next call tries again, after a pause of up to 30 s |
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | first call, new session | 3: a listing, a recursive watch, a listing; with more than 32 items in the order of puts the watch and the second listing come at the end of these |
/// | lost connection | 1 listing, once the watch is set |
/// | an item, at most once | 1 transaction: a delete, and a write of the marker beside the path; and 1 read for up to 16 items |
/// | an item, with a lock | 2: a claim and the end of the delivery; and 1 read for up to 16 items |
/// | [batches](crate::QueueOptions::batch) of `N` items | the deletes, claims or ends of `N` items are 1 request |
/// | an empty queue | none |
/// | an item that was skipped because of its lock | 1 listing of the lock path, at most one a second while other items are there, otherwise one for each change of the lock path |
///
/// With the watch the server sends one notification for each item that is put, claimed or deleted: about 50 bytes and the
/// path.
///
/// Over `zookeeper-async`, and with servers before 3.6, each item is a read of its own, up to 16 in one write.
/// Notifications do not say what has changed there. The path is listed
/// again once the known names are used up. A priority or delay queue that has changed is listed after 16 items. A delay
/// queue is also listed at each change while no item is due.
#[must_use = "a consumer does nothing unless it is polled"]
pub struct QueueConsumer<T> {
    path: String,
    deliveries: Changes<Result<Delivery<T>, QueueError>>,
}

impl<T: Send + Sync + 'static> QueueConsumer<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        let path = shared.path.clone();
        let next = |mut engine: Engine<T>| async move { Some((engine.next().await?, engine)) };
        Self { path, deliveries: Changes::new(unfold(Engine::new(shared), next)) }
    }
}

impl<T> QueueConsumer<T> {
    /// Returns the queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Waits for the next delivery. `None` once the client is closed.
    ///
    /// # Errors
    ///
    /// The [errors of the stream](Self#errors-in-the-stream). Call it again: the consumer continues.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped: the next call continues. Until then the consumer may keep an item that it
    /// was about to deliver. When the consumer is dropped in between, an item may be lost if the queue delivers at most
    /// once; with a lock path it is given back.
    pub async fn next(&mut self) -> Option<Result<Delivery<T>, QueueError>> {
        self.deliveries.recv().await
    }

    /// Calls `work` for each delivery, with up to `concurrency` futures at a time, until the client is closed. The work
    /// ends its delivery; if it does not, the item is given back. Errors about one item, and errors that may pass, are
    /// logged, and the run continues.
    ///
    /// # Errors
    ///
    /// * `QueueError::InvalidArgument`: `concurrency` is 0.
    /// * `Error::NoAuth` and other errors that waiting does not fix. The work that was started has ended before.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, all work is dropped, which gives its items back.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn handle(_job: &String) -> bool { true }
    /// # async fn run(jobs: curator_recipes::DistributedQueue<String>) -> Result<(), curator_recipes::QueueError> {
    /// let work = |delivery: curator_recipes::Delivery<String>| async move {
    ///     for job in delivery.items() {
    ///         if !handle(job).await {
    ///             return drop(delivery.retry().await);
    ///         }
    ///     }
    ///     drop(delivery.complete().await);
    /// };
    /// jobs.consumer().run(4, work).await
    /// # }
    /// ```
    pub async fn run<F>(&mut self, concurrency: usize, work: impl FnMut(Delivery<T>) -> F) -> Result<(), QueueError>
    where
        F: Future<Output = ()>,
    {
        self.run_until(std::future::pending::<()>(), concurrency, work).await
    }

    /// Runs like [`run`](Self::run) until `shutdown` resolves. Then takes no more items, waits until the work that was
    /// started has ended, and returns `Ok`. An item that it was about to deliver stays with this consumer: drop it, or call
    /// `next` again.
    ///
    /// # Errors
    ///
    /// * `QueueError::InvalidArgument`: `concurrency` is 0.
    /// * `Error::NoAuth` and other errors that waiting does not fix. The work that was started has ended before.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, all work is dropped, which gives its items back.
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
    /// use curator_recipes::{Delivery, DistributedQueue, QueueOptions, RawCodec};
    ///
    /// let options = QueueOptions::new().lock_path("/jobs-locks");
    /// let jobs = DistributedQueue::<String>::with_options(client, "/jobs", RawCodec, options)?;
    /// jobs.put(&"last".to_owned()).await?;
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// let mut stop = Some(stop);
    /// let work = |delivery: Delivery<String>| {
    ///     // In a service, SIGTERM does this.
    ///     drop(stop.take());
    ///     async move { drop(delivery.complete().await) }
    /// };
    /// jobs.consumer().run_until(stopped, 4, work).await?;
    /// assert!(jobs.is_empty().await?, "the work that was started has ended");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_until<F>(
        &mut self,
        shutdown: impl Future,
        concurrency: usize,
        mut work: impl FnMut(Delivery<T>) -> F,
    ) -> Result<(), QueueError>
    where
        F: Future<Output = ()>,
    {
        if concurrency == 0 {
            return Err(QueueError::invalid("concurrency", "it must be at least 1"));
        }
        let (mut shutdown, mut running) = (pin!(shutdown), FuturesUnordered::new());
        let outcome = loop {
            let has_room = running.len() < concurrency;
            tokio::select! {
                biased;
                _ = &mut shutdown => break Ok(()),
                Some(()) = running.next(), if !running.is_empty() => {}
                next = self.deliveries.recv(), if has_room => match next {
                    Some(Ok(delivery)) => running.push(work(delivery)),
                    Some(Err(error)) if self.continues_after(&error) => {}
                    Some(Err(error)) => break Err(error),
                    None => break Ok(()),
                },
            }
        };
        while running.next().await.is_some() {}
        outcome
    }

    /// Logs an error after which a run continues.
    fn continues_after(&self, error: &QueueError) -> bool {
        let path = &self.path;
        let continues = error.is_of_one_item() || error.is_retryable();
        match error {
            QueueError::Framework(Error::NotStarted) => return false,
            // The error is logged where it is found.
            error if error.is_of_one_item() => {}
            error if continues => tracing::debug!(path, error = %Chain(error), "a queue is read later"),
            _ => {}
        }
        continues
    }
}

impl<T> Stream for QueueConsumer<T> {
    type Item = Result<Delivery<T>, QueueError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.deliveries).poll_next(cx)
    }
}

impl<T> fmt::Debug for QueueConsumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueConsumer").field("path", &self.path).finish_non_exhaustive()
    }
}
