//! Reading nodes.

use crate::core::ClientCore;
use crate::error::{Error, Result};
use crate::model::new_node::{NodeSpec, Parents};
use crate::model::path::parent_of;
use crate::model::{Acl, Reading, Stat};
use crate::operations::{check_read, with_retries};
use crate::session::watches::Watch;
use crate::session::{Session, WatchedData};

/// The description of a check whether a node exists: Curator's `ExistsBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked before for_path"]
pub struct ExistsBuilder<'a> {
    client: &'a ClientCore,
    parents: Parents,
    acl: Option<Vec<Acl>>,
}

impl<'a> ExistsBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, parents: Parents::Expected, acl: None }
    }

    /// Creates missing parents, persistent and empty.
    pub fn creating_parents_if_needed(mut self) -> Self {
        self.parents = Parents::Persistent;
        self
    }

    /// Creates missing parents, as [containers](Parents::Containers), or persistent if the client does not use
    /// containers.
    pub fn creating_parent_containers_if_needed(mut self) -> Self {
        self.parents = self.client.lock_parents();
        self
    }

    /// Sets the access control list of created parents. Default: the list of the client's
    /// [`AclProvider`](crate::AclProvider).
    pub fn with_acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Also sets a watch for the creation, change or deletion of the node.
    #[doc(alias = "usingWatcher")]
    pub fn watched(self) -> Watched<Self> {
        Watched(self)
    }

    async fn make_parents(&self, session: &Session, path: &str) -> Result<()> {
        if self.parents == Parents::Expected {
            return Ok(());
        }
        match session.exists(parent_of(path)).await {
            Ok(None) => {}
            // It exists, and the client may not read it.
            Err(Error::NoAuth { .. }) => return Ok(()),
            found => return found.map(|_| ()),
        }
        let node = NodeSpec {
            parents: self.parents,
            acl: self.acl.as_deref(),
            acl_on_parents: true,
            data: &[],
            parent_data: &[],
        };
        session.create_parents(path, &node).await.map(|_| ())
    }

    /// Returns the node's stat, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the node exists, and the client may not read it. Servers before 3.8.4, and 3.9.0 and 3.9.1,
    ///   return its stat. A parent that may not be created has this error too, and others of a create.
    /// * `Error::InvalidPath`, `Error::SchemaViolation`.
    /// * `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; missing parents may have been created.
    pub async fn for_path(self, path: &str) -> Result<Option<Stat>> {
        check_read(self.client, path, Reading::Plain)?;
        let this = &self;
        with_retries(self.client, "exists", path, |session| async move {
            this.make_parents(&session, path).await?;
            session.exists(path).await
        })
        .await
    }
}

impl Watched<ExistsBuilder<'_>> {
    /// Returns the node's stat, or `None` if it does not exist, and a future that resolves with the event.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the node exists, and the client may not read it. Servers before 3.8.4, and 3.9.0 and 3.9.1,
    ///   return its stat. A parent that may not be created has this error too, and others of a create.
    /// * `Error::InvalidPath`, `Error::SchemaViolation`: ZooKeeper does not allow the path, or a rule of the client's
    ///   schemas forbids the read.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; missing parents may have been created. A watch that was set is
    /// dropped with the future.
    pub async fn for_path(self, path: &str) -> Result<(Option<Stat>, Watch)> {
        check_read(self.0.client, path, Reading::Watched)?;
        let this = &self.0;
        with_retries(this.client, "exists", path, |session| async move {
            this.make_parents(&session, path).await?;
            session.exists_watched(path).await
        })
        .await
    }
}

/// A read that also sets a watch and returns it. The [`Watch`] is a future that resolves with the event, or when the
/// watch is lost: with its session, and with `zookeeper-async` also at a reconnect. To set it again, read again.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked before for_path"]
pub struct Watched<B>(pub(crate) B);

/// The description of a read of a node's data: Curator's `GetDataBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is read before for_path"]
pub struct GetDataBuilder<'a> {
    client: &'a ClientCore,
    compressed: Option<bool>,
}

impl<'a> GetDataBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, compressed: None }
    }

    /// Decompresses the data, regardless of the client's default.
    pub fn decompressed(mut self) -> Self {
        self.compressed = Some(true);
        self
    }

    /// Does not decompress the data, regardless of the client's default.
    pub fn undecompressed(mut self) -> Self {
        self.compressed = Some(false);
        self
    }

    /// Also sets a watch for the change or deletion of the node. A missing node gets none.
    #[doc(alias = "usingWatcher")]
    pub fn watched(self) -> Watched<Self> {
        Watched(self)
    }

    /// Returns the node's data and stat.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoNode`, `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`;
    /// `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn for_path(self, path: &str) -> Result<(Vec<u8>, Stat)> {
        check_read(self.client, path, Reading::Plain)?;
        let (data, stat) =
            with_retries(self.client, "getData", path, |session| async move { session.get_data(path).await }).await?;
        Ok((self.client.read_stored(path, data, self.compressed)?, stat))
    }
}

impl Watched<GetDataBuilder<'_>> {
    /// Returns the node's data and stat, and a future that resolves with the event.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoNode`, `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`;
    /// `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; a watch that was set is dropped with it.
    pub async fn for_path(self, path: &str) -> Result<((Vec<u8>, Stat), Watch)> {
        check_read(self.0.client, path, Reading::Watched)?;
        let Self(read) = self;
        let watched =
            with_retries(read.client, "getData", path, |session| async move { session.get_data_watched(path).await });
        let WatchedData { data, stat, watch } = watched.await?;
        Ok(((read.client.read_stored(path, data, read.compressed)?, stat), watch))
    }
}

/// The description of a listing of a node's children: Curator's `GetChildrenBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is listed before for_path"]
pub struct GetChildrenBuilder<'a> {
    client: &'a ClientCore,
}

impl<'a> GetChildrenBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client }
    }

    /// Also sets a watch for the creation or deletion of a child, or the deletion of the node.
    #[doc(alias = "usingWatcher")]
    pub fn watched(self) -> Watched<Self> {
        Watched(self)
    }

    /// Returns the names of the node's children, in no order.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoNode`, `Error::NoAuth`, `Error::SchemaViolation`; `Error::ConnectionLoss`,
    /// `Error::SessionExpired` if the policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn for_path(self, path: &str) -> Result<Vec<String>> {
        check_read(self.client, path, Reading::Plain)?;
        with_retries(self.client, "getChildren", path, |session| async move { session.get_children(path).await }).await
    }
}

impl Watched<GetChildrenBuilder<'_>> {
    /// Returns the names of the node's children, in no order, and a future that resolves with the event.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoNode`, `Error::NoAuth`, `Error::SchemaViolation`; `Error::ConnectionLoss` and
    /// `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; a watch that was set is dropped with it.
    pub async fn for_path(self, path: &str) -> Result<(Vec<String>, Watch)> {
        check_read(self.0.client, path, Reading::Watched)?;
        with_retries(
            self.0.client,
            "getChildren",
            path,
            |session| async move { session.get_children_watched(path).await },
        )
        .await
    }
}

/// The description of a read of a node's access control list: Curator's `GetACLBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is read before for_path"]
pub struct GetAclBuilder<'a> {
    client: &'a ClientCore,
}

impl<'a> GetAclBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client }
    }

    /// Returns the node's access control list and stat.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoNode`, `Error::NoAuth`, `Error::SchemaViolation`; `Error::ConnectionLoss` and
    /// `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn for_path(self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        check_read(self.client, path, Reading::Plain)?;
        with_retries(self.client, "getACL", path, |session| async move { session.get_acl(path).await }).await
    }
}
