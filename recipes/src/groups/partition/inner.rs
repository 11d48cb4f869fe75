//! The state that all clones of a partition share, and the nodes of its run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use curator_framework::{Acl, CuratorFramework, make_path};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::engine::driver::LOCK_NAME;
use crate::engine::options::LockOptions;
use crate::engine::{LockInternals, LockSpec};
use crate::groups::member::GroupMember;
use crate::groups::partition::ownership::{Ownership, node_error};
use crate::groups::partition::settling::{Claim, View};
use crate::groups::partition::share::Share;
use crate::nodes::error::NodeError;
use crate::standing::runs::Runs;

/// The state that all clones share.
pub(super) struct Inner {
    pub(super) client: CuratorFramework,
    pub(super) path: String,
    pub(super) id: String,
    pub(super) items: BTreeSet<String>,
    pub(super) settle: Duration,
    pub(super) grace: Duration,
    pub(super) data: Option<Vec<u8>>,
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) share: watch::Sender<Share>,
    pub(super) runs: Runs,
    pub(super) held: Held,
}

impl Inner {
    /// Returns the lock of an item.
    pub(super) fn lock_of(&self, item: &str) -> Result<LockInternals, NodeError> {
        let path = make_path(&make_path(&self.path, "items"), item);
        let spec = LockSpec { recipe: "partition", ..LockSpec::queue(LOCK_NAME) };
        let options = LockOptions { acl: self.acl.clone(), ..LockOptions::new().data(self.id.as_bytes()) };
        LockInternals::new(self.client.clone(), path, spec, options).map_err(node_error)
    }

    /// Publishes the items of this member's share.
    pub(super) fn wants(&self, view: &View, wanted: &BTreeMap<&str, Claim>, has_settled: bool) {
        let (members, is_member, items) = (view.ids().count(), view.is_member(), wanted.len());
        if has_settled {
            tracing::info!(path = self.path, id = self.id, members, is_member, items, "a partition has settled");
        }
        let wanted: Vec<_> = wanted.keys().map(|&item| item.to_owned()).collect();
        self.share.send_if_modified(|share| {
            let before = (share.members, share.is_member, std::mem::replace(&mut share.wanted, wanted));
            (share.members, share.is_member) = (members, is_member);
            before != (members, is_member, share.wanted.clone())
        });
    }

    pub(super) fn is_owned(&self, item: &str) -> bool {
        self.share.borrow().owned.binary_search_by(|known| (**known).cmp(item)).is_ok()
    }

    /// Publishes that an item is owned, or no longer.
    pub(super) fn owns(&self, item: &str, owned: bool) {
        self.share.send_if_modified(|share| match share.owned.binary_search_by(|known| (**known).cmp(item)) {
            Err(index) if owned => {
                share.owned.insert(index, item.to_owned());
                true
            }
            Ok(index) if !owned => {
                share.owned.remove(index);
                true
            }
            _ => false,
        });
    }
}

/// The items of the run, for a close while the run is not polled.
#[derive(Default)]
pub(super) struct Held {
    pub(super) member: Mutex<Option<GroupMember>>,
    pub(super) items: Mutex<BTreeMap<String, Weak<Ownership>>>,
}

impl Held {
    /// Has the session delete the nodes, except the nodes of work that is being polled.
    pub(super) fn give_up(&self) {
        let member = self.member.lock().take();
        if let Some(member) = member {
            // The first poll orders the member's task to end.
            let _in_background = member.close().now_or_never();
        }
        let items = std::mem::take(&mut *self.items.lock());
        items.values().filter_map(Weak::upgrade).for_each(|item| item.give_up());
    }

    pub(super) fn add(&self, name: &str, item: &Arc<Ownership>) {
        self.items.lock().insert(name.to_owned(), Arc::downgrade(item));
    }
}
