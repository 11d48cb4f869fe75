//! For authors of recipes: the parts from which the locks, elections and caches of `curator-recipes` are built. Most
//! programs need nothing from this module.
//!
//! | | |
//! | --- | --- |
//! | [`RecipeClient`] | the methods of a client that only recipes call |
//! | [`OwnedNode`], [`NodeSpec`], [`Parents`], [`Created`] | a node with one owner, which is deleted however its owner ends |
//! | [`LossSignal`], [`LossListener`] | the loss of an owned node |
//! | [`Occupant`], [`OwnerDelete`] | the node at an exact path, and the end of a delete |
//! | [`Subscription`], [`SubscriptionEvent`], [`Resync`], [`KnownNodes`] | all changes of a node or a subtree in one session, with a resync |
//! | [`WatchedData`], [`Found`] | reads that set a watch |
//! | [`ProtectedId`], [`protected`], [`owning_session`] | the id in a node's name, and the session that owns a node |
//! | [`RecipeError`] | a recipe's error, which a retry loop may repeat |
//! | [`Budget`] | the end of a wait |
//! | [`Listeners`], [`catch_panic`], [`report`], [`report_metric`] | calls of the program's code, which may panic or block |
//!
//! A recipe makes its requests in a [`Session`](crate::Session), which its [`RetryLoop`](crate::RetryLoop) waits for.
//!
//! # Stability
//!
//! These items follow the needs of `curator-recipes`, and change more often than the crate's root. Before version 1.0 each
//! minor version may change them; `CHANGELOG.md` names the changes. [`RecipeClient`] is sealed, so that it can get methods
//! in any version.
//!
//! # Examples
//!
//! The node of a member, with its retries:
//!
//! ```
//! use std::time::Duration;
//!
//! use curator_framework::recipe::{NodeSpec, RecipeClient as _};
//! use curator_framework::{CreateMode, CuratorFramework, Error, LossReason};
//!
//! /// Creates a node below `parent`, and resolves when it is lost. Dropping the future deletes the node.
//! async fn register(client: &CuratorFramework, parent: &str) -> Result<LossReason, Error> {
//!     let spec = NodeSpec::new(client.default_data()).with_parents(client.lock_parents());
//!     let mut retries = client.retry_loop();
//!     loop {
//!         let mut node = retries.session().await?.owned_node(parent, "member", CreateMode::Ephemeral);
//!         match node.create(&spec).await {
//!             Ok(_created) => {
//!                 // Without a watch, only the end of the session is a loss, not a deletion by another client.
//!                 node.watch_node(Duration::ZERO);
//!                 return Ok(node.loss_signal().lost().await);
//!             }
//!             // If the reply was lost, a node may exist: the drop of `node` deletes it.
//!             Err(error) => retries.failed(error).await?,
//!         }
//!     }
//! }
//! ```

pub use crate::client::recipe::RecipeClient;
pub use crate::error::RecipeError;
pub use crate::model::new_node::{NodeSpec, Parents};
pub use crate::model::protected::ProtectedId;
pub use crate::model::{owning_session, protected};
pub use crate::session::WatchedData;
pub use crate::session::known_node::{LossListener, OwnerDelete};
pub use crate::session::loss_signal::LossSignal;
pub use crate::session::owned_node::{Created, Occupant, OwnedNode};
pub use crate::session::subscription::Subscription;
pub use crate::session::watches::Found;
pub use crate::sync::budget::Budget;
pub use crate::sync::listeners::Listeners;
pub use crate::sync::report::report;
pub use crate::sync::report_metric::report_metric;
pub use crate::sync::user_code::catch_panic;
pub use crate::zookeeper::{KnownNodes, Resync, SubscriptionEvent};
