//! Creating nodes.

use crate::claim::NodeClaim;
use crate::client::CuratorFramework;
use crate::error::{Error, Result};
use crate::path::{make_path, node_from_path, parent_of, validate_path};
use crate::session::Session;
use crate::zookeeper::{Acl, CreateMode, Stat};

/// A create that is being described: Curator's `CreateBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is created before for_path"]
pub struct CreateBuilder<'a> {
    client: &'a CuratorFramework,
    mode: CreateMode,
    data: Option<Vec<u8>>,
    acl: Vec<Acl>,
    creating_parents: bool,
    protection: bool,
}

impl<'a> CreateBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self {
            client,
            mode: CreateMode::Persistent,
            data: None,
            acl: Acl::open_unsafe(),
            creating_parents: false,
            protection: false,
        }
    }

    /// Creates missing parents too, persistent and empty.
    pub fn creating_parents_if_needed(mut self) -> Self {
        self.creating_parents = true;
        self
    }

    /// Puts `_c_<uuid>-` before the node's name, so that a node whose reply was lost is found again instead of
    /// created twice or left behind: Curator's `withProtection`.
    pub fn with_protection(mut self) -> Self {
        self.protection = true;
        self
    }

    /// The mode. Default: persistent.
    pub fn with_mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// The node's data. Default: the client's default data.
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// The access control list of the node; its parents are open. Default: open to everybody.
    pub fn with_acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = acl.into();
        self
    }

    /// Creates the node and returns its path, with the prefix of the protection and the number that the server
    /// appended.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NodeExists`, `NoNode` (no parent), `NoChildrenForEphemerals`, `NoAuth`, `InvalidAcl`;
    /// `ConnectionLoss` and `SessionExpired` when the retry policy gives up. Without protection a lost reply makes a
    /// retry of a plain create answer `NodeExists`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the node may exist or come to exist; with protection it is found and deleted.
    pub async fn for_path(self, path: &str) -> Result<String> {
        self.for_path_with_stat(path).await.map(|(path, _)| path)
    }

    /// As [`for_path`](Self::for_path), with the node's stat.
    ///
    /// # Errors
    ///
    /// As [`for_path`](Self::for_path).
    ///
    /// # Cancel safety
    ///
    /// As [`for_path`](Self::for_path).
    pub async fn for_path_with_stat(self, path: &str) -> Result<(String, Stat)> {
        // The server appends a number to a sequential name, so that one may end with a slash.
        if self.mode.is_sequential() {
            validate_path(&format!("{path}1"))?;
        } else {
            validate_path(path)?;
        }
        let data = self.data.clone().unwrap_or_else(|| self.client.default_data().to_vec());
        if self.protection { self.create_protected(path, &data).await } else { self.create_plain(path, &data).await }
    }

    async fn create_plain(&self, path: &str, data: &[u8]) -> Result<(String, Stat)> {
        let mut retries = self.client.retry_loop();
        loop {
            let result = match retries.session().await {
                Ok(session) => self.create_once(&session, path, data).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(created) => return Ok(created),
                Err(error) => retries.failed(error).await?,
            }
        }
    }

    async fn create_once(&self, session: &Session, path: &str, data: &[u8]) -> Result<(String, Stat)> {
        match session.create(path, data.to_vec(), self.acl.clone(), self.mode).await {
            Err(Error::NoNode { .. }) if self.creating_parents => {
                session.create_parents(path, &Acl::open_unsafe()).await?;
                session.create(path, data.to_vec(), self.acl.clone(), self.mode).await
            }
            created => created,
        }
    }

    async fn create_protected(&self, path: &str, data: &[u8]) -> Result<(String, Stat)> {
        let mut retries = self.client.retry_loop();
        let mut claim: Option<NodeClaim> = None;
        loop {
            let result = match retries.session().await {
                Ok(session) => {
                    let claim = self.claim_in(&mut claim, session, path);
                    self.find_or_create(claim, path, data).await
                }
                Err(error) => Err(error),
            };
            match result {
                Ok(created) => {
                    if let Some(claim) = claim {
                        claim.disown();
                    }
                    return Ok(created);
                }
                // The claim is dropped with the error, and its node deleted.
                Err(error) => retries.failed(error).await?,
            }
        }
    }

    /// The claim for this session. A node of an earlier session is about to go with it if it is ephemeral, so it gets
    /// a new name (CURATOR-498); else it is the same node under the same name.
    fn claim_in<'c>(&self, claim: &'c mut Option<NodeClaim>, session: Session, path: &str) -> &'c mut NodeClaim {
        let mut earlier = None;
        if let Some(old) = claim.take_if(|claim| claim.session().number() != session.number()) {
            if !self.mode.is_ephemeral() {
                earlier = Some((old.protected_id(), old.is_uncertain()));
            }
            old.disown();
        }
        claim.get_or_insert_with(|| {
            let (id, uncertain) = earlier.unwrap_or_else(|| (session.new_id(), false));
            let mut claim = NodeClaim::new(session, parent_of(path), id, node_from_path(path), self.mode);
            if uncertain {
                claim.inherit();
            }
            claim
        })
    }

    async fn find_or_create(&self, claim: &mut NodeClaim, path: &str, data: &[u8]) -> Result<(String, Stat)> {
        if claim.is_uncertain() {
            // The list may come from a server that is behind; an answered write is the proof that it is not.
            let session = claim.session().clone();
            session.order().await?;
            let children = match session.get_children(parent_of(path)).await {
                Err(Error::NoNode { .. }) => Vec::new(),
                children => children?,
            };
            let found = claim.own(&children).first().map(|found| (*found).to_owned());
            if let Some(found) = found {
                let found_path = make_path(parent_of(path), &found);
                if let Some(stat) = session.exists(&found_path).await? {
                    claim.settle(&found, &[]).await?;
                    return Ok((found_path, stat));
                }
            }
        }
        claim.create(data, &self.acl, self.creating_parents).await
    }
}
