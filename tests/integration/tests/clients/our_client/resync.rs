//! Subscriptions that resync at a reconnect: the server sends the changes of the nodes that the subscriber knows.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use curator_framework::recipe::{KnownNodes, Resync, Subscription, SubscriptionEvent};
use curator_framework::{
    AddWatchMode, CuratorFramework, CuratorOp, Error, EventType, Session, WatchedEvent, Zxid, parent_of,
};
use curator_integration::env::{self, PATIENCE, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::FaultProxy;
use curator_test::wire::OpCode;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::subscriptions::{Heard, create};
use super::{connected, second};

pub(super) type Shared = Arc<Mutex<KnownNodes>>;

pub(super) async fn subscribe(session: &Session, path: &str, known: &Shared) -> Subscription {
    let known = Arc::clone(known);
    let resync: Arc<dyn Resync> = Arc::new(move || known.lock().unwrap().clone());
    session.subscribe(path, AddWatchMode::PersistentRecursive, Some(resync)).await.unwrap()
}

/// Connects a client with a session that outlives a server that is busy with thousands of nodes.
pub(super) async fn patient(address: SocketAddr) -> CuratorFramework {
    env::connected(second(address).session_timeout(Duration::from_secs(60))).await
}

/// Breaks the connection, lets `changes` happen, and waits until the session is attached again.
async fn away(proxy: &FaultProxy, session: &Session, changes: impl Future<Output = ()>) {
    let epoch = session.epoch();
    proxy.refuse();
    proxy.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    changes.await;
    proxy.accept();
    eventually("attached again", async || session.epoch() > epoch && session.is_connected()).await;
}

/// Returns the events up to `Resynced`.
pub(super) async fn resynced(subscription: &mut Subscription) -> Vec<Heard> {
    let mut told = Vec::new();
    loop {
        match in_time(subscription.recv()).await.unwrap() {
            SubscriptionEvent::Event(WatchedEvent { event_type, path }) => told.push((event_type, path)),
            SubscriptionEvent::Resynced => return told,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn commit(client: &CuratorFramework, operations: impl IntoIterator<Item = CuratorOp>) {
    client.transaction().operations(operations).commit().await.unwrap();
}

/// Returns the replies to setWatches, and to all reads, that have passed.
pub(super) fn replies(proxy: &FaultProxy) -> [usize; 2] {
    let count = |ops: &[OpCode]| ops.iter().map(|op| proxy.replies(*op)).sum();
    [
        count(&[OpCode::SetWatches, OpCode::SetWatches2]),
        count(&[OpCode::Exists, OpCode::GetData, OpCode::GetChildren, OpCode::GetChildren2]),
    ]
}

on_every_server! {
    async fn resync_tells_exactly_the_changes_while_the_connection_was_lost(env) {
        use EventType::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
        let proxy = env.proxy();
        let (client, other) = (env::connected(second(proxy.address())).await, env.client().await);
        let session = client.session().await.unwrap();
        let (root, missing) = (env.path("tree"), env.path("tree/missing"));
        create(&other, &root).await;
        let parents: Vec<_> = (0..10).map(|parent| format!("{root}/{parent}")).collect();
        let node = |number: usize| format!("{root}/{}/{number}", number % 10);
        commit(&other, parents.iter().map(CuratorOp::create)).await;
        commit(&other, (0..1000).map(|number| CuratorOp::create(node(number)))).await;
        let known = Shared::default();
        let mut subscription = subscribe(&session, &root, &known).await;
        session.sync("/").await.unwrap();
        let children: Vec<_> = parents.iter().chain([&root]).cloned().collect();
        let data = (0..1000).map(node).chain(children.clone()).collect();
        *known.lock().unwrap() = KnownNodes { zxid: session.zxid(), data, missing: vec![missing.clone()], children };

        for changes in [0, 1, 100] {
            let before = replies(&proxy);
            let mut expected = HashSet::new();
            let change = async {
                let set = (0..changes).map(|number| CuratorOp::set_data(node(number), "x"));
                commit(&other, set).await;
                expected.extend((0..changes).map(|number| (NodeDataChanged, node(number))));
                if changes == 100 {
                    let deleted = (100..110).map(node);
                    commit(&other, deleted.clone().map(CuratorOp::delete)).await;
                    commit(&other, [CuratorOp::create(&missing), CuratorOp::create(format!("{root}/0/new"))]).await;
                    expected.extend(deleted.map(|path| (NodeDeleted, path)));
                    expected.extend(parents.iter().chain([&root]).map(|path| (NodeChildrenChanged, path.clone())));
                    expected.insert((NodeCreated, missing.clone()));
                }
            };
            away(&proxy, &session, change).await;
            let told = resynced(&mut subscription).await;
            assert_eq!((told.len(), told.into_iter().collect::<HashSet<_>>()), (expected.len(), expected), "{changes}");
            let [set_watches, reads] = replies(&proxy);
            assert_eq!([set_watches - before[0], reads - before[1]], [2, 0], "{changes}: requests of the client");
            // Each later change arrives once, although one-shot watches are left.
            let (leaf, child) = (node(500), format!("{root}/5/extra"));
            commit(&other, [CuratorOp::set_data(&leaf, "y"), CuratorOp::create(&child)]).await;
            commit(&other, [CuratorOp::delete(&child)]).await;
            session.sync("/").await.unwrap();
            let told: Vec<_> = std::iter::from_fn(|| subscription.try_recv().ok()).collect();
            let event = |event_type, path| SubscriptionEvent::Event(WatchedEvent { event_type, path });
            assert_eq!(told, [
                event(NodeDataChanged, leaf), event(NodeCreated, child.clone()), event(NodeDeleted, child),
            ]);
            known.lock().unwrap().zxid = session.zxid();
        }
    }

    async fn resync_that_breaks_between_its_parts_misses_no_change(env) {
        let proxy = env.proxy();
        let (client, other) = (patient(proxy.address()).await, patient(env.address()).await);
        let session = client.session().await.unwrap();
        let root = env.path("tree");
        create(&other, &root).await;
        let nodes: Vec<_> = (0..4000).map(|number| format!("{root}/{}-{number:04}", "long-name-".repeat(10))).collect();
        for nodes in nodes.chunks(1000) {
            commit(&other, nodes.iter().map(CuratorOp::create)).await;
        }
        let known = Shared::default();
        let mut subscription = subscribe(&session, &root, &known).await;
        session.sync("/").await.unwrap();
        *known.lock().unwrap() = KnownNodes { zxid: session.zxid(), data: nodes.clone(), ..KnownNodes::default() };
        let changed: HashSet<_> = nodes.iter().step_by(100).cloned().collect();
        for part in 1..4 {
            let faults = proxy.faults_done();
            let change = async {
                commit(&other, changed.iter().map(|path| CuratorOp::set_data(path, "x"))).await;
                proxy.drop_reply(OpCode::SetWatches, part);
            };
            away(&proxy, &session, change).await;
            let told: HashSet<_> = resynced(&mut subscription).await.into_iter().map(|(_, path)| path).collect();
            assert_eq!((told, proxy.faults_done()), (changed.clone(), faults + 1));
            session.sync("/").await.unwrap();
            // One-shot watches fire beside the recursive one, and the session's watch of a path has one event.
            assert_eq!(subscription.try_recv().ok(), None);
            known.lock().unwrap().zxid = session.zxid();
        }
    }

    async fn subscriber_that_resyncs_and_one_that_does_not_share_a_path_and_a_namespace(env) {
        let proxy = env.proxy();
        let (client, other) = (env::connected(second(proxy.address())).await, env.client().await);
        create(&other, &env.path("tree/node")).await;
        let namespaced = client.using_namespace(&env.path("tree")[1..]).unwrap();
        let (session, inside) = (client.session().await.unwrap(), namespaced.session().await.unwrap());
        let known = Shared::default();
        let mut knowing = subscribe(&inside, "/", &known).await;
        let mut plain =
            session.subscribe(&env.path("tree"), AddWatchMode::Persistent, None).await.unwrap();
        session.sync("/").await.unwrap();
        let data = vec!["/".to_owned(), "/node".to_owned()];
        *known.lock().unwrap() = KnownNodes { zxid: session.zxid(), data, ..KnownNodes::default() };
        away(&proxy, &session, async {
            commit(&other, [CuratorOp::set_data(env.path("tree/node"), "x")]).await;
        })
        .await;
        assert_eq!(resynced(&mut knowing).await, [(EventType::NodeDataChanged, "/node".to_owned())]);
        assert_eq!(in_time(plain.recv()).await, Some(SubscriptionEvent::Reset));
        // The session takes requests at once.
        assert!(inside.exists("/node").await.unwrap().is_some());
        client.close().await;
        assert_eq!(in_time(knowing.recv()).await, None);
    }

    /// A reader that has a reply with zxid z, and has drained its queue, knows of every change up to z.
    async fn events_precede_the_replies_that_reflect_their_changes(env) {
        let (client, other) = (connected(env.address()).await, connected(env.address()).await);
        let (session, writer) = (client.session().await.unwrap(), other.session().await.unwrap());
        let root = env.path("tree");
        create(&other, &root).await;
        let mut subscription = session.subscribe(&root, AddWatchMode::PersistentRecursive, None).await.unwrap();
        let writing = tokio::spawn({
            let root = root.clone();
            async move {
                let mut czxids = Vec::new();
                for number in 0..500 {
                    let acl = curator_framework::Acl::open_unsafe();
                    let mode = curator_framework::CreateMode::Persistent;
                    let path = format!("{root}/{number}");
                    czxids.push(writer.create(&path, Vec::new(), acl, mode).await.unwrap().1.czxid);
                }
                czxids
            }
        });
        let mut looks = Vec::new();
        let mut told = 0;
        while told < 500 {
            session.exists(&root).await.unwrap();
            let zxid = session.zxid();
            told += std::iter::from_fn(|| subscription.try_recv().ok()).count();
            looks.push((zxid, told));
        }
        let czxids = in_time(writing).await.unwrap();
        assert!(looks.len() > 10, "{}", looks.len());
        for (zxid, told) in looks {
            let changes = czxids.iter().filter(|czxid| Some(Zxid::new(**czxid)) <= zxid).count();
            assert!(told >= changes, "{told} of {changes} changes up to {zxid:?}");
        }
    }

    async fn mirror_that_reads_only_what_it_is_told_of_equals_the_tree_after_any_number_of_reconnects(env) {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let proxy = env.proxy();
        let (client, other) = (env::connected(second(proxy.address())).await, env.client().await);
        let session = client.session().await.unwrap();
        let root = env.path("tree");
        // It proves that the servers have no other history, regardless of the tree.
        let stable = env.path("stable");
        other.create().creating_parents_if_needed().for_path(&stable).await.unwrap();
        session.sync(&stable).await.unwrap();
        assert!(session.exists(&stable).await.unwrap().is_some());
        let nodes = Arc::new(Mutex::new(Nodes::default()));
        let mirroring = tokio::spawn(Mirror::new(session.clone(), root.clone(), Arc::clone(&nodes)).await.run());
        for round in 0..12 {
            let steps = random.random_range(0..30);
            let changes = change(&other, &root, &mut random, steps);
            if round % 3 == 0 {
                changes.await;
            } else {
                away(&proxy, &session, changes).await;
            }
            if round % 4 == 2 {
                proxy.drop_reply([OpCode::Exists, OpCode::SetWatches2][round % 8 / 4], 1);
                change(&other, &root, &mut random, 5).await;
                proxy.reset();
            }
        }
        let expected = tree(&other, &root).await;
        Nodes::equal(&nodes, &expected, seed).await;
        client.close().await;
        in_time(mirroring).await.unwrap();
    }
}

/// Makes random changes.
pub(super) async fn change(client: &CuratorFramework, root: &str, random: &mut StdRng, steps: usize) {
    for _ in 0..steps {
        let mut path = root.to_owned();
        for _ in 0..random.random_range(0..3) {
            path.push_str(&format!("/{}", random.random_range(0..3)));
        }
        match random.random_range(0..4) {
            0 | 1 => drop(client.create().creating_parents_if_needed().for_path(&path).await),
            2 => drop(client.set_data().for_path(&path, "x").await),
            _ => drop(client.delete().deleting_children_if_needed().for_path(&path).await),
        }
    }
}

/// Returns the newest transactions of the creation and the data of each node.
pub(super) async fn tree(client: &CuratorFramework, root: &str) -> BTreeMap<String, (i64, i64)> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = left.pop() {
        if let Some(stat) = client.check_exists().for_path(&path).await.unwrap() {
            left.extend(env::children(client, &path).await.into_iter().map(|child| format!("{path}/{child}")));
            found.insert(path, (stat.czxid, stat.mzxid));
        }
    }
    found
}

/// The nodes that a mirror knows, and those that it must read.
#[derive(Default)]
pub(super) struct Nodes {
    zxid: Option<Zxid>,
    by_path: BTreeMap<String, (i64, i64)>,
    /// Nodes to read, and `true` for those to list.
    pub(super) left: BTreeMap<String, bool>,
    /// Counts the calls of `known`.
    asked: u64,
}

impl Nodes {
    /// Waits until the mirrored nodes are these.
    pub(super) async fn equal(nodes: &Mutex<Self>, expected: &BTreeMap<String, (i64, i64)>, seed: u64) {
        let start = Instant::now();
        loop {
            let mirrored = nodes.lock().unwrap().by_path.clone();
            if mirrored == *expected {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "seed {seed}: {mirrored:?} is not {expected:?}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

/// The smallest cache: it reads the nodes of its events, and no others.
pub(super) struct Mirror {
    session: Session,
    root: String,
    subscription: Subscription,
    nodes: Arc<Mutex<Nodes>>,
}

impl Mirror {
    pub(super) async fn new(session: Session, root: String, nodes: Arc<Mutex<Nodes>>) -> Self {
        nodes.lock().unwrap().left.insert(root.clone(), true);
        let (known, path) = (Arc::clone(&nodes), root.clone());
        let resync: Arc<dyn Resync> = Arc::new(move || {
            let mut nodes = known.lock().unwrap();
            nodes.asked += 1;
            let data: Vec<_> = nodes.by_path.keys().cloned().collect();
            let missing = if data.is_empty() { vec![path.clone()] } else { Vec::new() };
            KnownNodes { zxid: nodes.zxid, children: data.clone(), data, missing }
        });
        let mode = AddWatchMode::PersistentRecursive;
        let subscription = session.subscribe(&root, mode, Some(resync)).await.unwrap();
        Self { session, root, subscription, nodes }
    }

    pub(super) async fn run(mut self) {
        loop {
            while let Ok(event) = self.subscription.try_recv() {
                self.take(event);
            }
            let next = self.nodes.lock().unwrap().left.first_key_value().map(|(path, list)| (path.clone(), *list));
            let is_read = match &next {
                Some((path, list)) => self.read(path, *list).await,
                None => false,
            };
            // A later session has no events of this one: those up to the zxid are taken ahead of it.
            let zxid = self.session.zxid();
            while let Ok(event) = self.subscription.try_recv() {
                self.take(event);
            }
            self.nodes.lock().unwrap().zxid = zxid;
            if !is_read {
                // Each connection ends its resync with an event.
                let Some(event) = self.subscription.recv().await else { return };
                self.take(event);
            }
        }
    }

    fn take(&self, event: SubscriptionEvent) {
        let mut nodes = self.nodes.lock().unwrap();
        match event {
            SubscriptionEvent::Event(WatchedEvent { event_type: EventType::NodeChildrenChanged, path }) => {
                nodes.left.insert(path, true);
            }
            SubscriptionEvent::Event(WatchedEvent { path, .. }) => _ = nodes.left.entry(path).or_insert(false),
            SubscriptionEvent::Resynced => {}
            _ => panic!("not so many events"),
        }
    }

    /// Reads one node. Returns `false` if the connection is lost.
    async fn read(&self, path: &str, list: bool) -> bool {
        let asked = self.nodes.lock().unwrap().asked;
        let found = async {
            let Some(stat) = self.session.exists(path).await? else { return Ok(None) };
            let is_new = self.nodes.lock().unwrap().by_path.get(path).is_none_or(|known| known.0 != stat.czxid);
            let children = if is_new || list { self.session.get_children(path).await? } else { Vec::new() };
            Ok(Some((stat, children, is_new || list)))
        };
        let found: Result<_, Error> = found.await;
        let mut nodes = self.nodes.lock().unwrap();
        match found {
            Ok(_) | Err(Error::NoNode { .. }) if nodes.asked != asked => return true,
            Ok(Some((stat, children, is_listed))) => {
                nodes.by_path.insert(path.to_owned(), (stat.czxid, stat.mzxid));
                let new = children.iter().map(|child| format!("{path}/{child}"));
                let new: Vec<_> = new.filter(|child| !nodes.by_path.contains_key(child)).collect();
                let is_gone = |child: &String| {
                    parent_of(child) == path && !children.iter().any(|name| child.ends_with(&format!("/{name}")))
                };
                let gone: Vec<_> = nodes.by_path.keys().filter(|child| is_listed && is_gone(child)).cloned().collect();
                for child in new.into_iter().chain(gone) {
                    nodes.left.entry(child).or_insert(true);
                }
            }
            // It may have been created again behind the first read.
            Err(Error::NoNode { .. }) => return true,
            Ok(None) => nodes.by_path.retain(|known, _| known != path && !known.starts_with(&format!("{path}/"))),
            Err(error) => {
                assert!(matches!(error, Error::ConnectionLoss { .. } | Error::Closed), "{error}");
                return false;
            }
        }
        nodes.left.remove(path);
        assert!(path.starts_with(&self.root));
        true
    }
}
