//! The options of latches and selectors.

use std::time::Duration;

use curator_framework::Acl;
use tokio::sync::watch;

/// The effect of a close on the listeners of a leading latch: Curator's `CloseMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CloseMode {
    /// The close calls no listener: Curator's default.
    #[default]
    Silent,
    /// The close calls each [listener](crate::LeaderLatch::add_listener) at the end of the term.
    NotifyLeader,
}

/// The options of a [`LeaderLatch`](crate::LeaderLatch).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use curator_recipes::{CloseMode, LeaderLatchOptions};
///
/// let options = LeaderLatchOptions::new().id("host-7").close_mode(CloseMode::NotifyLeader);
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct LeaderLatchOptions {
    pub(super) id: String,
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) close_mode: CloseMode,
    pub(super) name: Option<String>,
    pub(super) delay: Option<Duration>,
    pub(super) eligible: Option<watch::Receiver<bool>>,
}

impl LeaderLatchOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id that other candidates and observers see: the data of the candidate's node. Default: empty.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the access control list of the candidate's node, which all candidates and observers must be able to read.
    /// The client's
    /// [`AclProvider`](curator_framework::AclProvider) chooses the default.
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Sets the effect of [`close`](crate::LeaderLatch::close) on the listeners of a leading latch. Default:
    /// [`Silent`](CloseMode::Silent).
    pub fn close_mode(mut self, mode: CloseMode) -> Self {
        self.close_mode = mode;
        self
    }

    /// Sets the name of the election in metrics and in the span `acquire`. Default: `leader_latch`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Delays each term by this time, unless the earlier leader has resigned: Consul's lock delay. The work of a leader
    /// that crashed, or that has not noticed its loss yet, then has this time to end.
    ///
    /// A leader that resigns records that in the path's data, in the transaction that deletes its node. So set the
    /// option for all candidates. Leaders without it, Java's, and those over the client `zookeeper-async` may count as
    /// crashed. A Java leader that has left before this candidate joins causes no delay.
    ///
    /// Missing parents and the path are created as persistent nodes, so the record outlives a crash of the only candidate.
    /// If another program has created the path as a container, the server may delete it then, and the delay is skipped.
    ///
    /// At a path with the data of another program the latch does not lead. Its state is
    /// [`Failed`](crate::LeaderState::Failed) with [`LeaderError::ForeignData`](crate::LeaderError::ForeignData).
    pub fn delay_after_unclean_loss(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Lets the candidate be in the queue or lead only while the value is `true`. At `false` a waiter leaves the queue,
    /// and a leader resigns. At `true` the candidate joins again at the back. The last value stays if the sender is
    /// dropped.
    pub fn eligible(mut self, eligible: watch::Receiver<bool>) -> Self {
        self.eligible = Some(eligible);
        self
    }
}

/// The options of a [`LeaderSelector`](crate::LeaderSelector).
#[derive(Debug, Clone)]
#[must_use = "options do nothing by themselves"]
pub struct LeaderSelectorOptions {
    pub(super) id: String,
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) name: Option<String>,
    pub(super) back_off: (Duration, Duration),
}

impl Default for LeaderSelectorOptions {
    fn default() -> Self {
        let back_off = (Duration::from_millis(100), Duration::from_secs(30));
        Self { id: String::new(), acl: None, name: None, back_off }
    }
}

impl LeaderSelectorOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id that other candidates and observers see: the data of the candidate's node. Default: the client's
    /// default data, as in Curator.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the access control list of the candidate's node, which all candidates and observers must be able to read.
    /// The client's
    /// [`AclProvider`](curator_framework::AclProvider) chooses the default.
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Sets the name of the election in metrics and in the span `acquire`. Default: `leader_selector`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the pauses of [`run`](crate::LeaderSelector::run) after failed terms: the first one, which doubles with
    /// each further failure, and the longest. Default: 100 ms and 30 s.
    pub fn back_off(mut self, first: Duration, longest: Duration) -> Self {
        self.back_off = (first, longest.max(first));
        self
    }
}
