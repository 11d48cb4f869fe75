//! The proof of a new connection: it carries the replies of its own requests, for the same session.

use std::sync::Arc;
use std::time::Duration;

use zookeeper_async::ZkError;

use super::RETRY_PAUSE;
use super::window::Shared;
use crate::environment::randomness::nonexistent_path;
use crate::error::{Error, Result};
use crate::model::path::make_path;
use crate::model::{Acl, AuthInfo, CreateMode, Stat};
use crate::zookeeper::{Request, Response, SessionEnd};

/// The most parents below which a proof of the session's id is tried.
const IDENTITY_TRIES: usize = 8;

/// A proven connection.
pub(super) struct VerifiedConnection {
    pub(super) epoch: u64,
    /// The moment at which the newest answered request was sent; below, the newest answered write.
    pub(super) sent: Duration,
    pub(super) leader_sent: Option<Duration>,
}

/// The reason why a connection is not proven.
enum ProofFailure {
    /// The connection was lost before it was proven.
    Lost,
    /// The session must end, for this reason.
    Ended(SessionEnd),
}

impl ProofFailure {
    fn check(result: Result<Response>) -> Result<Response, Self> {
        result.map_err(|error| match error {
            Error::ConnectionLoss { .. } => Self::Lost,
            _ => Self::Ended(SessionEnd::Inconsistent),
        })
    }

    /// Accepts every reply of the server, also an error. Fails if the connection or the session ended.
    fn unless_answered(result: Result<Response>) -> Result<(), Self> {
        match result {
            Err(error @ (Error::ConnectionLoss { .. } | Error::SessionExpired { .. })) => {
                Self::check(Err(error)).map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl Shared {
    /// Waits until the crate reports a connection and every slot is free. Returns the epoch.
    async fn settle(&self) -> u64 {
        loop {
            let epoch = self.connected().await;
            // The slots become free: no request starts before the connection is proven.
            self.slots.all_free().await;
            if self.epoch() == epoch {
                return epoch;
            }
        }
    }

    /// Proves a new connection: see the module's documentation.
    pub(super) async fn verify_until_ok(self: Arc<Self>) -> Result<VerifiedConnection, SessionEnd> {
        loop {
            let epoch = self.settle().await;
            match self.verify_session(epoch).await {
                Ok((sent, leader_sent)) if self.epoch() == epoch => {
                    return Ok(VerifiedConnection { epoch, sent, leader_sent });
                }
                Err(ProofFailure::Ended(end)) => return Err(end),
                Ok(_) | Err(ProofFailure::Lost) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    async fn verify_session(self: &Arc<Self>, epoch: u64) -> Result<(Duration, Option<Duration>), ProofFailure> {
        for AuthInfo { scheme, auth } in &self.auth {
            self.count_request();
            let added = self.zookeeper.add_auth(scheme, auth.clone()).await;
            match added {
                Ok(()) if self.epoch() == epoch => {}
                Err(ZkError::AuthFailed) => return Err(ProofFailure::Ended(SessionEnd::AuthFailed)),
                _ => return Err(ProofFailure::Lost),
            }
        }
        // Two reads with known, different results: if the crate's replies are shifted by one, at least one is wrong.
        let missing = Request::Exists { path: nonexistent_path(&*self.randomness).into(), watch: false };
        let reply = self.send(missing, epoch).await;
        match ProofFailure::check(reply.result)? {
            Response::Exists(None) => {}
            _ => return Err(ProofFailure::Ended(SessionEnd::Inconsistent)),
        }
        let reply = self.send(Request::Exists { path: "/".into(), watch: false }, epoch).await;
        let sent = reply.sent.unwrap_or_default();
        match ProofFailure::check(reply.result)? {
            Response::Exists(Some(Stat { czxid: 0, ephemeral_owner: 0, .. })) => {}
            _ => return Err(ProofFailure::Ended(SessionEnd::Inconsistent)),
        }
        let leader_sent = self.prove_identity(epoch).await?;
        Ok((leader_sent.unwrap_or(sent).max(sent), leader_sent))
    }

    /// Proves the session's id. A server may swap the session silently at a reconnect: a lock would then be held
    /// on another session's node. A session that may own ephemeral nodes creates one more, and compares its owner. That
    /// node is below the root or, if this is forbidden, beside one of the others, where its name sorts behind every
    /// contender's. The next proof deletes a node that a lost connection leaves. A session that cannot be proven ends.
    async fn prove_identity(self: &Arc<Self>, epoch: u64) -> Result<Option<Duration>, ProofFailure> {
        let (left, parents) = {
            let ephemerals = self.ephemerals.lock();
            if !ephemerals.may_own() {
                return Ok(None);
            }
            if ephemerals.session_id().is_none() {
                // No create was answered: only the lost reply would have shown the id.
                return Err(ProofFailure::Ended(SessionEnd::Inconsistent));
            }
            (ephemerals.ending_with(&self.identity), ephemerals.parents(&self.identity, IDENTITY_TRIES))
        };
        let delete = |path: String| self.send(Request::Delete { path: path.into(), version: None }, epoch);
        for path in left {
            ProofFailure::unless_answered(delete(path).await.result)?;
        }
        for parent in parents {
            let path = make_path(&parent, &self.identity);
            let acl = Acl::open_unsafe();
            let create =
                Request::Create { path: path.as_str().into(), data: Vec::new(), acl, mode: CreateMode::Ephemeral };
            // Recorded before the create, because its reply may be lost.
            self.ephemerals.lock().may_exist(&path);
            let created = self.send(create, epoch).await;
            match created.result {
                Ok(_) => {
                    ProofFailure::unless_answered(delete(path).await.result)?;
                    return Ok(created.sent);
                }
                Err(error) => {
                    ProofFailure::unless_answered(Err(error))?;
                    self.ephemerals.lock().deleted(&path);
                }
            }
        }
        tracing::error!("no node may be created that would show the session's id: the handle ends");
        Err(ProofFailure::Ended(SessionEnd::Inconsistent))
    }
}
