//! Creates of nodes and of their missing parents.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::submit::unexpected;
use crate::error::{Error, Result};
use crate::model::namespace::Namespace;
use crate::model::new_node::{NodeSpec, Parents};
use crate::model::path::parent_of;
use crate::model::{Acl, CreateMode, Stat};
use crate::session::Session;
use crate::zookeeper::{Request, Response};

/// The creations of parents that are under way, by the lowest parent. Callers that miss the same parent wait for one
/// creation: without it, each of 1,000 new nodes would create the parents of all.
#[derive(Default)]
struct ParentsInProgress(Mutex<HashMap<String, Weak<OnceCell<()>>>>);

impl ParentsInProgress {
    /// Returns the creation of this parent.
    fn of(&self, lowest: &str) -> Arc<OnceCell<()>> {
        let mut all = self.0.lock();
        if let Some(creation) = all.get(lowest).and_then(Weak::upgrade) {
            return creation;
        }
        // Removes those that failed or that have no callers any more.
        all.retain(|_, creation| creation.strong_count() > 0);
        let creation = Arc::default();
        all.insert(lowest.to_owned(), Arc::downgrade(&creation));
        creation
    }
}

impl Session {
    /// Creates a node and returns its path, with the number that the server appended, and its stat.
    ///
    /// # Errors
    ///
    /// `Error::NodeExists`, `Error::NoNode` (no parent), `Error::NoChildrenForEphemerals`, `Error::NoAuth`,
    /// `Error::InvalidAcl`; `Error::TooManyEphemeralNodes`; `Error::Unsupported`; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may still be created. Use [`owned_node`](Self::owned_node) to have it
    /// deleted then.
    pub async fn create(&self, path: &str, data: Vec<u8>, acl: Vec<Acl>, mode: CreateMode) -> Result<(String, Stat)> {
        let (path, stat) = self.create_node(path, data, acl, mode).await?;
        Ok((self.root.to_client_path(&path).to_owned(), stat))
    }

