//! Apache Curator's recipes for async Rust: locks, leader election, groups, caches, counters, barriers and queues
//! between processes through ZooKeeper. Paths and nodes are the same as in Java's Curator.
//!
//! Each guard reports its loss, carries a fencing token, and has its node deleted when it is released or dropped. Each
//! term of a leader has a number that serves as a fencing token. In a silent network a loss is reported before the next
//! grant or term starts; [other causes](crate::InterProcessMutex#losing-the-lock) are noticed later. So
//! [bind the guard](#bind-the-guard): `if let Some(guard) = mutex.acquire_timeout(…).await?` holds the lock in its
//! block. With `.is_some()` the lock is released before the block starts.
//!
//! ```toml
//! [dependencies]
//! curator-framework = { path = "../curator/framework" }
//! curator-recipes = { path = "../curator/recipes" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! The recipes need a tokio runtime with timers and I/O, as `#[tokio::main]` starts it. The paths lead to a copy of
//! the repository. The cargo features `zookeeper-async` and `signal`, on by default, `metrics` and `schema` switch on
//! the same feature of [`curator-framework`](curator_framework#which-client). The feature `serde` adds [`JsonCodec`],
//! and `migrations` the migrations. The other features are set there.
//!
//! | recipe | for |
//! | --- | --- |
//! | [`InterProcessMutex`] | one at a time, reentrant for an explicit [`LockOwner`] |
//! | [`InterProcessSemaphoreV2`] | at most N at a time |
//! | [`InterProcessReadWriteLock`] | many readers or one writer |
//! | [`InterProcessMultiLock`] | several locks, all or none |
//! | [`InterProcessSemaphoreMutex`] | one at a time, never reentrant |
//! | [`LeaderLatch`] | one leader of several processes, until it resigns or is closed |
//! | [`LeaderSelector`] | work that runs only while its process leads |
//! | [`LeaderObserver`] | the leader, its term and its data, followed by any process |
//! | [`PersistentNode`] | a registration: a node that exists as long as its process lives |
//! | [`GroupMember`], [`Group`] | the members of a group with their data, followed by any process |
//! | [`Partition`] | a set of work items, divided among the members of a group |
//! | [`CuratorCache`] | a local copy of a node or a subtree, which reports each change and how fresh it is |
//! | [`NodeCache`], [`PathChildrenCache`], [`TreeCache`] | the same with the events of Curator's older caches, for programs that migrate |
//! | [`PersistentTtlNode`] | a node that exists while a process writes its child, and for a time to live after that |
//! | [`DistributedAtomicLong`], [`DistributedAtomicInteger`], [`DistributedAtomicValue`] | a number, or a few bytes, that all processes change, each change once |
//! | [`CachedAtomicLong`], [`CachedAtomicInteger`] | numbers of a counter, several at a time |
//! | [`UniqueIds`] | numbers that are unique over all processes, and rise |
//! | [`SharedCount`], [`SharedValue`] | a number, or a few bytes, that all processes see and may change |
//! | [`ModeledFramework`], [`ModeledNode`] | nodes with the values of a type |
//! | [`ModeledCache`] | a local copy of such nodes, which reports each change and how fresh it is |
#![cfg_attr(feature = "migrations", doc = "| [`MigrationManager`] | changes of nodes that are made once, in order |")]
//! | [`DistributedBarrier`] | a barrier that any process sets and removes |
//! | [`DistributedDoubleBarrier`] | processes that start together and end together, in rounds |
//! | [`CountDownLatch`] | a wait until N pieces of work are done |
//! | [`DistributedQueue`], [`DistributedIdQueue`], [`DistributedPriorityQueue`], [`DistributedDelayQueue`] | items that clients put and consumers take, at least once or at most once |
//! | [`SimpleDistributedQueue`] | a queue of bytes, at most once |
//!
//! # Examples
//!
//! ```
//! # use curator_test::TestingServer;
//! # async fn print() {}
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = TestingServer::start()?;
//! # let connect_string = server.connect_string();
//! use std::time::Duration;
//! use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
//! use curator_recipes::InterProcessMutex;
//!
//! let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?;
//! // Such as "zk1:2181,zk2:2181,zk3:2181".
//! let client = CuratorFramework::new_client(connect_string, retry)?;
//! client.start()?;
//! let printer = InterProcessMutex::new(client.clone(), "/locks/printer")?;
//! match printer.acquire_timeout(Duration::from_secs(10)).await? {
//!     Some(guard) => {
//!         guard.protect(print()).await?; // stops when the lock is lost
//!         guard.release().await?.held()?;
//!     }
//!     None => println!("another client prints"),
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Bind the guard
//!
//! The lock is held as long as its guard exists. All of these forms compile, but the wrong ones exclude no other
//! contender:
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = curator_test::TestingServer::start()?;
//! # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
//! # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
//! # client.start()?;
//! # let mutex = curator_recipes::InterProcessMutex::new(client, "/locks/printer")?;
//! # let budget = std::time::Duration::from_secs(10);
//! // Right: the lock is held in the block.
//! if let Some(guard) = mutex.acquire_timeout(budget).await? {
//!     assert!(mutex.is_acquired_in_this_process());
//!     guard.release().await?.held()?;
//! }
//! // Wrong: the guard is dropped before the block begins.
//! if mutex.acquire_timeout(budget).await?.is_some() {
//!     assert!(!mutex.is_acquired_in_this_process());
//! }
//! // Wrong: `_` binds nothing.
//! let _ = mutex.acquire().await?;
//! assert!(!mutex.is_acquired_in_this_process());
//! // Right: the lock is held to the end of the scope.
//! let Some(_guard) = mutex.acquire_timeout(budget).await? else {
//!     return Ok(());
//! };
//! assert!(mutex.is_acquired_in_this_process());
//! # Ok(())
//! # }
//! ```
//!
//! # Handles
//!
//! A clone of a handle costs a few counted references and no request. All clones are one object.
//!
//! | handle | keeps the client open | at the drop of the last clone |
//! | --- | --- | --- |
//! | a lock, a semaphore, a barrier or a [`CountDownLatch`] | yes | nothing: its guards and members stay valid |
//! | [`LockGuard`], [`OwnedBarrier`], which have no clones | until the release | the node is deleted in the background |
//! | [`BarrierMember`], [`LatchParticipant`], which have no clones | yes | the node is deleted in the background |
//! | [`LeaderLatch`], [`LeaderObserver`] | yes | it is closed |
//! | [`LeaderSelector`], [`Partition`] | yes | nothing: a run ends with its future |
//! | [`PersistentNode`] | yes | its node is deleted in the background |
//! | [`PersistentTtlNode`] | yes | its writes end, and the server deletes its nodes |
//! | [`Group`], [`SharedValue`], [`SharedCount`] | yes | it is closed |
//! | [`GroupMember`] | yes | it is closed, and its node is deleted in the background |
//! | [`CuratorCache`], [`ModeledCache`], [`NodeCache`], [`PathChildrenCache`], [`TreeCache`] | yes | it is closed |
//! | a counter or an atomic value | yes | its marker is deleted in the background |
//! | [`ModeledFramework`], [`ModeledNode`] | yes | nothing |
//! | a queue | yes | the markers of its puts are deleted in the background |
//! | [`QueueConsumer`], which has no clones | yes | its claims are given back in the background |
//! | [`Delivery`] with a lock path, which has no clones | until its end | its item is given back in the background |
//! | [`CachedAtomicNumber`], [`UniqueIds`] | yes | nothing; the rest of a block of numbers is lost |
//!
//! [`Leadership`] and [`OwnedItem`] are views. The drop of a view neither ends the term nor gives the item up.
//!
//! The tasks of these objects do not keep the client. If all handles that keep it are dropped, the
//! [session ends](curator_framework::CuratorFramework#the-end-of-a-program).
//!
//! # Pages
//!
//! * [`tutorial`]: from `cargo add` to a throttled service on three servers, in 15 minutes
//! * [`migration`]: from Java's Curator to this crate, class by class, and while both run
//! * [`curator_methods`]: each public method of Java's Curator, with its counterpart here
#![cfg_attr(feature = "serde", doc = "* [`typed_nodes`]: a store of records, in typed nodes and by hand")]
//! * [`choosing`]: the recipe for each need, ZooKeeper beside Redis and databases, the limits of locks and elections
//! * [`batches`]: one node for all tasks of a client that wait for a lock
//! * [`how_it_works`]: acquire, hand-off and loss in pictures, and the life of a cache
//! * [`default_client`](curator_framework::default_client): the ZooKeeper client below, its promises and its limits
//!
//! # Tracing
//!
//! The events go to the subscriber of the program: without one nothing is printed. `tracing_subscriber::fmt::init()`, of the
//! crate `tracing-subscriber`, prints them.
//!
//! The names and fields of the tables with a level in front are stable in a minor version. Fields with names in `_s`
//! are numbers of seconds. `path` and `node` are the caller's, without the namespace.
//!
//! | level | event or span | fields |
//! | --- | --- | --- |
//! | info | span `acquire`: contains the events of the acquire and its requests, but for the requests of a [batch](batches) | `path`, `recipe`, `lock` (the [name](LockOptions::name), otherwise the recipe) |
//! | debug | `lock acquire`: an acquire has ended | `path`, `wait_s`, `outcome` (`granted`, `timeout`, `error`, `cancelled`) |
//! | debug | `lock granted` | `path`, `node`, `fencing_token`, `queue_position` (the number of contenders ahead at first, or 1 if it joined behind another one of its client) |
//! | debug | `lock released` | `path`, `node`, `held_s`, `outcome` (`released`, `lost`, `dropped`) |
//! | warn | `lock lost`: once for each grant, when this process learns of the loss | `path`, `node`, `reason`, `held_s`, `session_id` (ZooKeeper's, in hexadecimal) |
//! | warn | `a lock is held for long` | `path`, `node`, `held_for_more_than_s` |
//! | warn | `a task waits for a lock that it holds` | `path`, `held_at`, `waits_at`, `help` |
//! | warn | `a persistent node with the name of a contender blocks the lock: delete or rename it`: once for each acquire and node | `path`, `node` |
//!
//! A leader holds the lock of its election, so these events report terms too. Elections add:
//!
//! | level | event | fields |
//! | --- | --- | --- |
//! | info | `a term has begun`: of a latch | `path`, `node`, `term` |
//! | info | `a term has ended`: by a loss or a resignation of a latch | `path`, `reason` |
//! | info | `the earlier leader did not resign`: a latch waits out its delay | `path`, `delay_s` |
//! | warn | `a latch cannot join`: an error that waiting cannot fix, such as a missing permission | `path`, `error`, `pause_s` |
//! | debug | `a latch joins later`: an error that may pass, such as a lost connection | `path`, `error`, `pause_s` |
//! | warn | `a term has failed`: the work of a selector returned an error | `path`, `error`, `pause_s` |
//! | warn | `an election cannot be observed` | `path`, `error` |
//! | debug | `the node of a term is deleted in the background` | `path`, `error` |
//! | debug | `the node is deleted without a mark`: the resignation is not recorded | `node`, `error` |
//!
//! An item of a partition is a lock too, and these events report it. The other recipes add:
//!
//! | level | event | fields |
//! | --- | --- | --- |
//! | info | `a node exists`: created, created again, or adopted | `path`, `czxid` |
//! | warn | `the path of a node is taken, so it waits`: until the node of another session is deleted | `path`, `session_id`, unless that node is not ephemeral |
//! | warn | `a node cannot be created`: an error that waiting cannot fix, such as a missing permission | `path`, `error`, `pause_s` |
//! | warn | `a kept node cannot be read`: the state is [stale](NodeState::Refused) | `path`, `error`, `pause_s` |
//! | debug | `a node is created later`: an error that may pass, such as a lost connection | `path`, `error`, `pause_s` |
//! | warn | `a node's data cannot be written` | `path`, `error` |
//! | warn | `a node cannot be deleted, the client tries again` | `path`, `error` |
//! | error | `a cache has ended`: a closure of its options has panicked | `path`, `error` |
//! | warn | `a cache cannot be filled`: its root cannot be listed, or it has too many nodes for its client | `path`, `error`, `pause_s` |
//! | warn | `the root of a cache cannot be created`: a cache of children tries again with pauses | `path`, `error`, `pause_s` |
//! | warn | `a node cannot be cached`: its data or the list of its children is refused, too large, or cannot be decompressed | `path`, `error` |
//! | warn | `a group cannot be read` | `path`, `error`, `pause_s` |
//! | debug | `a member of a barrier has died`: reported to a task that waits for that | `path`, `member` |
//! | debug | `an earlier round of a latch was not deleted`: the next round deletes its nodes | `path`, `error` |
//! | warn | `an item cannot be delivered`: its node is corrupt, foreign or refused; once for each node and consumer | `path`, `error` |
//! | warn | `a delivery is lost`: when a call or the drop of the [delivery](Delivery) finds out, once | `path`, `reason` |
//! | warn | `an item has moved to the dead letters`: rejected, or delivered too often | `path`, `dead_letters`, `attempts` |
//! | debug | `a queue is read later`: an error that may pass, in a run | `path`, `error` |
//! | info | `a partition has settled`: the member wants its items | `path`, `id`, `members`, `is_member`, `items` (a number) |
//! | warn | `the work of an item is dropped at the end of its grace` | `path`, `item`, `grace_s` |
//!
//! These events have no such promise. They say what to do:
//!
//! | event | level | cause, and what to do |
//! | --- | --- | --- |
//! | `protected work has not ended with its term` | warn | work in [`Leadership::protect`] blocks its thread: the next leader may start beside it. Move it to `spawn_blocking`, and check [`Leadership::is_held`] there |
//! | `the sequence numbers are near their end: contenders are ordered by their creation, which Java's Curator does not do` | warn | move to a new path before Java contends at this one |
//! | `an earlier round of a latch has too many counts to delete` | warn | raise [`max_reply`](curator_framework::CuratorFrameworkBuilder::max_reply), or delete the round by hand |
//! | `a shared value cannot be read yet`, `a shared value cannot be read, the last one stays` | warn | the `error` says what is missing, such as a permission |
//! | `a shared value's node is gone, the last one stays` | warn | create the node again, or close the value |
//! | `a shared value cannot be decoded, the last one stays` | warn | the new data is not a value of this type: correct the node |
//! | `an instance is registered with a loopback address: other hosts need one that is set with .address(…)` | warn | of `curator-discovery`: set the address |
//! | `a part of a multi lock was lost, all are acquired again`, `further leases were not taken` | debug | nothing |
//! | `a slot is deleted in the background`, `a lease that was refused is deleted in the background`, `a shared value that has changed cannot be read yet` | debug | nothing |
//!
//! # Metrics
//!
//! With the cargo feature `metrics`, the recipes and the [framework](curator_framework#metrics) report to the program's
//! recorder for the crate [`metrics`](https://docs.rs/metrics/0.24). The names and labels are stable. The label `lock`
//! is the name set by [`LockOptions::name`], [`LeaderLatchOptions::name`] or [`LeaderSelectorOptions::name`],
//! otherwise the recipe: `mutex`, `semaphore`, `semaphore_mutex`, `read_lock`, `write_lock`, `leader_latch`,
//! `leader_selector` or `partition`. The parts of a multi lock are counted one by one.
//!
//! | metric | kind | labels | value |
//! | --- | --- | --- | --- |
//! | `curator_lock_wait_seconds` | histogram | `lock`, `outcome` | duration of an acquire that ended `granted`, `timeout`, `error` or `cancelled` |
//! | `curator_lock_held` | gauge | `lock` | locks, leases and items held now; for an election 1 in the leader's process |
//! | `curator_locks_granted_total` | counter | `lock` | grants, terms, items: a call of `acquire_many(n)` counts n, and one wait |
//! | `curator_locks_lost_total` | counter | `lock`, `reason` | losses: `session_expired`, `session_failed`, `client_closed`, `node_deleted`, `connection_error` |
//! | `curator_lock_timeouts_total` | counter | `lock` | acquires that returned `Ok(None)`: another contender was ahead |
//! | `curator_lock_waiting` | gauge | `lock` | acquires that wait in the process: in a [batch](batches), or [beyond the limit of nodes](LockOptions::max_waiting_nodes) |
//! | `curator_lock_cancellations_total` | counter | `lock` | acquires that were dropped before the grant |
//! | `curator_lock_errors_total` | counter | `lock` | acquires that failed |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

