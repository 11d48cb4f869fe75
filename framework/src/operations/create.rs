//! Creating nodes.

use std::time::Duration;

use crate::core::ClientCore;
use crate::core::retry_loop::RetryLoop;
use crate::error::{Error, Result};
use crate::model::new_node::{NodeSpec, Parents};
use crate::model::path::{make_path, node_from_path, parent_of, validate_path};
use crate::model::{Acl, CreateMode, Stat};
use crate::session::Session;
use crate::session::owned_node::OwnedNode;

/// The description of a create: Curator's `CreateBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is created before for_path"]
pub struct CreateBuilder<'a> {
    client: &'a ClientCore,
    mode: CreateMode,
    ttl: Option<Duration>,
    data: Option<Vec<u8>>,
    acl: Option<Vec<Acl>>,
    acl_on_parents: bool,
    parents: Parents,
    protection: bool,
    existing: Existing,
    compress: Option<bool>,
}

/// The treatment of a node that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Refuse,
    /// Changes its data if it has this version; `None` is any version.
    SetData(Option<i32>),
    /// Accepts it if it has the same data and was never changed.
    AcceptTheSame,
}

impl<'a> CreateBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self {
            client,
            mode: CreateMode::Persistent,
            ttl: None,
            data: None,
            acl: None,
            acl_on_parents: false,
            parents: Parents::Expected,
            protection: false,
            existing: Existing::Refuse,
            compress: None,
        }
    }

    /// Creates missing parents too, persistent and empty.
    pub fn creating_parents_if_needed(mut self) -> Self {
        self.parents = Parents::Persistent;
        self
    }

    /// Creates missing parents too, as [containers](Parents::Containers), or persistent if the client does not use
    /// containers.
    pub fn creating_parent_containers_if_needed(mut self) -> Self {
        self.parents = self.client.lock_parents();
        self
    }

    /// Puts `_c_<uuid>-` before the node's name, by which the client finds the node after a lost reply instead of
    /// creating a second one: Curator's `withProtection`.
    pub fn with_protection(mut self) -> Self {
        self.protection = true;
        self
    }

    /// Sets the mode. Default: persistent.
    pub fn with_mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how long a persistent node stays without a change and without children: Curator's `withTtl`. For any other
    /// mode [`for_path`](Self::for_path) fails. The client `zookeeper-async` and servers without the setting
    /// `extendedTypesEnabled` refuse it.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Returns the mode with the time to live.
    fn resolved_mode(&self) -> Result<CreateMode> {
        let Some(ttl) = self.ttl else { return Ok(self.mode) };
        match self.mode {
            CreateMode::Persistent | CreateMode::PersistentWithTtl(_) => Ok(CreateMode::PersistentWithTtl(ttl)),
            CreateMode::PersistentSequential | CreateMode::PersistentSequentialWithTtl(_) => {
                Ok(CreateMode::PersistentSequentialWithTtl(ttl))
            }
            CreateMode::Ephemeral | CreateMode::EphemeralSequential | CreateMode::Container => {
                let reason = format!("a node of mode {:?} does not have one, only a persistent node", self.mode);
                Err(Error::invalid_config("time to live", reason))
            }
        }
    }

    /// Sets the node's data. Default: the client's default data.
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the node's access control list. Created parents get the default: the list of the client's
    /// [`AclProvider`](crate::AclProvider).
    pub fn with_acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self.acl_on_parents = false;
        self
    }

    /// Sets the access control list of the node and of created parents, but not of the namespace's node: Curator's
    /// `withACL(list, true)`.
    pub fn with_acl_also_on_parents(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self.acl_on_parents = true;
        self
    }

    /// Compresses the data, regardless of the client's default.
    pub fn compressed(mut self) -> Self {
        self.compress = Some(true);
        self
    }

    /// Does not compress the data, regardless of the client's default.
    pub fn uncompressed(mut self) -> Self {
        self.compress = Some(false);
        self
    }

    /// Changes the node's data if the node exists: Curator's `orSetData`.
    pub fn or_set_data(mut self) -> Self {
        self.existing = Existing::SetData(None);
        self
    }

    /// Changes the node's data if the node exists with this version; another version is `BadVersion`.
    pub fn or_set_data_with_version(mut self, version: i32) -> Self {
        self.existing = Existing::SetData(Some(version));
        self
    }

    /// Accepts a node that exists with the same data and was never changed, because an earlier try with a lost reply
    /// may have created it. Curator's `idempotent`.
    pub fn idempotent(mut self) -> Self {
        self.existing = Existing::AcceptTheSame;
        self
    }

    /// Creates the node and returns its path, with the prefix of the protection and the number of the server.
    ///
    /// # Errors
    ///
    /// * `Error::NodeExists`: the node exists. If the reply to an earlier try was lost, that try of a plain create may
    ///   have created it.
    /// * `Error::NoNode`: the parent does not exist. `Error::BadVersion`: the existing node has another version.
    /// * `Error::Unsupported`: containers, a time to live, or a sequential node with a path that ends with a slash.
    ///   `Error::InvalidConfig`: a time to live that no server accepts, or that the mode does not have.
    /// * `Error::InvalidPath`, `Error::NoChildrenForEphemerals`, `Error::NoAuth`, `Error::InvalidAcl`,
    ///   `Error::Compression`, `Error::SchemaViolation`: the node cannot be created.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have another ephemeral node. Delete others, or use another
    ///   client.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may exist or be created later; with protection it is found and deleted.
    pub async fn for_path(self, path: &str) -> Result<String> {
        self.for_path_with_stat(path).await.map(|(path, _)| path)
    }

    /// Creates the node like [`for_path`](Self::for_path), and returns its stat too: Curator's `storingStatIn`.
    ///
    /// # Errors
    ///
    /// * `Error::NodeExists`: the node exists. If the reply to an earlier try was lost, that try of a plain create may
    ///   have created it.
    /// * `Error::NoNode`: the parent does not exist. `Error::BadVersion`: the existing node has another version.
    /// * `Error::Unsupported`: containers, a time to live, or a sequential node with a path that ends with a slash.
    ///   `Error::InvalidConfig`: a time to live that no server accepts, or that the mode does not have.
    /// * `Error::InvalidPath`, `Error::NoChildrenForEphemerals`, `Error::NoAuth`, `Error::InvalidAcl`,
    ///   `Error::Compression`, `Error::SchemaViolation`: the node cannot be created.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have another ephemeral node. Delete others, or use another
    ///   client.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may exist or be created later; with protection it is found and deleted.
    #[doc(alias = "storingStatIn")]
    pub async fn for_path_with_stat(mut self, path: &str) -> Result<(String, Stat)> {
        self.mode = self.resolved_mode()?;
        self.mode.check_ttl()?;
        // The server appends a number to a sequential name, so the path may end with a slash.
        if self.mode.is_sequential() {
            validate_path(&format!("{path}1"))?;
        } else {
            validate_path(path)?;
        }
        let data = self.data.clone().unwrap_or_else(|| self.client.default_data().to_vec());
        let data = self.client.to_stored(path, data, self.compress)?;
        if !self.protection {
            return self.create_plain(path, &data).await;
        }
        // Not for an ephemeral node: it is deleted with its session.
        let _owing = (!self.mode.is_ephemeral()).then(|| self.client.track_pending());
        tokio::select! {
            biased;
            closed = self.client.not_started() => Err(closed),
            created = self.create_protected(path, &data) => created,
        }
    }

    fn node<'n>(&'n self, data: &'n [u8]) -> NodeSpec<'n> {
        NodeSpec {
            data,
            acl: self.acl.as_deref(),
            parents: self.parents,
            acl_on_parents: self.acl_on_parents,
            parent_data: &[],
        }
    }

    async fn create_plain(&self, path: &str, data: &[u8]) -> Result<(String, Stat)> {
        let mut retries = self.client.retry_loop();
        loop {
            let session = retries.connected_for("create", path).await?;
            let created = self.create_once(&session, &mut retries, path, data).await;
            if let Some(created) = retries.done(created, path).await? {
                return Ok(created);
            }
        }
    }

    async fn create_once(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        path: &str,
        data: &[u8],
    ) -> Result<(String, Stat)> {
        loop {
            let created = session.create_with_parents(path, self.mode, &self.node(data)).await;
            let (Err(Error::NodeExists { .. }), true) = (&created, self.existing != Existing::Refuse) else {
                return created;
            };
            match self.take_existing(session, path, data).await {
                Ok(Some(stat)) => return Ok((path.to_owned(), stat)),
                Ok(None) => return created,
                // Another client deleted the node after the create.
                Err(error @ Error::NoNode { .. }) => retries.pause_after(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the stat of the existing node, if it is acceptable.
    async fn take_existing(&self, session: &Session, path: &str, data: &[u8]) -> Result<Option<Stat>> {
        match self.existing {
            Existing::Refuse => Ok(None),
            Existing::SetData(version) => session.set_data(path, data.to_vec(), version).await.map(Some),
            Existing::AcceptTheSame => {
                let (found, stat) = session.get_data(path).await?;
                Ok((stat.version == 0 && found == data).then_some(stat))
            }
        }
    }

    async fn create_protected(&self, path: &str, data: &[u8]) -> Result<(String, Stat)> {
        let mut retries = self.client.retry_loop();
        let mut claim: Option<OwnedNode> = None;
        loop {
            let claim_now = self.claim_in(&mut claim, retries.connected_for("create", path).await?, path);
            let created = self.find_or_create(claim_now, path, data).await;
            // An error drops the owned node, which deletes its node.
            if let Some(created) = retries.done(created, path).await? {
                if let Some(claim) = claim {
                    claim.into_unmanaged();
                }
                return Ok(created);
            }
        }
    }

    /// Returns the owned node for this session. An ephemeral node of an earlier session will be deleted with it, so it
    /// gets a new name (CURATOR-498); any other mode keeps the node and its name.
    fn claim_in<'c>(&self, claim: &'c mut Option<OwnedNode>, session: Session, path: &str) -> &'c mut OwnedNode {
        let mut earlier = None;
        if let Some(old) = claim.take_if(|claim| claim.session().number() != session.number()) {
            if !self.mode.is_ephemeral() {
                earlier = Some((old.protected_id(), old.is_uncertain()));
            }
            old.into_unmanaged();
        }
        claim.get_or_insert_with(|| {
            let (id, uncertain) = earlier.unwrap_or_else(|| (session.new_id(), false));
            let mut claim = OwnedNode::new(session, parent_of(path), id, node_from_path(path), self.mode);
            if uncertain {
                claim.resume_uncertain();
            }
            claim
        })
    }

    async fn find_or_create(&self, claim: &mut OwnedNode, path: &str, data: &[u8]) -> Result<(String, Stat)> {
        if claim.is_uncertain() {
            // The list may come from a server that lags; the answered write proves that it does not.
            let session = claim.session().clone();
            session.write_barrier().await?;
            let children = match session.get_children(parent_of(path)).await {
                Err(Error::NoNode { .. }) => Vec::new(),
                children => children?,
            };
            let found: Vec<String> = claim.own(&children).into_iter().map(str::to_owned).collect();
            for name in found {
                let found_path = make_path(parent_of(path), &name);
                let stat = session.exists(&found_path).await?;
                if let Some(stat) = stat.filter(|stat| claim.is_own(stat)) {
                    claim.adopt(&name, &stat, &[]).await?;
                    return Ok((found_path, stat));
                }
            }
        }
        let created = claim.create(&self.node(data)).await?;
        Ok((claim.path().unwrap_or_default().to_owned(), created.stat))
    }
}
