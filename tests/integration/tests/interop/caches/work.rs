//! Random work on a tree: `ROOT/folder-N/shelf-N/leaf-K`. No folder or shelf has the name of an earlier one.

use curator_framework::{CuratorFramework, CuratorOp, Error, Result};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;

const FOLDERS: usize = 6;
const SHELVES: usize = 3;
const LEAVES: usize = 6;

/// The work that was done, by kind.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) changes: usize,
    pub(super) subtrees: usize,
    pub(super) failures: usize,
}

pub(super) struct Gardener {
    client: CuratorFramework,
    /// Apart from the other gardeners' names.
    name: String,
    root: String,
    /// The shelves of each folder.
    folders: Vec<Vec<String>>,
    random: StdRng,
    number: usize,
}

impl Gardener {
    pub(super) fn new(client: CuratorFramework, root: &str, name: &str, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { client, name: name.to_owned(), root: root.to_owned(), folders: Vec::new(), random, number: 0 }
    }

    fn next(&mut self) -> String {
        self.number += 1;
        format!("{}-{}", self.name, self.number)
    }

    /// Works until it must stop.
    pub(super) async fn work(mut self, stop: watch::Receiver<bool>) -> Done {
        let mut done = Done::default();
        while !*stop.borrow() {
            let is_subtree = self.folders.is_empty() || self.random.random_ratio(1, 12);
            let outcome = if is_subtree { self.subtree().await } else { self.leaf().await };
            match outcome {
                Ok(()) if is_subtree => done.subtrees += 1,
                Ok(()) => done.changes += 1,
                Err(error) if error.is_retryable() || error.outcome_unknown() => done.failures += 1,
                // The node is there or not, by chance.
                Err(
                    Error::NoNode { .. }
                    | Error::NodeExists { .. }
                    | Error::NotEmpty { .. }
                    | Error::Transaction { .. },
                ) => done.failures += 1,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(self.random.random_range(0..8))).await;
        }
        done
    }

    /// Creates a folder with shelves and leaves, or deletes one.
    async fn subtree(&mut self) -> Result<()> {
        if self.folders.len() > self.random.random_range(0..FOLDERS) {
            let place = self.random.random_range(0..self.folders.len());
            let shelves = self.folders.swap_remove(place);
            let (folder, _) = shelves[0].rsplit_once('/').unwrap_or_default();
            return self.client.delete().deleting_children_if_needed().for_path(folder).await;
        }
        let data = self.next();
        let folder = format!("{}/folder-{data}", self.root);
        let shelves: Vec<_> = (0..SHELVES).map(|_| self.next()).collect();
        let shelves: Vec<_> = shelves.iter().map(|name| format!("{folder}/shelf-{name}")).collect();
        let leaves: Vec<_> = shelves.iter().map(|shelf| format!("{shelf}/leaf-0")).collect();
        let creates = [folder].into_iter().chain(shelves.clone()).chain(leaves);
        self.folders.push(shelves);
        let creates = creates.map(|path| CuratorOp::create(path).with_data(data.clone()));
        self.client.transaction().operations(creates).commit().await.map(drop)
    }

    /// Changes, creates, deletes or replaces a leaf.
    async fn leaf(&mut self) -> Result<()> {
        let data = self.next();
        let leaf = self.random.random_range(0..SHELVES * LEAVES);
        let folder = self.random.random_range(0..self.folders.len());
        let leaf = format!("{}/leaf-{}", self.folders[folder][leaf % SHELVES], leaf / SHELVES);
        match self.random.random_range(0..8) {
            0..3 => self.client.create().with_data(data).for_path(&leaf).await.map(drop),
            3..6 => self.client.set_data().for_path(&leaf, data).await.map(drop),
            6 => self.client.delete().for_path(&leaf).await,
            _ => {
                let replace = [CuratorOp::delete(&leaf), CuratorOp::create(&leaf).with_data(data)];
                self.client.transaction().operations(replace).commit().await.map(drop)
            }
        }
    }
}
