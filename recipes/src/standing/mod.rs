//! Standing tasks, which outlive sessions: a task with one loop a session, its state, its changes, its listeners.
//!
//! The task gets a [weak clone](curator_framework::recipe::RecipeClient::weak_clone) of the client. It ends when it is
//! closed, when its owner is dropped, or when the client is closed.
//!
//! The weak clone does not keep the client open. So a program that drops an object and its client ends the session,
//! even if the task still runs.

pub(crate) mod changes;
pub(crate) mod in_sessions;
pub(crate) mod runs;
pub(crate) mod source;

use std::future::Future;
use std::time::Duration;

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::{CuratorFramework, Error, Session};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Waits until the session's server has all that was committed before. The server of a new session may lag behind the
/// server of an earlier one.
pub(crate) async fn catch_up(session: &Session, path: &str) -> curator_framework::Result<()> {
    match session.sync(path).await {
        // Such a client sends a write in place of it.
        Err(Error::Unsupported { .. }) => session.write_barrier().await,
        synced => synced,
    }
}

/// Waits until `look` finds something in a state. `None` if the states end before. `look` gets a copy: it may call code
/// of the program, which may read the states.
pub(crate) async fn first_found<S: Clone, T>(
    mut states: watch::Receiver<S>,
    look: impl Fn(S) -> Option<T>,
) -> Option<T> {
    loop {
        let state = states.borrow_and_update().clone();
        if let Some(found) = look(state) {
            return Some(found);
        }
        states.changed().await.ok()?;
    }
}

/// Waits for the first load of a task for at most `budget`. `None` if that ends while the client is connected. `request`
/// names the wait in the error.
pub(crate) async fn within<T, E: From<Error>>(
    client: &CuratorFramework,
    budget: Duration,
    request: impl FnOnce() -> String,
    first: impl Future<Output = Result<T, E>>,
) -> Result<Option<T>, E> {
    match Budget::of(budget).limit(first).await {
        Some(first) => first.map(Some),
        None if client.is_connected() => Ok(None),
        None => Err(client.no_answer(&request()).into()),
    }
}

/// The first pause after a failed attempt. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The limit after errors that may pass, such as a lost connection.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The limit after other errors, such as a missing permission.
const LONGEST_PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(30);

/// The pauses between attempts of a task that never gives up.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Pauses {
    /// Returns the pause after a failed attempt. `may_pass` is true for errors that waiting can fix.
    pub(crate) fn after(&mut self, may_pass: bool) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(if may_pass { LONGEST_PAUSE } else { LONGEST_PAUSE_WHEN_REFUSED });
        pause
    }
}

/// The order to a standing task to end.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Resolves when the task has to end.
    pub(crate) async fn requested(&mut self) {
        // An error means that the owner was dropped, which ends the task as well.
        drop(self.0.wait_for(|&stop| stop).await);
    }
}

/// The reason why a task cannot be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartError {
    AlreadyStarted,
    Closed,
    NoRuntime,
}

/// The end of a task at the drop of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtDrop {
    /// The task is aborted.
    Abort,
    /// The task is ordered to end, and continues until it has cleaned up.
    Stop,
}

/// A task that outlives sessions. Its drop ends it.
#[derive(Debug)]
pub(crate) struct StandingTask {
    life: Mutex<Life>,
    stop: watch::Sender<bool>,
    ended: watch::Sender<bool>,
    at_drop: AtDrop,
}

#[derive(Debug)]
enum Life {
    Latent,
    Started(AbortHandle),
    Closed,
}

impl Life {
    fn check_latent(&self) -> Result<(), StartError> {
        match self {
            Self::Latent => Ok(()),
            Self::Started(_) => Err(StartError::AlreadyStarted),
            Self::Closed => Err(StartError::Closed),
        }
    }
}

