//! The crate `zookeeper-client`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, EventType, LockOptions, LockPrefix};

use super::{assert_nothing_left, server};

const BOUND: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_excludes() {
    let server = server();
    let inside = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (address, inside) = (server.connect_string(), Arc::clone(&inside));
            tokio::spawn(async move {
                let client = Client::connect(&address).await.unwrap();
                for _ in 0..5 {
                    let options = LockOptions::new(Acls::anyone_all())
                        .with_ancestor_options(CreateMode::Persistent.with_acls(Acls::anyone_all()))
                        .unwrap();
                    let prefix = LockPrefix::new_curator("/crate/lock", "lock-").unwrap();
                    let lock = client.lock(prefix, b"", options).await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(lock);
                }
            })
        })
        .collect();
    for worker in workers {
        tokio::time::timeout(BOUND, worker).await.expect("somebody waits for ever").unwrap();
    }
    assert_nothing_left(&server, &["/crate/lock"]);
}

/// The requests that none of the other clients makes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_and_persistent_watches_work() {
    let server = server();
    let client = Client::connect(&server.connect_string()).await.unwrap();
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut watcher = client.watch("/a", AddWatchMode::PersistentRecursive).await.unwrap();
    let mut writer = client.new_multi_writer();
    writer.add_create("/a", b"", &persistent).unwrap();
    writer.add_create("/a/b", b"", &persistent).unwrap();
    writer.add_set_data("/a", b"x", Some(0)).unwrap();
    writer.commit().await.unwrap();
    for (kind, path) in
        [(EventType::NodeCreated, "/a"), (EventType::NodeCreated, "/a/b"), (EventType::NodeDataChanged, "/a")]
    {
        let event = tokio::time::timeout(BOUND, watcher.changed()).await.expect("an event");
        assert_eq!((event.event_type, event.path.as_str()), (kind, path));
    }
    let mut failing = client.new_multi_writer();
    failing.add_create("/c", b"", &persistent).unwrap();
    failing.add_delete("/a", None).unwrap();
    failing.commit().await.unwrap_err();
    assert_eq!(server.children("/"), Some(vec!["a".to_owned(), "zookeeper".to_owned()]));
    let mut reader = client.new_multi_reader();
    reader.add_get_data("/a").unwrap();
    reader.add_get_children("/a").unwrap();
    assert_eq!(reader.commit().await.unwrap().len(), 2);
    assert_eq!(client.count_descendants_number("/a").await.unwrap(), 1);
    drop(watcher);
    drop(client);
    assert_nothing_left(&server, &[]);
}
