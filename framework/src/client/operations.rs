//! The operations of a client, each with its builder.

use crate::client::CuratorFramework;
use crate::error::Result;
use crate::model::{AddWatchMode, Identity, Reading};
use crate::operations::{
    CreateBuilder, CuratorTransaction, DeleteBuilder, ExistsBuilder, GetAclBuilder, GetChildrenBuilder,
    GetConfigBuilder, GetDataBuilder, MultiReadBuilder, PersistentWatcher, ReconfigBuilder, SetAclBuilder,
    SetDataBuilder, with_retries,
};

impl CuratorFramework {
    /// Returns the builder of a create: Curator's `create()`.
    pub fn create(&self) -> CreateBuilder<'_> {
        CreateBuilder::new(&self.core)
    }

    /// Returns the builder of a delete: Curator's `delete()`.
    pub fn delete(&self) -> DeleteBuilder<'_> {
        DeleteBuilder::new(&self.core)
    }

    /// Returns the builder of a check whether a node exists: Curator's `checkExists()`.
    pub fn check_exists(&self) -> ExistsBuilder<'_> {
        ExistsBuilder::new(&self.core)
    }

    /// Returns the builder of a read of a node's data: Curator's `getData()`.
    pub fn get_data(&self) -> GetDataBuilder<'_> {
        GetDataBuilder::new(&self.core)
    }

    /// Returns the builder of a change of a node's data: Curator's `setData()`.
    pub fn set_data(&self) -> SetDataBuilder<'_> {
        SetDataBuilder::new(&self.core)
    }

    /// Returns the builder of a read of a node's access control list: Curator's `getACL()`.
    pub fn get_acl(&self) -> GetAclBuilder<'_> {
        GetAclBuilder::new(&self.core)
    }

    /// Returns the builder of a change of a node's access control list: Curator's `setACL()`.
    pub fn set_acl(&self) -> SetAclBuilder<'_> {
        SetAclBuilder::new(&self.core)
    }

    /// Returns the builder of a transaction, several changes of which the server makes all or none: Curator's
    /// `transaction()` and `inTransaction()`.
    #[doc(alias = "inTransaction")]
    pub fn transaction(&self) -> CuratorTransaction<'_> {
        CuratorTransaction::new(&self.core)
    }

    /// Returns the builder of reads of several nodes in one request, each with a result of its own. Curator has no such
    /// operation.
    pub fn multi_read(&self) -> MultiReadBuilder<'_> {
        MultiReadBuilder::new(&self.core)
    }

    /// Returns the identities of the present connection, which access control lists know: its address, and the users of
    /// its credentials and its login. ZooKeeper's `whoAmI`; Curator has no such operation.
    ///
    /// # Errors
    ///
    /// `Error::Unsupported` with `zookeeper-async`, and with servers before 3.7, which close the connection at each call;
    /// `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up; `Error::AuthFailed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "whoAmI")]
    pub async fn who_am_i(&self) -> Result<Vec<Identity>> {
        with_retries(&self.core, "whoAmI", "/", |session| async move { session.who_am_i().await }).await
    }

    /// Sets a watch that stays when it fires: Curator's `watchers().add()`.
    ///
    /// Reads, locks and other recipes of the same client may watch the same path once: neither takes an event from the
    /// other. A server before 3.9 has one watch for each session and path (ZOOKEEPER-4466). The client sends no watch
    /// that would replace this one, and fires it from the events of this one. With watches of both modes on one path it
    /// sets the recursive one alone. Then a `Persistent` watch gets `NodeChildrenChanged` for each child that is created
    /// or deleted, except for children that the session must not read.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::SchemaViolation`; `Error::Unsupported` with `zookeeper-async`;
    /// `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no watch.
    #[doc(alias = "AddWatchBuilder")]
    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<PersistentWatcher> {
        crate::operations::check_read(&self.core, path, Reading::Watched)?;
        PersistentWatcher::add(self.core.clone(), path, mode).await
    }

    /// Returns the builder of a read of the ensemble's configuration, the list of its servers: Curator's `getConfig()`.
    /// Its node is outside of all namespaces and chroots.
    pub fn get_config(&self) -> GetConfigBuilder<'_> {
        GetConfigBuilder::new(&self.core)
    }

    /// Returns the builder of a change of the ensemble's servers: Curator's `reconfig()`.
    pub fn reconfig(&self) -> ReconfigBuilder<'_> {
        ReconfigBuilder::new(&self.core)
    }

    /// Resolves when the server has applied all that the leader had committed, for later reads: Curator's `sync()`.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `Error::Unsupported` with `zookeeper-async`; `Error::ConnectionLoss` and
    /// `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn sync(&self, path: &str) -> Result<()> {
        crate::operations::with_retries(&self.core, "sync", path, |session| async move { session.sync(path).await })
            .await
    }

    /// Creates a node and its parents, as far as they are missing: Curator's `createContainers`. They are
    /// [containers](crate::recipe::Parents::Containers), or persistent if the client does not use containers.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoAuth`, `Error::InvalidAcl`, `Error::NoChildrenForEphemerals`,
    /// `Error::SchemaViolation`; `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, some of the nodes may exist.
    #[doc(alias = "mkdirs")]
    pub async fn create_containers(&self, path: &str) -> Result<()> {
        let below = crate::model::path::make_path(path, "foo");
        self.check_exists().creating_parent_containers_if_needed().for_path(&below).await.map(|_| ())
    }

    /// Returns the builder of a listing of a node's children: Curator's `getChildren()`.
    pub fn get_children(&self) -> GetChildrenBuilder<'_> {
        GetChildrenBuilder::new(&self.core)
    }
}
