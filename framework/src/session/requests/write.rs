//! Changes and deletes of nodes, and the change of the ensemble.

use std::sync::Arc;

use super::submit::unexpected;
use crate::environment::randomness::nonexistent_path;
use crate::error::{Error, INTERNAL_BARRIER, Result};
use crate::model::namespace::Namespace;
use crate::model::{Acl, CreateMode, Stat};
use crate::session::Session;
use crate::session::background::PendingDelete;
use crate::zookeeper::{CONFIG_NODE, Request, Response};

impl Session {
    /// Deletes a node in the background, if need be in a later session. Never blocks, and works outside of a runtime too.
    ///
    /// With a `czxid` it deletes only the node that this transaction has created. Without one, an ephemeral mode deletes
    /// only a node of this session, and another mode only a node that belongs to no session. A node that still has children
    /// after a second attempt stays.
    pub fn delete_in_background(&self, path: &str, mode: CreateMode, czxid: Option<i64>) {
        let path = self.to_server_path(path).to_string();
        let ephemeral = mode.is_ephemeral();
        let remains = match czxid {
            Some(czxid) => PendingDelete::Created { path, czxid, ephemeral, written: None },
            None => PendingDelete::Uncertain { path, ephemeral },
        };
        self.background().clean(self, remains);
    }

    /// Deletes a node.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NotEmpty`, `Error::BadVersion`, `Error::NoAuth`; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may still be deleted.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<()> {
        self.delete_node(self.to_server_path(path), version).await
    }

    /// Deletes the node at a path as the server knows it.
    pub(crate) async fn delete_node(&self, path: Arc<str>, version: Option<i32>) -> Result<()> {
        match self.request(Request::Delete { path, version }).await? {
            Response::Deleted => Ok(()),
            other => Err(unexpected("delete", "", &other)),
        }
    }

    /// Changes a node's data and returns its new stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::BadVersion`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the data may still be changed.
    pub async fn set_data(&self, path: &str, data: Vec<u8>, version: Option<i32>) -> Result<Stat> {
        match self.request(Request::SetData { path: self.to_server_path(path), data, version }).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(unexpected("setData", path, &other)),
        }
    }

    /// Changes a node's access control list and returns its new stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::BadVersion`, `Error::NoAuth`, `Error::InvalidAcl`; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the list may still be changed.
    pub async fn set_acl(&self, path: &str, acl: Vec<Acl>, version: Option<i32>) -> Result<Stat> {
        Acl::check(&acl, path)?;
        match self.request(Request::SetAcl { path: self.to_server_path(path), acl, version }).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(unexpected("setACL", path, &other)),
        }
    }

    /// Changes the servers of the ensemble and returns the new configuration. No retry.
    pub(crate) async fn reconfig(
        &self,
        joining: &[String],
        leaving: &[String],
        members: &[String],
        version: Option<i64>,
    ) -> Result<(Vec<u8>, Stat)> {
        if !self.inner.handle.capabilities().reconfig {
            return Err(self.unsupported("reconfig"));
        }
        let [joining, leaving, members] = [joining, leaving, members].map(<[String]>::to_vec);
        match self.request(Request::Reconfig { joining, leaving, members, version }).await? {
            Response::Data(data, stat) => Ok((data, stat)),
            other => Err(unexpected("reconfig", CONFIG_NODE, &other)),
        }
    }

    /// Sends a write that changes nothing, as a barrier. After its reply, every earlier write of this session is
    /// applied or never will be, and reads are not older than that.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn write_barrier(&self) -> Result<()> {
        match self.in_namespace(Namespace::default()).delete(&nonexistent_path(&*self.inner.randomness), None).await {
            Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error.renamed(INTERNAL_BARRIER)),
        }
    }
}
