//! Nodes that the server refuses to show, and data that cannot be decompressed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use curator_framework::{Acl, CompressionProvider, CuratorFramework, CuratorOp, Error};
use curator_integration::env::{Env, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    CacheError, CacheState, CuratorCache, CuratorCacheOptions, Lookup, PathChildrenCache, PathChildrenCacheEvent,
    StartMode, TreeCache,
};
use futures_util::FutureExt as _;

use crate::stage::{Replay, Reported, away, commit, contents, loaded};

async fn owner(env: &Env) -> CuratorFramework {
    connected(builder(env.address()).authorization("digest", "owner:secret")).await
}

async fn close(owner: &CuratorFramework, path: &str) {
    owner.set_acl().with_acl(Acl::creator_all()).for_path(path).await.unwrap();
}

async fn open(owner: &CuratorFramework, path: &str) {
    owner.set_acl().with_acl(Acl::open_unsafe()).for_path(path).await.unwrap();
}

fn is_refused(state: &CacheState) -> bool {
    matches!(state, CacheState::Failed(CacheError::Framework(Error::NoAuth { .. })))
}

/// Decompresses by a read of the cache that waits for the data, from another thread.
#[derive(Debug, Clone, Default)]
struct Looking(Arc<OnceLock<CuratorCache>>);

impl CompressionProvider for Looking {
    fn compress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn decompress(&self, _path: &str, compressed: &[u8]) -> io::Result<Vec<u8>> {
        if let Some(cache) = self.0.get().cloned() {
            let (told, looked) = mpsc::channel();
            std::thread::spawn(move || told.send(cache.get("/tree").present().is_some()));
            looked.recv_timeout(Duration::from_secs(5)).map_err(io::Error::other)?;
        }
        Ok(compressed.to_vec())
    }
}

/// It is code of the program: a codec that blocks under the lock would block readers, and the session at a reconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codec_is_called_without_the_lock_of_the_cache() {
    let (server, codec) = (curator_integration::in_process::server(), Looking::default());
    let admin = curator_integration::in_process::client(&server).await;
    commit(&admin, ["/tree", "/tree/a"].map(|path| CuratorOp::create(path).with_data("first"))).await;
    let options = curator_integration::in_process::options(&server).enable_compression();
    let client = connected(options.compression_provider(codec.clone())).await;
    let cache = CuratorCache::new(client, "/tree").unwrap();
    codec.0.set(cache.clone()).unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    admin.set_data().for_path("/tree/a", "second").await.unwrap();
    let data = || ["/tree", "/tree/a"].map(|path| cache.get(path).present().map(|node| node.data.clone()));
    eventually("it is shown", async || data() == [Some(b"first".to_vec()), Some(b"second".to_vec())]).await;
}

