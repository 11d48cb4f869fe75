//! The ephemeral nodes that exist as long as a term.

use std::collections::BTreeMap;

use curator_framework::{CreateMode, Error, Session, SessionId, Stat};
use futures_util::future::join_all;
use parking_lot::Mutex;

/// A node that exists, or may exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// A create may have succeeded.
    Perhaps,
    /// The node that this transaction has created.
    Created(i64),
}

impl Held {
    const fn is(self, found: &Stat) -> bool {
        match self {
            Self::Perhaps => true,
            Self::Created(czxid) => found.czxid == czxid,
        }
    }
}

/// The nodes of one term. Its end deletes them, and so does the drop.
pub(super) struct HeldNodes {
    session: Session,
    /// The nodes by their paths; `None` after the end.
    nodes: Mutex<Option<BTreeMap<String, Held>>>,
    /// Locked by the call that creates a node.
    pub(super) creating: tokio::sync::Mutex<()>,
}

impl HeldNodes {
    pub(super) fn new(session: &Session) -> Self {
        let nodes = Mutex::new(Some(BTreeMap::new()));
        Self { session: session.clone(), nodes, creating: tokio::sync::Mutex::default() }
    }

    pub(super) fn get(&self, path: &str) -> Option<Held> {
        self.nodes.lock().as_ref()?.get(path).copied()
    }

    /// Records what is known of a path. After the end it has the session delete a node that was created, and returns
    /// `false`.
    pub(super) fn set(&self, path: &str, held: Option<Held>) -> bool {
        match (self.nodes.lock().as_mut(), held) {
            (Some(nodes), Some(held)) => _ = nodes.insert(path.to_owned(), held),
            (Some(nodes), None) => _ = nodes.remove(path),
            (None, held) => {
                held.filter(|held| *held != Held::Perhaps).inspect(|held| self.delete_in_background(path, *held));
                return false;
            }
        }
        true
    }

    /// Deletes the nodes, and waits for the replies. What remains is left to [`abandon`](Self::abandon).
    pub(super) async fn delete(&self) {
        let nodes = self.nodes.lock().clone().unwrap_or_default();
        let delete = async |(path, held): (&String, &Held)| {
            let is_deleted = self.delete_one(path, *held).await.is_ok();
            // A concurrent call may have created another one, and a server that lags omits one that perhaps exists.
            if is_deleted
                && *held != Held::Perhaps
                && let Some(nodes) = self.nodes.lock().as_mut()
            {
                nodes.retain(|its, now| its != path || now != held);
            }
        };
        join_all(nodes.iter().map(delete)).await;
    }

    async fn delete_one(&self, path: &str, held: Held) -> Result<(), Error> {
        let id = self.session.id().map(SessionId::get);
        while let Some(found) = self.session.exists(path).await? {
            if Some(found.ephemeral_owner) != id || !held.is(&found) {
                break;
            }
            match self.session.delete(path, Some(found.version)).await {
                // Another client has written the node, or the next leader has replaced it.
                Err(Error::BadVersion { .. }) => {}
                Ok(()) | Err(Error::NoNode { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the term for its nodes: the session deletes them in the background.
    pub(super) fn abandon(&self) {
        for (path, held) in self.nodes.lock().take().into_iter().flatten() {
            self.delete_in_background(&path, held);
        }
    }

    fn delete_in_background(&self, path: &str, held: Held) {
        let czxid = match held {
            Held::Created(czxid) => Some(czxid),
            Held::Perhaps => None,
        };
        self.session.delete_in_background(path, CreateMode::Ephemeral, czxid);
    }
}

impl Drop for HeldNodes {
    fn drop(&mut self) {
        self.abandon();
    }
}
