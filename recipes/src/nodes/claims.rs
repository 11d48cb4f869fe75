//! The ephemeral nodes of one session, each claimed by one task at most.
//!
//! After a lost reply to a sequential create, a write barrier and a listing find the node (`keeper/lost_create.rs`).
//! Tasks with the same path and data divide such nodes among them by claims.

use std::collections::HashSet;
use std::sync::Arc;

use curator_framework::Session;
use parking_lot::Mutex;

/// The zxids of the transactions that have created the claimed nodes.
#[derive(Debug, Default)]
struct Claims(Mutex<HashSet<i64>>);

/// The claim of one task to a node, up to its drop. Two objects of one client at one path never count one node as
/// theirs. After a lost reply the session alone does not show which of them has created it.
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
