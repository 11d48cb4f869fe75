//! A program that uses every recipe, and is asked whether it agrees with the server.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework};
use curator_integration::caches::Caches;
use curator_integration::env::{PATIENCE, children, eventually, in_time};
use curator_integration::held::Way;
use curator_recipes::{
    BarrierError, CountDownLatch, DistributedAtomicLong, DistributedAtomicValue, DistributedBarrier,
    DistributedDoubleBarrier, Group, GroupMember, LeaderLatch, LeaderSelector, Leadership, LockGuard, NodeState,
    OwnedBarrier, OwnedItem, Partition, PartitionOptions, PersistentNode, PersistentNodeOptions, SharedCount,
    SharedValue, UniqueIds,
};
use futures_util::future::join_all;
use tokio::task::JoinHandle;

const MEMBERS: usize = 2;
const ITEMS: [&str; 3] = ["a", "b", "c"];

/// The names of objects: of those in the backup, of later ones, and of those that the program closes after the backup.
const KEPT: &str = "kept";
const UNDONE: &str = "undone";
const CLOSED: &str = "closed";

/// The objects of which a program has several: those that existed at the backup, and those that are younger.
struct Objects {
    guards: Vec<LockGuard>,
    owned: OwnedBarrier,
    latch: LeaderLatch,
    member: GroupMember,
    nodes: [PersistentNode; 2],
}

impl Objects {
    async fn start(client: &CuratorFramework, name: &str) -> Self {
        let mut guards = Vec::new();
        for way in Way::ALL {
            guards.extend(in_time(way.take(client, &lock(way, name), |_| ())).await.unwrap());
        }
        let owned = DistributedBarrier::new(client.clone(), format!("/owned-{name}")).unwrap();
        let latch = LeaderLatch::new(client.clone(), format!("/election-{name}")).unwrap();
        latch.start().unwrap();
        in_time(latch.leading()).await.unwrap();
        let member = GroupMember::new(client.clone(), "/group", name).unwrap();
        member.start().unwrap();
        in_time(member.join()).await.unwrap();
        let nodes = [CreateMode::Ephemeral, CreateMode::Persistent].map(|mode| {
            let options = PersistentNodeOptions::new().mode(mode);
            let path = format!("/{mode:?}-{name}");
            let node = PersistentNode::with_options(client.clone(), path, "old", options).unwrap();
            node.start().unwrap();
            node
        });
        for node in &nodes {
            in_time(node.created()).await.unwrap();
        }
        Self { guards, owned: in_time(owned.set_owned()).await.unwrap(), latch, member, nodes }
    }

    async fn close(self) {
        for guard in &self.guards {
            let _of_a_lost_one = in_time(guard.release()).await.unwrap();
        }
        let _of_a_lost_one = in_time(self.owned.release()).await.unwrap();
        in_time(self.latch.close()).await;
        in_time(self.member.close()).await;
        for node in &self.nodes {
            in_time(node.close()).await;
        }
    }
}

fn lock(way: Way, name: &str) -> String {
    format!("/locks-{name}/{way}").replace([' ', '(', ')'], "-")
}

/// A program with every recipe.
pub(crate) struct Program {
    client: CuratorFramework,
    kept: Objects,
    closed: Option<Objects>,
    undone: Option<Objects>,
    selector: LeaderSelector,
    partition: Partition,
    caches: Caches,
    value: SharedValue,
    count: SharedCount,
    long: DistributedAtomicLong,
    atomic: DistributedAtomicValue,
    ids: (UniqueIds, Vec<u64>),
    set: DistributedBarrier,
    /// Waits for barriers, latches and members that only come behind the restore.
    waiting: Vec<JoinHandle<Result<(), BarrierError>>>,
    running: Vec<JoinHandle<()>>,
}

async fn create(client: &CuratorFramework, path: &str, data: &str) {
    client.create().creating_parents_if_needed().with_data(data).for_path(path).await.unwrap();
}

fn double(client: &CuratorFramework) -> DistributedDoubleBarrier {
    DistributedDoubleBarrier::new(client.clone(), "/double", MEMBERS).unwrap()
}

fn latch(client: &CuratorFramework) -> CountDownLatch {
    CountDownLatch::new(client.clone(), "/latch").unwrap()
}

/// Enters the double barrier and leaves it.
async fn meets(barrier: DistributedDoubleBarrier) -> Result<(), BarrierError> {
    barrier.enter().await?.leave().await.map(drop)
}

