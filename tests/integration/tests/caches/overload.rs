//! Servers that refuse reads: because they are overloaded, or for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curator_framework::spi::{Read, Request};
use curator_framework::{CuratorOp, Error};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process;
use curator_integration::refusals::RefusingFactory;
use curator_recipes::{CacheError, CacheState, CuratorCacheOptions, Lookup};
use futures_util::FutureExt as _;
use parking_lot::Mutex;

use crate::stage::{Replay, Reported, commit, loaded};

/// ZooKeeper's `THROTTLEDOP`.
const THROTTLED: i32 = -127;
/// `MARSHALLINGERROR`, `BADARGUMENTS`, `APIERROR`, `AUTHFAILED`, `SESSIONCLOSEDREQUIRESASLAUTH`: the same request has the
/// same reply again.
const LASTING: [i32; 5] = [-5, -8, -100, -115, -124];

/// Returns `true` if the request reads the data of this node, perhaps with others.
fn reads(request: &Request, node: &str) -> bool {
    match request {
        Request::GetData { path, .. } => **path == *node,
        Request::MultiRead { reads } => reads.iter().any(|read| matches!(read, Read::GetData { path } if path == node)),
        _ => false,
    }
}

/// Refuses so many reads as a server with too much to do does.
fn throttled(left: &Arc<AtomicUsize>) -> RefusingFactory {
    let left = Arc::clone(left);
    RefusingFactory::new(move |request| {
        let is_refused = matches!(request, Request::GetData { .. } | Request::MultiRead { .. })
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        is_refused.then(|| Error::ZooKeeper { code: THROTTLED, request: request.to_string().into() })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_an_overloaded_server_refuses_is_repeated() {
    let (server, left) = (in_process::server(), Arc::default());
    let client = connected(in_process::options(&server).zookeeper_factory(throttled(&left))).await;
    commit(&client, ["/tree", "/tree/a", "/tree/b"].map(CuratorOp::create)).await;
    let cache = loaded(&client, "/tree", CuratorCacheOptions::new()).await;
    let (mut events, mut replay) = (cache.changes(), Replay::default());
    replay.arrived(&mut events);
    left.store(2, Ordering::SeqCst);
    commit(&client, ["/tree", "/tree/a"].map(|path| CuratorOp::set_data(path, "new"))).await;
    eventually("both reads are refused", async || left.load(Ordering::SeqCst) == 0).await;
    // Notifications that arrive all the time do not put the repetition off.
    let writes = async {
        loop {
            commit(&client, [CuratorOp::set_data("/tree/b", "new")]).await;
        }
    };
    tokio::select! {
        () = writes => {}
        fresh = in_time(cache.caught_up()) => assert!(fresh.is_ok(), "{fresh:?}"),
    }
    let reported = replay.arrived(&mut events);
    assert!(reported.iter().all(|reported| matches!(reported, Reported::Changed(_))), "{reported:?}");
    assert!(
        ["/tree", "/tree/a"].iter().all(|path| reported.contains(&Reported::Changed((*path).to_owned()))),
        "{reported:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_a_server_refuses_for_good_is_reported_and_left_out() {
    for code in LASTING {
        let (server, refused) = (in_process::server(), Arc::new(Mutex::new("")));
        let path = Arc::clone(&refused);
        let factory = RefusingFactory::new(move |request| {
            let is_refused = reads(request, &path.lock());
            is_refused.then(|| Error::ZooKeeper { code, request: request.to_string().into() })
        });
        let client = connected(in_process::options(&server).zookeeper_factory(factory)).await;
        commit(&client, ["/tree", "/tree/a", "/tree/b"].map(CuratorOp::create)).await;

        *refused.lock() = "/tree/a";
        let cache = loaded(&client, "/tree", CuratorCacheOptions::new()).await;
        let mut events = cache.changes();
        let reported = Replay::default().arrived(&mut events);
        let is_told = reported.contains(&Reported::Failed("/tree/a".to_owned()));
        assert_eq!((cache.len(), cache.get("/tree/a"), is_told), (2, Lookup::NotLoaded, true), "{code}");
        // The next change of the node is a reason to read it again.
        *refused.lock() = "";
        commit(&client, [CuratorOp::set_data("/tree/a", "new")]).await;
        in_time(cache.synced()).await.unwrap();
        assert!(cache.get("/tree/a").present().is_some(), "{code}");

        *refused.lock() = "/tree";
        let _begun = cache.rebuild().now_or_never();
        let error = in_time(cache.synced()).await.unwrap_err();
        assert!(
            matches!(&error, CacheError::Framework(Error::ZooKeeper { code: given, .. }) if *given == code),
            "{error}"
        );
        assert!(matches!(cache.state(), CacheState::Failed(_)), "{code}");
    }
}
