//! The grants under which a command runs.

use std::future::pending;
use std::time::{Duration, SystemTime};

use curator_framework::{LossReason, make_path};
use curator_recipes::{Delivery, FencingToken, Leadership, LockGuard};

use crate::nested;

/// A grant: a lock that is held, a term in which this process leads, a registration, or an item of a queue.
pub(crate) trait Grant {
    /// Returns the words for the grant at this path in a message.
    fn what(&self, path: &str) -> String;

    /// Returns the environment variables of the command, for a grant at this path.
    fn variables(&self, path: &str) -> Vec<(&'static str, String)>;

    /// Returns how long the grant certainly lasts if the servers send nothing more. Default: without end.
    fn remaining(&self) -> Duration {
        Duration::MAX
    }

    /// Returns `true` until the grant is lost. Default: always.
    fn is_held(&self) -> bool {
        true
    }

    /// Resolves when the grant is lost. Default: never.
    async fn lost(&self) -> LossReason {
        pending().await
    }

    /// Resolves when another client asks for the release. Default: never.
    async fn revocation_requested(&self) {
        pending().await
    }
}

/// Returns the variables of a grant that excludes other processes, and the one that has its path.
fn exclusive(
    (variable, path): (&'static str, &str),
    node: &str,
    token: FencingToken,
    remaining: Duration,
) -> Vec<(&'static str, String)> {
    let deadline = (SystemTime::now() + remaining).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    vec![
        (variable, path.to_owned()),
        ("CURATOR_NODE", node.to_owned()),
        ("CURATOR_FENCING_TOKEN", token.czxid().get().to_string()),
        ("CURATOR_DEADLINE", format!("{}.{:03}", deadline.as_secs(), deadline.subsec_millis())),
    ]
}

impl Grant for LockGuard {
    fn what(&self, path: &str) -> String {
        format!("the lock {path}")
    }

    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        let node = self.node_path();
        let mut variables = exclusive(("CURATOR_LOCK_PATH", path), node, self.token(), self.remaining());
        variables.push(nested::variable(node));
        variables
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
    fn what(&self, path: &str) -> String {
        format!("leadership of {path}")
    }

    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        let mut variables = exclusive(("CURATOR_LOCK_PATH", path), self.node_path(), self.token(), self.remaining());
        variables.push(("CURATOR_TERM", self.token().czxid().get().to_string()));
        variables.push(nested::variable(self.node_path()));
        variables
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
}

impl Grant for Delivery<Vec<u8>> {
    fn what(&self, path: &str) -> String {
        format!("the item {} of {path}", self.name())
    }

    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        let node = make_path(path, self.name());
        let mut variables = exclusive(("CURATOR_QUEUE_PATH", path), &node, self.token(), self.remaining());
        variables.push(("CURATOR_ITEM_KEY", self.key().get().to_string()));
        variables.push(("CURATOR_ATTEMPT", self.attempt().to_string()));
        variables
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
}
