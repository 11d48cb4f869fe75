//! Subscriptions of a new session that resync: the server sends the changes of the nodes that the subscriber knows from
//! an earlier session.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use curator_framework::recipe::{KnownNodes, Resync, Subscription, SubscriptionEvent};
use curator_framework::{AddWatchMode, CuratorFramework, CuratorOp, Error, EventType, Session, WatchedEvent, Zxid};
use curator_integration::env::{self, Env, in_time};
use curator_integration::on_every_server;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, kill_session};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::resync::{Mirror, Nodes, Shared, change, commit, patient, replies, resynced, subscribe, tree};
use super::subscriptions::create;
use super::{connected, second};

/// Ends the session of a client. Returns a client with a new one.
async fn renew(env: &Env, proxy: &FaultProxy, client: CuratorFramework, is_killed: bool) -> CuratorFramework {
    let old = client.session().await.unwrap();
    if !is_killed {
        client.close().await;
        return env::connected(second(proxy.address())).await;
    }
    kill_session(env.address(), old.id().unwrap().get()).await.unwrap();
    proxy.reset();
    in_time(old.ended()).await;
    client
}

async fn try_subscribe(session: &Session, path: &str, known: &Shared) -> Result<Subscription, Error> {
    let known = Arc::clone(known);
    let resync: Arc<dyn Resync> = Arc::new(move || known.lock().unwrap().clone());
    session.subscribe(path, AddWatchMode::PersistentRecursive, Some(resync)).await
}

