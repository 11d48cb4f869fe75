//! The state that a kept node shares with its task.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use curator_framework::recipe::{Listeners, Parents};
use curator_framework::{Acl, CreateMode};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::nodes::error::NodeError;
use crate::nodes::options::ForeignData;
use crate::nodes::state::{NodeState, StandingNode};
use crate::standing::changes::Published;

/// The node to keep.
#[derive(Debug)]
pub(super) struct KeptNode {
    pub(super) path: String,
    pub(super) mode: CreateMode,
    pub(super) is_protected: bool,
    pub(super) parents: Parents,
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) foreign_data: ForeignData,
    pub(super) touch: Option<Touch>,
    /// The end of the task leaves the node.
    pub(super) stays: bool,
}

impl KeptNode {
    /// Returns the mode of a node with a known name.
    pub(super) const fn mode_of_name(&self) -> CreateMode {
        match self.mode {
            CreateMode::PersistentSequential => CreateMode::Persistent,
            CreateMode::EphemeralSequential => CreateMode::Ephemeral,
            CreateMode::PersistentSequentialWithTtl(ttl) => CreateMode::PersistentWithTtl(ttl),
            mode => mode,
        }
    }

    /// Returns the path if it is known before the first create.
    fn known_path(&self) -> Option<String> {
        (!self.mode.is_sequential() && !self.is_protected).then(|| self.path.clone())
    }
}

/// The child of a node with a time to live. Writes of the child keep the node.
#[derive(Debug)]
pub(super) struct Touch {
    pub(super) child: String,
    pub(super) ttl: Duration,
    pub(super) every: Duration,
}

/// The data that the task keeps in the node.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) data: Arc<[u8]>,
    /// The number of the data, from 1.
    pub(super) generation: u64,
    /// The data is the client's default data, which is known with the first session.
    pub(super) is_default: bool,
}

/// The newest data that the task has tried to write.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    pub(super) generation: u64,
    /// The reason why it is not on the server.
    pub(super) refused: Option<NodeError>,
}

/// The state that a node shares with its task.
pub(super) struct Shared {
    pub(super) state: Published<NodeState>,
    pub(super) listeners: Listeners<dyn Fn(&StandingNode) + Send + Sync>,
    pub(super) wanted: watch::Sender<Wanted>,
    pub(super) written: watch::Sender<Written>,
    pub(super) actual_path: watch::Sender<Option<String>>,
    /// The end of the task deletes the node, even one that stays otherwise.
    pub(super) deletes: AtomicBool,
    /// The reason why the server has refused the delete at the end of the task.
    pub(super) undeleted: Mutex<Option<NodeError>>,
}

impl Shared {
    /// Returns the state before the start. Without data the node gets the client's default data.
    pub(super) fn new(data: Option<Vec<u8>>, kept: &KeptNode) -> Self {
        let is_default = data.is_none();
        let wanted = Wanted { data: data.unwrap_or_default().into(), generation: 1, is_default };
        Self {
            state: Published::new(NodeState::Latent),
            listeners: Listeners::default(),
            wanted: watch::Sender::new(wanted),
            written: watch::Sender::default(),
            actual_path: watch::Sender::new(kept.known_path()),
            deletes: AtomicBool::new(false),
            undeleted: Mutex::new(None),
        }
    }

    pub(super) fn publish(&self, state: NodeState) {
        if !state.is_same(&self.state.newest()) {
            self.state.publish(state);
        }
    }
}

/// Publishes the last state, however the task ends.
pub(super) struct Ending(pub(super) Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state.end(NodeState::Closed);
        self.0.listeners.close();
    }
}
