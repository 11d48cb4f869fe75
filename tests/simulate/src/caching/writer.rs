//! Writers that create, change and delete nodes of a tree.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, CuratorOp};
use curator_test::SimulatedEnsemble;
use futures_util::future::join_all;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{LEVELS, NAMES, Place, Scribe};

/// The limit of the time that a writer waits for its writes.
const BUDGET: Duration = Duration::from_secs(6);

/// One write, with the path at the server.
#[derive(Debug, Clone)]
enum Write {
    Create(String, CreateMode),
    Set(String),
    Delete(String),
}

/// A client's writer.
#[derive(Debug)]
pub struct Writer {
    pub scribe: Scribe,
    pub ensemble: SimulatedEnsemble,
    pub client: CuratorFramework,
    pub place: Place,
    pub random: StdRng,
    /// The longest pause between two steps, in milliseconds.
    pub pause: u64,
}

impl Writer {
    /// Writes until all faults are over.
    pub async fn write(mut self, calm: watch::Receiver<bool>) {
        while !*calm.borrow() {
            let pause = Duration::from_millis(self.random.random_range(0..=self.pause));
            sleep(pause).await;
            self.step().await;
        }
    }

    fn one_of(&mut self, cases: u32) -> u32 {
        self.random.random_range(0..cases)
    }

    async fn step(&mut self) {
        let writes = match self.one_of(16) {
            0..=2 => self.grow(),
            3..=6 => self.any_node().map(Write::Set).into_iter().collect(),
            7 => self.any_node().map(Write::Delete).into_iter().collect(),
            8 | 9 => {
                let again = self.any_node();
                again.into_iter().flat_map(|path| [Write::Delete(path.clone()), create(path)]).collect()
            }
            10 => self.raze(false),
            11..=13 => self.raze(true),
            _ => (0..self.random.random_range(2..30)).filter_map(|_| self.any_node()).map(Write::Set).collect(),
        };
        let how = self.one_of(4);
        let _may_be_late = timeout(BUDGET, self.make(writes, how)).await;
    }

    /// Makes writes, all of which may fail.
    async fn make(&self, writes: Vec<Write>, how: u32) {
        match how {
            // In one transaction.
            0 => {
                let operations = writes.into_iter().map(|write| self.operation(write));
                let _may_fail = self.client.transaction().operations(operations).commit().await;
            }
            1 => {
                for write in writes {
                    self.make_one(write).await;
                }
            }
            // In one burst.
            _ => drop(join_all(writes.into_iter().map(|write| self.make_one(write))).await),
        }
    }

    fn operation(&self, write: Write) -> CuratorOp {
        match write {
            Write::Create(path, mode) => {
                CuratorOp::create(self.place.at_the_client(&path)).with_mode(mode).with_data(self.scribe.data())
            }
            Write::Set(path) => CuratorOp::set_data(self.place.at_the_client(&path), self.scribe.data()),
            Write::Delete(path) => CuratorOp::delete(self.place.at_the_client(&path)),
        }
    }

    async fn make_one(&self, write: Write) {
        let data = self.scribe.data();
        match write {
            Write::Create(path, mode) => {
                let path = self.place.at_the_client(&path);
                drop(self.client.create().with_mode(mode).with_data(data).for_path(path).await);
            }
            Write::Set(path) => drop(self.client.set_data().for_path(self.place.at_the_client(&path), data).await),
            Write::Delete(path) => drop(self.client.delete().for_path(self.place.at_the_client(&path)).await),
        }
    }

    /// Returns all present nodes, the root and parents first.
    fn nodes(&self) -> Vec<String> {
        let mut nodes = Vec::new();
        if self.ensemble.owner(self.place.root).is_some() {
            nodes.push(self.place.root.to_owned());
        }
        nodes.extend(below(&self.ensemble, self.place.root));
        nodes
    }

    fn any_node(&mut self) -> Option<String> {
        let nodes = self.nodes();
        nodes.get(self.random.random_range(0..nodes.len().max(1))).cloned()
    }

    /// Creates a node with its parents, and some nodes below it.
    fn grow(&mut self) -> Vec<Write> {
        let levels = self.random.random_range(0..=LEVELS);
        let mut path = self.place.root.to_owned();
        let mut writes = vec![create(path.clone())];
        for _ in 0..levels {
            path = format!("{path}/{}", self.name());
            writes.push(create(path.clone()));
        }
        if levels < LEVELS {
            let mode = if self.one_of(4) == 0 { CreateMode::Ephemeral } else { CreateMode::Persistent };
            let names = NAMES.into_iter().filter(|_| self.random.random());
            writes.extend(names.map(|name| Write::Create(format!("{path}/{name}"), mode)));
        }
        writes.extend(self.any_node().map(Write::Set));
        // A transaction fails with a node that exists.
        let existing = self.nodes();
        writes.retain(|write| !matches!(write, Write::Create(path, _) if existing.contains(path)));
        writes
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.random.random_range(0..NAMES.len())]
    }

    /// Deletes a node and all below it, and perhaps creates them again.
    fn raze(&mut self, again: bool) -> Vec<Write> {
        let Some(top) = self.any_node() else { return Vec::new() };
        let top = if self.one_of(8) == 0 { self.place.root.to_owned() } else { top };
        let mut nodes = vec![top.clone()];
        nodes.extend(below(&self.ensemble, &top));
        let deletes = nodes.iter().rev().cloned().map(Write::Delete);
        let creates = nodes.iter().filter(|_| again).cloned().map(create);
        deletes.chain(creates).collect()
    }
}

fn create(path: String) -> Write {
    Write::Create(path, CreateMode::Persistent)
}

/// Returns all nodes below a path, parents first.
pub(crate) fn below(ensemble: &SimulatedEnsemble, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut parents = vec![root.to_owned()];
    while let Some(parent) = parents.pop() {
        let mut names = ensemble.children(&parent);
        names.sort();
        let children = names.into_iter().map(|name| format!("{parent}/{name}"));
        let at = found.len();
        found.extend(children);
        parents.extend_from_slice(&found[at..]);
    }
    found
}
