//! Reading and changing the ensemble's configuration.

use crate::core::ClientCore;
use crate::ensemble::config::EnsembleConfig;
use crate::error::{Error, Result};
use crate::model::namespace::Namespace;
use crate::operations::{Watched, with_retries};
use crate::session::WatchedData;
use crate::session::watches::Watch;
use crate::zookeeper::CONFIG_NODE;

/// The description of a read of the ensemble's configuration: Curator's `GetConfigBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is read before for_ensemble"]
pub struct GetConfigBuilder<'a> {
    client: &'a ClientCore,
}

impl<'a> GetConfigBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client }
    }

    /// Also sets a watch for a change of the configuration.
    pub fn watched(self) -> Watched<Self> {
        Watched(self)
    }

    /// Returns the configuration, as the connected server has it.
    ///
    /// # Errors
    ///
    /// `Error::NoNode` with servers before 3.5; `Error::NoAuth`; `Error::ConnectionLoss` and `Error::SessionExpired`
    /// when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn for_ensemble(self) -> Result<EnsembleConfig> {
        let read = with_retries(self.client, "getData", CONFIG_NODE, |session| async move {
            session.in_namespace(Namespace::default()).get_data(CONFIG_NODE).await
        });
        let (data, stat) = read.await?;
        Ok(EnsembleConfig::new(data, stat))
    }
}

impl Watched<GetConfigBuilder<'_>> {
    /// Returns the configuration, and a future that resolves when it changes.
    ///
    /// # Errors
    ///
    /// `Error::NoNode` with servers before 3.5; `Error::NoAuth`; `Error::ConnectionLoss` and `Error::SessionExpired`
    /// when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; a watch that was set is dropped with it.
    pub async fn for_ensemble(self) -> Result<(EnsembleConfig, Watch)> {
        let read = with_retries(self.0.client, "getData", CONFIG_NODE, |session| async move {
            session.in_namespace(Namespace::default()).get_data_watched(CONFIG_NODE).await
        });
        let WatchedData { data, stat, watch } = read.await?;
        Ok((EnsembleConfig::new(data, stat), watch))
    }
}

/// The description of a change of the ensemble's servers: Curator's `ReconfigBuilder`.
///
/// The servers must allow it (`reconfigEnabled`), and the client needs the permission to write their configuration's
/// node: by default only the super user has it.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// let old = client.get_config().for_ensemble().await?;
/// let new = client
///     .reconfig()
///     .leaving(["2"])
///     .joining(["server.4=zk4:2888:3888:participant;zk4:2181"])
///     .from_config(old.version())
///     .for_ensemble()
///     .await?;
/// println!("{}", new.client_addresses().join(","));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is changed before for_ensemble"]
pub struct ReconfigBuilder<'a> {
    client: &'a ClientCore,
    joining: Vec<String>,
    leaving: Vec<String>,
    members: Vec<String>,
    version: Option<i64>,
}

impl<'a> ReconfigBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, joining: Vec::new(), leaving: Vec::new(), members: Vec::new(), version: None }
    }

    /// Adds servers, or changes their addresses: `server.4=host:2888:3888:participant;host:2181` each. They must run.
    pub fn joining<S: Into<String>>(mut self, servers: impl IntoIterator<Item = S>) -> Self {
        self.joining.extend(servers.into_iter().map(Into::into));
        self
    }

    /// Removes the servers with these numbers.
    pub fn leaving<S: Into<String>>(mut self, servers: impl IntoIterator<Item = S>) -> Self {
        self.leaving.extend(servers.into_iter().map(Into::into));
        self
    }

    /// Sets all servers of the new configuration, each in the form of [`joining`](Self::joining).
    pub fn with_new_members<S: Into<String>>(mut self, servers: impl IntoIterator<Item = S>) -> Self {
        self.members.extend(servers.into_iter().map(Into::into));
        self
    }

    /// Sets the [version](EnsembleConfig::version) that the configuration must have; `None` for any.
    pub fn from_config(mut self, version: impl Into<Option<i64>>) -> Self {
        self.version = version.into();
        self
    }

    /// Changes the configuration and returns the new one. Without any change it gets a new version.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidConfig`: new members together with joining or leaving servers.
    /// * `Error::ZooKeeper` with code −123: the servers do not allow it. −13: no majority of the new servers runs. −14:
    ///   another change is under way. −8: a server's description is wrong.
    /// * `Error::Unsupported` with `zookeeper-async`; `Error::BadVersion`; `Error::NoAuth`.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the policy gave up, or a version was given and the change
    ///   may have been made ([`outcome_unknown`](Error::outcome_unknown)). The latter is not retried, because it would
    ///   fail on its own change.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change may be made.
    pub async fn for_ensemble(self) -> Result<EnsembleConfig> {
        if !self.members.is_empty() && (!self.joining.is_empty() || !self.leaving.is_empty()) {
            return Err(Error::invalid_config("reconfig", "it names all servers, and those that come or go as well"));
        }
        let mut retries = self.client.retry_loop();
        loop {
            let session = retries.connected_for("reconfig", CONFIG_NODE).await?;
            match session.reconfig(&self.joining, &self.leaving, &self.members, self.version).await {
                Ok((data, stat)) => return Ok(EnsembleConfig::new(data, stat)),
                Err(error) if self.version.is_some() && error.outcome_unknown() => return Err(error),
                Err(error) => retries.failed(error).await?,
            }
        }
    }
}
