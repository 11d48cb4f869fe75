//! The code that acquires a lock, for the warning before a task waits for itself.

use std::panic::Location;
use std::thread::ThreadId;

use crate::engine::owner::LockOwner;

/// The owner of one acquire, and its place in the source code.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) owner: Option<LockOwner>,
    pub(crate) at: &'static Location<'static>,
}

/// The origin of one acquire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) at: &'static Location<'static>,
    runs_in: RunsIn,
    has_owner: bool,
}

/// The task that polls an acquire. A future outside of all tasks, such as the future of `block_on`, stays on its
/// thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunsIn {
    Task(tokio::task::Id),
    Thread(ThreadId),
}

impl Caller {
    /// Returns a caller with the owner of the enclosing scope.
    pub(crate) fn in_scope(at: &'static Location<'static>) -> Self {
        Self { owner: LockOwner::current(), at }
    }

    pub(crate) fn with_owner(owner: &LockOwner, at: &'static Location<'static>) -> Self {
        Self { owner: Some(owner.clone()), at }
    }

    /// Returns the origin of an acquire that the current task polls.
    pub(crate) fn origin(&self) -> Origin {
        let thread = || RunsIn::Thread(std::thread::current().id());
        Origin {
            at: self.at,
            runs_in: tokio::task::try_id().map_or_else(thread, RunsIn::Task),
            has_owner: self.owner.is_some(),
        }
    }
}

impl Origin {
    /// Returns whether `other` waits for this acquire in the task that made it. Two owners of one task may take turns.
    pub(crate) fn is_waited_for_by(&self, other: &Self) -> bool {
        self.runs_in == other.runs_in && !(self.has_owner && other.has_owner)
    }
}
