//! A counter as its callers see it. Each change waits in the queue of the engine, and one of the callers sends the
//! requests for all of them.

use std::fmt;
use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, RetryPolicy, validate_path};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::content::sealed::Content;
use crate::counters::change::{AtomicChange, AtomicStats, Compared};
use crate::counters::effect::{Change, Effect};
use crate::counters::error::CounterError;
use crate::counters::options::CounterOptions;
use crate::counters::queued::{Failure, Outcome};
use crate::counters::run::Runner;
use crate::counters::state::{Counter, Promotion, Ticket};
use crate::locks::InterProcessMutex;

impl<V: Content> Counter<V> {
    pub(super) fn new(
        client: CuratorFramework,
        path: String,
        policy: Arc<dyn RetryPolicy>,
        options: CounterOptions,
    ) -> Result<Self, CounterError> {
        validate_path(&path)?;
        let promoted = match options.promoted {
            Some(lock) => {
                let mutex = InterProcessMutex::new(client.clone(), &lock.lock_path).map_err(CounterError::Lock)?;
                Some((mutex, lock))
            }
            None => None,
        };
        let (engine, requests) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { client, path, policy, promoted, engine, requests })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Reads the value; `None` if the node does not exist.
    pub(super) async fn get(&self) -> Result<Option<V>, CounterError> {
        match self.client.get_data().for_path(&self.path).await {
            Ok((data, _)) => {
                let wrong = || self.not_a_number(data.len());
                V::from_data(&data).map(Some).ok_or_else(wrong)
            }
            Err(Error::NoNode { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a change that always sets the value.
    pub(super) async fn set(&self, change: Change<V>) -> Result<AtomicChange<V>, CounterError> {
        match self.change(change).await? {
            (Effect::Changed { pre, post }, stats) => Ok(AtomicChange { pre_value: pre, post_value: post, stats }),
            // Never: such a change has this effect, or an error.
            _ => Err(Error::Closed.into()),
        }
    }

    pub(super) async fn compare_and_set(&self, expected: V, new: V) -> Result<Compared<V>, CounterError> {
        Ok(match self.change(Change::CompareAndSet { expected, new }).await? {
            (Effect::Changed { pre, post }, stats) => {
                Compared::Set(AtomicChange { pre_value: pre, post_value: post, stats })
            }
            (Effect::Differs(value), _) => Compared::Differs(value),
            _ => Compared::Missing,
        })
    }

    pub(super) async fn initialize(&self, value: V) -> Result<bool, CounterError> {
        let (effect, _) = self.change(Change::Initialize(value)).await?;
        Ok(matches!(effect, Effect::Changed { .. }))
    }

    pub(super) async fn force_set(&self, value: V) -> Result<(), CounterError> {
        self.change(Change::Force(value)).await.map(drop)
    }

    /// Deletes the marker. The next change creates another one.
    pub(super) async fn release_marker(&self) {
        let closed = async {
            let marker = loop {
                let mut requests = self.requests.lock().await;
                // A caller in the queue needs the marker, which proves the write of a dropped one.
                if !(requests.attempts.is_in_flight() && self.engine.lock().is_awaited()) {
                    break requests.attempts.take_marker();
                }
            };
            if let Some(marker) = marker {
                marker.delete().await;
            }
        };
        // A marker that is dropped is left to the session.
        let _in_time = self.client.within(self.client.close_budget(), closed).await;
    }

    /// Makes a change, and returns its effect.
    async fn change(&self, change: Change<V>) -> Result<(Effect<V>, AtomicStats), CounterError> {
        let (began, mut stats) = (Instant::now(), AtomicStats::default());
        let mut outcome = self.run(change.clone(), &self.policy).await;
        (stats.optimistic_tries, stats.optimistic_time) = (outcome.tries, began.elapsed());
        if let (Err(Failure::Contended), Some(promotion)) = (&outcome.result, &self.promoted) {
            let began = Instant::now();
            // Boxed: a rare branch must not enlarge the future.
            if let Some(promoted) = Box::pin(self.run_promoted(change, promotion)).await? {
                stats.promoted_tries = promoted.tries;
                outcome = promoted;
            }
            stats.promoted_time = began.elapsed();
        }
        let path = || self.client.path_text(&self.path);
        match outcome.result {
            Ok(Effect::Overflow { value, delta }) => Err(CounterError::Overflow { path: path(), value, delta }),
            Ok(Effect::NotANumber { length }) => Err(self.not_a_number(length)),
            Ok(Effect::VersionsExhausted) => Err(CounterError::VersionsExhausted { path: path() }),
            Ok(effect) => Ok((effect, stats)),
            Err(Failure::Error(CounterError::Framework(error))) => Err(error.about(&self.path).into()),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Contended) => {
                let tries = stats.optimistic_tries.saturating_add(stats.promoted_tries);
                Err(CounterError::Contended { path: path(), tries })
            }
        }
    }

    /// Makes a change under the lock. Returns `None` if the limit of the wait for the lock has passed.
    async fn run_promoted(&self, change: Change<V>, promotion: &Promotion) -> Result<Option<Outcome<V>>, CounterError> {
        let (mutex, lock) = promotion;
        let guard = match lock.timeout {
            Some(timeout) => mutex.acquire_timeout(timeout).await,
            None => mutex.acquire().await.map(Some),
        };
        let Some(guard) = guard.map_err(CounterError::Lock)? else { return Ok(None) };
        let outcome = self.run(change, &lock.retry_policy).await;
        // If the release fails, the lock's node is deleted in the background, and the change counts anyway.
        let _released = guard.release().await;
        Ok(Some(outcome))
    }

    /// Queues a change, and sends requests until it is decided, unless another caller does.
    async fn run(&self, change: Change<V>, policy: &Arc<dyn RetryPolicy>) -> Outcome<V> {
        let (id, outcome) = self.engine.lock().submit(change, Arc::clone(policy), Instant::now());
        let mut ticket = Ticket { engine: &self.engine, id, outcome };
        let decided = tokio::select! {
            biased;
            decided = &mut ticket.outcome => decided,
            mut requests = self.requests.lock() => {
                // Boxed: the futures of callers that wait for another one stay small.
                Box::pin(Runner::new(self, &mut requests).run(&ticket)).await;
                drop(requests);
                (&mut ticket.outcome).await
            }
        };
        // Never fails: the engine ends each change that has a caller.
        decided.unwrap_or_else(|_| Outcome { result: Err(Failure::Error(Error::Closed.into())), tries: 0 })
    }

    fn not_a_number(&self, length: usize) -> CounterError {
        let expected = V::LENGTH.unwrap_or_default();
        CounterError::NotANumber { path: self.client.path_text(&self.path), length, expected }
    }
}

impl<V: Content> fmt::Debug for Counter<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("path", &self.path).field("promoted", &self.promoted).finish_non_exhaustive()
    }
}
