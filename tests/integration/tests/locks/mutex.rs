//! Curator's `TestInterProcessMutex`: what it adds to the laws of every lock.

use curator_framework::{CreateMode, OtherPaths, Schema, SchemaSet};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMutex, LockInternalsDriver, MutexOptions, Predicate, Release, SortedChildren,
    StandardLockInternalsDriver,
};

/// A lock that outlives its session.
#[derive(Debug)]
struct Persistent;

impl LockInternalsDriver for Persistent {
    fn create_mode(&self) -> CreateMode {
        CreateMode::PersistentSequential
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate {
        StandardLockInternalsDriver.gets_the_lock(children, ours, max_leases)
    }
}

/// The last one in line has the lock.
#[derive(Debug)]
struct LastComeFirstServed;

impl LockInternalsDriver for LastComeFirstServed {
    fn sequence(&self, name: &str, lock_name: &str) -> Option<i64> {
        curator_recipes::standard_sequence(name, lock_name).map(|number| 1000 - number)
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate {
        StandardLockInternalsDriver.gets_the_lock(children, ours, max_leases)
    }
}

on_every_server! {
    /// Curator's `TestInterProcessMutex.testWithSchema`.
    async fn a_mutex_keeps_the_schemas_of_its_recipe(env) {
        let path = env.path("lock");
        let schemas = [Schema::for_recipe_parent(&path).unwrap(), Schema::for_recipe(&path).unwrap()];
        env.client().await.create().creating_parents_if_needed().for_path(&env.path("beside")).await.unwrap();
        let client = connected(builder(env.address()).schema_set(SchemaSet::new(schemas, OtherPaths::Refused))).await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
        // No schema is about another lock.
        let other = InterProcessMutex::new(client, env.path("other")).unwrap();
        let error = in_time(other.acquire()).await.unwrap_err().to_string();
        assert!(error.ends_with("no schema is about it"), "{error}");
    }

    /// Curator's `TestInterProcessMutex.testPersistentLock`.
    async fn a_persistent_lock_outlives_its_session_until_it_is_released(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let mutex = InterProcessMutex::with_options(first.clone(), &path, MutexOptions::new().driver(Persistent)).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let node = first.check_exists().for_path(guard.node_path()).await.unwrap().unwrap();
        assert_eq!(node.ephemeral_owner, 0);
        // An ephemeral node shows its session.
        let mode = CreateMode::Ephemeral;
        first.create().with_mode(mode).for_path(&env.path("mine")).await.unwrap();
        env.kill_owner_of(&second, &env.path("mine")).await;
        in_time(guard.lost()).await;
        let other = InterProcessMutex::with_options(second.clone(), &path, MutexOptions::new().driver(Persistent)).unwrap();
        assert!(other.try_acquire().await.unwrap().is_none(), "the node is there still");
        let participants = other.participants().await.unwrap();
        assert!(participants[0].holds && participants[0].session.is_none(), "{participants:?}");
        assert!(matches!(in_time(guard.release()).await.unwrap(), Release::AlreadyLost(_)));
        drop(guard);
        let next = in_time(other.acquire()).await.unwrap();
        assert_eq!(in_time(next.release()).await.unwrap(), Release::Released);
        eventually("nothing is left", async || children(&second, &path).await.is_empty()).await;
    }

    /// A driver of one's own sorts.
    async fn driver_chooses_the_next_contender(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::with_options(client.clone(), &path, MutexOptions::new().driver(LastComeFirstServed)).unwrap();
        let first = in_time(mutex.acquire()).await.unwrap();
        let second = in_time(mutex.acquire()).await.unwrap();
        let nodes = mutex.participants().await.unwrap();
        let seen: Vec<_> = nodes.iter().map(|node| (node.path.as_str(), node.sequence)).collect();
        assert_eq!(seen, [(second.node_path(), 999), (first.node_path(), 1000)]);
        assert!(second.release().await.unwrap().is_released());
        assert!(first.release().await.unwrap().is_released());
    }

    /// For paths that kazoo's locks use too.
    async fn names_of_other_clients_are_contenders_if_they_are_given(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let foreign = client.create().creating_parents_if_needed().with_mode(CreateMode::EphemeralSequential);
        let foreign = foreign.for_path(&format!("{path}/0a1b2c__lock__")).await.unwrap();
        let plain = InterProcessMutex::new(client.clone(), &path).unwrap();
        assert!(plain.try_acquire().await.unwrap().is_some(), "it is no contender");
        env.wait_for_children(&client, &path, 1).await;

        let options = MutexOptions::new().extra_lock_patterns(["__other__", "__lock__"]);
        let mutex = InterProcessMutex::with_options(client.clone(), &path, options).unwrap();
        assert_eq!(mutex.participant_nodes().await.unwrap(), [foreign.as_str()]);
        assert!(mutex.try_acquire().await.unwrap().is_none());
        let waiter = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await }) };
        env.wait_for_children(&client, &path, 2).await;
        assert!(!waiter.is_finished());
        client.delete().for_path(&foreign).await.unwrap();
        assert!(in_time(waiter).await.unwrap().unwrap().release().await.unwrap().is_released());
    }
}
