//! Migrations: changes of nodes that are made once, in order.
//!
//! | file | contents |
//! | --- | --- |
//! | [`digest`] | how an applied migration is recognised |
//! | [`error`] | the errors |

mod digest;
pub(crate) mod error;

use std::fmt;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CreateMode, CuratorFramework, CuratorOp, Error, make_path, validate_path};

use crate::engine::error::LockError;
use crate::locks::{InterProcessSemaphoreMutex, SemaphoreMutexGuard};
use crate::migrations::digest::{Hash, digest};
use crate::migrations::error::MigrationError;
use crate::reads::read_children;

/// The start of the names of the nodes that record applied migrations. The server appends a number.
const RECORD: &str = "meta-";
/// The number of records that one request reads.
const READ_AT_ONCE: usize = 64;

/// Operations that are applied together, once: Curator's `Migration`.
#[derive(Debug, Clone)]
pub struct Migration {
    operations: Vec<CuratorOp>,
}

impl Migration {
    /// Returns a migration of these operations.
    ///
    /// Give each create its data. Without data it has the client's default, in Java and here the host's address: the
    /// same migration on another host counts as a changed one.
    ///
    /// Compressed data counts as it is sent: another version of the compression may make it a changed migration. Give such
    /// operations [`uncompressed`](CuratorOp::uncompressed) data, and let all programs of a set compress records alike.
    pub fn new(operations: impl IntoIterator<Item = CuratorOp>) -> Self {
        Self { operations: operations.into_iter().collect() }
    }

    /// Returns the operations.
    pub fn operations(&self) -> &[CuratorOp] {
        &self.operations
    }
}

/// Migrations in their order: Curator's `MigrationSet`.
///
/// A program that needs another change adds a migration at the end. The earlier ones stay as they were.
#[derive(Debug, Clone)]
pub struct MigrationSet {
    id: String,
    migrations: Vec<Migration>,
}

impl MigrationSet {
    /// Returns a set of these migrations. The id is a part of the paths of the set's lock and records. It may have
    /// slashes.
    #[doc(alias = "build")]
    pub fn new(id: impl Into<String>, migrations: impl IntoIterator<Item = Migration>) -> Self {
        Self { id: id.into(), migrations: migrations.into_iter().collect() }
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the migrations.
    #[must_use]
    pub fn migrations(&self) -> &[Migration] {
        &self.migrations
    }
}

/// Applies the migrations of a set that were not applied before: Curator's `MigrationManager`.
///
/// All of them are one transaction, with the records of having been applied: either all are applied, or none. A lock of
/// the set lets one process at a time apply them, and the transaction requires that the lock is held. So each program can
/// call [`migrate`](Self::migrate) at its start.
///
/// An applied migration is recognised by a digest of its operations: paths, data, access control lists, modes and
/// versions, as they were sent. Java's `MigrationManager` computes the same digest, and both can use one set.
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
/// use curator_framework::CuratorOp;
/// use curator_recipes::{Migration, MigrationManager, MigrationSet};
///
/// let manager = MigrationManager::new(client.clone(), "/migrations/locks", "/migrations/applied")?;
/// let first = || {
///     let shop = CuratorOp::create("/shop").with_data("");
///     Migration::new([shop, CuratorOp::create("/shop/currency").with_data("DM")])
/// };
/// assert_eq!(manager.migrate(&MigrationSet::new("shop", [first()])).await?, 1);
///
/// // A later version of the program.
/// let second = Migration::new([CuratorOp::set_data("/shop/currency", "EUR")]);
/// let set = MigrationSet::new("shop", [first(), second]);
/// assert_eq!(manager.migrate(&set).await?, 1);
/// assert_eq!(manager.migrate(&set).await?, 0);
/// assert_eq!(client.get_data().for_path("/shop/currency").await?.0, b"EUR");
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * After a lost reply the records show whether the transaction was applied. Curator fails.
/// * The transaction requires that the lock is held. Curator's may be applied by a process that has lost it.
/// * The errors name the changed migration, and tell it from a program that is older than the records.
/// * `filter` is missing: other rules than a digest for each migration need a program of their own.
///
/// # ZooKeeper layout
///
/// | node | kind | data |
/// | --- | --- | --- |
/// | `<lock path>/<set>` | container | an [`InterProcessSemaphoreMutex`] |
/// | `<metadata path>/<set>` | container | |
/// | `<metadata path>/<set>/meta-<number>` | persistent, sequential | the digest of an applied migration, 32 bytes |
///
/// # Cost
///
/// The requests of an [`InterProcessSemaphoreMutex`], one listing, and one read for 64 records. One transaction if a
/// migration is to be applied.
#[derive(Clone)]
#[doc(alias = "MigrationException")]
pub struct MigrationManager {
    client: CuratorFramework,
    lock_path: String,
    metadata_path: String,
}

impl MigrationManager {
    /// Creates a manager. Each set has its lock below `lock_path`, and its records below `metadata_path`. No request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow one of the paths.
    pub fn new(
        client: CuratorFramework,
        lock_path: impl Into<String>,
        metadata_path: impl Into<String>,
    ) -> Result<Self, MigrationError> {
        let (lock_path, metadata_path) = (lock_path.into(), metadata_path.into());
        validate_path(&lock_path)?;
        validate_path(&metadata_path)?;
        Ok(Self { client, lock_path, metadata_path })
    }

