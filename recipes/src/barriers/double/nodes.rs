//! The nodes of a double barrier, and the requests for them.
//!
//! Each change of a double barrier by this crate raises the version of the barrier's node, in the same transaction. The
//! deletion of a stale `ready` names that version and the version of `ready`, which a late member raises. So it never
//! deletes the `ready` of a later round, nor one with a late member.
//!
//! A member writes to its node before it deletes it: a watcher sees a change at a departure, and only a deletion at a
//! death. A member counts as deaths the children that were deleted without a write of a member. Two stats of the
//! barrier's node have both numbers, so no list is read.

use curator_framework::recipe::{Budget, OwnedNode, ProtectedId, RecipeClient as _};
use curator_framework::spi::{Done, Operation};
use curator_framework::{CreateMode, CuratorFramework, Error, Session, Stat, Watch, make_path};
use futures_util::future::{join_all, join3};

use super::options::DoubleBarrierOptions;
use super::plan::{Look, Reading, Ready};
use crate::barriers::checks::{check_path, found};
use crate::barriers::error::BarrierError;

/// The session timeout, divided by this, is the longest reply time of a healthy server. A member that leaves checks for
/// dead members after the same time.
pub(super) const PATIENCE: u32 = 10;
/// The end of the names of members.
const MEMBER: &str = "member";
/// The name of the node that opens the barrier.
const READY: &str = "ready";

/// A double barrier: its paths and options.
pub(super) struct Nodes {
    pub(super) client: CuratorFramework,
    pub(super) path: String,
    pub(super) ready: String,
    pub(super) quantity: usize,
    pub(super) options: DoubleBarrierOptions,
}

impl Nodes {
    pub(super) fn new(
        client: CuratorFramework,
        path: String,
        quantity: usize,
        options: DoubleBarrierOptions,
    ) -> Result<Self, BarrierError> {
        check_path(&path)?;
        let invalid =
            |argument, reason: &str| Err(BarrierError::InvalidArgument { argument, reason: reason.to_owned() });
        if quantity == 0 {
            return invalid("member_qty", "a barrier has at least one member");
        }
        if options.quorum.is_some_and(|(least, _)| least == 0 || least > quantity) {
            return invalid("quorum", "a quorum has at least one member and at most all");
        }
        let ready = make_path(&path, READY);
        Ok(Self { client, path, ready, quantity, options })
    }

    /// Returns the node of a member in this session, which is not created yet.
    pub(super) fn new_member(&self, session: &Session, id: ProtectedId) -> OwnedNode {
        session.owned_node_of(&self.path, MEMBER, CreateMode::Ephemeral, id)
    }

    /// Returns the data of a member's node.
    pub(super) fn member_data(&self) -> &[u8] {
        match &self.options.id {
            Some(id) => id.as_bytes(),
            None => self.client.default_data(),
        }
    }

    /// Returns the write of the barrier's own node that goes with each change of its children.
    pub(super) fn write_quantity(&self, version: Option<i32>) -> Operation {
        Operation::SetData { path: self.path.clone(), data: self.quantity.to_string().into_bytes(), version }
    }

    /// Runs `work`, which at the end of its budget sends the requests that decide its result. Fails if a server does not
    /// reply to these within a further part of the session timeout.
    pub(super) async fn bounded<T>(
        &self,
        budget: Budget,
        request: &str,
        work: impl Future<Output = Result<T, BarrierError>>,
    ) -> Result<T, BarrierError> {
        let done = budget.plus(self.client.session_timeout() / PATIENCE).limit(work).await;
        done.unwrap_or_else(|| Err(self.client.no_answer(&format!("{request} {}", self.path)).into()))
    }

    /// Applies operations in one transaction, and returns its number. Returns `None` if a condition did not hold.
    pub(super) async fn change(&self, session: &Session, operations: Vec<Operation>) -> Result<Option<i64>, Error> {
        match session.transaction(operations).await {
            Ok(done) => Ok(newest_write(&done).map(|written| written.mzxid)),
            Err(Error::Transaction { cause, .. }) => match *cause {
                Error::NoNode { .. } | Error::NodeExists { .. } | Error::BadVersion { .. } => Ok(None),
                cause => Err(cause),
            },
            Err(error) => Err(error),
        }
    }

    /// Returns the operations that create `ready` for these members if the barrier has this version.
    pub(super) fn open(&self, session: &Session, names: &[String], version: i32) -> Vec<Operation> {
        let stands = |name: &String| Operation::Check { path: make_path(&self.path, name), version: None };
        let (path, data) = (self.ready.clone(), names.join("\n").into_bytes());
        let acl = session.acl_for(&path);
        let create = Operation::Create { path, data, acl, mode: CreateMode::Persistent };
        let write = self.write_quantity(Some(version));
        std::iter::once(write).chain(names.iter().map(stands)).chain([create]).collect()
    }

    /// Returns the operations that delete `ready` if the barrier has this version, and `ready` the other one.
    pub(super) fn remove(&self, version: i32, ready: Option<i32>) -> Vec<Operation> {
        vec![self.write_quantity(Some(version)), Operation::Delete { path: self.ready.clone(), version: ready }]
    }

