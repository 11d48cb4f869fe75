//! The end of the task: deletes the node, or leaves it to the session.

use curator_framework::{Chain, Error, Session, SessionId};

use crate::nodes::keeper::state::Keeper;
use crate::nodes::verdict::Known;

impl Keeper {
    /// Returns the session and the node that the end of the task leaves; with a `czxid` if that is certain.
    fn remains(&self) -> Option<(Session, String, Option<Known>)> {
        let (path, session) = (self.path()?, self.session.clone()?);
        let is_ephemeral = self.plan.mode.is_ephemeral();
        if self.plan.touch.is_some() || (is_ephemeral && session.end_reason().is_some()) {
            return None;
        }
        let id = session.id().map(SessionId::get);
        let is_uncertain = match is_ephemeral {
            true => self.uncertain.contains(&id.unwrap_or_default()),
            false => !self.uncertain.is_empty(),
        };
        if is_uncertain {
            return Some((session, path, None));
        }
        // An ephemeral node of an earlier session goes with that.
        let known = self.known.filter(|known| !is_ephemeral || id == Some(known.session))?;
        Some((session, path, Some(known)))
    }

    /// Deletes the node at the end of the task. What cannot be deleted now is left to the background task of the client.
    pub(super) async fn delete(&mut self) {
        let Some((session, path, Some(known))) = self.remains() else { return };
        let mut version = (!self.may_be_gone).then_some(known.version);
        let deleted = loop {
            if version.is_none() {
                version = match session.exists(&path).await {
                    Ok(Some(stat)) if stat.czxid == known.czxid => Some(stat.version),
                    Ok(_) => break Ok(()),
                    Err(error) => break Err(error),
                };
            }
            match session.delete(&path, version).await {
                Err(Error::BadVersion { .. }) => version = None,
                deleted => break deleted,
            }
        };
        match deleted {
            Ok(()) | Err(Error::NoNode { .. }) => self.known = None,
            Err(error) => tracing::debug!(error = %Chain(&error), path, "a node is deleted in the background"),
        }
    }
}

impl Drop for Keeper {
    /// Leaves a node that was not deleted to the background task of the client, also if the runtime of the node ends.
    fn drop(&mut self) {
        if let Some((session, path, known)) = self.remains() {
            session.delete_in_background(&path, self.plan.mode, known.map(|known| known.czxid));
        }
    }
}
