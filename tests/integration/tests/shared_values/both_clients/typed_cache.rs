//! Curator's `TestCachedModeledFramework`, and the promises of the cache of typed nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curator_framework::Error;
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    CacheError, CacheState, CachedModel, Codec, CodecError, JsonCodec, Lookup, ModelChange, ModelError, ModelSpec,
    ModelSpecOptions, ModeledCache, ModeledFramework, PersistentNode, RawCodec,
};
use parking_lot::Mutex;

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
            assert!(in_time(cache.caught_up()).await.unwrap().get() >= written.mzxid);
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
        // Their ends are no changes.
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
        if !curator_integration::clients::is_zookeeper_async() {
            assert_eq!(cache.get("ada").unwrap().present().unwrap().since, since);
            assert!(changes.try_recv().is_err(), "it is not a change");
        }
        in_time(node.close()).await;
    }
}