/// The program of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod barriers;
#[doc = include_str!("../docs/batches.md")]
pub mod batches {}
mod caches;
#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}
mod codec;
mod content;
mod counters;
pub mod curator_methods {
    #![doc = include_str!("../docs/curator_methods.md")]
    #![doc(alias = "getZookeeperClient")]
    #[allow(unused_imports, reason = "the links of the page")]
    use {crate::*, curator_framework::*};
}
mod engine;
mod errors;
mod groups;
mod held;
pub mod how_it_works;
mod leader;
mod locks;
mod marker;
#[cfg(feature = "migrations")]
mod migrations;
#[doc = include_str!("../docs/migration.md")]
#[doc(alias = "inBackground")]
#[doc(alias = "BackgroundCallback")]
pub mod migration {}
#[cfg(test)]
mod model;
mod node_hold;
mod nodes;
mod queues;
mod reads;
mod shared;
mod standing;
#[doc = include_str!("../docs/tutorial.md")]
pub mod tutorial {}
mod typed;
#[cfg(feature = "serde")]
pub mod typed_nodes {
    #![doc = include_str!("../docs/typed_nodes.md")]
    #[allow(unused_imports, reason = "the links of the page")]
    use crate::*;
}

pub use barriers::barrier::DistributedBarrier;
pub use barriers::double::{BarrierMember, Departure, DistributedDoubleBarrier, DoubleBarrierOptions};
pub use barriers::error::BarrierError;
pub use barriers::latch::CountDownLatch;
pub use barriers::latch::participant::LatchParticipant;
pub use barriers::owned::OwnedBarrier;
pub use caches::curator_cache::CuratorCache;
pub use caches::error::CacheError;
pub use caches::events::CacheEvent;
pub use caches::legacy::StartMode;
pub use caches::listener::{CuratorCacheListener, CuratorCacheListenerBuilder};
pub use caches::model::{CacheState, ChildData, Lookup};
pub use caches::node_cache::{NodeCache, NodeChanged};
pub use caches::options::CuratorCacheOptions;
pub use caches::path_children_cache::{PathChildrenCache, PathChildrenCacheEvent};
pub use caches::snapshot::CacheSnapshot;
pub use caches::tree_cache::{TreeCache, TreeCacheBuilder, TreeCacheEvent};
#[cfg(feature = "serde")]
pub use codec::JsonCodec;
pub use codec::{Codec, CodecError, RawCodec};
pub use counters::error::CounterError;
pub use counters::{
    AtomicChange, AtomicNumber, AtomicStats, CachedAtomicInteger, CachedAtomicLong, CachedAtomicNumber, Compared,
    CounterOptions, DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicNumber, DistributedAtomicValue,
    PromotedToLock, UniqueIds,
};
pub use curator_framework::{Changes, ListenerId, LossReason};
pub use engine::{
    GuardedTransaction, LockError, LockInternalsDriver, LockOptions, LockOwner, Participant, ParticipantKind,
    Predicate, Release, RevocationListener, RevokeOutcome, Revoker, SemaphoreProtocol, SortedChildren,
    StandardLockInternalsDriver, queue_order, standard_sequence,
};
pub use groups::group::Group;
pub use groups::member::{GroupMember, GroupMemberOptions};
pub use groups::members::{GroupState, Member, MemberChange, Members};
pub use groups::partition::{OwnedItem, Partition, PartitionOptions, Share};
pub use held::{FencingToken, Held, ParseTokenError};
pub use leader::{
    CloseMode, Leader, LeaderError, LeaderLatch, LeaderLatchOptions, LeaderObserver, LeaderSelector,
    LeaderSelectorOptions, LeaderState, Leadership, ObserverState, TermEnd, TermOutcome,
};
pub use locks::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, Lease, LeaseSet, LockGuard, MaxLeases, MultiLockGuard, MutexGuard, MutexOptions,
    MutexQueue, ReadGuard, ReadLock, SemaphoreMutexGuard, SemaphoreOptions, WriteGuard, WriteLock, guard_kinds,
};
#[cfg(feature = "migrations")]
#[cfg_attr(docsrs, doc(cfg(feature = "migrations")))]
pub use migrations::{Migration, MigrationManager, MigrationSet, error::MigrationError};
pub use nodes::error::NodeError;
pub use nodes::options::{ForeignData, PersistentNodeOptions, PersistentTtlNodeOptions};
pub use nodes::persistent_node::PersistentNode;
pub use nodes::state::{NodeState, Owner, StandingNode};
pub use nodes::ttl_node::PersistentTtlNode;
pub use queues::consumer::QueueConsumer;
pub use queues::delivery::Delivery;
pub use queues::error::QueueError;
pub use queues::kinds::{DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue};
pub use queues::options::QueueOptions;
pub use queues::queued::QueuedItem;
pub use queues::simple::SimpleDistributedQueue;
pub use shared::{Shared, SharedCount, SharedError, SharedValue, VersionedValue};
pub use standing::changes::Change;
pub use typed::cache::ModeledCache;
pub use typed::cache::contents::{CachedModel, ModelChange};
pub use typed::directory::ModeledFramework;
pub use typed::error::ModelError;
pub use typed::node::ModeledNode;
pub use typed::options::ModelSpecOptions;
pub use typed::spec::ModelSpec;
pub use typed::versioned::Versioned;
