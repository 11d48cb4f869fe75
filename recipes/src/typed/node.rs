//! One typed node.

use std::fmt;

use curator_framework::recipe::{NodeSpec, Parents, RecipeClient as _};
use curator_framework::{CuratorFramework, CuratorOp, Error, Stat};

use crate::codec::CodecError;
use crate::typed::error::ModelError;
use crate::typed::spec::ModelSpec;
use crate::typed::versioned::Versioned;
use crate::typed::write::Write;

/// The version that ZooKeeper takes for any version.
const ANY_VERSION: i32 = -1;

/// A node with the values of a type. [`ModeledFramework::at`](crate::ModeledFramework::at) returns one of a key. A
/// clone is the same node.
///
/// # Lost replies
///
/// A write is repeated after a lost reply, as the client's retry policy allows. A repeat that finds the effect of the
/// earlier try is a success: the data of this call, with the version that the try would have set. If another client has
/// changed the node in between, the outcome stays unknown, and [`outcome_unknown`](ModelError::outcome_unknown) is
/// true.
///
/// The data is the only proof. If another client writes **the same bytes over the same version** at the moment of a
/// lost reply, both calls succeed. Where that matters, as for a count, put the name of the writer into the value, or
/// use a [`DistributedAtomicLong`](crate::DistributedAtomicLong).
///
/// # Transactions
///
/// [`create_op`](Self::create_op), [`update_op`](Self::update_op), [`delete_op`](Self::delete_op) and
/// [`check_op`](Self::check_op) return operations for [`transaction`](CuratorFramework::transaction). They make no
/// request. The client `zookeeper-async` has no transactions.
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
/// use curator_recipes::{ModelSpec, ModeledNode, RawCodec};
///
/// let motto = ModeledNode::<String>::new(client.clone(), ModelSpec::new("/office/motto", RawCodec)?)?;
/// motto.create(&"one at a time".to_owned()).await?;
/// let read = motto.read().await?;
/// motto.update(read.version, &format!("{}, please", read.value)).await?;
/// let changed = motto
///     .modify(|text| {
///         text.push('!');
///         if text.len() > 100 { Err("it is too long".into()) } else { Ok(()) }
///     })
///     .await?;
/// assert_eq!(changed.value, "one at a time, please!");
/// client.transaction().operation(motto.delete_op(changed.version)).commit().await?;
/// assert_eq!(motto.read_opt().await?, None);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "VersionedModeledFramework")]
pub struct ModeledNode<T> {
    client: CuratorFramework,
    spec: ModelSpec<T>,
}

