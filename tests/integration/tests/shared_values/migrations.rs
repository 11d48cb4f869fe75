//! Curator's `TestMigrationManager`, and lost replies. `zookeeper-async` has no transactions.

use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorOp, Error, RetryNTimes};
use curator_integration::env::{Env, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_integration::simulated_stage::{ONE, TWO, client as simulated, play, soon};
use curator_recipes::{
    InterProcessSemaphoreMutex, JsonCodec, LockError, Migration, MigrationError, MigrationManager, MigrationSet,
    ModelSpec, ModeledNode,
};
use curator_test::wire::OpCode;
use tokio::time::sleep;

use crate::typed_stage::{User, through, user};

fn manager(client: &CuratorFramework, env: &Env) -> MigrationManager {
    MigrationManager::new(client.clone(), env.path("locks"), env.path("applied")).unwrap()
}

fn set(migrations: impl IntoIterator<Item = Migration>) -> MigrationSet {
    MigrationSet::new("main", migrations)
}

fn create(path: &str, data: &str) -> CuratorOp {
    CuratorOp::create(path).with_data(data)
}

async fn read(client: &CuratorFramework, path: &str) -> Option<String> {
    match client.get_data().for_path(path).await {
        Err(Error::NoNode { .. }) => None,
        read => Some(String::from_utf8(read.unwrap().0).unwrap()),
    }
}

async fn records(client: &CuratorFramework, env: &Env) -> Vec<String> {
    let mut records = client.get_children().for_path(&env.path("applied/main")).await.unwrap_or_default();
    records.sort();
    records
}

on_every_server! {
    /// Curator's `testBasic`, `testStaged` and `testDocExample`.
    async fn migrations_are_applied_once_and_in_order(env) {
        let (client, base) = (env.client().await, env.path("shop"));
        let manager = manager(&client, &env);
        let path = format!("{base}/ada");
        let ada = ModeledNode::<User>::new(client.clone(), ModelSpec::new(&path, JsonCodec).unwrap()).unwrap();
        let (parent, first) = (create(&base, ""), ada.create_op(&user(1)).unwrap());
        let one = Migration::new([parent, first]);
        let two = Migration::new([ada.update_op(0, &user(2)).unwrap()]);
        let three = Migration::new([ada.update_op(1, &user(3)).unwrap(), create(&format!("{base}/new"), "")]);
        assert_eq!(in_time(manager.migrate(&set([one.clone()]))).await.unwrap(), 1);
        assert_eq!(in_time(ada.read()).await.unwrap().value, user(1));
        let all = set([one, two, three]);
        assert_eq!((all.id(), all.migrations().len(), all.migrations()[0].operations().len()), ("main", 3, 2));
        assert_eq!(in_time(manager.migrate(&all)).await.unwrap(), 2);
        assert_eq!(in_time(ada.read()).await.unwrap().value, user(3));
        assert_eq!(in_time(manager.migrate(&all)).await.unwrap(), 0);
        assert_eq!(in_time(ada.read()).await.unwrap().version, 2, "nothing is applied again");
        assert_eq!(records(&client, &env).await, ["meta-0000000000", "meta-0000000001", "meta-0000000002"]);
        assert_eq!(in_time(manager.migrate(&MigrationSet::new("other", []))).await.unwrap(), 0);
        let lock = InterProcessSemaphoreMutex::new(client, env.path("locks/main")).unwrap();
        assert!(in_time(lock.participants()).await.unwrap().is_empty());
    }

    /// Curator's `testChecksumDataError` and `testChecksumPathError`.
    async fn set_that_does_not_continue_the_applied_one_is_refused(env) {
        let (client, base) = (env.client().await, env.path("a"));
        let (manager, child) = (manager(&client, &env), format!("{base}/b"));
        let applied = || Migration::new([create(&base, "1"), create(&child, "first")]);
        assert_eq!(in_time(manager.migrate(&set([applied(), Migration::new([])]))).await.unwrap(), 2);
        for changed in [
            Migration::new([create(&base, "1"), create(&child, "second")]),
            Migration::new([create(&base, "1"), create(&format!("{base}/c"), "first")]),
            Migration::new([create(&child, "first"), create(&base, "1")]),
            Migration::new([create(&base, "1")]),
        ] {
            let refused = in_time(manager.migrate(&set([changed, Migration::new([])]))).await.unwrap_err();
            let MigrationError::Changed { set, number: 1 } = &refused else { panic!("{refused:?}") };
            assert_eq!(set, "main");
            assert!(!refused.is_retryable() && !refused.outcome_unknown());
        }
        let refused = in_time(manager.migrate(&set([applied(), applied()]))).await.unwrap_err();
        assert!(matches!(refused, MigrationError::Changed { number: 2, .. }), "{refused:?}");
        let refused = in_time(manager.migrate(&set([applied()]))).await.unwrap_err();
        assert!(matches!(refused, MigrationError::Older { applied: 2, known: 1, .. }), "{refused:?}");
        assert_eq!(refused.to_string(), "2 migrations of the set \"main\" were applied, and this program has 1");
        assert_eq!(read(&client, &child).await.as_deref(), Some("first"));
    }

    /// Curator's `testPartialApplyForBadOps` and `testTransactionForBadOps`.
    async fn migration_that_fails_changes_nothing(env) {
        let (client, base) = (env.client().await, env.path("a"));
        let manager = manager(&client, &env);
        let (good, bad) = (create(&base, "x"), create(&format!("{base}/b/c"), "x"));
        for set in [
            set([Migration::new([good.clone()]), Migration::new([bad.clone()])]),
            set([Migration::new([good, bad])]),
        ] {
            let failed = in_time(manager.migrate(&set)).await.unwrap_err();
            let MigrationError::Framework(Error::Transaction { index, cause, .. }) = &failed else { panic!("{failed:?}") };
            // The record of the first migration counts.
            assert_eq!(*index, if set.migrations().len() == 2 { 2 } else { 1 });
            assert!(matches!(**cause, Error::NoNode { .. }), "{cause:?}");
            assert_eq!((read(&client, &base).await, records(&client, &env).await.len()), (None, 0));
        }
    }

    /// Curator's `testConcurrency1` and `testConcurrency2`.
    async fn processes_apply_a_set_one_after_the_other(env) {
        let (clients, base) = ([env.client().await, env.client().await], env.path("a"));
        let set = set([Migration::new([create(&base, "x")])]);
        let lock = InterProcessSemaphoreMutex::new(clients[0].clone(), env.path("locks/main")).unwrap();
        let guard = in_time(lock.acquire()).await.unwrap();
        let second = manager(&clients[1], &env);
        let waited = in_time(second.migrate_timeout(&set, Duration::from_millis(50))).await;
        assert_eq!(waited.unwrap(), None);
        assert_eq!(read(&clients[1], &base).await, None);
        let tasks: Vec<_> = (0..6).map(|task| {
            let (manager, set) = (manager(&clients[task % 2], &env), set.clone());
            tokio::spawn(async move { manager.migrate_timeout(&set, Duration::from_secs(30)).await.unwrap() })
        }).collect();
        eventually("all wait", async || lock.participants().await.unwrap().len() >= 2).await;
        assert!(in_time(guard.release()).await.unwrap().is_released());
        let mut applied = Vec::new();
        for task in tasks {
            applied.push(in_time(task).await.unwrap());
        }
        applied.sort();
        assert_eq!(applied, [Some(0), Some(0), Some(0), Some(0), Some(0), Some(1)]);
        assert_eq!(records(&clients[0], &env).await.len(), 1);
    }

    async fn lost_reply_or_request_applies_once(env) {
        for is_reply in [true, false] {
            let (proxy, base) = (env.proxy(), env.path(&format!("a{is_reply}")));
            let client = connected(through(&proxy)).await;
            let manager = MigrationManager::new(client.clone(), env.path("locks"), env.path(&format!("of{is_reply}"))).unwrap();
            match is_reply {
                true => proxy.drop_reply(OpCode::Multi, 1),
                false => proxy.drop_request(OpCode::Multi, 1),
            }
            let set = set([Migration::new([create(&base, "x")]), Migration::new([CuratorOp::set_data(&base, "y")])]);
            assert_eq!(in_time(manager.migrate(&set)).await.unwrap(), 2);
            assert_eq!(proxy.faults_done(), 1);
            assert_eq!(client.check_exists().for_path(&base).await.unwrap().unwrap().version, 1);
            assert_eq!(in_time(manager.migrate(&set)).await.unwrap(), 0);
        }
    }

    /// Another process may apply the set since.
    async fn process_that_has_lost_the_lock_applies_nothing(env) {
        let (proxy, base) = (env.proxy(), env.path("a"));
        let (client, other) = (connected(through(&proxy)).await, env.client().await);
        let set = set([Migration::new([create(&base, "x")])]);
        let lock = InterProcessSemaphoreMutex::new(other.clone(), env.path("locks/main")).unwrap();
        proxy.refuse();
        proxy.drop_request(OpCode::Multi, 1);
        let migrating = {
            let (manager, set) = (manager(&client, &env), set.clone());
            tokio::spawn(async move { manager.migrate(&set).await })
        };
        eventually("the request is lost", async || proxy.faults_done() == 1).await;
        for holder in in_time(lock.participants()).await.unwrap() {
            other.delete().for_path(&holder.path).await.unwrap();
        }
        proxy.accept();
        let refused = in_time(migrating).await.unwrap().unwrap_err();
        assert!(matches!(&refused, MigrationError::Lock(LockError::LockLost { .. })), "{refused:?}");
        assert!(refused.outcome_unknown());
        assert_eq!(read(&other, &base).await, None);
        assert_eq!(in_time(manager(&other, &env).migrate(&set)).await.unwrap(), 1);
    }

    async fn digests_count_the_namespace(env) {
        let client = env.client().await;
        let base = env.path("space");
        let inside = client.using_namespace(base.trim_start_matches('/')).unwrap();
        let manager = MigrationManager::new(inside.clone(), "/locks", "/applied").unwrap();
        assert_eq!(in_time(manager.migrate(&set([Migration::new([create("/a", "x")])]))).await.unwrap(), 1);
        // The same nodes by their full paths.
        let full = MigrationManager::new(client, format!("{base}/locks"), format!("{base}/applied")).unwrap();
        let same = set([Migration::new([create(&format!("{base}/a"), "x")])]);
        assert_eq!(in_time(full.migrate(&same)).await.unwrap(), 0);
        let other = in_time(full.migrate(&set([Migration::new([create("/a", "x")])]))).await;
        assert!(matches!(other, Err(MigrationError::Changed { number: 1, .. })), "{other:?}");
    }

    async fn names_that_are_no_paths_are_refused(env) {
        let client = env.client().await;
        for (locks, applied) in [("locks", "/b"), ("/a", "/b/")] {
            let refused = MigrationManager::new(client.clone(), locks, applied);
            assert!(matches!(refused, Err(MigrationError::Framework(Error::InvalidPath { .. }))), "{refused:?}");
        }
        for id in ["", "a//b", ".."] {
            let refused = in_time(manager(&client, &env).migrate(&MigrationSet::new(id, []))).await;
            assert!(matches!(refused, Err(MigrationError::Framework(Error::InvalidPath { .. }))), "{id:?}: {refused:?}");
        }
        let set = set([Migration::new([create("no path", "")])]);
        let refused = in_time(manager(&client, &env).migrate(&set)).await;
        assert!(matches!(refused, Err(MigrationError::Framework(Error::InvalidPath { .. }))), "{refused:?}");
    }

    /// The nodes of another set, and the lock's nodes, are not records.
    async fn other_nodes_beside_the_records_do_not_count(env) {
        let (client, base) = (env.client().await, env.path("a"));
        let manager = MigrationManager::new(client.clone(), env.path("both"), env.path("both")).unwrap();
        let set = |id: &str, path: &str| MigrationSet::new(id, [Migration::new([create(path, "x")])]);
        for (id, path) in [("shop/orders", base.clone()), ("shop", format!("{base}/b"))] {
            for applied in [1, 0] {
                assert_eq!(in_time(manager.migrate(&set(id, &path))).await.unwrap(), applied, "{id}");
            }
        }
    }

    /// As Java's client does it.
    async fn records_are_compressed_if_the_client_compresses(env) {
        let (client, base) = (connected(builder(env.address()).enable_compression()).await, env.path("a"));
        let manager = manager(&client, &env);
        let set = set([Migration::new([create(&base, "x")]), Migration::new([CuratorOp::delete(&base)])]);
        assert_eq!(in_time(manager.migrate(&set)).await.unwrap(), 2);
        assert_eq!(in_time(manager.migrate(&set)).await.unwrap(), 0);
        let record = format!("{}/{}", env.path("applied/main"), records(&client, &env).await[0]);
        let stored = client.get_data().undecompressed().for_path(&record).await.unwrap().0;
        assert!(stored.starts_with(&[0x1f, 0x8b]), "gzip's own beginning: {stored:?}");
    }

    async fn long_sets_are_read_in_parts(env) {
        let (client, base) = (env.client().await, env.path("a"));
        let manager = manager(&client, &env);
        let migrations = |count: usize| (0..count).map(|number| match number {
            0 => Migration::new([create(&base, "0")]),
            number => Migration::new([CuratorOp::set_data(&base, number.to_string())]),
        });
        for (count, applied) in [(64, 64), (65, 1), (130, 65), (130, 0)] {
            assert_eq!(in_time(manager.migrate(&set(migrations(count)))).await.unwrap(), applied, "{count}");
        }
        let refused = in_time(manager.migrate(&set(migrations(128)))).await.unwrap_err();
        assert!(matches!(refused, MigrationError::Older { applied: 130, known: 128, .. }), "{refused:?}");
        let changed = migrations(129).chain([Migration::new([])]);
        let refused = in_time(manager.migrate(&set(changed))).await.unwrap_err();
        assert!(matches!(refused, MigrationError::Changed { number: 130, .. }), "{refused:?}");
        // A transaction that no server takes. The lock is free behind it.
        let large = (0..20_000).map(|number| create(&format!("{base}/{number:060}"), ""));
        let refused = in_time(manager.migrate(&MigrationSet::new("large", [Migration::new(large)]))).await.unwrap_err();
        assert!(matches!(refused, MigrationError::Framework(Error::RequestTooLarge { .. })), "{refused:?}");
        assert_eq!(in_time(manager.migrate(&MigrationSet::new("large", []))).await.unwrap(), 0);
    }
}

/// The server of the next connection lags: it lacks what was applied after the lost reply.
#[test]
fn lost_reply_applies_once_though_the_next_server_lags() {
    for millis in 0..400 {
        play(millis, async |ensemble| {
            let retry = RetryNTimes::new(1000, Duration::from_millis(1));
            let one = connected(ensemble.client(ONE).retry_policy(retry)).await;
            let two = simulated(&ensemble, TWO).await;
            two.create().with_data("").for_path("/a").await.unwrap();
            let manager = MigrationManager::new(one, "/locks", "/applied").unwrap();
            // It can be applied again.
            let write = |data: &str| Migration::new([CuratorOp::set_data("/a", data)]);
            soon(manager.migrate(&set([write("1")]))).await.unwrap();
            let set = set([write("1"), write("2")]);
            let migrating = {
                let (manager, set) = (manager.clone(), set.clone());
                tokio::spawn(async move { manager.migrate(&set).await })
            };
            sleep(Duration::from_millis(millis)).await;
            ensemble.stale_reads(ONE);
            ensemble.drop_reply(ONE);
            let applied = soon(migrating).await.unwrap();
            ensemble.repair(ONE);
            assert_eq!(ensemble.children("/applied/main").len(), 2, "after {millis} ms: {applied:?}");
            assert!(matches!(applied, Ok(1)), "after {millis} ms: {applied:?}");
            assert_eq!(two.check_exists().for_path("/a").await.unwrap().unwrap().version, 2);
            assert!(matches!(soon(manager.migrate(&set)).await, Ok(0)));
        });
    }
}