on_every_server! {
    async fn new_session_is_told_exactly_the_changes_since_the_one_before(env) {
        use EventType::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
        let proxy = env.proxy();
        let (mut client, other) = (env::connected(second(proxy.address())).await, env.client().await);
        let (root, missing) = (env.path("tree"), env.path("tree/missing"));
        create(&other, &root).await;
        let parents: Vec<_> = (0..10).map(|parent| format!("{root}/{parent}")).collect();
        let node = |number: usize| format!("{root}/{}/{number}", number % 10);
        commit(&other, parents.iter().map(CuratorOp::create)).await;
        commit(&other, (0..1000).map(|number| CuratorOp::create(node(number)))).await;
        let children: Vec<_> = parents.iter().chain([&root]).cloned().collect();
        let data = (0..1000).map(node).chain(children.clone()).collect();
        let session = client.session().await.unwrap();
        session.sync("/").await.unwrap();
        let known = KnownNodes { zxid: session.zxid(), data, missing: vec![missing.clone()], children };
        let known: Shared = Arc::new(Mutex::new(known));
        drop(session);

        for (changes, is_killed) in [(0, false), (1, false), (0, true), (1, true), (100, true)] {
            let mut expected: HashSet<_> = (0..changes).map(|number| (NodeDataChanged, node(number))).collect();
            commit(&other, (0..changes).map(|number| CuratorOp::set_data(node(number), "x"))).await;
            if changes == 100 {
                let deleted = (100..110).map(node);
                commit(&other, deleted.clone().map(CuratorOp::delete)).await;
                commit(&other, [CuratorOp::create(&missing), CuratorOp::create(format!("{root}/0/new"))]).await;
                expected.extend(deleted.map(|path| (NodeDeleted, path)));
                expected.extend(parents.iter().chain([&root]).map(|path| (NodeChildrenChanged, path.clone())));
                expected.insert((NodeCreated, missing.clone()));
            }
            client = renew(&env, &proxy, client, is_killed).await;
            let session = client.session().await.unwrap();
            let before = (replies(&proxy), proxy.replies(OpCode::AddWatch));
            let mut subscription = subscribe(&session, &root, &known).await;
            let told = resynced(&mut subscription).await;
            assert_eq!((told.len(), told.into_iter().collect::<HashSet<_>>()), (expected.len(), expected), "{changes}");
            let ([set_watches, reads], added) = (replies(&proxy), proxy.replies(OpCode::AddWatch));
            let requests = [set_watches - before.0[0], reads - before.0[1], added - before.1];
            assert_eq!(requests, [1, 0, 1], "{changes}: requests of the client");
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

    async fn subscriber_that_knows_a_newer_transaction_than_the_server_gets_a_reset(env) {
        let client = connected(env.address()).await;
        let session = client.session().await.unwrap();
        let root = env.path("tree");
        create(&client, &root).await;
        let zxid = session.zxid().map(|zxid| Zxid::new(zxid.get() + 1_000_000));
        let known = Shared::new(Mutex::new(KnownNodes { zxid, data: vec![root.clone()], ..KnownNodes::default() }));
        let mut subscription = subscribe(&session, &root, &known).await;
        assert_eq!(in_time(subscription.recv()).await, Some(SubscriptionEvent::Reset));
        client.set_data().for_path(&root, "x").await.unwrap();
        let changed = WatchedEvent { event_type: EventType::NodeDataChanged, path: root };
        assert_eq!(in_time(subscription.recv()).await, Some(SubscriptionEvent::Event(changed)));
    }

    async fn new_subscription_that_breaks_between_its_parts_misses_no_change(env) {
        let proxy = env.proxy();
        let other = patient(env.address()).await;
        let root = env.path("tree");
        create(&other, &root).await;
        let nodes: Vec<_> = (0..4000).map(|number| format!("{root}/{}-{number:04}", "long-name-".repeat(10))).collect();
        for nodes in nodes.chunks(1000) {
            commit(&other, nodes.iter().map(CuratorOp::create)).await;
        }
        let session = other.session().await.unwrap();
        let known = KnownNodes { zxid: session.zxid(), data: nodes.clone(), ..KnownNodes::default() };
        let known: Shared = Arc::new(Mutex::new(known));
        let changed: HashSet<_> = nodes.iter().step_by(100).cloned().collect();
        type Break = fn(&FaultProxy);
        let breaks: [Break; 6] = [
            |proxy| proxy.drop_request(OpCode::SetWatches, 1),
            |proxy| proxy.drop_reply(OpCode::SetWatches, 2),
            |proxy| proxy.cut_frame(OpCode::SetWatches, 3),
            |proxy| proxy.drop_request(OpCode::SetWatches, 4),
            |proxy| proxy.drop_request(OpCode::AddWatch, 1),
            |proxy| proxy.drop_reply(OpCode::AddWatch, 1),
        ];
        for (number, breaks) in breaks.into_iter().enumerate() {
            let client = patient(proxy.address()).await;
            let session = client.session().await.unwrap();
            let (faults, epoch) = (proxy.faults_done(), session.epoch());
            breaks(&proxy);
            commit(&other, changed.iter().map(|path| CuratorOp::set_data(path, "x"))).await;
            let error = in_time(try_subscribe(&session, &root, &known)).await.unwrap_err();
            assert!(matches!(error, Error::ConnectionLoss { .. }), "{number}: {error}");
            in_time(proxy.wait_for_faults(faults + 1)).await;
            env::eventually("attached again", async || session.epoch() > epoch && session.is_connected()).await;
            let mut subscription = subscribe(&session, &root, &known).await;
            // The events of the connection before reached a subscriber that is gone.
            let told: HashSet<_> = resynced(&mut subscription).await.into_iter().map(|(_, path)| path).collect();
            assert_eq!(told, changed, "{number}");
            session.sync("/").await.unwrap();
            assert_eq!(subscription.try_recv().ok(), None, "{number}");
            known.lock().unwrap().zxid = session.zxid();
            client.close().await;
        }
    }

    async fn subscriptions_at_known_paths_keep_every_event_while_another_one_resyncs(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        let root = env.path("tree");
        let (persistent, recursive) = (format!("{root}/persistent"), format!("{root}/recursive"));
        for path in [&root, &persistent, &recursive] {
            create(&other, path).await;
        }
        let session = client.session().await.unwrap();
        let mut of_node = session.subscribe(&persistent, AddWatchMode::Persistent, None).await.unwrap();
        let mut of_tree = session.subscribe(&recursive, AddWatchMode::PersistentRecursive, None).await.unwrap();
        session.sync("/").await.unwrap();
        let data = vec![root.clone(), persistent.clone(), recursive.clone()];
        let known = KnownNodes { zxid: session.zxid(), children: data.clone(), data, ..KnownNodes::default() };
        let known: Shared = Arc::new(Mutex::new(known));
        let mut resyncing = subscribe(&session, &root, &known).await;
        assert_eq!(resynced(&mut resyncing).await, []);
        for round in 0..3 {
            let children = [format!("{persistent}/{round}"), format!("{recursive}/{round}")];
            for child in &children {
                create(&other, child).await;
            }
            session.sync("/").await.unwrap();
            let event = |event_type, path: &str| WatchedEvent { event_type, path: path.to_owned() };
            let told = |subscription: &mut Subscription| -> Vec<_> {
                std::iter::from_fn(|| subscription.try_recv().ok()).collect()
            };
            let created = children.each_ref().map(|child| event(EventType::NodeCreated, child));
            let changed = event(EventType::NodeChildrenChanged, &persistent);
            assert_eq!(told(&mut of_node), [SubscriptionEvent::Event(changed)], "{round}");
            assert_eq!(told(&mut of_tree), [SubscriptionEvent::Event(created[1].clone())], "{round}");
            assert_eq!(told(&mut resyncing), created.map(SubscriptionEvent::Event), "{round}");
        }
    }

    async fn mirror_that_goes_on_in_new_sessions_equals_the_tree(env) {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let other = env.client().await;
        let root = env.path("tree");
        let nodes = Arc::new(Mutex::new(Nodes::default()));
        for round in 0..15 {
            let client = connected(env.address()).await;
            let session = client.session().await.unwrap();
            let mut writer = StdRng::seed_from_u64(random.random());
            let steps = random.random_range(0..30);
            let resuming = async {
                let mirror = Mirror::new(session, root.clone(), Arc::clone(&nodes)).await;
                let mirroring = tokio::spawn(mirror.run());
                if random.random() {
                    env::eventually("the mirror has read", async || nodes.lock().unwrap().left.is_empty()).await;
                }
                [mirroring]
            };
            // Changes at every moment of the resync.
            let ([mirroring], ()) = tokio::join!(resuming, change(&other, &root, &mut writer, steps));
            if round == 14 {
                Nodes::equal(&nodes, &tree(&other, &root).await, seed).await;
            }
            client.close().await;
            in_time(mirroring).await.unwrap();
            change(&other, &root, &mut writer, steps / 3).await;
        }
    }
}
