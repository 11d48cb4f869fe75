//! The typed nodes of all keys.

use std::fmt;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, Stat};

use crate::reads::read_children;
use crate::typed::cache::ModeledCache;
use crate::typed::error::ModelError;
use crate::typed::node::ModeledNode;
use crate::typed::spec::ModelSpec;
use crate::typed::versioned::Versioned;

/// The number of nodes that one request reads.
const READ_AT_ONCE: usize = 64;

/// The nodes of all keys below one path, each with a value of a type: Curator's `ModeledFramework`. The description's
/// path ends with its only parameter, as in `/users/{id}`. For one node without keys use [`ModeledNode::new`].
///
/// With `JsonCodec` of the cargo feature `serde`, Java's `JacksonModelSerializer` reads and writes the same nodes.
///
/// # Differences from Curator
///
/// * A key is an argument of [`at`](Self::at). Curator asks the value for it (`NodeName`).
/// * A read returns the value with its version, so `VersionedModeledFramework` is not needed.
/// * [`ModeledNode::update`] needs a version, and a lost reply is not `BadVersion`.
/// * [`read_all`](Self::read_all) skips a node that vanishes, and reports one that cannot be decoded beside the others.
///   Curator's `childrenAsZNodes` then fails as a whole.
/// * A delete is not continued in the background.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::{ModelSpec, ModeledFramework, RawCodec};
///
/// let users = ModeledFramework::<String>::new(client, ModelSpec::new("/users/{id}", RawCodec)?)?;
/// users.at("ada")?.set(&"Ada Lovelace".to_owned()).await?;
/// users.at(17)?.set(&"Grace Hopper".to_owned()).await?;
/// assert_eq!(users.keys().await?, ["17", "ada"]);
/// for (key, user) in users.read_all().await? {
///     match user {
///         Ok(user) => println!("{key}: {} of version {}", user.value, user.version),
///         Err(error) => eprintln!("{key} is skipped: {error}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct ModeledFramework<T> {
    client: CuratorFramework,
    spec: ModelSpec<T>,
}

impl<T: 'static> ModeledFramework<T> {
    /// Creates an object for the nodes of a description, without a request.
    ///
    /// # Errors
    ///
    /// `ModelError::InvalidArgument`: the last part of the path is not its only parameter.
    pub fn new(client: CuratorFramework, spec: ModelSpec<T>) -> Result<Self, ModelError> {
        match spec.is_directory() {
            true => Ok(Self { client, spec }),
            false => {
                Err(ModelError::invalid("path", format!("the last part of {} is not its only parameter", spec.path())))
            }
        }
    }

    /// Returns the path of the directory: the nodes are its children.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.spec.parent
    }

    /// Returns the node of a key, without a request.
    ///
    /// # Errors
    ///
    /// `ModelError::InvalidKey`: the key is not one name of a node: empty, `.`, `..`, with a slash, or with a character
    /// that ZooKeeper does not allow.
    #[doc(alias = "child")]
    #[doc(alias = "resolved")]
    pub fn at(&self, key: impl fmt::Display) -> Result<ModeledNode<T>, ModelError> {
        ModeledNode::new(self.client.clone(), self.spec.resolved(key)?)
    }

    /// Returns a cache of the nodes, which is to be started: Curator's `cached()`. No request.
    ///
    /// # Errors
    ///
    /// None today. Later versions may refuse options that have no cache.
    pub fn cached(&self) -> Result<ModeledCache<T>, ModelError>
    where
        T: Send + Sync,
    {
        ModeledCache::new(self)
    }

    pub(super) const fn client(&self) -> &CuratorFramework {
        &self.client
    }

    pub(super) const fn spec(&self) -> &ModelSpec<T> {
        &self.spec
    }

    /// Returns a clone that does not keep the client.
    pub(super) fn weak_clone(&self) -> Self {
        Self { client: self.client.weak_clone(), spec: self.spec.clone() }
    }

    /// Returns the names of all nodes, sorted. A path that does not exist has none. One request.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`, `Error::ReplyTooLarge`, `Error::SchemaViolation`: the path cannot be listed.
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "children")]
    pub async fn keys(&self) -> Result<Vec<String>, ModelError> {
        let mut keys = match self.client.get_children().for_path(self.path()).await {
            Err(Error::NoNode { .. }) => Vec::new(),
            listed => listed?,
        };
        keys.sort_unstable();
        Ok(keys)
    }

    /// Reads all nodes, and returns them sorted by their keys. A node that vanishes after the listing is left out.
    ///
    /// A node that cannot be read or decoded has its error in its place: `Error::NoAuth`, `Error::Compression`,
    /// `Error::ReplyTooLarge`, `ModelError::Decode`. The reads are not one moment: another client may write between
    /// two of them.
    ///
    /// It costs one listing, and one request for 64 nodes. A client or a server without `multiRead` makes one request
    /// for each node, 64 at once. So does a reply of 64 nodes above the client's limit.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`, `Error::ReplyTooLarge`, `Error::SchemaViolation`: the path cannot be listed.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "childrenAsZNodes")]
    #[doc(alias = "list")]
    pub async fn read_all(&self) -> Result<Vec<(String, Result<Versioned<T>, ModelError>)>, ModelError> {
        let keys = self.keys().await?;
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let read = read_children(&self.client, self.path(), &names, READ_AT_ONCE).await?;
        let decode = |key: &str, read: Result<(Vec<u8>, Stat), Error>| {
            let (stored, stat) = read?;
            self.at(key)?.decode_stored(stored, stat)
        };
        Ok(read.into_iter().map(|(key, read)| (key.to_owned(), decode(key, read))).collect())
    }
}

impl<T> Clone for ModeledFramework<T> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), spec: self.spec.clone() }
    }
}

impl<T> fmt::Debug for ModeledFramework<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModeledFramework").field("spec", &self.spec).finish_non_exhaustive()
    }
}