    /// Applies the migrations of the set that were not applied before. Returns their number. Waits for the lock of the set
    /// without a limit.
    ///
    /// # Errors
    ///
    /// * `MigrationError::Changed`, `MigrationError::Older`: the set does not continue the applied one.
    /// * `Error::Transaction`: the first operation that failed, with the reason. Nothing was changed. The index counts
    ///   the operations of all migrations that were to be applied, in order, with one more after each migration: the
    ///   write of its record.
    /// * `MigrationError::Lock`: the lock cannot be acquired, or was lost.
    /// * `Error::InvalidPath`: a path of an operation, or the id of the set, is not allowed in a path.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`: a request cannot be
    ///   sent, or is refused.
    /// * `Error::Unsupported`: the client `zookeeper-async` has no transactions. Nothing was sent.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. See
    ///   [`outcome_unknown`](MigrationError::outcome_unknown).
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the migrations may be applied: all, or none. The lock is released in the background.
    pub async fn migrate(&self, set: &MigrationSet) -> Result<usize, MigrationError> {
        let guard = self.lock(set)?.acquire().await?;
        self.migrate_in(&guard, set).await
    }

    /// Applies the migrations like [`migrate`](Self::migrate), and waits for the lock for at most `budget`: Curator's
    /// `lockMax`. Returns `Ok(None)` if another process has the lock at the end of the budget.
    ///
    /// # Errors
    ///
    /// * `MigrationError::Changed`, `MigrationError::Older`: the set does not continue the applied one.
    /// * `Error::Transaction`: the first operation that failed, with the reason. Nothing was changed. The index counts
    ///   the operations of all migrations that were to be applied, in order, with one more after each migration: the
    ///   write of its record.
    /// * `MigrationError::Lock`: the lock cannot be acquired, or was lost.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. See
    ///   [`outcome_unknown`](MigrationError::outcome_unknown).
    /// * `Error::InvalidPath`: a path of an operation, or the id of the set, is not allowed in a path.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`: a request cannot be
    ///   sent, or is refused.
    /// * `Error::Unsupported`: the client `zookeeper-async` has no transactions. Nothing was sent.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the migrations may be applied: all, or none. The lock is released in the background.
    pub async fn migrate_timeout(&self, set: &MigrationSet, budget: Duration) -> Result<Option<usize>, MigrationError> {
        match self.lock(set)?.acquire_timeout(budget).await? {
            Some(guard) => self.migrate_in(&guard, set).await.map(Some),
            None => Ok(None),
        }
    }

    fn lock(&self, set: &MigrationSet) -> Result<InterProcessSemaphoreMutex, MigrationError> {
        // Not with `make_path`, which leaves out an empty name.
        let path = format!("{}/{}", self.lock_path.trim_end_matches('/'), set.id);
        validate_path(&path)?;
        self.client.check_transactions(&format!("migrate the set {}", set.id))?;
        Ok(InterProcessSemaphoreMutex::new(self.client.clone(), path)?)
    }

