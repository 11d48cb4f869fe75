//! The methods of a client that only recipes call.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;

use crate::client::CuratorFramework;
#[cfg(doc)]
use crate::client::builder::CuratorFrameworkBuilder;
use crate::ensemble::provider::parse_connect_string;
use crate::environment::randomness::unit_interval;
use crate::error::{Error, PathText, Result};
#[cfg(doc)]
use crate::model::compression::CompressionProvider;
use crate::model::new_node::Parents;
use crate::model::{Acl, CreateMode};
use crate::operations::{CuratorTransaction, CuratorTransactionResult};
use crate::session::Session;
use crate::sync::budget::Budget;
use crate::zookeeper::{DEFAULT_CLIENT, Operation};

/// Extends [`CuratorFramework`] with the methods that only recipes call. Code that calls one imports the trait, under no
/// name: `use curator_framework::recipe::RecipeClient as _`.
pub trait RecipeClient: sealed::Sealed {
    /// Returns a clone that does not keep the client, for a task that outlives its caller. Once every other clone is
    /// dropped, the client is closed, and calls of this clone fail with `Error::Closed`.
    #[must_use]
    fn weak_clone(&self) -> Self;

    /// Returns the `ConnectionLoss` of a request that was sent and not answered in time.
    #[must_use]
    fn no_answer(&self, request: &str) -> Error;

    /// Returns the budget of a recipe's close that starts now:
    /// [`max_close_wait`](CuratorFrameworkBuilder::max_close_wait).
    #[must_use]
    fn close_budget(&self) -> Budget;

    /// Carries out a part of a recipe's close. Returns `None` at the end of the budget, which drops the part. Polls the
    /// part at least once. The client's runtime drives the timer, so the caller may be in another runtime.
    ///
    /// # Cancel safety
    ///
    /// As cancel-safe as the part.
    fn within<F: Future<Output: Send> + Send>(
        &self,
        budget: Budget,
        part: F,
    ) -> impl Future<Output = Option<F::Output>> + Send;

    /// Returns the data of nodes created without data. The default, this host's address, is empty until it is known.
    #[must_use]
    #[doc(alias = "getLocalAddress")]
    fn default_data(&self) -> &[u8];

    /// Returns the text of a path, which is displayed as it is given, and debugged with the client's namespace and
    /// chroot.
    #[must_use]
    fn path_text(&self, path: &str) -> PathText;

    /// Checks new data of a node against the client's `SchemaSet`, for a recipe that writes it in a [`Session`]. The
    /// client's own operations do that themselves.
    ///
    /// # Errors
    ///
    /// `Error::SchemaViolation`: a schema refuses the data.
    fn check_change(&self, path: &str, data: &[u8]) -> Result<()>;

    /// Checks a node that is to be created against the client's `SchemaSet`, for a recipe that creates it in a
    /// [`Session`].
    ///
    /// # Errors
    ///
    /// `Error::SchemaViolation`: a schema refuses the node.
    fn check_create(&self, path: &str, mode: CreateMode, data: &[u8], acl: &[Acl]) -> Result<()>;

    /// Checks a node that is to be deleted against the client's `SchemaSet`, for a recipe that deletes it in a
    /// [`Session`].
    ///
    /// # Errors
    ///
    /// `Error::SchemaViolation`: a schema refuses the deletion.
    fn check_delete(&self, path: &str) -> Result<()>;

    /// Returns a random number in `[0, 1)` of the client's [`Randomness`](crate::Randomness), for a recipe's pauses.
    #[must_use]
    fn random_unit(&self) -> f64;

    /// Returns data as it is written at this path. `compress` overrides the client's default.
    ///
    /// # Errors
    ///
    /// `Error::Compression`: the [`CompressionProvider`] failed.
    fn to_stored(&self, path: &str, data: Vec<u8>, compress: Option<bool>) -> Result<Vec<u8>>;

