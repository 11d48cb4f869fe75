//! The budget of an acquire.

use std::future::Future;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::{Budget, RecipeClient as _};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::engine::error::LockError;

/// The time that a caller is ready to wait, everything included: the connection, missing parents, the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    Forever,
    Until(Instant),
    /// The caller asks once, and gets a result within the connection timeout.
    Once,
}

impl WaitMode {
    /// Returns a budget that starts now. A budget of zero still asks once, as Curator's does.
    pub(crate) fn within(budget: Duration) -> Self {
        match Budget::of(budget).end() {
            _ if budget.is_zero() => Self::Once,
            Some(end) => Self::Until(end),
            None => Self::Forever,
        }
    }

    /// Carries out a part of an acquire. Returns `Ok(None)` when the budget is used up and another contender is ahead.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss` when the budget is used up and nothing is known of another contender; also if a caller
    /// that asks once gets no reply in time. The error names `path`.
    pub(crate) async fn bound<T>(
        self,
        client: &CuratorFramework,
        path: &str,
        contention: &Contention,
        part: impl Future<Output = Result<T, LockError>>,
    ) -> Result<Option<T>, LockError> {
        let end = match self {
            Self::Forever => return part.await.map(Some),
            Self::Until(end) => end,
            Self::Once => Instant::now() + client.connection_timeout(),
        };
        match timeout_at(end, part).await {
            Ok(done) => done.map(Some),
            Err(_elapsed) if self != Self::Once && contention.is_known(client) => Ok(None),
            Err(_elapsed) => Err(client.no_answer(&format!("acquiring {path}")).into()),
        }
    }

    /// Returns whether the budget is used up.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Until(end) if end <= Instant::now())
    }
}

/// The evidence of one acquire that another contender is ahead of it.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    evidence: Mutex<Evidence>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    #[default]
    None,
    /// The newest reply showed another contender ahead.
    Shown,
    /// The awaited contender is gone, and the reply that shows the next one is due by this time.
    ShownUntil(Instant),
}

impl Contention {
    /// Records a reply that shows another contender ahead.
    pub(crate) fn is_shown(&self) {
        *self.evidence.lock() = Evidence::Shown;
    }

    /// Records that a newer reply is awaited, for at most `patience`. A healthy server replies within that time. Without
    /// it, a budget that ends in the middle of that round trip would report an outage.
    pub(crate) fn is_outdated(&self, patience: Duration) {
        let mut evidence = self.evidence.lock();
        if *evidence == Evidence::Shown {
            *evidence = Evidence::ShownUntil(Instant::now() + patience);
        }
    }

    /// Records that nothing is known, because the connection or the own node is lost.
    pub(crate) fn is_unknown(&self) {
        *self.evidence.lock() = Evidence::None;
    }

    /// Returns whether another contender is ahead, as far as a connected client can know.
    pub(crate) fn is_known(&self, client: &CuratorFramework) -> bool {
        let is_valid = match *self.evidence.lock() {
            Evidence::None => false,
            Evidence::Shown => true,
            Evidence::ShownUntil(end) => Instant::now() < end,
        };
        is_valid && client.is_connected()
    }
}
