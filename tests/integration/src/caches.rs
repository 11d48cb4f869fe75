//! The caches of a program, and the server's nodes that they must have.

use std::collections::BTreeMap;

use curator_framework::CuratorFramework;
use curator_recipes::{CuratorCache, NodeCache, PathChildrenCache, TreeCache};

use crate::env::{children, eventually};

/// One cache of each kind.
#[derive(Debug)]
pub struct Caches {
    root: String,
    curator: CuratorCache,
    tree: TreeCache,
    children: PathChildrenCache,
    node: NodeCache,
}

type Contents = BTreeMap<String, (Vec<u8>, i64)>;

impl Caches {
    /// Starts the caches of a tree and of one node in it.
    pub async fn start(client: &CuratorFramework, root: &str, node: &str) -> Self {
        let caches = Self {
            root: root.to_owned(),
            curator: CuratorCache::new(client.clone(), root).unwrap(),
            tree: TreeCache::new(client.clone(), root).unwrap(),
            children: PathChildrenCache::new(client.clone(), root).unwrap(),
            node: NodeCache::new(client.clone(), node).unwrap(),
        };
        caches.curator.start().unwrap();
        caches.tree.start().unwrap();
        caches.children.start().unwrap();
        caches.node.start().unwrap();
        eventually("the caches are filled", async || caches.are_fresh().await).await;
        caches
    }

    /// Waits for what was written before; `false` if a cache cannot be fresh now.
    pub async fn are_fresh(&self) -> bool {
        self.curator.synced().await.is_ok()
            && self.tree.synced().await.is_ok()
            && self.children.synced().await.is_ok()
            && self.node.synced().await.is_ok()
    }

    /// Returns the contents of each cache.
    fn contents(&self) -> [Contents; 4] {
        let contents = |path: &str, data: &[u8], mzxid| (path.to_owned(), (data.to_vec(), mzxid));
        [
            self.curator.nodes().iter().map(|node| contents(&node.path, &node.data, node.stat.mzxid)).collect(),
            self.tree.iter().map(|node| contents(&node.path, &node.data, node.stat.mzxid)).collect(),
            self.children.current_data().iter().map(|node| contents(&node.path, &node.data, node.stat.mzxid)).collect(),
            self.node.current_data().iter().map(|node| contents(&node.path, &node.data, node.stat.mzxid)).collect(),
        ]
    }

    /// Waits until each cache has the nodes that this client reads.
    pub async fn agree(&self, fresh: &CuratorFramework) {
        eventually("the caches agree with the server", async || {
            let mut all = Contents::new();
            let mut paths = vec![self.root.clone()];
            while let Some(path) = paths.pop() {
                let (data, stat) = fresh.get_data().for_path(&path).await.unwrap();
                paths.extend(children(fresh, &path).await.iter().map(|child| format!("{path}/{child}")));
                all.insert(path, (data, stat.mzxid));
            }
            let below = |path: &String| path.rsplit_once('/').is_some_and(|(parent, _)| parent == self.root);
            let of_node = |path: &String| path == self.node.path();
            let only = |is_in: &dyn Fn(&String) -> bool| -> Contents {
                all.iter().filter(|(path, _)| is_in(path)).map(|(path, node)| (path.clone(), node.clone())).collect()
            };
            self.are_fresh().await && self.contents() == [all.clone(), all.clone(), only(&below), only(&of_node)]
        })
        .await;
    }
}
