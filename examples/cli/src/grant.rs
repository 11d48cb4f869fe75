//! The grants under which a command runs.

use std::future::pending;
use std::time::{Duration, SystemTime};

use curator_framework::LossReason;
use curator_recipes::{Leadership, LockGuard, TermEnd};

/// A grant: a lock that is held, or a term in which this process leads.
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

    /// Returns the number of the term of a leader.
    fn term(&self) -> Option<i64> {
        None
    }

    /// Returns the environment variables of the command.
    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        let deadline = (SystemTime::now() + self.remaining()).duration_since(SystemTime::UNIX_EPOCH);
        let deadline = deadline.unwrap_or_default();
        let mut variables = vec![
            ("CURATOR_LOCK_PATH", path.to_owned()),
            ("CURATOR_NODE", self.node().to_owned()),
            ("CURATOR_FENCING_TOKEN", self.fencing_token().to_string()),
            ("CURATOR_DEADLINE", format!("{}.{:03}", deadline.as_secs(), deadline.subsec_millis())),
        ];
        variables.extend(self.term().map(|term| ("CURATOR_TERM", term.to_string())));
        variables
    }

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

impl Grant for Leadership {
    fn what(&self) -> &'static str {
        "leadership"
    }

    fn node(&self) -> &str {
        self.path()
    }

    fn fencing_token(&self) -> i64 {
        self.term()
    }

    fn term(&self) -> Option<i64> {
        Some(self.term())
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }

    fn is_held(&self) -> bool {
        self.is_leader()
    }

    async fn lost(&self) -> LossReason {
        match self.lost().await {
            TermEnd::Lost(reason) => reason,
            // This program resigns only after the command has ended.
            _ => pending().await,
        }
    }

    async fn revocation_requested(&self) {
        pending().await
    }
}
