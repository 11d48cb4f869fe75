//! The steps of a lock, and the check for violations.
//!
//! A [`Locks`] is a list of steps with their times, from a simulation or from real processes. [`Locks::check`] finds
//! violations: too many holders, readers beside a writer, tokens that do not grow, a grant out of order, a free
//! lease beside a waiter, a node left at the end.
//!
//! A holder holds from its grant until it starts to release or is notified of its loss. If the *server* ended a session
//! or a node, the holder cannot be notified in time; such an end is a step of its own, [`Step::Revoked`]: exclusion
//! counts the holder until then, and its loss must be notified within [`Rules::prompt`].

mod checker;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;

/// The id of one attempt of one contender, from its start to its end. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// The kind of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A mutex, a lease, a write lock.
    Exclusive,
    /// A read lock.
    Shared,
    /// This number of leases of a semaphore, taken at once: all or none.
    Leases(usize),
}

impl Mode {
    /// Returns the number of leases that it takes.
    const fn places(self) -> usize {
        match self {
            Self::Leases(leases) => leases,
            Self::Exclusive | Self::Shared => 1,
        }
    }
}

/// One step of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// It started to wait.
    Asked(Mode),
    /// It stopped waiting without a grant: timeout, an error, a dropped future.
    GaveUp,
    /// It has the lock, with this fencing token.
    Granted(i64),
    /// It wrote and from now on reads only, with this fencing token: the same as before.
    Downgraded(i64),
    /// The server took its node away: session killed, node deleted, session swapped. For a waiter, a following grant
    /// was on its way then: it holds nothing, and must be notified of its loss.
    Revoked,
    /// Like [`Revoked`](Self::Revoked), for a waiter: the server took its node away at this earlier time. A grant may
    /// follow only if its listing was sent before: see [`Rules::on_its_way`].
    RevokedSince(Duration),
    /// It was notified of its loss, or saw it when it checked.
    Lost,
    /// It started to release: from now on it does not rely on the lock.
    Releasing,
    /// The release was answered, or handed to the background.
    Released,
}

/// One event: a step of an attempt.
pub type Event = (Attempt, Step);

/// The rules that a lock must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The number of exclusive holders allowed at once: 1 for a mutex, n for a semaphore.
    pub max_leases: usize,
    /// True if tokens must grow from grant to grant, which is also first come, first served: a writer's above all
    /// others, a reader's above all writers'.
    pub growing_tokens: bool,
    /// The limit of the time from [`Step::Revoked`] to the notification of the loss. `None`: not checked.
    pub prompt: Option<Duration>,
    /// The limit of the time for which a grant may be on its way after the server took the node away, outside of
    /// [slow](Locks::slow) times: the time of a listing that was sent just before. `None`: not checked.
    pub on_its_way: Option<Duration>,
    /// The limit of a wait beside a free lease outside of faults, without any grant.
    pub patience: Duration,
    /// True if no holder may lose its lock outside of faults.
    pub kept_in_calm: bool,
}

impl Rules {
    /// Returns the rules of a mutex.
    #[must_use]
    pub const fn mutex(patience: Duration) -> Self {
        Self { max_leases: 1, growing_tokens: true, prompt: None, on_its_way: None, patience, kept_in_calm: false }
    }

    /// Returns the rules of a read-write lock: shared readers, exclusive writers, no reader past an earlier writer.
    #[must_use]
    pub const fn read_write(patience: Duration) -> Self {
        Self::mutex(patience)
    }

    /// Returns the rules of a semaphore with this many leases. Its tokens only identify the leases; with a single lease
    /// they grow.
    #[must_use]
    pub const fn semaphore(max_leases: usize, patience: Duration) -> Self {
        Self { max_leases, ..Self::mutex(patience) }.with_growing_tokens(max_leases == 1)
    }

    /// Adds that no holder may lose its lock outside of faults. Not for processes that may be slow.
    #[must_use]
    pub const fn no_loss_in_calm(mut self) -> Self {
        self.kept_in_calm = true;
        self
    }

    const fn with_growing_tokens(mut self, growing_tokens: bool) -> Self {
        self.growing_tokens = growing_tokens;
        self
    }

    /// Adds that no grant may come later than this after the end of its node.
    #[must_use]
    pub const fn on_its_way(mut self, within: Duration) -> Self {
        self.on_its_way = Some(within);
        self
    }

    /// Adds that a revoked holder must be notified of its loss within this time.
    #[must_use]
    pub const fn prompt(mut self, within: Duration) -> Self {
        self.prompt = Some(within);
        self
    }
}

/// The steps of all attempts on one lock, in the order of time.
pub type Locks = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of grants.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.count(|(_, step)| matches!(step, Step::Granted(_)))
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}
