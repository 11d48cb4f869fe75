//! The options of typed nodes.

use curator_framework::recipe::Parents;
use curator_framework::{Acl, CreateMode};

/// The options of a [`ModelSpec`](crate::ModelSpec): the kind of its nodes.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use curator_framework::{Acl, CreateMode};
/// use curator_recipes::ModelSpecOptions;
///
/// let hour = Duration::from_secs(3600);
/// let options = ModelSpecOptions::new().mode(CreateMode::PersistentWithTtl(hour)).acl(Acl::creator_all());
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing by themselves"]
#[doc(alias = "ModelSpecBuilder")]
#[doc(alias = "ModeledOptions")]
pub struct ModelSpecOptions {
    pub(super) mode: CreateMode,
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) compress: Option<bool>,
    pub(super) parents: Parents,
}

impl Default for ModelSpecOptions {
    fn default() -> Self {
        Self { mode: CreateMode::Persistent, acl: None, compress: None, parents: Parents::Containers }
    }
}

impl ModelSpecOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mode of created nodes: persistent, ephemeral, a container, or with a time to live. Default:
    /// `Persistent`.
    ///
    /// A time to live needs the default client, and servers with the setting `extendedTypesEnabled`.
    #[doc(alias = "withTtl")]
    pub fn mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the access control list of created nodes. Default: the list of the client's
    /// [`AclProvider`](curator_framework::AclProvider).
    #[doc(alias = "withAclList")]
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Compresses the data, regardless of the client's default. All readers must do the same.
    pub fn compressed(mut self) -> Self {
        self.compress = Some(true);
        self
    }

    /// Does not compress the data, regardless of the client's default.
    pub fn uncompressed(mut self) -> Self {
        self.compress = Some(false);
        self
    }

    /// Expects the parents of created nodes to exist. Default: missing parents are created, as containers.
    pub fn without_parents(mut self) -> Self {
        self.parents = Parents::Expected;
        self
    }
}