    /// Returns `true` if data is compressed by default.
    #[must_use]
    fn compresses(&self) -> bool;

    /// Returns data as [`to_stored`](Self::to_stored) writes it by default, without a copy of uncompressed data.
    ///
    /// # Errors
    ///
    /// `Error::Compression`: the [`CompressionProvider`] failed.
    fn to_stored_at<'a>(&self, path: &str, data: &'a [u8]) -> Result<Cow<'a, [u8]>>;

    /// Reverses [`to_stored`](Self::to_stored) for data read at this path. `compressed` overrides the client's default. Empty
    /// data, such as the data of a new parent or container, was never compressed, and stays empty.
    ///
    /// # Errors
    ///
    /// `Error::Compression`: the data is not compressed as it should be.
    #[allow(clippy::wrong_self_convention, reason = "the reverse of `to_stored`")]
    fn from_stored(&self, path: &str, stored: Vec<u8>, compressed: Option<bool>) -> Result<Vec<u8>>;

    /// Makes the changes of a transaction in this session, after the operations in `before`. No retry. The result leaves
    /// `before` out; the index of an error counts them.
    ///
    /// # Errors
    ///
    /// * `Error::Transaction`: the first operation that failed, with the reason (`Error::NoNode`, `Error::NodeExists`,
    ///   `Error::BadVersion` …). Nothing was changed.
    /// * `Error::InvalidPath`, `Error::Compression`, `Error::SchemaViolation`: an operation cannot be sent.
    /// * `Error::Unsupported`: `zookeeper-async` has no transactions.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have so many nodes. Nothing was sent.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing. The changes may have been made if
    ///   [`outcome_unknown`](crate::Error::outcome_unknown) returns true.
    /// * `Error::Closed`: nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the changes may be made.
    fn commit_in(
        &self,
        transaction: &CuratorTransaction<'_>,
        session: &Session,
        before: &[Operation],
    ) -> impl Future<Output = Result<Vec<CuratorTransactionResult>>> + Send;

    /// Returns the operations of a transaction as [`commit_in`](Self::commit_in) sends them, for a recipe that adds
    /// others. A create that [may replace](crate::CuratorOp::or_replace) a node does not.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::Compression`, `Error::SchemaViolation`: an operation cannot be sent.
    fn operations_of(&self, transaction: &CuratorTransaction<'_>, session: &Session) -> Result<Vec<Operation>>;

    /// Checks that the ZooKeeper client has transactions, without a request. `request` names what needs them.
    ///
    /// # Errors
    ///
    /// `Error::Unsupported`: it has none.
    fn check_transactions(&self, request: &str) -> Result<()>;

    /// Returns the runtime of the client's tasks, once the client is started.
    #[must_use]
    fn runtime(&self) -> Option<Handle>;

    /// Returns the client's value of this type, for a recipe's state in it. The first call creates it.
    #[must_use]
    fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T>;

    /// Returns how the parents of a lock's nodes are created.
    #[must_use]
    fn lock_parents(&self) -> Parents;

    /// Returns the servers of the client's connect string, each with its port; empty if the string is not valid. A
    /// simulated server has a name that no resolver knows.
    #[must_use]
    fn servers(&self) -> Vec<String>;

    /// Returns the number of waiters for watches in the current session, for tests that check for leaks.
    #[must_use]
    fn watchers(&self) -> usize;

    /// Returns the paths that are watched in the current session, for tests that check for leaks.
    #[must_use]
    fn watched_paths(&self) -> Vec<String>;
}

impl RecipeClient for CuratorFramework {
    fn weak_clone(&self) -> Self {
        Self { core: self.core.weak_clone(), listeners: Arc::clone(&self.listeners) }
    }

    fn no_answer(&self, request: &str) -> Error {
        self.core.not_answered(request)
    }

    fn close_budget(&self) -> Budget {
        Budget::of(self.core.shared().config.max_close_wait)
    }

