//! The state of a latch, and what the latch and its task share.

use std::sync::Arc;

use curator_framework::recipe::{Budget, Listeners};
use tokio::sync::watch;

use crate::engine::candidacy::Candidacy;
use crate::leader::error::LeaderError;
use crate::leader::options::CloseMode;
use crate::leader::term::Leadership;
use crate::standing::changes::Published;
#[cfg(doc)]
use crate::{LeaderLatch, LeaderLatchOptions};

/// The state of a [`LeaderLatch`] or a [`LeaderSelector`](crate::LeaderSelector).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeaderState {
    /// The latch was not started, or no run of the selector is in progress.
    Latent,
    /// The candidate joins the queue, or waits in it.
    Waiting {
        /// The number of candidates ahead at the newest listing. Candidates other than the leader may have left since. `None`
        /// until a listing has shown the latch's node, and for a selector.
        position: Option<usize>,
    },
    /// The candidate leads. In a channel the state may be a moment old: [`Leadership::is_held`] compares the clock.
    Leading(Leadership),
    /// The candidate is not in the queue: the latch [abstains](LeaderLatch::abstain) or is not
    /// [eligible](LeaderLatchOptions::eligible), or the selector [pauses](crate::LeaderSelectorOptions::back_off).
    Abstaining,
    /// An attempt failed with an error that waiting cannot fix, such as a missing permission. The latch tries again,
    /// with growing pauses of up to 30 s. The run of a selector returns the error, and the next state is `Latent`.
    ///
    /// `Error::TooManyEphemeralNodes` passes when nodes of the session have gone. A latch tries again with pauses of up
    /// to 1 s, and a selector does so too, without this state.
    Failed(LeaderError),
    /// The candidate was closed, the client of the latch was closed, or its runtime has ended.
    Closed,
}

impl LeaderState {
    /// Returns the state without a term that has ended. Its task or run publishes the next state a moment later.
    pub(super) fn now(self) -> Self {
        match self {
            Self::Leading(leadership) if !leadership.is_held() => Self::Waiting { position: None },
            state => state,
        }
    }

    /// Returns the leadership, if the term is not over.
    pub(super) fn leadership(&self) -> Option<&Leadership> {
        match self {
            Self::Leading(leadership) if leadership.is_held() => Some(leadership),
            _ => None,
        }
    }
}

/// The state that a latch shares with its task.
pub(super) struct Shared {
    pub(super) state: Published<LeaderState>,
    pub(super) listeners: Listeners<dyn Fn(&LeaderState) + Send + Sync>,
    pub(super) orders: watch::Sender<Orders>,
    pub(super) candidacy: Arc<Candidacy>,
}

/// The orders of the latch's owner to the task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orders {
    /// The number of orders to abstain. Each counts, even one that has ended before the task sees it.
    pub(super) abstentions: u64,
    pub(super) abstains: Option<Budget>,
    pub(super) close_mode: CloseMode,
}