impl<T: 'static> ModeledNode<T> {
    /// Creates an object for the node at the path of a description, without a request.
    ///
    /// # Errors
    ///
    /// `ModelError::InvalidArgument`: a parameter is left in the path.
    pub fn new(client: CuratorFramework, spec: ModelSpec<T>) -> Result<Self, ModelError> {
        match spec.is_resolved() {
            true => Ok(Self { client, spec }),
            false => Err(ModelError::invalid("path", format!("{} has a parameter without a key", spec.path()))),
        }
    }

    /// Returns the node's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.spec.parent
    }

    /// Creates the node, and returns its stat. Missing parents are created, unless the options say otherwise.
    ///
    /// It costs one request if the parent exists.
    ///
    /// # Errors
    ///
    /// * `Error::NodeExists`: the node exists, and no reply to this call was lost.
    /// * `ModelError::Encode`: the codec refuses the value. Nothing was sent.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or another node is there after a
    ///   lost reply. If [`outcome_unknown`](ModelError::outcome_unknown), the node may be created.
    /// * `Error::NoNode`: the parent does not exist, and the options do not create it.
    /// * `Error::NoAuth`, `Error::InvalidAcl`, `Error::NoChildrenForEphemerals`, `Error::TooManyEphemeralNodes`,
    ///   `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the node cannot be created.
    /// * `Error::Unsupported`: the client or the server has no containers or times to live. `Error::InvalidConfig`: a
    ///   time to live that no server accepts.
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may be created.
    pub async fn create(&self, value: &T) -> Result<Stat, ModelError> {
        let stored = self.client.to_stored(self.path(), self.encode(value)?, self.spec.options.compress)?;
        let parents = match self.spec.options.parents {
            Parents::Containers => self.client.lock_parents(),
            parents => parents,
        };
        let node = NodeSpec::new(&stored).with_parents(parents);
        let node = self.spec.options.acl.as_deref().map_or(node, |acl| node.with_acl(acl));
        self.apply(&Write::Create { mode: self.spec.options.mode, node, data: &stored }).await
    }

    /// Creates the node, or writes the value over any other, and returns the stat: Java's `set`. A node that
    /// exists keeps its mode and its access control list.
    ///
    /// After a lost reply the value is written again, even if another client has written another value in between.
    ///
    /// It costs one request if the node exists, otherwise two if the parent exists.
    ///
    /// # Errors
    ///
    /// * `ModelError::Encode`: the codec refuses the value. Nothing was sent.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. If
    ///   [`outcome_unknown`](ModelError::outcome_unknown), the value may be written.
    /// * `Error::NoNode`: the parent does not exist, and the options do not create it.
    /// * `Error::NoAuth`, `Error::InvalidAcl`, `Error::NoChildrenForEphemerals`, `Error::TooManyEphemeralNodes`,
    ///   `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the node cannot be written or
    ///   created.
    /// * `Error::Unsupported`: the client or the server has no containers or times to live. `Error::InvalidConfig`: a
    ///   time to live that no server accepts.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the value may be written.
    pub async fn set(&self, value: &T) -> Result<Stat, ModelError> {
        let (data, options) = (self.encode(value)?, &*self.spec.options);
        let change = match options.compress {
            None => self.client.set_data(),
            Some(true) => self.client.set_data().compressed(),
            Some(false) => self.client.set_data().uncompressed(),
        };
        match change.for_path(self.path(), data.clone()).await {
            Err(Error::NoNode { .. }) => {}
            set => return Ok(set?),
        }
        let mut create = self.client.create().with_mode(options.mode).with_data(data).or_set_data();
        if options.parents != Parents::Expected {
            create = create.creating_parent_containers_if_needed();
        }
        if let Some(acl) = &options.acl {
            create = create.with_acl(acl.clone());
        }
        create = match options.compress {
            None => create,
            Some(true) => create.compressed(),
            Some(false) => create.uncompressed(),
        };
        Ok(create.for_path_with_stat(self.path()).await?.1)
    }

    /// Reads the value. One request.
    ///
    /// # Errors
    ///
    /// * `Error::NoNode`: the node does not exist. [`read_opt`](Self::read_opt) returns `None` then.
    /// * `ModelError::Decode`: the codec refuses the data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::ReplyTooLarge`, `Error::SchemaViolation`.
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn read(&self) -> Result<Versioned<T>, ModelError> {
        let read = match self.spec.options.compress {
            None => self.client.get_data(),
            Some(true) => self.client.get_data().decompressed(),
            Some(false) => self.client.get_data().undecompressed(),
        };
        let (data, stat) = read.for_path(self.path()).await?;
        self.decode(&data, stat)
    }

    /// Reads the value, or returns `None` if the node does not exist. One request.
    ///
    /// # Errors
    ///
    /// * `ModelError::Decode`: the codec refuses the data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::ReplyTooLarge`, `Error::SchemaViolation`: the node cannot be
    ///   read.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn read_opt(&self) -> Result<Option<Versioned<T>>, ModelError> {
        match self.read().await {
            Err(ModelError::Framework(Error::NoNode { .. })) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Writes the value if the node has this version, and returns the new stat. One request.
    ///
    /// # Errors
    ///
    /// * `Error::BadVersion`: another client has written. Nothing was changed.
    /// * `Error::NoNode`: the node does not exist.
    /// * `ModelError::InvalidArgument`: version −1, which ZooKeeper takes for any version. [`set`](Self::set) writes
    ///   at any version.
    /// * `ModelError::Encode`: the codec refuses the value. Nothing was sent.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or another value is there after a
    ///   [lost reply](Self#lost-replies). If [`outcome_unknown`](ModelError::outcome_unknown), the value may have been
    ///   written.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`.
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the value may be written.
    pub async fn update(&self, version: i32, value: &T) -> Result<Stat, ModelError> {
        check_version(version)?;
        let data = self.encode(value)?;
        self.client.check_change(self.path(), &data)?;
        let data = self.client.to_stored(self.path(), data, self.spec.options.compress)?;
        self.apply(&Write::Change { version, data }).await
    }

    /// Reads the value, lets the closure change it, and writes it if no other client has written in between. Otherwise
    /// it starts again with the newer value. Returns the value as it was written.
    ///
    /// The closure is called once for each try. An error of the closure ends the call, and nothing is changed. After a
    /// [lost reply](Self#lost-replies) of unknown outcome it is not called again, so no change is made twice.
    ///
    /// It costs one read and one write for each try. A write is refused only if another one has succeeded, so the
    /// number of tries has no limit. For a number that many processes change use a
    /// [`DistributedAtomicLong`](crate::DistributedAtomicLong), which needs fewer requests then.
    ///
    /// # Errors
    ///
    /// * `ModelError::Refused`: the closure returned an error.
    /// * `Error::NoNode`: the node does not exist.
    /// * `ModelError::Decode`: the codec refuses the data. `ModelError::Encode`: it refuses the changed value.
    /// * `ModelError::InvalidArgument`: the node has version −1, as once in 2^32 changes. [`set`](Self::set) writes at
    ///   any version.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or another value is there after a
    ///   [lost reply](Self#lost-replies). If [`outcome_unknown`](ModelError::outcome_unknown), the value may have been
    ///   written.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::ReplyTooLarge`, `Error::RequestTooLarge`,
    ///   `Error::SchemaViolation`: the node cannot be read or written.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the value may be written.
    pub async fn modify(
        &self,
        mut change: impl FnMut(&mut T) -> Result<(), CodecError> + Send,
    ) -> Result<Versioned<T>, ModelError> {
        loop {
            let Versioned { mut value, version, .. } = self.read().await?;
            change(&mut value).map_err(|cause| ModelError::refused(self.client.path_text(self.path()), cause))?;
            match self.update(version, &value).await {
                Err(ModelError::Framework(Error::BadVersion { .. })) => {}
                updated => return updated.map(|stat| Versioned::new(value, stat)),
            }
        }
    }

    /// Deletes the node at any version. After a lost reply it is deleted again, even if another client has
    /// created it again in between. One request.
    ///
    /// # Errors
    ///
    /// * `Error::NoNode`: the node does not exist. If a reply to this call was lost, a missing node is a success.
    /// * `Error::NotEmpty`: it has children.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. If
    ///   [`outcome_unknown`](ModelError::outcome_unknown), the node may be deleted.
    /// * `Error::NoAuth`, `Error::SchemaViolation`; `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may be deleted.
    pub async fn delete(&self) -> Result<(), ModelError> {
        self.delete_if(None).await
    }

    /// Deletes the node if it has this version. One request.
    ///
    /// # Errors
    ///
    /// * `Error::BadVersion`: another client has written. Nothing was changed.
    /// * `ModelError::InvalidArgument`: version −1, which ZooKeeper takes for any version.
    /// * `Error::NoNode`: the node does not exist. If a reply to this call was lost, a missing node is a success.
    /// * `Error::NotEmpty`: it has children.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. If
    ///   [`outcome_unknown`](ModelError::outcome_unknown), the node may be deleted.
    /// * `Error::NoAuth`, `Error::SchemaViolation`: the ACL of the parent, or a rule of the client's schemas, forbids
    ///   the delete.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may be deleted.
    pub async fn delete_version(&self, version: i32) -> Result<(), ModelError> {
        check_version(version)?;
        self.delete_if(Some(version)).await
    }

    async fn delete_if(&self, version: Option<i32>) -> Result<(), ModelError> {
        self.client.check_delete(self.path())?;
        self.apply(&Write::Delete { version }).await.map(|_| ())
    }

    /// Returns the stat of the node, or `None` if it does not exist. One request. The data is not decoded.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`, `Error::SchemaViolation`; `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "checkExists")]
    pub async fn exists(&self) -> Result<Option<Stat>, ModelError> {
        Ok(self.client.check_exists().for_path(self.path()).await?)
    }

    /// Returns the operation that creates the node, with the mode, access control list and compression of its
    /// description. The parent must exist.
    ///
    /// # Errors
    ///
    /// `ModelError::Encode`: the codec refuses the value.
    pub fn create_op(&self, value: &T) -> Result<CuratorOp, ModelError> {
        let create = CuratorOp::create(self.path()).with_mode(self.spec.options.mode).with_data(self.encode(value)?);
        Ok(self.stored_op(match &self.spec.options.acl {
            Some(acl) => create.with_acl(acl.clone()),
            None => create,
        }))
    }

    /// Returns the operation that writes the value if the node has this version. −1 is any version.
    ///
    /// # Errors
    ///
    /// `ModelError::Encode`: the codec refuses the value.
    pub fn update_op(&self, version: i32, value: &T) -> Result<CuratorOp, ModelError> {
        Ok(self.stored_op(CuratorOp::set_data(self.path(), self.encode(value)?).with_version(version)))
    }

    /// Returns the operation that deletes the node if it has this version. −1 is any version.
    pub fn delete_op(&self, version: i32) -> CuratorOp {
        CuratorOp::delete(self.path()).with_version(version)
    }

    /// Returns the operation that changes nothing, and fails unless the node has this version. −1 is any version.
    #[doc(alias = "checkExistsOp")]
    pub fn check_op(&self, version: i32) -> CuratorOp {
        CuratorOp::check(self.path()).with_version(version)
    }

    fn stored_op(&self, op: CuratorOp) -> CuratorOp {
        match self.spec.options.compress {
            None => op,
            Some(true) => op.compressed(),
            Some(false) => op.uncompressed(),
        }
    }

    async fn apply(&self, write: &Write<'_>) -> Result<Stat, ModelError> {
        Ok(write.apply(&self.client, self.path()).await?)
    }

    fn encode(&self, value: &T) -> Result<Vec<u8>, ModelError> {
        self.spec.codec.encode(value).map_err(|cause| ModelError::encode(self.client.path_text(self.path()), cause))
    }

    /// Decodes data that is not compressed any more.
    fn decode(&self, data: &[u8], stat: Stat) -> Result<Versioned<T>, ModelError> {
        match self.spec.codec.decode(data) {
            Ok(value) => Ok(Versioned::new(value, stat)),
            Err(cause) => Err(ModelError::decode(self.client.path_text(self.path()), cause)),
        }
    }

    /// Decodes data as the node has it.
    pub(super) fn decode_stored(&self, stored: Vec<u8>, stat: Stat) -> Result<Versioned<T>, ModelError> {
        let data = self.client.from_stored(self.path(), stored, self.spec.options.compress)?;
        self.decode(&data, stat)
    }
}

/// Refuses the version that ZooKeeper takes for any version.
fn check_version(version: i32) -> Result<(), ModelError> {
    match version {
        ANY_VERSION => Err(ModelError::invalid("version", "-1 is any version")),
        _ => Ok(()),
    }
}

impl<T> Clone for ModeledNode<T> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), spec: self.spec.clone() }
    }
}

impl<T> fmt::Debug for ModeledNode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModeledNode").field("spec", &self.spec).finish_non_exhaustive()
    }
}