    async fn within<F: Future<Output: Send> + Send>(&self, budget: Budget, part: F) -> Option<F::Output> {
        let mut part = std::pin::pin!(part);
        // Most parts need no timer: they are done at once.
        let first = std::future::poll_fn(|cx| Poll::Ready(part.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = first {
            return Some(output);
        }
        let runtime = self.core.shared().runtime.get().cloned().or_else(|| Handle::try_current().ok());
        let over = budget.end().zip(runtime).map(|(end, runtime)| {
            let _entered = runtime.enter();
            tokio::time::sleep_until(end)
        });
        let Some(over) = over else { return Some(part.await) };
        tokio::select! {
            biased;
            output = part => Some(output),
            () = over => None,
        }
    }

    fn default_data(&self) -> &[u8] {
        self.core.default_data()
    }

    fn path_text(&self, path: &str) -> PathText {
        self.core.path_text(path)
    }

    fn check_change(&self, path: &str, data: &[u8]) -> Result<()> {
        self.core.check_schemas(|schemas| schemas.check_change(path, data))
    }

    fn check_create(&self, path: &str, mode: CreateMode, data: &[u8], acl: &[Acl]) -> Result<()> {
        self.core.check_schemas(|schemas| schemas.check_create(path, mode, data, acl))
    }

    fn check_delete(&self, path: &str) -> Result<()> {
        self.core.check_schemas(|schemas| schemas.check_delete(path))
    }

    fn random_unit(&self) -> f64 {
        unit_interval(self.core.randomness())
    }

    fn to_stored(&self, path: &str, data: Vec<u8>, compress: Option<bool>) -> Result<Vec<u8>> {
        self.core.to_stored(path, data, compress)
    }

    fn compresses(&self) -> bool {
        self.core.shared().config.compress
    }

    fn to_stored_at<'a>(&self, path: &str, data: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        match self.core.shared().config.compress {
            true => self.to_stored(path, data.to_vec(), None).map(Cow::Owned),
            false => Ok(Cow::Borrowed(data)),
        }
    }

    fn from_stored(&self, path: &str, stored: Vec<u8>, compressed: Option<bool>) -> Result<Vec<u8>> {
        self.core.read_stored(path, stored, compressed)
    }

    async fn commit_in(
        &self,
        transaction: &CuratorTransaction<'_>,
        session: &Session,
        before: &[Operation],
    ) -> Result<Vec<CuratorTransactionResult>> {
        transaction.commit_in(session, before).await
    }

    fn operations_of(&self, transaction: &CuratorTransaction<'_>, session: &Session) -> Result<Vec<Operation>> {
        transaction.operations_in(session)
    }

    fn check_transactions(&self, request: &str) -> Result<()> {
        let factory = &self.core.shared().config.factory;
        match factory.capabilities().transactions {
            true => Ok(()),
            false => {
                Err(Error::Unsupported { request: request.into(), client: factory.client(), needed: DEFAULT_CLIENT })
            }
        }
    }

    fn runtime(&self) -> Option<Handle> {
        self.core.shared().runtime.get().cloned()
    }

    fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.core.shared().extensions.get()
    }

    fn lock_parents(&self) -> Parents {
        self.core.lock_parents()
    }

    fn servers(&self) -> Vec<String> {
        parse_connect_string(&self.core.shared().config.ensemble.connect_string())
            .map(|ensemble| ensemble.servers)
            .unwrap_or_default()
    }

    fn watchers(&self) -> usize {
        self.core.shared().session.get().map_or(0, |session| session.watches().len())
    }

    fn watched_paths(&self) -> Vec<String> {
        self.core.shared().session.get().map_or_else(Vec::new, |session| session.watches().paths())
    }
}

mod sealed {
    /// Keeps [`RecipeClient`](super::RecipeClient) to the client of this crate, so that it can grow.
    pub trait Sealed {}

    impl Sealed for crate::client::CuratorFramework {}
}