impl Program {
    /// Starts the program, up to the backup.
    pub(crate) async fn start(client: &CuratorFramework) -> Self {
        for path in ["/tree/changed", "/tree/deleted", "/tree/deep/changed", "/tree/deep/deleted"] {
            create(client, path, "old").await;
        }
        let kept = Objects::start(client, KEPT).await;
        let closed = Objects::start(client, CLOSED).await;
        let selector = LeaderSelector::new(client.clone(), "/selector").unwrap();
        let partition = Partition::with_options(
            client.clone(),
            "/partition",
            "one",
            ITEMS,
            PartitionOptions::new().settle(Duration::from_millis(50)),
        )
        .unwrap();
        let (leads, owns) = (selector.clone(), partition.clone());
        let running = vec![
            tokio::spawn(async move {
                let work = async |leadership: Leadership| {
                    leadership.lost().await;
                    Ok::<_, std::convert::Infallible>(())
                };
                leads.run(work).await.unwrap();
            }),
            tokio::spawn(async move {
                let run = owns.run(async |item: OwnedItem| item.revoked().await);
                run.await.unwrap();
            }),
        ];
        let value = SharedValue::new(client.clone(), "/value", "old").unwrap();
        value.start().unwrap();
        in_time(value.initialized()).await.unwrap();
        let count = SharedCount::new(client.clone(), "/count", 5).unwrap();
        count.start().unwrap();
        in_time(count.initialized()).await.unwrap();
        let long = DistributedAtomicLong::new(
            client.clone(),
            "/long",
            curator_framework::RetryOneTime::new(Duration::from_millis(50)),
        )
        .unwrap();
        in_time(long.add(5)).await.unwrap();
        let atomic = DistributedAtomicValue::new(
            client.clone(),
            "/atomic",
            curator_framework::RetryOneTime::new(Duration::from_millis(50)),
        )
        .unwrap();
        in_time(atomic.force_set("old")).await.unwrap();
        let ids = UniqueIds::new(client.clone(), "/ids").unwrap();
        let drawn = in_time(ids.take(3)).await.unwrap();
        let set = DistributedBarrier::new(client.clone(), "/set").unwrap();
        in_time(set.set_barrier()).await.unwrap();
        assert!(in_time(latch(client).try_set_count(2)).await.unwrap());
        let (counts, waits, meet) = (latch(client), set.clone(), double(client));
        let waiting = vec![
            tokio::spawn(async move { counts.wait().await }),
            tokio::spawn(async move { waits.wait_on_barrier().await }),
            tokio::spawn(meets(meet)),
        ];
        eventually("a member waits", async || children(client, "/double").await.len() == MEMBERS - 1).await;
        eventually("the leaders lead", async || selector.has_leadership() && partition.share().owned == ITEMS).await;
        Self {
            client: client.clone(),
            kept,
            closed: Some(closed),
            undone: None,
            selector,
            partition,
            caches: Caches::start(client, "/tree", "/tree/changed").await,
            value,
            count,
            long,
            atomic,
            ids: (ids, drawn),
            set,
            waiting,
            running,
        }
    }

    /// Continues behind the backup.
    pub(crate) async fn go_on(&mut self) {
        let client = &self.client;
        for path in ["/tree/changed", "/tree/deep/changed"] {
            client.set_data().for_path(path, "new").await.unwrap();
        }
        for path in ["/tree/deleted", "/tree/deep/deleted"] {
            client.delete().for_path(path).await.unwrap();
        }
        create(client, "/tree/created/below", "new").await;
        self.undone = Some(Objects::start(client, UNDONE).await);
        self.closed.take().unwrap().close().await;
        for node in &self.kept.nodes {
            in_time(node.set_data("new")).await.unwrap();
        }
        in_time(self.value.set_value("new")).await.unwrap();
        in_time(self.count.set_count(9)).await.unwrap();
        in_time(self.long.add(3)).await.unwrap();
        in_time(self.atomic.force_set("new")).await.unwrap();
        self.ids.1.extend(in_time(self.ids.0.take(3)).await.unwrap());
        in_time(latch(client).count_down()).await.unwrap();
        // This barrier is not in the backup, so its waiter passes when it is restored.
        let undone = DistributedBarrier::new(client.clone(), "/set-undone").unwrap();
        in_time(undone.set_barrier()).await.unwrap();
        self.waiting.push(tokio::spawn(async move { undone.wait_on_barrier().await }));
        eventually("the caches are filled", async || self.caches.are_fresh().await).await;
    }

    /// Checks each recipe against a client that has seen nothing of the past.
    pub(crate) async fn agrees(mut self, fresh: &CuratorFramework) {
        let undone = self.undone.take().unwrap();
        self.caches.agree(fresh).await;
        self.guards_agree(&undone, fresh).await;
        self.leaders_agree(&undone, fresh).await;
        self.members_agree(&undone, fresh).await;
        self.values_agree(fresh).await;
        self.barriers_agree(fresh).await;
        self.ids.1.extend(in_time(self.ids.0.take(3)).await.unwrap());
        assert!(self.ids.1.is_sorted_by(|one, next| one < next), "{:?}", self.ids.1);
        self.close(undone, fresh).await;
    }

    async fn guards_agree(&self, undone: &Objects, fresh: &CuratorFramework) {
        let guards = || self.kept.guards.iter().chain(&undone.guards).flat_map(LockGuard::parts);
        for guard in guards() {
            eventually(&format!("{guard:?} is held if its node exists"), async || {
                guard.is_held() == fresh.check_exists().for_path(guard.node_path()).await.unwrap().is_some()
            })
            .await;
        }
        // The data of the backup has none of their nodes.
        join_all(undone.guards.iter().map(|guard| in_time(guard.lost()))).await;
        in_time(undone.owned.lost()).await;
        let kept = DistributedBarrier::new(fresh.clone(), self.kept.owned.path()).unwrap();
        eventually("a barrier is set if its owner holds it", async || {
            self.kept.owned.is_held() == kept.is_set().await.unwrap()
        })
        .await;
    }

