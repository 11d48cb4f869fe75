//! Changing nodes.

use crate::core::ClientCore;
use crate::error::{Error, Result};
use crate::model::{Acl, Stat};
use crate::operations::with_retries;
use crate::session::Session;

/// The description of a change of a node's data: Curator's `SetDataBuilder`.
///
/// The new data is an argument. (Without data, Curator's builder writes the host's address.)
///
/// ```compile_fail,E0061
/// # async fn change(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// client.set_data().for_path("/mode").await?; // the compiler asks for the second argument, the data
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is changed before for_path"]
pub struct SetDataBuilder<'a> {
    client: &'a ClientCore,
    version: Option<i32>,
    idempotent: bool,
    compress: Option<bool>,
}

impl<'a> SetDataBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, version: None, idempotent: false, compress: None }
    }

    /// Changes the data only if the node has this version.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// Accepts a node that has the new data and the version after the demanded one, because an earlier try with a lost
    /// reply may have written it. Curator's `idempotent`.
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
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

    /// Changes the data and returns the node's new stat: Curator's `forPath(path, data)`.
    ///
    /// # Errors
    ///
    /// * `Error::BadVersion`: the node has another version. If the reply to an earlier try was lost, that try may have
    ///   changed the data, unless the change is idempotent.
    /// * `Error::InvalidPath`, `Error::NoNode`, `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the data may be changed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn change(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
    /// client.set_data().for_path("/mode", "two").await?;
    /// client.set_data().with_version(7).for_path("/mode", b"three").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn for_path(self, path: &str, data: impl Into<Vec<u8>>) -> Result<Stat> {
        let data = data.into();
        self.client.check_schemas(|schemas| schemas.check_change(path, &data))?;
        let data = self.client.to_stored(path, data, self.compress)?;
        let (version, idempotent) = (self.version, self.idempotent);
        with_retries(self.client, "setData", path, |session| {
            let data = data.clone();
            async move {
                match (session.set_data(path, data.clone(), version).await, version) {
                    (Err(error @ Error::BadVersion { .. }), Some(version)) if idempotent => {
                        changed_already(&session, path, &data, version).await?.ok_or(error)
                    }
                    (result, _) => result,
                }
            }
        })
        .await
    }
}

async fn changed_already(session: &Session, path: &str, data: &[u8], version: i32) -> Result<Option<Stat>> {
    let (found, stat) = session.get_data(path).await?;
    Ok((stat.version == version.wrapping_add(1) && found == data).then_some(stat))
}

/// The description of a change of a node's access control list: Curator's `SetACLBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is changed before for_path"]
pub struct SetAclBuilder<'a> {
    client: &'a ClientCore,
    version: Option<i32>,
    acl: Option<Vec<Acl>>,
}

impl<'a> SetAclBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, version: None, acl: None }
    }

    /// Changes the list only if it has this version ([`Stat::aversion`]).
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the new list. Default: the list of the client's [`AclProvider`](crate::AclProvider).
    pub fn with_acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Changes the list and returns the node's new stat.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`, `Error::NoNode`, `Error::BadVersion`, `Error::NoAuth`, `Error::SchemaViolation`.
    /// * `Error::InvalidAcl`: the server does not accept the list, or an id of the scheme `digest` is not a hash.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the list may be changed.
    pub async fn for_path(self, path: &str) -> Result<Stat> {
        let (acl, version) = (self.acl, self.version);
        with_retries(self.client, "setACL", path, |session| {
            let acl = acl.clone().unwrap_or_else(|| session.acl_for(path));
            let checked = self.client.check_schemas(|schemas| schemas.check_acl(path, &acl));
            async move {
                checked?;
                session.set_acl(path, acl, version).await
            }
        })
        .await
    }
}
