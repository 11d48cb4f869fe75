//! The acquire, hand-off and loss of a lock in ZooKeeper, in three pictures, and the life of a [cache](#caches). This
//! module contains only text.
//!
//! # Acquire
//!
//! A lock is a node, and its children form a queue. A contender creates an ephemeral child, which ZooKeeper numbers and
//! deletes with the session. The contender with the smallest number holds the lock.
//!
#![doc = include_str!("../docs/acquire.svg")]
//!
//! The list request is sent before the reply to the create arrives, so an acquire without contention takes one round
//! trip. If the contender's client has other contenders in the queue, the contender sends no list request, and watches
//! the nearest of them.
//!
//! If the reply to the create is lost, the node is found by the random name before its number. If the caller drops the
//! future, the node is deleted in the background.
//!
//! A read lock of an [`InterProcessReadWriteLock`] is granted when no writer is ahead of it. A lease of an
//! [`InterProcessSemaphoreV2`] is granted when fewer than N contenders are ahead.
//!
//! # Hand-off
//!
//! A release wakes two waiters, regardless of the queue length; no waiter polls. The first now holds the lock and sends
//! no request. The second lists the queue in the meantime. So a hand-off is one round trip: the delete and its event.
//!
#![doc = include_str!("../docs/hand_off.svg")]
//!
//! A waiter with two or more contenders ahead watches the node ahead of its predecessor. A waiter behind one
//! of its own session watches the nearest such node, without a listing. Waiters of one session notify each other in
//! memory when they reach the head of the queue. If a waiter in the middle gives up, a waiter behind it is woken. It takes
//! the next node from a listing of its session, or lists, and waits again.
//! A reader watches the last writer ahead of it. The first waiters for a lease watch all children: one, or
//! up to four in a short queue of the direct protocol. Each other waiter watches a node ahead. Its owner writes it once it
//! has a lease.
//!
//! # Loss
//!
//! ZooKeeper deletes the node when its session ends. A session ends when the server has received nothing for the
//! session timeout. The server counts from when a request *arrived*, the holder from when it was *sent*, which is
//! earlier. The holder also stops at three quarters of the timeout. So both clocks must run at the same rate, with up
//! to a quarter of the timeout as the margin. A change of the time of day has no effect.
//!
#![doc = include_str!("../docs/loss.svg")]
//!
//! This is certain while the holder runs: [`LockGuard::is_held`] compares the clock, which runs on while the machine
//! sleeps, and needs no timer that may be late. A holder cannot foresee that the server ends the session or that an
//! administrator deletes the node: an event, a reconnect or the next heartbeat reports it. A process that is paused
//! between its check and its write cannot know either: the [fencing token](crate::choosing#fencing) protects that
//! write.
//!
//! # What is in ZooKeeper
//!
//! ```
//! # use std::time::Duration;
//! # use curator_framework::{CuratorFramework, RetryNTimes};
//! # use curator_test::TestingServer;
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = TestingServer::start()?;
//! # let retry = RetryNTimes::new(3, Duration::from_millis(50));
//! # let client = CuratorFramework::new_client(server.connect_string(), retry)?;
//! # client.start()?;
//! use curator_recipes::InterProcessMutex;
//!
//! let printer = InterProcessMutex::new(client.clone(), "/locks/printer")?;
//! let guard = printer.acquire().await?;
//! assert!(guard.node_name().starts_with("_c_")); // _c_<random>-lock-<number>
//! assert!(guard.node_name().ends_with("-lock-0000000000"));
//! assert_eq!(client.get_children().for_path("/locks/printer").await?, [guard.node_name()]);
//!
//! let (_, stat) = client.get_data().for_path(guard.node_path()).await?;
//! assert_eq!(stat.czxid, guard.token().czxid().get());
//! assert_ne!(stat.ephemeral_owner, 0); // it goes with the session
//!
//! guard.release().await?.held()?;
//! assert_eq!(client.get_children().for_path("/locks/printer").await?, [""; 0]);
//! # client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Caches
//!
//! A [`CuratorCache`] sets one recursive watch, then reads its nodes from the root down. The watch comes first, so a
//! change after a read causes a notification.
//!
//! | event | the cache |
//! | --- | --- |
//! | a node is created or changes | reads it |
//! | a node is deleted | removes it, without a request |
//! | a notification arrives while a read of its node is in flight | repeats the read: its reply may be older |
//! | the connection is lost | keeps its contents |
//! | a reconnect, a new session | sends the cached paths in `setWatches`, with the transaction up to which it knows their changes |
//! | the server notifies of the changes since then | reads these nodes, from the root down |
//!
//! The state names a transaction, the zxid. A reader decides by the state:
//!
//! | [`CacheState`] | contents | for the reader |
//! | --- | --- | --- |
//! | `Loading` | some nodes | [`get`] returns `NotLoaded` for a node that was not read; [`initialized`] waits |
//! | `Fresh { zxid }` | each change up to the zxid, perhaps later ones | a newer write may be on its way; [`synced`] waits for it |
//! | `Stale { since, zxid }` | as at the last fresh moment, or later | use them, or refuse work once `since` is too long ago |
//! | `Failed(error)` | those that are known; none if the root could never be listed | the cache tries again |
//!
//! In an outage all reads of the cache continue, without an error. The state becomes `Stale` when the client notices
//! that the connection is lost. After a reconnect it stays so until the changed nodes are read. Their events then come
//! one by one, but several changes of one node in the outage are one event. A node that was deleted and created again
//! has two. Continuous writes do not make a cache stale: its zxid rises while newer nodes are read.
//!
//! A cache costs the server one watch. After a reconnect the server also keeps the one-shot watches of `setWatches`. Each
//! cached node has one for its data, and one for its list of children unless it is ephemeral. Each watch lasts until it
//! fires or the connection ends, even after the cache's close. With `zookeeper-async`, and with servers before 3.6, a
//! cache always has these watches, so [`max_watched_nodes`] limits it.
//!
//! [`CacheState`]: crate::CacheState
//! [`CuratorCache`]: crate::CuratorCache
//! [`get`]: crate::CuratorCache::get
//! [`initialized`]: crate::CuratorCache::initialized
//! [`max_watched_nodes`]: crate::CuratorCacheOptions::max_watched_nodes
//! [`synced`]: crate::CuratorCache::synced
//! [`InterProcessReadWriteLock`]: crate::InterProcessReadWriteLock
//! [`InterProcessSemaphoreV2`]: crate::InterProcessSemaphoreV2
//! [`LockGuard::is_held`]: crate::LockGuard::is_held