    async fn leaders_agree(&self, undone: &Objects, fresh: &CuratorFramework) {
        for latch in [&self.kept.latch, &undone.latch] {
            eventually("the only candidate leads", async || {
                let nodes = children(fresh, latch.path()).await;
                let path = |name: &String| format!("{}/{name}", latch.path());
                latch.has_leadership() && nodes.iter().map(path).eq(latch.our_path())
            })
            .await;
        }
        eventually("a closed candidate leaves no node", async || {
            children(fresh, &format!("/election-{CLOSED}")).await.is_empty()
        })
        .await;
        eventually("the selector leads", async || {
            self.selector.has_leadership() && children(fresh, "/selector").await.len() == 1
        })
        .await;
        eventually("the items are owned", async || {
            let mut contenders = Vec::new();
            for item in ITEMS {
                contenders.push(children(fresh, &format!("/partition/items/{item}")).await.len());
            }
            self.partition.share().owned == ITEMS && contenders == [1; ITEMS.len()]
        })
        .await;
    }

    async fn members_agree(&self, undone: &Objects, fresh: &CuratorFramework) {
        let group = Group::new(fresh.clone(), "/group").unwrap();
        group.start().unwrap();
        eventually("the members are there", async || {
            let ids = |members: Option<curator_recipes::Members>| {
                members.map(|members| members.ids().map(str::to_owned).collect::<Vec<_>>())
            };
            let all = Some(vec![KEPT.to_owned(), UNDONE.to_owned()]);
            ids(group.members()) == all && ids(self.kept.member.members()) == all && ids(undone.member.members()) == all
        })
        .await;
        for node in self.kept.nodes.iter().chain(&undone.nodes) {
            eventually("the node exists, and its state tells its data", async || {
                let NodeState::Standing(standing) = node.state() else { return false };
                let Some(path) = node.actual_path() else { return false };
                match fresh.get_data().for_path(&path).await {
                    Ok((data, _)) => standing.foreign_data.unwrap_or_else(|| node.data()) == data,
                    Err(_) => false,
                }
            })
            .await;
        }
    }

    async fn values_agree(&self, fresh: &CuratorFramework) {
        let read = async |path: &str| fresh.get_data().for_path(path).await.unwrap().0;
        eventually("the shared value", async || self.value.value() == read("/value").await).await;
        assert_eq!(self.value.value(), b"old");
        eventually("the shared count", async || self.count.count().unwrap() == 5).await;
        let before = self.count.versioned_value().unwrap();
        assert!(in_time(self.count.try_set_count(&before, 6)).await.unwrap());
        assert_eq!(read("/count").await, 6_i32.to_be_bytes());
        let change = in_time(self.long.increment()).await.unwrap();
        assert_eq!((change.pre_value, change.post_value), (5, 6));
        assert_eq!(in_time(self.long.get()).await.unwrap(), 6);
        assert_eq!(read("/long").await, 6_i64.to_be_bytes());
        assert_eq!(in_time(self.atomic.get()).await.unwrap(), Some(read("/atomic").await));
        assert!(in_time(self.atomic.compare_and_set("old", "newer")).await.unwrap().is_set());
        assert_eq!(read("/atomic").await, b"newer");
    }

    /// Opens with the fresh client what the tasks have waited for since before the restore.
    async fn barriers_agree(&mut self, fresh: &CuratorFramework) {
        assert!(in_time(self.set.is_set()).await.unwrap());
        assert_eq!(in_time(latch(&self.client).count()).await.unwrap(), 2);
        for remaining in [1, 0] {
            assert_eq!(in_time(latch(fresh).count_down()).await.unwrap(), remaining);
        }
        in_time(DistributedBarrier::new(fresh.clone(), "/set").unwrap().remove_barrier()).await.unwrap();
        in_time(meets(double(fresh))).await.unwrap();
        for waiting in self.waiting.drain(..) {
            in_time(waiting).await.unwrap().unwrap();
        }
        assert!(!in_time(self.set.is_set()).await.unwrap());
    }

    /// Gives everything up; then the fresh client can take each lock.
    async fn close(self, undone: Objects, fresh: &CuratorFramework) {
        self.kept.close().await;
        undone.close().await;
        in_time(self.selector.close()).await;
        in_time(self.partition.close()).await;
        for running in self.running {
            in_time(running).await.unwrap();
        }
        for name in [KEPT, UNDONE, CLOSED] {
            for way in Way::ALL {
                let path = lock(way, name);
                let free = tokio::time::timeout(PATIENCE, way.plain().take(fresh, &path, |_| ())).await;
                let _guards = free.unwrap_or_else(|_| panic!("{way}, {name}: the lock is not free")).unwrap();
            }
        }
    }
}
