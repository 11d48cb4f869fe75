//! A marker: an ephemeral node of a session. The transactions of a recipe write the number of the try into it.
//! After a lost reply its data shows whether the transaction was applied.
//!
//! | recipe | place of the marker | it proves |
//! | --- | --- | --- |
//! | counters | child of the counter's node | a change; while it exists, the node was not deleted and created again |
//! | queues | beside the queue's path | a put, or the delete of an item |
//!
//! A counter's marker is not an id in the counter's data: that would break the comparisons of Java's clients. A queue's
//! marker is not a child of the queue's path: Java's delay queues would take it for an item that is due at once, and
//! would never wait.

use curator_framework::spi::Operation;
use curator_framework::{CreateMode, Error, Session};

/// A marker in one session. Its drop deletes the node.
///
/// It is not an [`OwnedNode`](curator_framework::recipe::OwnedNode): its loss harms nothing, so its session needs no
/// heartbeats.
#[derive(Debug)]
pub(crate) struct Marker {
    session: Session,
    path: String,
    standing: Standing,
}

impl Marker {
    /// Describes a marker `_c_<uuid>-<name>` below `parent`, without a request. The session must not be pinned.
    pub(crate) fn new(session: &Session, parent: &str, name: &str) -> Self {
        let path = session.new_protected_path(parent, name);
        Self { session: session.clone(), path, standing: Standing::Absent }
    }

    /// Returns `true` if the marker is one of this session.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        self.session.is_same(session)
    }

    /// Returns `true` if the node certainly existed at the newest reply.
    pub(crate) fn stands(&self) -> bool {
        self.standing == Standing::Stands
    }

    /// Returns the operation that creates the marker for the try `attempt`; 0 for none. From here on the node may
    /// exist.
    pub(crate) fn create(&mut self, attempt: u64) -> Operation {
        self.standing = Standing::Uncertain;
        let path = self.path.clone();
        Operation::Create { acl: self.session.acl_for(&path), path, data: data(attempt), mode: CreateMode::Ephemeral }
    }

    /// Returns the operation that records the try `attempt`, from 1.
    pub(crate) fn record(&self, attempt: u64) -> Operation {
        Operation::SetData { path: self.path.clone(), data: data(attempt), version: None }
    }

    /// Records that the transaction with this marker's operation was applied.
    pub(crate) fn applied(&mut self) {
        self.standing = Standing::Stands;
    }

    /// Records that the transaction with this marker's operation was refused.
    pub(crate) fn refused(&mut self) {
        if self.standing == Standing::Uncertain {
            self.standing = Standing::Absent;
        }
    }

    /// Reads after a write barrier whether the try `attempt` was applied.
    pub(crate) async fn proof(&mut self, attempt: u64) -> curator_framework::Result<Proof> {
        let session = self.session.pinned();
        let both = futures_util::future::join(session.write_barrier(), session.get_data(&self.path));
        let (barrier, read) = session.in_one_write(both).await;
        barrier?;
        match read {
            Ok((found, _)) if found == data(attempt) => {
                self.standing = Standing::Stands;
                Ok(Proof::Applied)
            }
            // If the reply to the marker's create was lost, no read has shown the node after it. So it stays uncertain.
            Ok(_) => Ok(Proof::NotApplied),
            Err(Error::NoNode { .. }) => {
                self.standing = Standing::Absent;
                Ok(Proof::None)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the node. If that fails, the drop leaves it to the session.
    pub(crate) async fn delete(mut self) {
        if self.standing != Standing::Absent && self.session.delete(&self.path, None).await.is_ok() {
            self.standing = Standing::Absent;
        }
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        if self.standing != Standing::Absent {
            self.session.delete_in_background(&self.path, CreateMode::Ephemeral, None);
        }
    }
}

/// The proof that a marker gives of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Applied,
    NotApplied,
    /// The marker is missing.
    None,
}

/// The knowledge about the marker's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Absent,
    /// A create was sent, and its outcome is unknown.
    Uncertain,
    Stands,
}

/// Returns the data of a marker after a try; 0 before the first one.
fn data(attempt: u64) -> Vec<u8> {
    attempt.to_string().into_bytes()
}