    /// Returns the operations that add a member to a round in which the member `beside` still has its node.
    pub(super) fn join(&self, name: &str, beside: &str, ready: &Ready) -> Vec<Operation> {
        let beside = Operation::Check { path: make_path(&self.path, beside), version: None };
        let names: Vec<&str> = ready.members.iter().map(String::as_str).chain([name]).collect();
        let (path, data) = (self.ready.clone(), names.join("\n").into_bytes());
        // The barrier's own node stays as it is: this changes none of its children.
        vec![beside, Operation::SetData { path, data, version: Some(ready.version) }]
    }

    /// Returns the names of the members.
    pub(super) async fn members(&self, session: &Session) -> Result<Vec<String>, Error> {
        let mut names = found(session.get_children(&self.path).await)?.unwrap_or_default();
        names.retain(|name| name != READY);
        Ok(names)
    }

    /// Returns the names of the members, or `None` if `ready` exists.
    pub(super) async fn members_unless_ready(&self, session: &Session) -> Result<Option<Vec<String>>, Error> {
        let names = found(session.get_children(&self.path).await)?.unwrap_or_default();
        Ok((!names.iter().any(|name| name == READY)).then_some(names))
    }

    /// Reads `ready`. Returns the watch too.
    pub(super) async fn read_ready(
        &self,
        session: &Session,
        reading: Reading,
    ) -> Result<(Option<Ready>, Option<Watch>), Error> {
        let read = match reading {
            Reading::Existence => {
                let (stat, watch) = session.exists_watched(&self.ready).await?;
                return Ok((stat.map(|stat| parsed(&[], &stat)), Some(watch)));
            }
            Reading::Data => session.get_data(&self.ready).await.map(|(data, stat)| (parsed(&data, &stat), None)),
            Reading::WatchedData => session
                .get_data_watched(&self.ready)
                .await
                .map(|read| (parsed(&read.data, &read.stat), Some(read.watch))),
        };
        let (ready, watch) = found(read)?.unzip();
        Ok((ready, watch.flatten()))
    }

    /// Reads the barrier's own node, the members, and `ready`, in one write and in this order. Also returns the watch
    /// on `ready`, and the stat of the barrier's own node.
    pub(super) async fn look(&self, session: &Session, reading: Reading) -> Result<(Look, Option<Watch>, Stat), Error> {
        let all = join3(session.exists(&self.path), self.members(session), self.read_ready(session, reading));
        let (barrier, names, ready) = session.in_one_write(all).await;
        let (barrier, names, (ready, watch)) = (barrier?.unwrap_or_default(), names?, ready?);
        Ok((Look { version: barrier.version, names, ready }, watch, barrier))
    }

    /// Reads which transactions have created the members, without the deleted ones.
    pub(super) async fn creations(&self, session: &Session, names: Vec<String>) -> Result<Vec<(String, i64)>, Error> {
        let read = async |name: String| {
            let stat = session.exists(&make_path(&self.path, &name)).await?;
            Ok::<_, Error>(stat.map(|stat| (name, stat.czxid)))
        };
        let all = session.in_one_write(join_all(names.into_iter().map(read))).await;
        all.into_iter().filter_map(Result::transpose).collect()
    }
}

/// Returns the stat that the last write of a transaction has left.
pub(super) fn newest_write(done: &[Done]) -> Option<Stat> {
    done.iter().rev().find_map(|done| if let Done::Set(stat) = done { Some(*stat) } else { None })
}

/// Returns the number of children of a barrier.
pub(super) fn child_count(barrier: &Stat) -> usize {
    usize::try_from(barrier.num_children).unwrap_or_default()
}

/// Returns the round of a node `ready`.
fn parsed(data: &[u8], stat: &Stat) -> Ready {
    let is_member = |name: &&str| name.starts_with("_c_") && name.ends_with(MEMBER);
    let text = String::from_utf8_lossy(data);
    let members = text.lines().filter(is_member).map(str::to_owned).collect();
    Ready { czxid: stat.czxid, version: stat.version, members }
}

/// Returns the changes of the children less the writes that members send with theirs. The difference of two such
/// numbers is the number of deaths between them.
pub(super) const fn drift(barrier: &Stat) -> i32 {
    barrier.cversion.wrapping_sub(barrier.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_ready_has_the_names_of_members_only() {
        let stat = Stat { czxid: 7, version: 2, ..Stat::default() };
        let names =
            ["_c_00000000-0000-0000-0000-000000000001-member", "_c_00000000-0000-0000-0000-000000000002-member"];
        let members = parsed(names.join("\n").as_bytes(), &stat);
        assert_eq!(members, Ready { czxid: 7, version: 2, members: names.map(str::to_owned).to_vec() });
        // Java's default data.
        assert_eq!(parsed(b"10.0.0.7", &stat).members, [""; 0]);
        assert_eq!(parsed(&[0xff, 0xfe], &stat).members, [""; 0]);
    }
}
