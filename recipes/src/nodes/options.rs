//! The options of the nodes that tasks keep.

use curator_framework::recipe::Parents;
use curator_framework::{Acl, CreateMode};

/// The treatment of data that another client writes into the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ForeignData {
    /// The data stays, and the state reports it: see [`StandingNode::foreign_data`](crate::StandingNode::foreign_data).
    #[default]
    Keep,
    /// The node's own data is written again, with growing pauses if the other client does not stop.
    Mend,
}

/// The options of a [`PersistentNode`](crate::PersistentNode).
///
/// # Examples
///
/// ```
/// use curator_recipes::{ForeignData, PersistentNodeOptions};
///
/// let options = PersistentNodeOptions::new().protected().foreign_data(ForeignData::Mend);
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing by themselves"]
pub struct PersistentNodeOptions {
    pub(super) mode: CreateMode,
    pub(super) protected: bool,
    pub(super) parents: Parents,
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) foreign_data: ForeignData,
    pub(super) stays: bool,
}

impl Default for PersistentNodeOptions {
    fn default() -> Self {
        Self {
            mode: CreateMode::Ephemeral,
            protected: false,
            parents: Parents::Containers,
            acl: None,
            foreign_data: ForeignData::default(),
            stays: false,
        }
    }
}

impl PersistentNodeOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mode of the node. Default: `Ephemeral`.
    pub fn mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Puts an id into the node's name, `_c_<uuid>-<name>`: Curator's `useProtection`. The name stays the same in later
    /// sessions. A lost reply then leaves no second node of a sequential mode.
    ///
    /// An ephemeral sequential node does not need the id: the session, the number and the data show which node the lost create
    /// has made. Only a client over `zookeeper-async` may leave a second node, up to the end of the session.
    #[doc(alias = "useProtection")]
    pub fn protected(mut self) -> Self {
        self.protected = true;
        self
    }

    /// Expects the parents to exist. Default: missing parents are created, as containers.
    #[doc(alias = "useParentCreation")]
    pub fn without_parents(mut self) -> Self {
        self.parents = Parents::Expected;
        self
    }

    /// Sets the access control list of the node. Default: the client's [`AclProvider`](curator_framework::AclProvider).
    ///
    /// The client needs the permission to read the node. Without it, servers from 3.8.4 and 3.9.2 on do not show
    /// whether the node still exists, so it is in the state [`Failed`](crate::NodeState::Failed).
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Sets the treatment of data that another client writes. Default: [`Keep`](ForeignData::Keep).
    pub fn foreign_data(mut self, treatment: ForeignData) -> Self {
        self.foreign_data = treatment;
        self
    }

    /// Leaves the node when the object is closed or dropped. [`PersistentNode::delete`](crate::PersistentNode::delete)
    /// deletes it. Default: [`close`](crate::PersistentNode::close) deletes the node. An ephemeral node still ends with
    /// its session.
    pub fn stays_when_closed(mut self) -> Self {
        self.stays = true;
        self
    }
}

/// The options of a [`PersistentTtlNode`](crate::PersistentTtlNode).
#[derive(Debug, Clone)]
#[must_use = "options do nothing by themselves"]
pub struct PersistentTtlNodeOptions {
    pub(super) child: String,
    pub(super) touch_factor: u32,
    pub(super) parents: Parents,
}

impl Default for PersistentTtlNodeOptions {
    fn default() -> Self {
        Self { child: "touch".to_owned(), touch_factor: 2, parents: Parents::Containers }
    }
}

impl PersistentTtlNodeOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the child that the task writes. Default: `touch`.
    #[doc(alias = "childNodeName")]
    pub fn child(mut self, name: impl Into<String>) -> Self {
        self.child = name.into();
        self
    }

    /// Sets the number of writes of the child within the time to live. Default: 2, one in each half of that time.
    #[doc(alias = "touchScheduleFactor")]
    pub fn touch_factor(mut self, times: u32) -> Self {
        self.touch_factor = times;
        self
    }

    /// Expects the parents to exist. Default: missing parents are created, as containers.
    #[doc(alias = "useParentCreation")]
    pub fn without_parents(mut self) -> Self {
        self.parents = Parents::Expected;
        self
    }
}