    /// Creates a node as [`create`](Self::create) does, and returns its path as the server knows it.
    pub(crate) async fn create_node(
        &self,
        path: &str,
        data: Vec<u8>,
        acl: Vec<Acl>,
        mode: CreateMode,
    ) -> Result<(Arc<str>, Stat)> {
        let can = self.inner.handle.capabilities();
        let full = self.to_server_path_of_new(path, mode);
        let unsupported = match mode {
            _ if full.len() > 1 && full.ends_with('/') && !can.bare_numbers => Some("create nodes without a name"),
            CreateMode::Container if !can.containers => Some("create containers"),
            CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) if !can.ttl => {
                Some("create nodes with a time to live")
            }
            _ => None,
        };
        Acl::check(&acl, path)?;
        mode.check_ttl()?;
        if let Some(request) = unsupported {
            return Err(self.unsupported(request));
        }
        match self.request(Request::Create { path: full, data, acl, mode }).await? {
            Response::Created { path, stat } => {
                self.inner.reaper.touch_parent(parent_of(&path), self.inner.clock.now());
                Ok((path, stat))
            }
            other => Err(unexpected("create", path, &other)),
        }
    }

    /// Creates a node, and its missing parents if [`NodeSpec::with_parents`] asks for them. No retry.
    ///
    /// # Errors
    ///
    /// * `Error::NodeExists`: the path has a node.
    /// * `Error::NoNode`: a parent does not exist and is not to be created, or other clients delete the parents again
    ///   and again.
    /// * `Error::NoChildrenForEphemerals`: a parent is an ephemeral node. `Error::NoAuth`: its ACL forbids creating
    ///   children.
    /// * `Error::InvalidAcl`: the server refuses the access control list.
    /// * `Error::SchemaViolation`: a rule of the client's schemas forbids this node; nothing was sent.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have another ephemeral node. Nothing was sent.
    /// * `Error::Unsupported`: the client or the server has no nodes of this mode, or none without a name.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing, so the node may exist.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may still be created.
    pub async fn create_with_parents(
        &self,
        path: &str,
        mode: CreateMode,
        node: &NodeSpec<'_>,
    ) -> Result<(String, Stat)> {
        let acl = node.acl.map_or_else(|| self.acl_for(path), <[_]>::to_vec);
        if let Some(schemas) = self.schemas() {
            schemas.check_create(path, mode, node.data, &acl)?;
        }
        let create = || self.create(path, node.data.to_vec(), acl.clone(), mode);
        let mut created = create().await;
        for _ in 0..node.parents.max_create_attempts() {
            let missing = matches!(created, Err(Error::NoNode { .. }));
            // Boxed: a rare branch must not enlarge the future.
            if !missing || !Box::pin(self.create_parents(path, node)).await? {
                break;
            }
            created = create().await;
        }
        created
    }

    /// Returns the access control list for a node that is created without one. The client's
    /// [`AclProvider`](crate::AclProvider) chooses it by the path, which includes the namespace.
    #[must_use]
    pub fn acl_for(&self, path: &str) -> Vec<Acl> {
        self.provided_acl(&self.root.to_server_path(path))
    }

    fn provided_acl(&self, full: &str) -> Vec<Acl> {
        let provider = &self.inner.acl_provider;
        provider.acl_for_path(self.root.without_chroot(full)).unwrap_or_else(|| provider.default_acl())
    }

    /// Creates the missing parents of a new node that wants them, else only the node of the namespace. The lowest one
    /// gets the parent data. It starts with that one, so it sends nothing for parents of nodes that exist. Call it
    /// after `NoNode`. Returns `Ok(false)` if it may create nothing.
    ///
    /// # Errors
    ///
    /// * `Error::NoNode`: the chroot is missing, because the framework never creates it.
    /// * `Error::NoChildrenForEphemerals`: a parent is an ephemeral node. `Error::NoAuth`: its ACL forbids creating
    ///   children.
    /// * `Error::InvalidAcl`: the server refuses the access control list of a parent.
    /// * `Error::Unsupported`: the server has no containers.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: a reply is missing. Some of the parents may exist.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, some of the parents may exist.
    pub async fn create_parents(&self, path: &str, node: &NodeSpec<'_>) -> Result<bool> {
        let lowest = match node.parents {
            Parents::Expected => self.root.namespace_node().map(str::to_owned),
            Parents::Persistent | Parents::Containers => Some(self.root.full_parent(path)),
        };
        let Some(lowest) = lowest else {
            // The parent that does not exist is the chroot itself.
            let parent = self.root.full_parent(path);
            let is_chroot = parent != "/" && self.root.is_given(&parent);
            return if is_chroot { Err(Error::NoNode { path: parent.into() }) } else { Ok(false) };
        };
        let in_progress = self.extension::<ParentsInProgress>();
        let creation = in_progress.of(&lowest);
        creation
            .get_or_try_init(|| async {
                let created = self.create_missing(lowest.clone(), node).await;
                // A parent that is missed from now on was deleted again.
                in_progress.0.lock().remove(&lowest);
                created
            })
            .await?;
        Ok(true)
    }

    /// Creates the lowest parent, and those above it that are missing.
    async fn create_missing(&self, lowest: String, node: &NodeSpec<'_>) -> Result<()> {
        let server = self.in_namespace(Namespace::default());
        let mut missing = vec![lowest];
        while let Some(parent) = missing.last() {
            if self.root.is_given(parent) {
                if parent == "/" {
                    missing.pop();
                    continue;
                }
                return Err(Error::NoNode { path: parent.as_str().into() });
            }
            let of_namespace = self.root.is_of_namespace(parent);
            let acl = match node.acl.filter(|_| node.acl_on_parents && !of_namespace) {
                Some(acl) => acl.to_vec(),
                None => self.provided_acl(parent),
            };
            // Not a container: the node of a namespace must outlive the nodes in it.
            let container = node.parents == Parents::Containers && !of_namespace;
            let mode = match container && self.inner.handle.capabilities().containers {
                true => CreateMode::Container,
                false => CreateMode::Persistent,
            };
            let is_parent = missing.len() == 1 && !of_namespace;
            let data = if is_parent { node.parent_data.to_vec() } else { Vec::new() };
            match server.create(parent, data, acl, mode).await {
                Ok((_, stat)) => {
                    if container && mode != CreateMode::Container {
                        self.inner.reaper.track(parent, stat.czxid, self.inner.clock.now());
                    }
                    missing.pop();
                }
                Err(Error::NodeExists { .. }) => {
                    missing.pop();
                }
                Err(Error::NoNode { .. }) => {
                    let above = parent_of(parent).to_owned();
                    missing.push(above);
                }
                Err(error) => return Err(self.for_caller(error)),
            }
        }
        Ok(())
    }
}
