//! Reading nodes.

use crate::client::CuratorFramework;
use crate::error::Result;
use crate::model::{Acl, Stat};
use crate::new_node::{NewNode, Parents};
use crate::operations::{check_read, with_retries};
use crate::path::parent_of;
use crate::session::Session;
use crate::watch::Watch;

/// A look whether a node exists, being described: Curator's `ExistsBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked before for_path"]
pub struct ExistsBuilder<'a> {
    client: &'a CuratorFramework,
    parents: Parents,
    acl: Option<Vec<Acl>>,
}

impl<'a> ExistsBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
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

    /// The access control list of parents that are created. Default: what the client's
    /// [`AclProvider`](crate::AclProvider) says.
    pub fn with_acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Also sets a watch, for the creation, change or deletion of the node.
    pub fn watched(self) -> Watched<Self> {
        Watched(self)
    }

    async fn make_parents(&self, session: &Session, path: &str) -> Result<()> {
        if self.parents == Parents::Expected || session.exists(parent_of(path)).await?.is_some() {
            return Ok(());
        }
        let node = NewNode {
            parents: self.parents,
            acl: self.acl.as_deref(),
            acl_on_parents: true,
            data: &[],
            parent_data: &[],
        };
        session.create_parents(path, &node).await.map(|_| ())
    }

    /// The node's stat, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; of parents that are created `NoAuth` and the like; `ConnectionLoss` and `SessionExpired` when the
    /// retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; parents that it was to create may exist.
    pub async fn for_path(self, path: &str) -> Result<Option<Stat>> {
        check_read(self.client, path, false)?;
        let this = &self;
        with_retries(self.client, path, |session| async move {
            this.make_parents(&session, path).await?;
            session.exists(path).await
        })
        .await
    }
}

impl Watched<ExistsBuilder<'_>> {
    /// The node's stat, or `None` if it does not exist, and a future that resolves with the event.
    ///
    /// # Errors
    ///
    /// As [`ExistsBuilder::for_path`].
    ///
    /// # Cancel safety
    ///
    /// As [`ExistsBuilder::for_path`]; a watch that was set wakes nobody then.
    pub async fn for_path(self, path: &str) -> Result<(Option<Stat>, Watch)> {
        check_read(self.0.client, path, true)?;
        let this = &self.0;
        with_retries(this.client, path, |session| async move {
            this.make_parents(&session, path).await?;
            session.exists_watched(path).await
        })
        .await
    }
}

/// A read that also sets a watch. The [`Watch`] that it returns is a future; it resolves with the event, or when the
/// watch must be set anew: after a reconnect and at the end of the session. Set it again by reading again.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked before for_path"]
pub struct Watched<B>(pub(crate) B);

/// A read of a node's data, being described: Curator's `GetDataBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is read before for_path"]
pub struct GetDataBuilder<'a> {
    client: &'a CuratorFramework,
    compressed: Option<bool>,
}

impl<'a> GetDataBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client, compressed: None }
    }

    /// Decompresses the data, whatever the client's default.
    pub fn decompressed(mut self) -> Self {
        self.compressed = Some(true);
        self
    }

    /// Does not decompress the data, whatever the client's default.
    pub fn undecompressed(mut self) -> Self {
        self.compressed = Some(false);
        self
    }

    /// Also sets a watch, for the change or deletion of the node. A missing node leaves none.
    pub fn watched(self) -> Watched<Self> {
        Watched(self)
    }

    /// The node's data and stat.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `NoAuth`, `Compression`; `ConnectionLoss` and `SessionExpired` when the retry policy
    /// gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn for_path(self, path: &str) -> Result<(Vec<u8>, Stat)> {
        check_read(self.client, path, false)?;
        let (data, stat) =
            with_retries(self.client, path, |session| async move { session.get_data(path).await }).await?;
        Ok((self.client.from_stored(path, data, self.compressed)?, stat))
    }
}

impl Watched<GetDataBuilder<'_>> {
    /// The node's data and stat, and a future that resolves with the event.
    ///
    /// # Errors
    ///
    /// As [`GetDataBuilder::for_path`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; a watch that was set wakes nobody then.
    pub async fn for_path(self, path: &str) -> Result<((Vec<u8>, Stat), Watch)> {
        check_read(self.0.client, path, true)?;
        let Self(read) = self;
        let watched = with_retries(read.client, path, |session| async move { session.get_data_watched(path).await });
        let (data, stat, watch) = watched.await?;
        Ok(((read.client.from_stored(path, data, read.compressed)?, stat), watch))
    }
}

/// A listing of a node's children, being described: Curator's `GetChildrenBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is listed before for_path"]
pub struct GetChildrenBuilder<'a> {
    client: &'a CuratorFramework,
}

impl<'a> GetChildrenBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client }
    }

    /// Also sets a watch, for the creation or deletion of a child, or the deletion of the node.
    pub fn watched(self) -> Watched<Self> {
        Watched(self)
    }

    /// The names of the node's children, in no order.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn for_path(self, path: &str) -> Result<Vec<String>> {
        check_read(self.client, path, false)?;
        with_retries(self.client, path, |session| async move { session.get_children(path).await }).await
    }
}

impl Watched<GetChildrenBuilder<'_>> {
    /// The names of the node's children, in no order, and a future that resolves with the event.
    ///
    /// # Errors
    ///
    /// As [`GetChildrenBuilder::for_path`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; a watch that was set wakes nobody then.
    pub async fn for_path(self, path: &str) -> Result<(Vec<String>, Watch)> {
        check_read(self.0.client, path, true)?;
        with_retries(self.0.client, path, |session| async move { session.get_children_watched(path).await }).await
    }
}

/// A read of a node's access control list, being described: Curator's `GetACLBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is read before for_path"]
pub struct GetAclBuilder<'a> {
    client: &'a CuratorFramework,
}

impl<'a> GetAclBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client }
    }

    /// The node's access control list and stat.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn for_path(self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        with_retries(self.client, path, |session| async move { session.get_acl(path).await }).await
    }
}
