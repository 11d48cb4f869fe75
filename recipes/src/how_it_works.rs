//! What happens in ZooKeeper when a lock is taken, handed on and lost, in three pictures. (There is nothing in this
//! module but the text.)
//!
//! # Acquire
//!
//! A lock is a node, and its children stand in line. Who wants it creates a child that ZooKeeper numbers and that goes
//! with the session; who has the smallest number holds the lock.
//!
#![doc = include_str!("../docs/acquire.svg")]
//!
//! The list is asked for before the answer to the create has come, so that an acquire without contention is one round
//! trip. If the reply to the create is lost, the node is found again by the random name before its number. If the
//! caller goes away meanwhile, the node is deleted in the background.
//!
//! A reader of an [`InterProcessReadWriteLock`] holds when no writer is ahead of it, a lease of an
//! [`InterProcessSemaphoreV2`] when fewer than N are.
//!
//! # Hand-off
//!
//! Nobody polls, and a release wakes two, however many wait: the next one, who has the lock with that and asks nothing
//! more, and the one behind it, who looks meanwhile who is left. So a hand-off is one round trip: the delete and its
//! event.
//!
#![doc = include_str!("../docs/hand_off.svg")]
//!
//! A waiter with two or more ahead of it watches the one before the one ahead; of waiters in one session each watches the
//! one ahead, and hears from it, without ZooKeeper, that it is the next; its own node is watched by the one behind it.
//! If a waiter in the middle gives up, another one is woken, sees who is ahead now, and waits again.
//! A reader watches the last writer ahead of it. Of the waiters for a lease the first watches the whole list, since any
//! lease that is given back is for it.
//!
//! # Loss
//!
//! The node goes when its session ends, and a session ends when the server has heard nothing for the session timeout.
//! The server counts from when a request *came*, the holder from when it was *sent*, which is earlier; and the holder
//! stops at three quarters.
//!
#![doc = include_str!("../docs/loss.svg")]
//!
//! That is certain while the holder runs: [`LockGuard::is_held`] compares the clock, which goes on while the machine
//! sleeps, and needs no timer that may be late. Where the server itself ends the session, or somebody deletes the node,
//! nothing can be known before; the holder hears of it by an event or with the next heartbeat. And a process that is
//! paused between its look and its write cannot know either: against that stands the
//! [fencing token](crate::choosing#fencing).
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
//! # let client = CuratorFramework::new_client(server.connect_string(), RetryNTimes::new(3, Duration::from_millis(50)))?;
//! # client.start()?;
//! use curator_recipes::InterProcessMutex;
//!
//! let printer = InterProcessMutex::new(client.clone(), "/locks/printer")?;
//! let guard = printer.acquire().await?;
//! assert!(guard.node_name().starts_with("_c_")); // _c_<random>-lock-<number>
//! assert!(guard.node_name().ends_with("-lock-0000000000"));
//! assert_eq!(client.get_children().for_path("/locks/printer").await?, [guard.node_name()]);
//!
//! let (_, stat) = client.get_data().for_path(guard.path()).await?;
//! assert_eq!(stat.czxid, guard.fencing_token());
//! assert_ne!(stat.ephemeral_owner, 0); // it goes with the session
//!
//! guard.release().await?;
//! assert_eq!(client.get_children().for_path("/locks/printer").await?, [""; 0]);
//! # client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`InterProcessReadWriteLock`]: crate::InterProcessReadWriteLock
//! [`InterProcessSemaphoreV2`]: crate::InterProcessSemaphoreV2
//! [`LockGuard::is_held`]: crate::LockGuard::is_held
