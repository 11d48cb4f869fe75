//! The claim of an item: a transaction that creates its lock and raises its version.
//!
//! The name of a lock is its item's, so it does not distinguish one holder from the next. The version does: the
//! transaction that ends a delivery names the version that its claim has written. Java's consumers do not change it.
//!
//! The claim writes the same bytes as before, and creates the lock in the same transaction. So the version counts the
//! deliveries too.

use std::time::Duration;

use curator_framework::recipe::{NodeSpec, Occupant, OwnedNode};
use curator_framework::spi::{Done, Operation};
use curator_framework::{Error, Session, Stat, make_path};

/// The time after which the lock of a delivery is watched. Shorter deliveries cost no request for it: the version shows
/// at their end whether the lock was lost.
const WATCHED_AFTER: Duration = Duration::from_millis(500);

/// An item that was read, and that its reader wants to lock.
#[derive(Debug)]
pub(super) struct Claiming {
    pub(super) path: String,
    pub(super) name: Box<str>,
    /// The data as it is stored.
    pub(super) data: Vec<u8>,
    /// The stat of the read, without the claim.
    pub(super) stat: Stat,
    pub(super) lock: OwnedNode,
}

/// The outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed {
    Ours,
    /// Another consumer has the lock.
    Locked,
    /// The item was deleted.
    Gone,
    /// The item was written since it was read: another consumer has or had it.
    Changed,
    /// An earlier claim was not applied, or to a deleted item. The consumer reads the item again: its path may have
    /// been created again.
    NotApplied,
    /// The path of the locks does not exist.
    NoLockPath,
    /// The claimed node is another one than was read, with this `czxid`. The claim has written the data of the earlier
    /// one.
    Replaced(i64),
}

impl Claiming {
    pub(super) fn new(
        session: &Session,
        lock_path: &str,
        path: String,
        name: Box<str>,
        (data, stat): (Vec<u8>, Stat),
        joins: bool,
    ) -> Self {
        let lock = session.owned_node_at(&make_path(lock_path, &name), None).writing(&path);
        let lock = if joins { lock.joining() } else { lock };
        Self { path, name, data, stat, lock }
    }

    /// Sends the claim, or finds out if an earlier one with a lost reply was applied.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the lock may exist. The drop of the claim deletes it.
    pub(super) async fn claim(&mut self) -> Result<Claimed, Error> {
        let claimed = self.send().await?;
        if claimed == Claimed::Ours {
            self.lock.watch_node(WATCHED_AFTER);
        }
        Ok(claimed)
    }

    /// Returns the outcome of a claim of the node with this `czxid`. A node at a path that was created again may have the
    /// name and the version of the earlier one.
    const fn of_node(&self, czxid: i64) -> Claimed {
        if czxid == self.stat.czxid { Claimed::Ours } else { Claimed::Replaced(czxid) }
    }

    /// Returns whether the claim may be applied.
    pub(super) fn may_be_applied(&self) -> bool {
        self.lock.is_uncertain()
    }

    async fn send(&mut self) -> Result<Claimed, Error> {
        if self.lock.is_uncertain() {
            match self.lock.occupant().await? {
                Occupant::Own => {
                    let Some(found) = self.lock.session().exists(&self.path).await? else { return Ok(Claimed::Gone) };
                    let is_followed = found.czxid != self.stat.czxid;
                    // The claim was one of the earlier node if it has not raised the version of the one that is there.
                    return Ok(match is_followed && found.version != self.stat.version.wrapping_add(1) {
                        true => Claimed::NotApplied,
                        false => self.of_node(found.czxid),
                    });
                }
                Occupant::Missing => return Ok(Claimed::NotApplied),
                _ => return Ok(Claimed::Locked),
            }
        }
        let (path, data, version) = (self.path.clone(), self.data.clone(), Some(self.stat.version));
        let token = self.lock.protected_id().to_string();
        let raised = vec![Operation::SetData { path, data, version }];
        match self.lock.create_with(&NodeSpec::new(token.as_bytes()), raised).await {
            Ok((_, done)) => Ok(match done.first() {
                Some(Done::Set(stat)) => self.of_node(stat.czxid),
                _ => Claimed::Ours,
            }),
            Err(Error::Transaction { index, cause, .. }) => match (index, *cause) {
                (0, Error::NoNode { .. }) => Ok(Claimed::Gone),
                (0, Error::BadVersion { .. }) => Ok(Claimed::Changed),
                (_, Error::NodeExists { .. }) => Ok(Claimed::Locked),
                (_, Error::NoNode { .. }) => Ok(Claimed::NoLockPath),
                (_, cause) => Err(cause),
            },
            Err(error) => Err(error),
        }
    }
}