    async fn migrate_in(&self, guard: &SemaphoreMutexGuard, set: &MigrationSet) -> Result<usize, MigrationError> {
        let applied = self.apply(guard, set).await;
        // What was applied is applied, even if the lock is released in the background.
        drop(guard.release().await);
        applied
    }

    async fn apply(&self, guard: &SemaphoreMutexGuard, set: &MigrationSet) -> Result<usize, MigrationError> {
        let metadata = make_path(&self.metadata_path, &set.id);
        let (hashes, mut retries) = (self.hashes(set).await?, self.client.retry_loop());
        let applied_before = check(set, &hashes, &self.records(&metadata).await?)?;
        let left = set.migrations.len() - applied_before;
        if left == 0 {
            return Ok(0);
        }
        self.client.create_containers(&metadata).await?;
        loop {
            let mut transaction = guard.transaction();
            for (migration, hash) in set.migrations.iter().zip(&hashes).skip(applied_before) {
                let record = CuratorOp::create(make_path(&metadata, RECORD)).with_data(hash.to_vec());
                let record = record.with_mode(CreateMode::PersistentSequential);
                transaction = transaction.operations(migration.operations.iter().cloned()).operation(record);
            }
            match transaction.commit().await {
                Ok(_) => return Ok(left),
                // No other program applies migrations while the lock is held, so the records tell.
                Err(LockError::Framework(error)) if error.outcome_unknown() => {
                    retries.failed(error).await?;
                    // The next server may lag, or the transaction may be on its way.
                    loop {
                        let session = retries.connected(&metadata).await?;
                        if retries.done(session.write_barrier().await, &metadata).await?.is_some() {
                            break;
                        }
                    }
                }
                Err(LockError::Framework(error)) => return Err(error.into()),
                Err(error) => return Err(error.into()),
            }
            if check(set, &hashes, &self.records(&metadata).await?)? == set.migrations.len() {
                return Ok(left);
            }
        }
    }

    /// Returns the digest of each migration.
    async fn hashes(&self, set: &MigrationSet) -> Result<Vec<Hash>, MigrationError> {
        let session = self.client.session().await?;
        let hash = |migration: &Migration| {
            let transaction = self.client.transaction().operations(migration.operations.iter().cloned());
            let operations = self.client.operations_of(&transaction, &session)?;
            Ok(digest(self.client.namespace(), &operations))
        };
        set.migrations.iter().map(hash).collect()
    }

    /// Returns the digests of the applied migrations, in order.
    async fn records(&self, metadata: &str) -> Result<Vec<Vec<u8>>, MigrationError> {
        let mut names = match self.client.get_children().for_path(metadata).await {
            Err(Error::NoNode { .. }) => Vec::new(),
            listed => listed?,
        };
        // The nodes of a set with a longer id, or of the lock, may be beside the records.
        names.retain(|name| is_record(name));
        names.sort_unstable();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let read = read_children(&self.client, metadata, &names, READ_AT_ONCE).await?;
        let plain = |(name, read): (&str, Result<(Vec<u8>, _), Error>)| {
            Ok(self.client.from_stored(&make_path(metadata, name), read?.0, None)?)
        };
        read.into_iter().map(plain).collect()
    }
}

fn is_record(name: &str) -> bool {
    name.strip_prefix(RECORD)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Returns the number of applied migrations, which must be the first ones of the set.
fn check(set: &MigrationSet, hashes: &[Hash], records: &[Vec<u8>]) -> Result<usize, MigrationError> {
    let (applied, known, id) = (records.len(), hashes.len(), set.id.clone());
    match records.iter().zip(hashes).position(|(record, hash)| record != hash) {
        Some(index) => Err(MigrationError::Changed { set: id, number: index + 1 }),
        None if applied > known => Err(MigrationError::Older { set: id, applied, known }),
        None => Ok(applied),
    }
}

impl fmt::Debug for MigrationManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MigrationManager")
            .field("lock_path", &self.lock_path)
            .field("metadata_path", &self.metadata_path)
            .finish_non_exhaustive()
    }
}
