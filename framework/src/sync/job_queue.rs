//! Jobs that run one after the other on a thread of their own.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A queue of jobs. The thread starts with the first job and ends when the queue is empty. Clones share one queue.
#[derive(Clone)]
pub(crate) struct JobQueue {
    state: Arc<Mutex<State>>,
    /// Runs one job, and catches its panic.
    run: fn(Job),
}

struct State {
    jobs: VecDeque<Job>,
    running: bool,
}

impl JobQueue {
    pub(crate) fn new(run: fn(Job)) -> Self {
        Self { state: Arc::new(Mutex::new(State { jobs: VecDeque::new(), running: false })), run }
    }

    /// Appends a job to the queue. Never blocks, never runs the job itself. After an error the job stays in the queue,
    /// and the next submit tries again to start a thread.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        if !state.running {
            let queue = self.clone();
            std::thread::Builder::new().name("curator-safe-notify".into()).spawn(move || queue.drain())?;
            state.running = true;
        }
        Ok(())
    }

    /// Returns the number of jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().jobs.len()
    }

    fn drain(&self) {
        loop {
            let job = {
                let mut state = self.state.lock();
                match state.jobs.pop_front() {
                    Some(job) => job,
                    None => {
                        state.running = false;
                        return;
                    }
                }
            };
            (self.run)(job);
        }
    }
}