/// Records the end of the task, however it ends.
struct End(watch::Sender<bool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl StandingTask {
    /// Returns a task that is aborted at the drop.
    pub(crate) fn new() -> Self {
        Self::ending_by(AtDrop::Abort)
    }

    /// Returns a task that is ordered to end at the drop, and cleans up.
    pub(crate) fn that_cleans_up() -> Self {
        Self::ending_by(AtDrop::Stop)
    }

    fn ending_by(at_drop: AtDrop) -> Self {
        let (stop, ended) = (watch::Sender::new(false), watch::Sender::new(true));
        Self { life: Mutex::new(Life::Latent), stop, ended, at_drop }
    }

    /// Starts the task, once.
    pub(crate) fn start<F>(&self, work: impl FnOnce(Stop) -> F) -> Result<(), StartError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut life = self.life.lock();
        life.check_latent()?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_no_runtime| StartError::NoRuntime)?;
        self.ended.send_replace(false);
        let (work, end) = (work(Stop(self.stop.subscribe())), End(self.ended.clone()));
        let task = runtime.spawn(async move {
            let _end = end;
            work.await;
        });
        *life = Life::Started(task.abort_handle());
        Ok(())
    }

    /// Returns the reason why the task cannot be started, if there is one.
    pub(crate) fn check_latent(&self) -> Result<(), StartError> {
        self.life.lock().check_latent()
    }

    /// Orders the task to end. It ends even if nothing awaits it.
    pub(crate) fn stop(&self) {
        *self.life.lock() = Life::Closed;
        self.stop.send_replace(true);
    }

    /// Orders the task to end, and waits for that, at most for the client's `max_close_wait`. Then the task continues to
    /// clean up.
    pub(crate) async fn close(&self, client: &CuratorFramework) {
        self.stop();
        let _in_time = client.within(client.close_budget(), self.ended()).await;
    }

    /// Resolves when the task has ended, at once if it was never started.
    pub(crate) async fn ended(&self) {
        // Never fails: `self` has the sender.
        drop(self.ended.subscribe().wait_for(|&ended| ended).await);
    }
}

impl Drop for StandingTask {
    fn drop(&mut self) {
        // The drop of the sender orders the task to end.
        if let (AtDrop::Abort, Life::Started(task)) = (self.at_drop, &*self.life.lock()) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_starts_once_and_ends_with_its_close() {
        let task = StandingTask::new();
        let run = |mut stop: Stop| async move { stop.requested().await };
        assert_eq!(task.start(run), Ok(()));
        assert_eq!(task.start(run), Err(StartError::AlreadyStarted));
        task.stop();
        task.ended().await;
        task.stop();
        task.ended().await;
        assert_eq!(task.start(run), Err(StartError::Closed));
    }

    #[tokio::test]
    async fn a_close_awaits_the_end_of_a_task_that_panics() {
        let task = StandingTask::new();
        task.start(|_| async { panic!("on purpose") }).unwrap();
        task.ended().await;
    }

    #[tokio::test]
    async fn a_drop_ends_the_task() {
        let task = StandingTask::new();
        let ended = task.ended.clone();
        task.start(|_| std::future::pending()).unwrap();
        drop(task);
        ended.subscribe().wait_for(|&ended| ended).await.unwrap();
    }

    #[tokio::test]
    async fn a_drop_lets_a_task_clean_up() {
        let (task, cleaned) = (StandingTask::that_cleans_up(), watch::Sender::new(false));
        let cleaning = cleaned.clone();
        let work = |mut stop: Stop| async move {
            stop.requested().await;
            tokio::task::yield_now().await;
            cleaning.send_replace(true);
        };
        task.start(work).unwrap();
        drop(task);
        cleaned.subscribe().wait_for(|&cleaned| cleaned).await.unwrap();
    }

    #[test]
    fn a_task_needs_a_runtime() {
        let task = StandingTask::new();
        assert_eq!(task.start(|_| async {}), Err(StartError::NoRuntime));
    }

    #[test]
    fn pauses_grow_up_to_the_limit_of_the_error() {
        for (may_pass, longest) in [(true, LONGEST_PAUSE), (false, LONGEST_PAUSE_WHEN_REFUSED)] {
            let mut pauses = Pauses::default();
            assert_eq!(pauses.after(may_pass), FIRST_PAUSE);
            assert_eq!(pauses.after(may_pass), FIRST_PAUSE * 2);
            assert_eq!((0..20).map(|_| pauses.after(may_pass)).last(), Some(longest));
        }
    }
}