on_every_server! {
    async fn a_root_that_cannot_be_read_is_an_error_until_it_is_opened(env) {
        let (owner, root) = (owner(&env).await, env.path("root"));
        owner.create().creating_parents_if_needed().with_data("1").for_path(&root).await.unwrap();
        owner.create().for_path(&format!("{root}/child")).await.unwrap();
        close(&owner, &root).await;
        let cache = CuratorCache::new(env.client().await, &root).unwrap();
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        cache.start().unwrap();
        let refused = in_time(cache.initialized()).await.unwrap_err();
        assert!(matches!(refused, CacheError::Framework(Error::NoAuth { .. })) && !refused.is_retryable(), "{refused}");
        assert_eq!((cache.get(&root), cache.snapshot().is_none()), (Lookup::NotLoaded, true));
        open(&owner, &root).await;
        in_time(cache.watch().wait_for(CacheState::is_fresh)).await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!((cache.len(), cache.get(&root).present().unwrap().data.as_slice()), (2, &b"1"[..]));
        let reported = replay.arrived(&mut events);
        assert_eq!((&reported[0], reported.last()), (&Reported::Failed(root), Some(&Reported::Initialized)));
    }

    async fn a_root_that_is_closed_later_is_never_called_fresh(env) {
        let (owner, root) = (owner(&env).await, env.path("root"));
        owner.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let children: Vec<_> = (0..100).map(|number| format!("{root}/{number}")).collect();
        commit(&owner, children.iter().map(CuratorOp::create)).await;
        let cache = loaded(&env.client().await, &root, CuratorCacheOptions::new()).await;
        close(&owner, &root).await;
        // All is read again, with the root ahead of the others.
        let mut states = cache.watch();
        states.mark_unchanged();
        let _begun = cache.rebuild().now_or_never();
        commit(&owner, children.iter().map(|path| CuratorOp::set_data(path, "x"))).await;
        in_time(states.wait_for(is_refused)).await.unwrap();
        for _ in 0..5 {
            in_time(states.changed()).await.unwrap();
            assert!(!states.borrow_and_update().is_fresh());
        }
        open(&owner, &root).await;
        in_time(states.wait_for(CacheState::is_fresh)).await.unwrap();
        assert!(children.iter().all(|path| cache.get(path).present().unwrap().data == b"x"));
    }

    async fn a_child_that_cannot_be_read_is_told_and_left_out_with_all_below_it(env) {
        let (owner, root, proxy) = (owner(&env).await, env.path("root"), env.proxy());
        let child = format!("{root}/child");
        owner.create().creating_parents_if_needed().for_path(&format!("{child}/below")).await.unwrap();
        close(&owner, &child).await;
        let client = connected(builder(proxy.address())).await;
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        assert_eq!([cache.get(&child), cache.get(&format!("{child}/below"))], [Lookup::NotLoaded, Lookup::NotLoaded]);
        assert!(cache.get(&root).present().is_some() && cache.get(&format!("{root}/other")) == Lookup::Missing);
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        replay.arrived(&mut events);
        // A change that can be read.
        open(&owner, &child).await;
        owner.set_data().for_path(&child, "1").await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!(
            replay.arrived(&mut events),
            [Reported::Created(child.clone()), Reported::Created(format!("{child}/below"))]
        );
        // Refused at a full read, and opened and changed while the connection is lost.
        close(&owner, &child).await;
        in_time(cache.rebuild()).await.unwrap();
        assert_eq!(replay.arrived(&mut events), [Reported::Failed(child.clone())]);
        assert_eq!(cache.get(&child), Lookup::NotLoaded, "the last value is not shown");
        assert!(cache.get(&format!("{child}/below")).present().is_some());
        away(&proxy, &cache, async {
            open(&owner, &child).await;
            owner.set_data().for_path(&child, "2").await.unwrap();
        })
        .await;
        assert_eq!(
            replay.arrived(&mut events),
            [Reported::Changed(child.clone())]
        );
        assert!(cache.get(&format!("{child}/below")).present().is_some());
    }

    /// It compares the history of the servers with nodes that it has read.
    async fn a_child_that_is_closed_keeps_no_cache_from_its_next_session(env) {
        let (owner, root, client) = (owner(&env).await, env.path("root"), env.client().await);
        let child = format!("{root}/child");
        owner.create().creating_parents_if_needed().for_path(&child).await.unwrap();
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        close(&owner, &child).await;
        env.kill_session(&client.session().await.unwrap()).await;
        owner.set_data().for_path(&root, "new").await.unwrap();
        let shown = async || cache.get(&root).present().is_some_and(|root| root.data == b"new");
        eventually("the change is shown", shown).await;
        in_time(cache.watch().wait_for(CacheState::is_fresh)).await.unwrap();
    }

    async fn a_child_that_could_not_be_read_is_missing_once_it_is_deleted(env) {
        let (owner, root, proxy) = (owner(&env).await, env.path("root"), env.proxy());
        owner.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let client = connected(builder(proxy.address())).await;
        let children: Vec<_> = (0..3).map(|number| format!("{root}/{number}")).collect();
        for child in &children {
            owner.create().with_acl(Acl::creator_all()).for_path(child).await.unwrap();
        }
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        assert!(children.iter().all(|child| cache.get(child) == Lookup::NotLoaded));
        // The server notifies only sessions that may read the node.
        open(&owner, &children[0]).await;
        owner.delete().for_path(&children[0]).await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.get(&children[0]), Lookup::Missing);
        away(&proxy, &cache, async { owner.delete().for_path(&children[1]).await.unwrap() }).await;
        assert_eq!(cache.get(&children[1]), Lookup::Missing);
        owner.delete().for_path(&children[2]).await.unwrap();
        in_time(cache.rebuild()).await.unwrap();
        assert_eq!(cache.get(&children[2]), Lookup::Missing);
    }

    async fn node_that_cannot_be_decompressed_is_reported_and_left_out(env) {
        let (client, root) = (env.client().await, env.path("root"));
        let (good, bad) = (format!("{root}/good"), format!("{root}/bad"));
        client.create().creating_parents_if_needed().compressed().with_data("root").for_path(&root).await.unwrap();
        client.create().compressed().with_data("good").for_path(&good).await.unwrap();
        client.create().with_data("plain").for_path(&bad).await.unwrap();
        let cache = CuratorCache::with_options(client.clone(), &root, CuratorCacheOptions::new().compressed()).unwrap();
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        let expect = |nodes: &[(&String, &str)]| -> BTreeMap<String, Vec<u8>> {
            nodes.iter().map(|(path, data)| ((*path).clone(), data.as_bytes().to_vec())).collect()
        };
        assert_eq!(contents(&cache), expect(&[(&root, "root"), (&good, "good")]));
        assert_eq!(cache.get(&bad), Lookup::NotLoaded);
        assert!(replay.arrived(&mut events).contains(&Reported::Failed(bad.clone())));
        client.set_data().compressed().for_path(&bad, "better").await.unwrap();
        client.set_data().for_path(&good, "plain").await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        assert_eq!(contents(&cache), expect(&[(&root, "root"), (&bad, "better")]));
        assert_eq!((cache.get(&good), cache.len()), (Lookup::NotLoaded, 2));
        let reported = [Reported::Created(bad.clone()), Reported::Failed(good.clone())];
        let mut heard = replay.arrived(&mut events);
        heard.sort();
        assert_eq!(heard, reported);
        // Its next value follows the last one that could be read.
        client.set_data().compressed().for_path(&good, "good again").await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        assert_eq!(replay.arrived(&mut events), [Reported::Changed(good.clone())]);
        client.set_data().for_path(&good, "plain").await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        let mut late = Replay::default();
        let reported = [Reported::Created(root.clone()), Reported::Created(bad), Reported::Created(good.clone())];
        let reported = reported.into_iter().chain([Reported::Failed(good.clone()), Reported::Initialized]);
        assert_eq!(late.arrived(&mut cache.changes()), reported.collect::<Vec<_>>());
        // A deletion is reported with the last value.
        client.delete().for_path(&good).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        assert_eq!(replay.arrived(&mut events), [Reported::Failed(good.clone()), Reported::Deleted(good.clone())]);
        assert_eq!(cache.get(&good), Lookup::Missing);
    }

    async fn node_that_cannot_be_decompressed_keeps_its_children(env) {
        let (client, root) = (env.client().await, env.path("root"));
        let (dir, kid, new) = (format!("{root}/dir"), format!("{root}/dir/kid"), format!("{root}/dir/new"));
        client.create().creating_parents_if_needed().compressed().with_data("kid").for_path(&kid).await.unwrap();
        let cache = loaded(&client, &root, CuratorCacheOptions::new().compressed()).await;
        assert_eq!(cache.len(), 3, "empty nodes need no decompression");
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        replay.arrived(&mut events);
        for path in [&root, &dir] {
            client.set_data().for_path(path, "plain").await.unwrap();
        }
        in_time(cache.caught_up()).await.unwrap();
        assert_eq!(replay.arrived(&mut events), [&root, &dir].map(|path| Reported::Failed(path.clone())));
        client.set_data().compressed().for_path(&kid, "grown").await.unwrap();
        client.create().compressed().with_data("new").for_path(&new).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        assert_eq!(replay.arrived(&mut events), [Reported::Changed(kid.clone()), Reported::Created(new.clone())]);
        // A full read finds the same.
        in_time(cache.rebuild()).await.unwrap();
        assert_eq!(contents(&cache), BTreeMap::from([(kid.clone(), b"grown".to_vec()), (new, b"new".to_vec())]));
        assert_eq!([cache.get(&root), cache.get(&dir)], [Lookup::NotLoaded, Lookup::NotLoaded]);
        assert_eq!(cache.children(&dir).unwrap().len(), 2);
        // So does a cache that starts now, or that resumes.
        let fresh = loaded(&client, &root, CuratorCacheOptions::new().compressed()).await;
        let options = CuratorCacheOptions::new().compressed().resume(cache.snapshot().unwrap());
        for other in [fresh, loaded(&client, &root, options).await] {
            in_time(other.caught_up()).await.unwrap();
            assert_eq!(contents(&other), contents(&cache));
            client.delete().for_path(&kid).await.unwrap();
            in_time(other.caught_up()).await.unwrap();
            assert_eq!((other.get(&kid), other.get(&dir)), (Lookup::Missing, Lookup::NotLoaded));
            client.create().compressed().with_data("grown").for_path(&kid).await.unwrap();
            in_time(cache.caught_up()).await.unwrap();
            in_time(other.caught_up()).await.unwrap();
        }
    }

    async fn older_caches_of_compressed_nodes_work_below_plain_ones(env) {
        let (client, root) = (env.client().await, env.path("root"));
        let kids: Vec<_> = (0..3).map(|number| format!("{root}/{number}")).collect();
        let cache = PathChildrenCache::with_options(client.clone(), &root, CuratorCacheOptions::new().compressed()).unwrap();
        let mut events = cache.changes();
        in_time(cache.start_with(StartMode::BuildInitialCache)).await.unwrap();
        for kid in &kids {
            client.create().compressed().with_data("kid").for_path(kid).await.unwrap();
        }
        let tree = TreeCache::builder(client.clone(), &root).data_is_compressed(true).build().unwrap();
        tree.start().unwrap();
        in_time(tree.initialized()).await.unwrap();
        assert_eq!(tree.size(), 4);
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.current_data().len(), 3);
        while events.try_recv().is_ok() {}
        for data in ["", "plain", ""] {
            client.set_data().for_path(&root, data).await.unwrap();
            in_time(cache.synced()).await.unwrap();
            in_time(tree.synced()).await.unwrap();
            let children = tree.current_children(&root).unwrap().len();
            assert_eq!((cache.current_data().len(), children, tree.current_data(&kids[0]).unwrap().data.as_slice()), (3, 3, &b"kid"[..]));
            while let Ok(event) = events.try_recv() {
                assert!(matches!(&event, PathChildrenCacheEvent::Failed { path, .. } if *path == root), "{event:?}");
            }
        }
        // A child is not reported as removed because it cannot be read.
        client.set_data().for_path(&kids[0], "plain").await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert!(matches!(events.try_recv(), Ok(PathChildrenCacheEvent::Failed { path, .. }) if path == kids[0]));
        client.delete().for_path(&kids[0]).await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert!(matches!(events.try_recv(), Ok(PathChildrenCacheEvent::ChildRemoved(kid)) if kid.data == b"kid"));
        assert!(events.try_recv().is_err());
    }
}
