//! The common parts of the tests of partitions: members with a run each, and a ledger of the items' owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, Zxid};
use curator_recipes::{FencingToken, NodeError, OwnedItem, Partition, PartitionOptions};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// The owners of items as their work reports them, and each violation of the rule: one owner at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    /// The owner of each item with an owner.
    owners: BTreeMap<String, Owner>,
    /// The newest token of each item.
    tokens: BTreeMap<String, FencingToken>,
    /// The number of works that have started.
    begun: usize,
    violations: Vec<String>,
    /// Works that have started beside the work of an earlier owner.
    beside: Vec<(Owner, String)>,
    /// The zxid up to which a member is excused: an administrator has ended its session on the server.
    excused: BTreeMap<String, Zxid>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    id: String,
    token: FencingToken,
}

/// One work. Its drop ends it.
#[derive(Debug)]
pub(crate) struct Work {
    ledger: Ledger,
    item: String,
    owner: Owner,
}

impl Drop for Work {
    fn drop(&mut self) {
        let owners = &mut self.ledger.0.lock().owners;
        if owners.get(&self.item) == Some(&self.owner) {
            owners.remove(&self.item);
        }
    }
}

impl Ledger {
    /// Records that a member starts to work on an item.
    pub(crate) fn begin(&self, id: &str, item: &OwnedItem) -> Work {
        let (name, token, is_owned) = (item.name().to_owned(), item.token(), item.is_held());
        let owner = Owner { id: id.to_owned(), token };
        let mut book = self.0.lock();
        book.begun += 1;
        if !is_owned {
            book.violations.push(format!("{id} begins to work on {name}, which it does not own"));
        }
        if let Some(other) = book.owners.insert(name.clone(), owner.clone()) {
            let violation = format!("{id} works on {name} beside {}", other.id);
            book.beside.push((other, violation));
        }
        if book.tokens.insert(name.clone(), token).is_some_and(|before| before >= token) {
            book.violations.push(format!("the token {token} of {name} does not grow"));
        }
        Work { ledger: self.clone(), item: name, owner }
    }

    /// Excuses a member for work that has started before this transaction: an administrator has ended its session. The
    /// member learns of that with its next event, perhaps after the next owner.
    pub(crate) fn excuse(&self, id: &str, zxid: Zxid) {
        self.0.lock().excused.insert(id.to_owned(), zxid);
    }

    /// Returns the owner of each item that is worked on.
    pub(crate) fn owners(&self) -> BTreeMap<String, String> {
        self.0.lock().owners.iter().map(|(item, owner)| (item.clone(), owner.id.clone())).collect()
    }

    /// Returns the items that this member works on.
    pub(crate) fn items_of(&self, id: &str) -> Vec<String> {
        self.owners().into_iter().filter(|(_, owner)| owner == id).map(|(item, _)| item).collect()
    }

    /// Returns the number of works that have started.
    pub(crate) fn begun(&self) -> usize {
        self.0.lock().begun
    }

    pub(crate) fn assert_one_owner_each(&self) {
        let book = self.0.lock();
        assert_eq!(book.violations, [""; 0]);
        let is_excused = |owner: &Owner| book.excused.get(&owner.id).is_some_and(|zxid| owner.token.czxid() < *zxid);
        for (owner, violation) in &book.beside {
            assert!(is_excused(owner), "{violation}");
        }
    }
}

/// Ends the session of a member on its server, by `kill`. The member is excused for its work up to then.
pub(crate) async fn kill(watcher: &CuratorFramework, path: &str, ledger: &Ledger, id: &str, kill: impl AsyncFnOnce()) {
    kill().await;
    let create = watcher.create().creating_parents_if_needed().with_mode(CreateMode::EphemeralSequential);
    let (_, after) = create.for_path_with_stat(&format!("{path}/after-")).await.unwrap();
    ledger.excuse(id, Zxid::new(after.czxid));
}

/// Returns the names of numbered items.
pub(crate) fn items(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("item-{number:03}")).collect()
}

/// Returns options for tests that wait: the members settle soon, and work has time to end.
pub(crate) fn soon() -> PartitionOptions {
    PartitionOptions::new().settle(Duration::from_millis(200)).grace(Duration::from_secs(10))
}

/// A partition and its run, with work that lasts until it is revoked.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) partition: Partition,
    pub(crate) run: JoinHandle<Result<(), NodeError>>,
}

impl Member {
    /// Runs a partition of numbered items.
    pub(crate) fn new(client: &CuratorFramework, path: &str, id: &str, count: usize, ledger: &Ledger) -> Self {
        let partition = Partition::with_options(client.clone(), path, id, items(count), soon()).unwrap();
        Self::run(partition, ledger)
    }

    pub(crate) fn run(partition: Partition, ledger: &Ledger) -> Self {
        let (running, ledger) = (partition.clone(), ledger.clone());
        let run = tokio::spawn(async move {
            let id = running.id();
            let work = running.run(async |item| {
                let _work = ledger.begin(id, &item);
                item.revoked().await;
            });
            work.await
        });
        Self { partition, run }
    }

    pub(crate) fn id(&self) -> &str {
        self.partition.id()
    }

    pub(crate) fn owned(&self) -> Vec<String> {
        self.partition.share().owned
    }

    /// Closes the partition, and returns the outcome of its run.
    pub(crate) async fn close(self) -> Result<(), NodeError> {
        self.partition.close().await;
        match self.run.await.unwrap() {
            // The close may precede the first poll of the run.
            Err(NodeError::Closed { .. }) => Ok(()),
            ended => ended,
        }
    }
}

/// Returns `true` if the members know each other, and own what the allocation gives them: all items have an owner.
pub(crate) fn are_calm<'a>(members: impl IntoIterator<Item = &'a Member>, count: usize, ledger: &Ledger) -> bool {
    let members: Vec<&Member> = members.into_iter().collect();
    let all = items(count);
    let allocation = Partition::allocation(members.iter().map(|member| member.id()), all.iter().map(String::as_str));
    let owners: Vec<(String, String)> = ledger.owners().into_iter().collect();
    let allocated = allocation.iter().map(|(item, member)| ((*item).to_owned(), (*member).to_owned()));
    owners == allocated.collect::<Vec<_>>()
        && members.iter().all(|member| {
            let share = member.partition.share();
            share.is_member && share.members == members.len() && share.wanted == share.owned
        })
}
