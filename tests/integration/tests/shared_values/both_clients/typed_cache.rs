//! Curator's `TestCachedModeledFramework`, and the promises of the cache of typed nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curator_framework::{Changes, CreateMode, Error};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::in_process::{client, server};
use curator_integration::on_every_server;
use curator_recipes::{
    CacheError, CacheState, CachedModel, Codec, CodecError, JsonCodec, Lookup, ModelChange, ModelError, ModelSpec,
    ModelSpecOptions, ModeledCache, ModeledFramework, PersistentNode, RawCodec,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::typed_stage::{User, through, user, users, users_with};

/// A started cache after its first load.
async fn loaded<T: Send + Sync + 'static>(nodes: &ModeledFramework<T>) -> ModeledCache<T> {
    let cache = nodes.cached().unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    cache
}

/// The number of logins of a user in the cache.
fn logins(cache: &ModeledCache<User>, key: &str) -> Option<u32> {
    cache.get(key).unwrap().present().map(|user| user.value.logins)
}

fn told(change: Option<ModelChange<User>>) -> String {
    match change {
        Some(ModelChange::Added(new)) => format!("+{}={}", new.key, new.value.logins),
        Some(ModelChange::Updated { old, new }) => format!("~{}={}>{}", new.key, old.value.logins, new.value.logins),
        Some(ModelChange::Removed(old)) => format!("-{}={}", old.key, old.value.logins),
        Some(ModelChange::Broken { key, error }) => format!("!{key}: {error}"),
        other => format!("{other:?}"),
    }
}

/// JSON that counts its decodes.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Codec<User> for Counted {
    fn encode(&self, value: &User) -> Result<Vec<u8>, CodecError> {
        JsonCodec.encode(value)
    }

    fn decode(&self, data: &[u8]) -> Result<User, CodecError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        assert_ne!(data, b"panic", "the codec has had enough");
        JsonCodec.decode(data)
    }
}

