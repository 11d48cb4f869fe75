//! Runs user code away from the tasks that keep the session: Curator's safe notify.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;

use crate::sync::job_queue::{Job, JobQueue};
use crate::sync::user_code::catch_panic;

/// Runs jobs one after the other, in order, on a thread of its own: Curator's `runSafe`.
///
/// Listeners run in one, so that user code cannot block the tasks that keep the session alive. Clones share one
/// executor. Jobs that need an order go to the same executor; a job that must not wait for others needs its own one.
///
/// * The thread starts with the first job and ends when the queue is empty. It is detached, so it never delays the end
///   of a runtime or of the process; a job that is still queued then does not run.
/// * A job that blocks delays only the jobs behind it in the same executor. They wait in memory, without a limit.
/// * A job that panics causes an error event, and the next one runs.
/// * A job may submit to its own executor.
/// * A job is not in an async task, so it may block, and wait with [`Handle::block_on`]. It is in the context of the tokio
///   runtime in which the executor was created or first used, so `tokio::spawn` works.
/// * Dropping the executor does not cancel its queued jobs.
///
/// # Examples
///
/// ```
/// use curator_framework::SafeNotifyExecutor;
///
/// let executor = SafeNotifyExecutor::new();
/// let (sender, receiver) = std::sync::mpsc::channel();
/// executor.submit(|| panic!("the executor goes on"));
/// executor.submit(move || sender.send("done").unwrap());
/// assert_eq!(receiver.recv(), Ok("done"));
/// ```
#[derive(Clone)]
pub struct SafeNotifyExecutor {
    queue: JobQueue,
    runtime: Arc<OnceLock<Handle>>,
}

impl SafeNotifyExecutor {
    /// Creates an executor without jobs, and so without a thread.
    #[must_use]
    pub fn new() -> Self {
        let executor = Self { queue: JobQueue::new(run), runtime: Arc::default() };
        executor.note_runtime();
        executor
    }

    /// Appends a job to the queue. Never blocks, never runs the job itself. If the system refuses a thread, this logs
    /// an error event, and the next submit tries again.
    #[doc(alias = "runSafe")]
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        if let Err(error) = self.try_submit(job) {
            tracing::error!(%error, "no thread for listeners was started; the next notification tries again");
        }
    }

    /// Appends a job to the queue as [`submit`](Self::submit) does, and logs nothing. After an error the job stays in
    /// the queue.
    pub(crate) fn try_submit(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.note_runtime();
        let runtime = Arc::clone(&self.runtime);
        self.queue.submit(move || {
            let _context = runtime.get().map(Handle::enter);
            job();
        })
    }

    /// Keeps the runtime of the caller, if none is known. Losses are reported by a thread outside of all runtimes.
    fn note_runtime(&self) {
        if self.runtime.get().is_none() {
            // Another call may set it first.
            let _kept = Handle::try_current().map(|runtime| self.runtime.set(runtime));
        }
    }
}

fn run(job: Job) {
    // The panic is logged.
    let _panicked = catch_panic("listener", job);
}

impl Default for SafeNotifyExecutor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SafeNotifyExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafeNotifyExecutor").field("waiting", &self.queue.waiting()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_run_in_order_and_survive_a_panic() {
        let executor = SafeNotifyExecutor::new();
        let (sender, receiver) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            executor.submit(move || {
                sender.send(number).unwrap();
                if number == 7 {
                    std::panic::resume_unwind(Box::new("a listener that fails"));
                }
            });
        }
        drop(sender);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn jobs_are_in_the_context_of_the_first_runtime() {
        let executor = SafeNotifyExecutor::default();
        for is_outside in [false, true] {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let job = || drop(tokio::spawn(async { sender.send(()) }));
            match is_outside {
                false => executor.submit(job),
                true => std::thread::scope(|scope| drop(scope.spawn(|| executor.submit(job)))),
            }
            receiver.await.expect("the task runs");
        }
    }

    #[test]
    fn a_job_may_submit_to_its_own_executor() {
        let executor = SafeNotifyExecutor::new();
        let (sender, receiver) = mpsc::channel();
        let inner = executor.clone();
        executor.submit(move || inner.submit(move || sender.send(()).unwrap()));
        receiver.recv().unwrap();
    }
}
