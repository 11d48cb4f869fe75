//! The ephemeral nodes that the tasks of one session have for their own.

use std::collections::HashSet;
use std::sync::Arc;

use curator_framework::Session;
use parking_lot::Mutex;

/// The zxids of the transactions that have created the nodes.
#[derive(Debug, Default)]
struct Claims(Mutex<HashSet<i64>>);

/// The claim of one task to a node, up to its drop. It tells two objects of one client at one path apart.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Claims>,
    czxid: i64,
}

impl Claim {
    /// Claims a node. Returns `None` if another task of the session has claimed it.
    pub(super) fn new(session: &Session, czxid: i64) -> Option<Self> {
        let claims = session.extension::<Claims>();
        let is_new = claims.0.lock().insert(czxid);
        is_new.then(|| Self { claims, czxid })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.lock().remove(&self.czxid);
    }
}
