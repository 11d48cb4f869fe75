//! The task of a session that deletes nodes and watches owned nodes.
//!
//! A caller starts a job itself: it polls the job once, on its own thread, which writes the first request to the
//! socket. The task does the rest when the reply arrives. A caller never wakes the task, because tokio would keep it for
//! the caller's thread, and there it waits for as long as the caller computes.

mod attempt;
mod delete;
mod due_queue;
mod held_node;
mod jobs;
mod pending;
mod queues;
mod start;
mod task;

pub(crate) use self::held_node::rearm_watch;
pub(crate) use self::pending::{Delete, DeleteBacklog, PendingDelete, PendingGuard};
pub(crate) use self::queues::Background;
