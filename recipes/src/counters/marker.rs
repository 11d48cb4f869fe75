//! The marker of a counter: an ephemeral child of its node. Each transaction that changes the node writes the number of
//! the try into the marker, which after a lost reply shows if that transaction was applied.

use curator_framework::{CreateMode, Error, Operation, Session, Stat};

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

/// The number of children of a node that have been deleted, at one moment. While it stays the same, a marker that is
/// missing was not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deletions {
    /// The node; `None` before its creation.
    czxid: Option<i64>,
    /// Twice the number, which may wrap around.
    doubled: i32,
}

impl Deletions {
    /// Of a node that does not exist.
    pub(super) const NONE: Self = Self { czxid: None, doubled: 0 };

    /// The server adds 1 to `cversion` for each child that is created, and for each one that is deleted.
    pub(super) const fn of(stat: &Stat) -> Self {
        Self { czxid: Some(stat.czxid), doubled: stat.cversion.wrapping_sub(stat.num_children) }
    }

    /// Returns `true` if no child has been deleted between this moment and a later one.
    fn are_the_same(self, later: Self) -> bool {
        self.doubled == later.doubled && (self.czxid.is_none() || self.czxid == later.czxid)
    }
}

/// The proof that a marker gives of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    Applied,
    NotApplied,
    /// The marker is missing, and it stood before, or may have been deleted since.
    None,
}

/// A marker in one session. Its drop deletes the node.
///
/// It is not an [`OwnedNode`](curator_framework::OwnedNode): its loss harms nothing, so its session needs no heartbeats.
#[derive(Debug)]
pub(super) struct Marker {
    session: Session,
    /// The counter's node.
    node: String,
    path: String,
    standing: Standing,
}

impl Marker {
    /// Describes a marker of the node at `path`, without a request. The session must not be pinned.
    pub(super) fn new(session: &Session, path: &str) -> Self {
        let marker = session.new_protected_path(path, MARKER);
        Self { session: session.clone(), node: path.to_owned(), path: marker, standing: Standing::Absent }
    }

    /// Returns `true` if the marker is one of this session.
    pub(super) fn is_of(&self, session: &Session) -> bool {
        self.session.is_same(session)
    }

    /// Returns `true` if the node certainly existed at the newest reply.
    pub(super) fn stands(&self) -> bool {
        self.standing == Standing::Stands
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

    /// Reads behind a write barrier if the try `attempt` was applied. `before` are the deletions before it, if they are
    /// known.
    pub(super) async fn proof(&mut self, attempt: u64, before: Option<Deletions>) -> curator_framework::Result<Proof> {
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
                let is_proof = self.standing == Standing::Uncertain && self.was_not_deleted(before).await?;
                self.standing = Standing::Absent;
                Ok(if is_proof { Proof::NotApplied } else { Proof::None })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns `true` if the marker, which is missing, cannot have been deleted since `before`.
    async fn was_not_deleted(&self, before: Option<Deletions>) -> curator_framework::Result<bool> {
        // Only a forced value is written without a read. A repetition of it can only undo another client's change.
        let Some(before) = before else { return Ok(true) };
        let now = self.session.exists(&self.node).await?;
        Ok(before.are_the_same(now.map_or(Deletions::NONE, |stat| Deletions::of(&stat))))
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
