//! A write of a typed node, and the proof that it was applied although its reply was lost.

use curator_framework::recipe::{NodeSpec, owning_session};
use curator_framework::{CreateMode, CuratorFramework, Error, Session, Stat};

/// A write of one node.
#[derive(Debug)]
pub(super) enum Write<'a> {
    /// Fails if the node exists.
    Create { mode: CreateMode, node: NodeSpec<'a>, data: &'a [u8] },
    /// Fails if the node has another version.
    Change { version: i32, data: Vec<u8> },
    /// Fails if the node does not exist, or has another version than a given one.
    Delete { version: Option<i32> },
}

impl Write<'_> {
    /// Sends the write. Returns the stat of the node after it; an empty one if the node is deleted.
    async fn send(&self, session: &Session, path: &str) -> Result<Stat, Error> {
        match self {
            Self::Create { mode, node, .. } => {
                session.create_with_parents(path, *mode, node).await.map(|(_, stat)| stat)
            }
            Self::Change { version, data } => session.set_data(path, data.clone(), Some(*version)).await,
            Self::Delete { version } => session.delete(path, *version).await.map(|()| Stat::default()),
        }
    }

    /// Returns `true` if an earlier try that was applied would have this refusal.
    const fn is_refused_by_itself(&self, refusal: &Error) -> bool {
        matches!(
            (self, refusal),
            (Self::Create { .. }, Error::NodeExists { .. })
                | (Self::Change { .. }, Error::BadVersion { .. })
                | (Self::Delete { .. }, Error::NoNode { .. })
        )
    }

    /// Searches for the effect of an earlier try. Returns `None` if nothing proves it.
    async fn found(&self, session: &Session, path: &str) -> Result<Option<Stat>, Error> {
        if matches!(self, Self::Delete { .. }) {
            return Ok(Some(Stat::default()));
        }
        let (found, stat) = match session.get_data(path).await {
            Err(Error::NoNode { .. }) => return Ok(None),
            read => read?,
        };
        let is_own = match self {
            Self::Create { mode, data, .. } => {
                let is_of_session = !mode.is_ephemeral() || owning_session(stat.ephemeral_owner) == session.id();
                stat.version == 0 && found == *data && is_of_session
            }
            Self::Change { version, data } => stat.version == version.wrapping_add(1) && found == *data,
            Self::Delete { .. } => false,
        };
        Ok(is_own.then_some(stat))
    }

    /// Makes the write, with retries. A repeat that finds the effect of a try without a reply is a success. If nothing
    /// proves it, the call fails with the error of the try, which has an unknown outcome.
    pub(super) async fn apply(&self, client: &CuratorFramework, path: &str) -> Result<Stat, Error> {
        let mut retries = client.retry_loop();
        // The error of an earlier try that may have been applied.
        let mut unknown: Option<Error> = None;
        loop {
            let tried = match retries.session().await {
                Ok(session) => match self.send(&session, path).await {
                    Err(refusal) if unknown.is_some() && self.is_refused_by_itself(&refusal) => {
                        self.found(&session, path).await.and_then(|found| found.ok_or(refusal))
                    }
                    tried => tried,
                },
                Err(error) => Err(error),
            };
            let error = match tried {
                Ok(done) => return Ok(done),
                Err(error) => error.about(path),
            };
            if error.outcome_unknown() {
                unknown = Some(error.clone());
            }
            if let Err(error) = retries.failed(error).await {
                return Err(unknown.unwrap_or(error));
            }
        }
    }
}
