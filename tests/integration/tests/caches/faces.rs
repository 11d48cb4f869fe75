//! The events of the older caches, as tests compare them.

use curator_framework::CuratorFramework;
use curator_integration::env::in_time;
use curator_recipes::{Changes, ChildData, NodeChanged, PathChildrenCacheEvent, TreeCacheEvent};

/// An event, as tests compare it: its kind, and the name and the data of its node.
pub(crate) trait Brief {
    fn brief(&self) -> String;
}

fn about(kind: &str, node: &ChildData) -> String {
    let name = node.path.rsplit('/').next().unwrap();
    format!("{kind} {name}={}", String::from_utf8_lossy(&node.data))
}

impl Brief for NodeChanged {
    fn brief(&self) -> String {
        self.node.as_ref().map_or_else(|| "none".to_owned(), |node| String::from_utf8(node.data.clone()).unwrap())
    }
}

impl Brief for PathChildrenCacheEvent {
    fn brief(&self) -> String {
        match self {
            Self::ChildAdded(node) => about("added", node),
            Self::ChildUpdated(node) => about("updated", node),
            Self::ChildRemoved(node) => about("removed", node),
            Self::Initialized(nodes) => format!("initialized with {}", nodes.len()),
            Self::ConnectionSuspended => "suspended".into(),
            Self::ConnectionReconnected => "reconnected".into(),
            Self::ConnectionLost => "lost".into(),
            Self::Reset => "reset".into(),
            other => panic!("{other:?}"),
        }
    }
}

impl Brief for TreeCacheEvent {
    fn brief(&self) -> String {
        match self {
            Self::NodeAdded(node) => about("added", node),
            Self::NodeUpdated { old, new } => {
                assert!(old.stat.mzxid < new.stat.mzxid);
                about("updated", new)
            }
            Self::NodeRemoved(node) => about("removed", node),
            Self::Initialized => "initialized".into(),
            Self::ConnectionSuspended => "suspended".into(),
            Self::ConnectionReconnected => "reconnected".into(),
            Self::ConnectionLost => "lost".into(),
            Self::Reset => "reset".into(),
            other => panic!("{other:?}"),
        }
    }
}

/// Asserts the next events.
pub(crate) async fn assert_next<T: Brief>(events: &mut Changes<T>, expected: &[&str]) {
    let mut heard = Vec::new();
    while heard.len() < expected.len() {
        heard.push(in_time(events.recv()).await.expect("the cache is open").brief());
    }
    assert_eq!(heard, expected);
}

/// Returns the events that have arrived.
pub(crate) fn arrived<T: Brief>(events: &mut Changes<T>) -> Vec<String> {
    std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.brief()).collect()
}

/// Collects the events up to one, which is included.
pub(crate) async fn until<T: Brief>(events: &mut Changes<T>, last: &str) -> Vec<String> {
    let mut heard = Vec::new();
    while heard.last().is_none_or(|heard| heard != last) {
        heard.push(in_time(events.recv()).await.expect("the cache is open").brief());
    }
    heard
}

pub(crate) async fn create(client: &CuratorFramework, path: &str, data: &str) {
    client.create().creating_parents_if_needed().with_data(data).for_path(path).await.unwrap();
}

pub(crate) async fn set(client: &CuratorFramework, path: &str, data: &str) {
    client.set_data().for_path(path, data).await.unwrap();
}

pub(crate) async fn delete(client: &CuratorFramework, path: &str) {
    client.delete().for_path(path).await.unwrap();
}

pub(crate) async fn exists(client: &CuratorFramework, path: &str) -> bool {
    client.check_exists().for_path(path).await.unwrap().is_some()
}
