//! The grants under which a command runs.

use std::time::Duration;

use curator_framework::LossReason;
use curator_recipes::LockGuard;

/// A grant: a lock that is held.
pub(crate) trait Grant {
    /// Returns the words for the grant in a message.
    fn what(&self) -> &'static str;

    /// Returns the path of the node that holds the grant.
    fn node(&self) -> &str;

    /// Returns a number that grows with every exclusive grant.
    fn fencing_token(&self) -> i64;

    /// Returns how long the grant certainly lasts if the servers send nothing more.
    fn remaining(&self) -> Duration;

    fn is_held(&self) -> bool;

    /// Resolves when the grant is lost.
    async fn lost(&self) -> LossReason;

    /// Resolves when another client asks for the release.
    async fn revocation_requested(&self);
}

impl Grant for LockGuard {
    fn what(&self) -> &'static str {
        "the lock"
    }

    fn node(&self) -> &str {
        self.path()
    }

    fn fencing_token(&self) -> i64 {
        self.fencing_token()
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    async fn lost(&self) -> LossReason {
        self.lost().await
    }

    async fn revocation_requested(&self) {
        self.revocation_requested().await;
    }
}
