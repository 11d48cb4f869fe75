//! The marker of a counter: an ephemeral child of its node. Each transaction that changes the node writes the number of
//! the try into the marker, which after a lost reply shows if that transaction was applied.

use curator_framework::{CreateMode, Error, Operation, Session};

/// The name of a marker, behind `_c_<uuid>-`.
const MARKER: &str = "count";

/// The knowledge about the marker's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Absent,
    /// A create was sent, and its outcome is unknown.
    Uncertain,
    Stands,
}

/// The proof that a marker gives of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    Applied,
    NotApplied,
    /// The marker is missing, although it stood before.
    None,
}

/// A marker in one session. Its drop deletes the node.
///
/// It is not an [`OwnedNode`](curator_framework::OwnedNode): its loss harms nothing, so its session needs no heartbeats.
#[derive(Debug)]
pub(super) struct Marker {
    session: Session,
    path: String,
    standing: Standing,
}

impl Marker {
    /// Describes a marker of the node at `path`, without a request. The session must not be pinned.
    pub(super) fn new(session: &Session, path: &str) -> Self {
        let marker = session.new_protected_path(path, MARKER);
        Self { session: session.clone(), path: marker, standing: Standing::Absent }
    }

    /// Returns `true` if the marker is one of this session.
    pub(super) fn is_of(&self, session: &Session) -> bool {
        self.session.is_same(session)
    }

    /// Returns the operation that records the try `attempt`. From here on the node may exist.
    pub(super) fn record(&mut self, attempt: u64) -> Operation {
        let (path, data) = (self.path.clone(), attempt.to_string().into_bytes());
        if self.standing == Standing::Stands {
            return Operation::SetData { path, data, version: None };
        }
        self.standing = Standing::Uncertain;
        Operation::Create { acl: self.session.acl_for(&path), path, data, mode: CreateMode::Ephemeral }
    }

    /// Records that the transaction with this marker's operation was applied.
    pub(super) fn applied(&mut self) {
        self.standing = Standing::Stands;
    }

    /// Records that the transaction with this marker's operation was refused.
    pub(super) fn refused(&mut self) {
        if self.standing == Standing::Uncertain {
            self.standing = Standing::Absent;
        }
    }

    /// Reads behind a write barrier if the try `attempt` was applied.
    pub(super) async fn proof(&mut self, attempt: u64) -> curator_framework::Result<Proof> {
        let session = self.session.pinned();
        let both = futures_util::future::join(session.write_barrier(), session.get_data(&self.path));
        let (barrier, read) = session.in_one_write(both).await;
        barrier?;
        match read {
            Ok((data, _)) => {
                self.standing = Standing::Stands;
                Ok(if data == attempt.to_string().into_bytes() { Proof::Applied } else { Proof::NotApplied })
            }
            Err(Error::NoNode { .. }) => {
                let before = std::mem::replace(&mut self.standing, Standing::Absent);
                // A create that was a part of the try was not applied either, unless an administrator has deleted the node
                // within this round trip.
                Ok(if before == Standing::Uncertain { Proof::NotApplied } else { Proof::None })
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the node. If that fails, the drop leaves it to the session.
    pub(super) async fn delete(mut self) {
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