on_every_server! {
    /// Curator's `testInitializedCachedModeledFramework`, `testNoNodeException`, `testRead` and `testAccessCacheDirectly`.
    async fn values_are_present_missing_or_not_loaded(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        let stat = in_time(users.at("ada").unwrap().set(&user(1))).await.unwrap();
        let cache = users.cached().unwrap();
        assert_eq!(cache.path(), path);
        assert!(matches!(cache.get("ada"), Ok(Lookup::NotLoaded)), "{:?}", cache.get("ada"));
        let early = in_time(cache.initialized()).await;
        assert!(matches!(early, Err(ModelError::Cache(CacheError::NotStarted { .. }))), "{early:?}");
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        for _ in 0..2 {
            let Ok(Lookup::Present(CachedModel { key, value, version, stat: cached, since, .. })) = cache.get("ada") else {
                panic!("{:?}", cache.get("ada"));
            };
            assert_eq!((&*key, &*value, version, cached), ("ada", &user(1), 0, stat));
            assert_eq!(since.get(), stat.czxid);
        }
        assert!(matches!(cache.get("bob"), Ok(Lookup::Missing)));
        for key in ["", "a/b", ".."] {
            assert!(matches!(cache.get(key), Err(ModelError::InvalidKey { .. })), "{key:?}");
        }
        assert!(cache.state().is_fresh(), "{:?}", cache.state());
        let again = cache.start();
        assert!(matches!(again, Err(ModelError::Cache(CacheError::AlreadyStarted { .. }))), "{again:?}");
        in_time(cache.close()).await;
        in_time(cache.close()).await;
        assert!(matches!(cache.state(), CacheState::Closed));
        let closed = in_time(cache.initialized()).await;
        assert!(matches!(closed, Err(ModelError::Cache(CacheError::Closed { .. }))), "{closed:?}");
    }

    /// Curator's `testReadThrough`, with the caller's own writes.
    async fn caller_reads_its_own_writes_after_catching_up(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        let (cache, ada) = (loaded(&users).await, users.at("ada").unwrap());
        assert!(cache.models().is_empty(), "the path does not exist");
        for number in 0..20 {
            let written = in_time(ada.set(&user(number))).await.unwrap();
            let zxid = in_time(cache.caught_up()).await.unwrap().get();
            // The replies of `zookeeper-async` have no transaction, so it may know an earlier one.
            assert!(zxid >= written.mzxid || is_zookeeper_async(), "{zxid}, {}", written.mzxid);
            let read = cache.get("ada").unwrap().present().unwrap();
            assert_eq!((read.value.logins, read.version), (number, written.version));
        }
        in_time(ada.delete()).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        assert!(matches!(cache.get("ada"), Ok(Lookup::Missing)));
        // The writes of another client.
        let other = crate::typed_stage::users(&env.client().await, &path);
        in_time(other.at("bob").unwrap().create(&user(7))).await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!(logins(&cache, "bob"), Some(7));
    }

    /// Curator's `testPostInitializedFilter`, and its events.
    async fn changes_have_the_old_and_the_new_value(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        let (ada, bob) = (users.at("ada").unwrap(), users.at("bob").unwrap());
        in_time(ada.set(&user(1))).await.unwrap();
        let cache = loaded(&users).await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = { let heard = Arc::clone(&heard); cache.add_listener(move |change| heard.lock().push(told(Some(change.clone())))) };
        let mut changes = cache.changes();
        let mut next = async || told(in_time(changes.recv()).await);
        assert_eq!(next().await, "+ada=1");
        in_time(bob.create(&user(2))).await.unwrap();
        assert_eq!(next().await, "+bob=2");
        in_time(ada.update(0, &user(3))).await.unwrap();
        assert_eq!(next().await, "~ada=1>3");
        // The same data is not a change, and its version counts for the next write.
        in_time(ada.update(1, &user(3))).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        let version = cache.get("ada").unwrap().present().unwrap().version;
        in_time(ada.update(version, &user(4))).await.unwrap();
        assert_eq!(next().await, "~ada=3>4");
        client.set_data().for_path(ada.path(), "not JSON").await.unwrap();
        assert_eq!(next().await, "-ada=4");
        assert_eq!(next().await, format!("!ada: the data of {path}/ada cannot be decoded"));
        in_time(ada.set(&user(5))).await.unwrap();
        assert_eq!(next().await, "+ada=5");
        in_time(bob.delete()).await.unwrap();
        assert_eq!(next().await, "-bob=2");
        let all = ["+ada=1", "+bob=2", "~ada=1>3", "~ada=3>4", "-ada=4"];
        eventually("the listener hears all", async || heard.lock().last().is_some_and(|last| last == "-bob=2")).await;
        assert_eq!(heard.lock()[..5], all);
        cache.remove_listener(listener);
        in_time(cache.close()).await;
        assert_eq!(next().await, "None");
        assert_eq!(cache.models().iter().map(|user| user.value.logins).collect::<Vec<_>>(), [5], "the last known ones");
    }

    /// Curator's `testChildren` and `testEmptyNodeJacksonDeserialization`: a node without data, and nodes below a node.
    async fn nodes_that_cannot_be_decoded_are_apart(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        for (key, data) in [("broken", "{"), ("empty", ""), ("parent/child", "")] {
            client.create().creating_parents_if_needed().with_data(data).for_path(&format!("{path}/{key}")).await.unwrap();
        }
        in_time(users.at("ada").unwrap().create(&user(1))).await.unwrap();
        let cache = loaded(&users).await;
        let keys = |cache: &ModeledCache<User>| cache.models().iter().map(|user| user.key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys(&cache), ["ada"]);
        let broken: Vec<_> = cache.broken().into_iter().map(|(key, _)| key).collect();
        assert_eq!(broken, ["broken", "empty", "parent"]);
        assert!(matches!(cache.get("empty"), Err(ModelError::Decode { .. })), "{:?}", cache.get("empty"));
        // Their ends are not changes.
        let mut changes = cache.changes();
        client.delete().for_path(&format!("{path}/parent/child")).await.unwrap();
        for key in ["broken", "empty", "parent"] {
            client.delete().for_path(&format!("{path}/{key}")).await.unwrap();
        }
        in_time(users.at("bob").unwrap().create(&user(2))).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        assert_eq!((keys(&cache), cache.broken().len()), (vec!["ada".to_owned(), "bob".to_owned()], 0));
        let mut told_changes = Vec::new();
        while told_changes.last().is_none_or(|last| last != "+bob=2") {
            told_changes.push(told(in_time(changes.recv()).await));
        }
        told_changes.retain(|change| !change.starts_with('!'));
        assert_eq!(told_changes, ["+ada=1", "+bob=2"]);
        // Curator's `testEmptyNodeRawDeserialization`: to this codec a node without data is a value.
        let texts = ModeledFramework::<String>::new(client.clone(), ModelSpec::new(format!("{path}/{{}}"), RawCodec).unwrap()).unwrap();
        client.create().with_data("").for_path(&format!("{path}/empty")).await.unwrap();
        let texts = loaded(&texts).await;
        assert_eq!(*texts.get("empty").unwrap().present().unwrap().value, "");
    }

    async fn each_state_is_decoded_once_for_all_readers(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let codec = Counted::default();
        let spec = ModelSpec::<User>::new(format!("{path}/{{id}}"), codec.clone()).unwrap();
        let nodes = ModeledFramework::new(client.clone(), spec).unwrap();
        let cache = loaded(&nodes).await;
        let mut streams: Vec<_> = (0..5).map(|_| cache.changes()).collect();
        in_time(nodes.at("ada").unwrap().create(&user(0))).await.unwrap();
        for number in 1..=5 {
            for stream in &mut streams {
                let change = in_time(stream.recv()).await.unwrap();
                let (ModelChange::Added(new) | ModelChange::Updated { new, .. }) = change else { panic!("{change:?}") };
                let cached = cache.get("ada").unwrap().present().unwrap();
                assert!(Arc::ptr_eq(&new.value, &cached.value), "all readers share one value");
            }
            assert_eq!(codec.0.load(Ordering::SeqCst), number);
            in_time(nodes.at("ada").unwrap().set(&user(u32::try_from(number).unwrap()))).await.unwrap();
        }
        // A panic of the codec ends nothing.
        client.create().with_data("panic").for_path(&format!("{path}/bob")).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        let Err(ModelError::Decode { cause, .. }) = cache.get("bob") else { panic!("{:?}", cache.get("bob")) };
        assert!(cause.to_string().contains("the codec has had enough"), "{cause}");
        assert_eq!(cache.get("ada").unwrap().present().unwrap().value.logins, 5);
    }

    /// Curator's `testDownServer`.
    async fn values_stay_through_an_outage_and_follow_it(env) {
        let (proxy, path) = (env.proxy(), env.path("users"));
        let (client, other) = (connected(through(&proxy)).await, env.client().await);
        let others = users(&other, &path);
        in_time(others.at("ada").unwrap().create(&user(1))).await.unwrap();
        in_time(others.at("bob").unwrap().create(&user(1))).await.unwrap();
        let cache = loaded(&users(&client, &path)).await;
        let mut changes = cache.changes();
        for _ in 0..2 {
            assert!(told(in_time(changes.recv()).await).starts_with('+'));
        }
        proxy.refuse();
        proxy.reset();
        eventually("the cache is stale", async || matches!(cache.state(), CacheState::Stale { .. })).await;
        assert_eq!(logins(&cache, "ada"), Some(1));
        in_time(others.at("ada").unwrap().set(&user(2))).await.unwrap();
        in_time(others.at("bob").unwrap().delete()).await.unwrap();
        in_time(others.at("cyd").unwrap().create(&user(3))).await.unwrap();
        proxy.accept();
        in_time(cache.synced()).await.unwrap();
        let all: Vec<_> = cache.models().iter().map(|user| (user.key.to_string(), user.value.logins)).collect();
        assert_eq!(all, [("ada".to_owned(), 2), ("cyd".to_owned(), 3)]);
        let mut after: Vec<String> = Vec::new();
        for _ in 0..3 {
            after.push(told(in_time(changes.recv()).await));
        }
        after.sort();
        assert_eq!(after, ["+cyd=3", "-bob=1", "~ada=1>2"]);
    }

    async fn compression_is_that_of_the_description_or_the_client(env) {
        let compressing = connected(builder(env.address()).enable_compression()).await;
        let plain = env.client().await;
        for (number, (client, options)) in [
            (&plain, ModelSpecOptions::new()),
            (&plain, ModelSpecOptions::new().compressed()),
            (&compressing, ModelSpecOptions::new()),
            (&compressing, ModelSpecOptions::new().uncompressed()),
        ].into_iter().enumerate() {
            let users = users_with(client, &env.path(&format!("users{number}")), options);
            let cache = loaded(&users).await;
            in_time(users.at("ada").unwrap().create(&user(1))).await.unwrap();
            in_time(cache.caught_up()).await.unwrap();
            assert_eq!(logins(&cache, "ada"), Some(1), "{number}");
        }
        // Data that is not compressed, where it should be.
        let path = env.path("users1");
        plain.create().with_data(r#"{"name":"Bob","logins":1}"#).for_path(&format!("{path}/bob")).await.unwrap();
        let cache = loaded(&users_with(&plain, &path, ModelSpecOptions::new().compressed())).await;
        let broken = cache.get("bob");
        let Err(ModelError::Cache(CacheError::Framework(Error::Compression { .. }))) = broken else { panic!("{broken:?}") };
        assert_eq!(logins(&cache, "ada"), Some(1));
    }

    /// The cache ends with its last clone, and a stream keeps neither the cache nor the client.
    async fn stream_keeps_neither_the_cache_nor_the_client(env) {
        let client = env.client().await;
        let cache = loaded(&users(&client, &env.path("users"))).await;
        let mut changes = cache.changes();
        let clone = cache.clone();
        drop(cache);
        assert!(clone.state().is_fresh());
        drop(clone);
        assert!(in_time(changes.recv()).await.is_none());
        let cache = loaded(&users(&client, &env.path("users"))).await;
        let mut changes = cache.changes();
        in_time(client.close()).await;
        assert!(in_time(changes.recv()).await.is_none());
        assert!(matches!(cache.state(), CacheState::Closed));
    }

    /// A process that keeps an ephemeral node has a new session.
    async fn node_of_a_process_with_a_new_session_is_the_same(env) {
        let (proxy, path) = (env.proxy(), env.path("users"));
        let (client, other) = (connected(through(&proxy)).await, env.client().await);
        let data = JsonCodec.encode(&user(1)).unwrap();
        let node = PersistentNode::new(client, format!("{path}/ada"), data).unwrap();
        node.start().unwrap();
        let before = in_time(node.created()).await.unwrap();
        let cache = loaded(&users(&other, &path)).await;
        let mut changes = cache.changes();
        assert_eq!(told(in_time(changes.recv()).await), "+ada=1");
        let since = cache.get("ada").unwrap().present().unwrap().since;
        assert_eq!(since, before.czxid);
        proxy.swap_session();
        proxy.reset();
        eventually("the node is another one", async || {
            in_time(cache.synced()).await.is_ok_and(|_| {
                cache.get("ada").unwrap().present().is_some_and(|user| user.stat.czxid != before.czxid.get())
            })
        }).await;
        if !is_zookeeper_async() {
            assert_eq!(cache.get("ada").unwrap().present().unwrap().since, since);
            assert!(changes.try_recv().is_err(), "it is not a change");
            let Some(ModelChange::Added(model)) = in_time(cache.changes().recv()).await else { panic!("it is present") };
            assert_eq!(model.since, since, "a later stream knows it too");
        }
        in_time(node.close()).await;
    }

    /// Data that is not compressed, where it should be. The cache has never had a value of it.
    async fn node_that_could_never_be_read_is_missing_after_its_end(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users_with(&client, &path, ModelSpecOptions::new().compressed());
        let cache = loaded(&users).await;
        let mut changes = cache.changes();
        for number in 0..3 {
            in_time(client.create().creating_parents_if_needed().with_data("{}").for_path(&format!("{path}/bob"))).await.unwrap();
            in_time(cache.synced()).await.unwrap();
            assert!(matches!(cache.get("bob"), Err(ModelError::Cache(_))), "{number}: {:?}", cache.get("bob"));
            assert_eq!(cache.broken().len(), 1);
            assert!(told(in_time(changes.recv()).await).starts_with("!bob"));
            in_time(client.delete().for_path(&format!("{path}/bob"))).await.unwrap();
            in_time(cache.synced()).await.unwrap();
            assert!(matches!(cache.get("bob"), Ok(Lookup::Missing)), "{number}: {:?}", cache.get("bob"));
            assert!(cache.broken().is_empty(), "{:?}", cache.broken());
        }
        in_time(users.at("bob").unwrap().create(&user(1))).await.unwrap();
        assert_eq!(told(in_time(changes.recv()).await), "+bob=1");
    }

    /// A node of this name is ZooKeeper's at the root of the servers alone.
    async fn node_named_zookeeper_in_a_namespace_is_a_node(env) {
        let client = env.client().await;
        let base = env.path("space");
        let inside = client.using_namespace(base.trim_start_matches('/')).unwrap();
        let spec = ModelSpec::<User>::new("/{id}", JsonCodec).unwrap();
        let users = ModeledFramework::new(inside, spec).unwrap();
        in_time(users.at("zookeeper").unwrap().set(&user(7))).await.unwrap();
        let cache = loaded(&users).await;
        assert_eq!(logins(&cache, "zookeeper"), Some(7), "{:?}", cache.get("zookeeper"));
        assert_eq!(cache.models().len(), 1);
        assert_eq!(told(in_time(cache.changes().recv()).await), "+zookeeper=7");
    }

    /// One event has two changes.
    async fn listener_that_panics_hears_the_other_changes(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        in_time(users.at("ada").unwrap().set(&user(1))).await.unwrap();
        let cache = loaded(&users).await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        cache.add_listener(move |change| {
            hears.lock().push(told(Some(change.clone())));
            assert!(!matches!(change, ModelChange::Removed(_)), "the listener has had enough");
        });
        in_time(client.set_data().for_path(&format!("{path}/ada"), "no JSON")).await.unwrap();
        eventually("all are heard", async || heard.lock().iter().any(|change| change.starts_with("!ada"))).await;
        assert_eq!(heard.lock().len(), 3);
    }

    /// Neither a stream nor a listener has a clone of the client that counts.
    async fn client_ends_with_its_last_clone_beside_streams_and_listeners(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let other = env.client().await;
        in_time(users(&other, &path).at("ada").unwrap().set(&user(1))).await.unwrap();
        let of_session = format!("{path}/ada/session");
        in_time(client.create().with_mode(CreateMode::Ephemeral).for_path(&of_session)).await.unwrap();
        let cache = loaded(&users(&client, &path)).await;
        let mut changes = cache.changes();
        cache.add_listener(|_| {});
        assert_eq!(told(in_time(changes.recv()).await), "+ada=1");
        drop((cache, client));
        // The stream is not polled, and so not at its end.
        eventually("the session ends", async || other.check_exists().for_path(&of_session).await.unwrap().is_none()).await;
        assert!(in_time(changes.recv()).await.is_none());
    }

    /// Creations and deletions between the looks of a call.
    async fn loaded_node_is_never_not_loaded(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        let cache = loaded(&users).await;
        let (is_over, reader) = (Arc::new(AtomicUsize::new(0)), cache.clone());
        let reads = {
            let is_over = Arc::clone(&is_over);
            tokio::task::spawn_blocking(move || {
                while is_over.load(Ordering::SeqCst) == 0 {
                    assert!(!matches!(reader.get("ada"), Ok(Lookup::NotLoaded)));
                }
            })
        };
        let ada = users.at("ada").unwrap();
        for number in 0..300 {
            in_time(ada.create(&user(number))).await.unwrap();
            in_time(ada.delete()).await.unwrap();
        }
        is_over.store(1, Ordering::SeqCst);
        in_time(reads).await.unwrap();
    }

    /// Random writes, deletions, data that cannot be decoded or read, and connections and sessions that end.
    async fn changes_replay_to_the_nodes_of_the_servers(env) {
        let (proxy, path) = (env.proxy(), env.path("users"));
        let (client, other) = (connected(through(&proxy)).await, env.client().await);
        let options = || ModelSpecOptions::new().compressed();
        let cache = loaded(&users_with(&client, &path, options())).await;
        let others = users_with(&other, &path, options());
        let heard = Arc::new(Mutex::new(Replay::default()));
        let hears = Arc::clone(&heard);
        cache.add_listener(move |change| hears.lock().apply(change));
        let (mut prompt, mut lagging) = ((cache.changes(), Replay::default()), (cache.changes(), Replay::default()));
        let mut random = StdRng::seed_from_u64(7);
        for number in 0..400 {
            let node = others.at(random.random_range(0..6)).unwrap();
            match random.random_range(0..10) {
                0..=3 => drop(in_time(node.set(&user(number))).await.unwrap()),
                4 | 5 => drop(in_time(node.delete()).await),
                // The same data.
                6 => drop(in_time(node.modify(|_| Ok(()))).await),
                7 => drop(other.create().with_data("no JSON").compressed().or_set_data().for_path(node.path()).await.unwrap()),
                _ => drop(other.create().with_data("plain").uncompressed().or_set_data().for_path(node.path()).await.unwrap()),
            }
            match number % 90 {
                30 => proxy.reset(),
                60 => {
                    proxy.swap_session();
                    proxy.reset();
                }
                _ => {}
            }
            prompt.1.take_from(&mut prompt.0);
        }
        let mut nodes = BTreeMap::new();
        let mut broken = Vec::new();
        for (key, read) in in_time(others.read_all()).await.unwrap() {
            match read {
                Ok(read) => drop(nodes.insert(key, (read.version, read.stat.mzxid, read.value))),
                Err(_) => broken.push(key),
            }
        }
        eventually("the cache has caught up", async || in_time(cache.synced()).await.is_ok()).await;
        let of_model = |model: &CachedModel<User>| (model.version, model.stat.mzxid, (*model.value).clone());
        let models: BTreeMap<_, _> = cache.models().iter().map(|model| (model.key.to_string(), of_model(model))).collect();
        assert_eq!(models, nodes);
        assert_eq!(cache.broken().into_iter().map(|(key, _)| key).collect::<Vec<_>>(), broken);
        for key in 0..6 {
            let key = key.to_string();
            match cache.get(&key) {
                Ok(Lookup::Present(model)) => assert_eq!(Some(&of_model(&model)), nodes.get(&key)),
                Ok(Lookup::Missing) => assert!(!nodes.contains_key(&key) && !broken.contains(&key), "{key}"),
                Ok(Lookup::NotLoaded) => panic!("{key} is not loaded"),
                Err(_) => assert!(broken.contains(&key), "{key}"),
            }
        }
        let wanted: BTreeMap<_, _> = nodes.into_iter().map(|(key, (.., user))| (key, user)).collect();
        prompt.1.take_from(&mut prompt.0);
        lagging.1.take_from(&mut lagging.0);
        assert_eq!(prompt.1.0, wanted);
        assert_eq!(lagging.1.0, wanted);
        eventually("the listener has heard all", async || heard.lock().0 == wanted).await;
    }
}

/// The values that the changes show.
#[derive(Default)]
struct Replay(BTreeMap<String, User>);

impl Replay {
    fn apply(&mut self, change: &ModelChange<User>) {
        match change {
            ModelChange::Added(new) => assert_eq!(self.0.insert(new.key.to_string(), (*new.value).clone()), None),
            ModelChange::Updated { old, new } => {
                assert_eq!(self.0.insert(new.key.to_string(), (*new.value).clone()).as_ref(), Some(&*old.value));
            }
            ModelChange::Removed(old) => assert_eq!(self.0.remove(&*old.key).as_ref(), Some(&*old.value)),
            ModelChange::Broken { key, .. } => assert!(!self.0.contains_key(&**key)),
            _ => {}
        }
    }

    fn take_from(&mut self, changes: &mut Changes<ModelChange<User>>) {
        while let Ok(change) = changes.try_recv() {
            self.apply(&change);
        }
    }
}

/// The reader has lost events to the limit.
#[tokio::test]
async fn last_known_nodes_are_complete_after_the_close_though_the_reader_lags() {
    let server = server();
    let client = client(&server).await;
    let users = users(&client, "/users");
    let ada = users.at("ada").unwrap();
    in_time(ada.set(&user(0))).await.unwrap();
    let cache = loaded(&users).await;
    let mut changes = cache.changes();
    let bob = users.at("bob").unwrap();
    in_time(bob.set(&user(0))).await.unwrap();
    in_time(cache.caught_up()).await.unwrap();
    assert_eq!(cache.models().len(), 2);
    in_time(bob.delete()).await.unwrap();
    for number in 1..=10_100 {
        ada.set(&user(number)).await.unwrap();
        if number % 100 == 0 {
            // Each write is an event of its own.
            cache.caught_up().await.unwrap();
        }
    }
    in_time(cache.caught_up()).await.unwrap();
    in_time(cache.close()).await;
    assert_eq!(logins(&cache, "ada"), Some(10_100));
    assert_eq!(cache.models().len(), 1, "{:?}", cache.models());
    assert!(matches!(cache.get("bob"), Ok(Lookup::Missing)), "{:?}", cache.get("bob"));
    let mut replay = Replay::default();
    replay.take_from(&mut changes);
    assert_eq!(replay.0, BTreeMap::from([("ada".to_owned(), user(10_100))]));
}
