//! Layers for [tower](https://docs.rs/tower), over the recipes of [`curator_recipes`]: they limit the requests of all
//! processes together, and let only the leader serve.
//!
//! | layer | what its service does |
//! | --- | --- |
//! | [`ClusterConcurrencyLimitLayer`] | runs at most N requests at once, in all processes together |
//! | [`LeaderOnlyLayer`] | runs requests only while this process leads |
//!
//! ```toml
//! [dependencies]
//! curator-framework = { path = "../curator/framework" }
//! curator-recipes = { path = "../curator/recipes" }
//! curator-tower = { path = "../curator/recipes/tower" }
//! ```
//!
//! The services work with each request type and each server that is built on tower, such as axum and tonic. Their error
//! is a [`BoxError`], because an inner service has errors too. In it is a [`LayerError`] if a layer refused or
//! cancelled the request.
//!
//! # Examples
//!
//! A service of axum that solves at most three problems at once on all machines. A request waits for at most 500 ms.
//!
//! ```
//! # use curator_test::TestingServer;
//! use std::time::Duration;
//!
//! use axum::Router;
//! use axum::body::Body;
//! use axum::error_handling::HandleErrorLayer;
//! use axum::http::{Request, StatusCode};
//! use axum::routing::post;
//! use curator_framework::{Chain, CuratorFramework, ExponentialBackoffRetry};
//! use curator_recipes::InterProcessSemaphoreV2;
//! use curator_tower::{BoxError, ClusterConcurrencyLimitLayer, LayerError};
//! use tower::{ServiceBuilder, ServiceExt as _};
//!
//! async fn solve() -> &'static str {
//!     "solved"
//! }
//!
//! /// Replies in place of the service.
//! async fn refused(error: BoxError) -> (StatusCode, String) {
//!     let status = match error.downcast_ref::<LayerError>() {
//!         Some(_) => StatusCode::SERVICE_UNAVAILABLE,
//!         None => StatusCode::INTERNAL_SERVER_ERROR,
//!     };
//!     (status, Chain(&*error).to_string())
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = TestingServer::start()?;
//! # let connect_string = server.connect_string();
//! let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?;
//! // Such as "zk1:2181,zk2:2181,zk3:2181".
//! let client = CuratorFramework::new_client(connect_string, retry)?;
//! client.start()?;
//! let solvers = InterProcessSemaphoreV2::new(client.clone(), "/licences/solver", 3)?;
//! let limit = ClusterConcurrencyLimitLayer::new(solvers).acquire_timeout(Duration::from_millis(500));
//! let app = Router::new()
//!     .route("/solve", post(solve))
//!     .layer(ServiceBuilder::new().layer(HandleErrorLayer::new(refused)).layer(limit));
//! // Instead of `axum::serve(listener, app)`:
//! let response = app.oneshot(Request::post("/solve").body(Body::empty())?).await?;
//! assert_eq!(response.status(), StatusCode::OK);
//! client.close().await;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

/// The program of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod error;
mod leader_only;
mod limit;
mod response;

pub use error::{BoxError, LayerError};
pub use leader_only::{LeaderOnly, LeaderOnlyLayer};
pub use limit::{ClusterConcurrencyLimit, ClusterConcurrencyLimitLayer};
pub use response::ResponseFuture;
