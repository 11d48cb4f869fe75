//! The node of a sequential create with a lost reply. Its name has no id, so the session, the number and the data show which
//! node it is. Data that another client has written shows nothing. A node with an answered create is another one.

use std::sync::Arc;

use curator_framework::{Error, Session, SessionId, Zxid, make_path, node_from_path, parent_of};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::nodes::keeper::task::Keeper;
use crate::nodes::plan::Input;
use crate::nodes::plan::verdict::Known;

/// The shortest number that a server appends to a name.
const DIGITS: usize = 10;

/// A sequential create without an answer: an ephemeral node may exist, and its number is not known.
#[derive(Clone)]
pub(super) struct LostCreate {
    pub(super) session: Session,
    /// The data of the create, as the server has it.
    pub(super) stored: Vec<u8>,
    /// A transaction before the create.
    pub(super) since: Option<Zxid>,
}

impl Keeper {
    /// Returns the node of the lost create, if there is one. Claims the node, so that no other task of the session counts it
    /// as its own.
    pub(super) async fn find_lost(&mut self, session: &Session) -> Result<Option<Input>, Error> {
        let Some(LostCreate { session: of_create, stored, since }) = self.lost.clone() else { return Ok(None) };
        if let Some(owner) = of_create.id().map(SessionId::get) {
            // After its reply the create of this session is applied, or never will be.
            session.write_barrier().await?;
            let kept = Arc::clone(&self.kept);
            let (parent, name) = (parent_of(&kept.path), node_from_path(&kept.path));
            let children = match session.get_children(parent).await {
                // A client that may not list its service cannot search for the node, which ends with the session.
                Err(Error::NoNode { .. } | Error::NoAuth { .. }) => Vec::new(),
                children => children?,
            };
            let mut found = Vec::new();
            for child in children.iter().filter(|child| is_numbered(child, name)) {
                let path = make_path(parent, child);
                let (data, stat) = match session.get_data(&path).await {
                    Err(Error::NoNode { .. } | Error::NoAuth { .. }) => continue,
                    read => read?,
                };
                let is_newer = since.is_none_or(|since| stat.czxid > since.get());
                let is_written = data != stored;
                if stat.ephemeral_owner == owner && is_newer && (!is_written || stat.version > 0) {
                    found.push((is_written, path, stat));
                }
            }
            // Replies that have arrived reach their callers. A node with an answered create is another one, of a task
            // or of the program itself.
            yield_now().await;
            found.retain(|(_, path, _)| !of_create.has_created(path));
            found.sort_by_key(|(is_written, ..)| *is_written);
            for (_, path, stat) in found {
                if self.claims_one(stat.czxid) {
                    self.lost = None;
                    return Ok(Some(Input::FoundFirst { path, made: Known::of(&stat) }));
                }
            }
        }
        self.lost = None;
        Ok(None)
    }

    /// Claims a node. Returns `false` if another task of the session has claimed it.
    pub(super) fn claims_one(&mut self, czxid: i64) -> bool {
        self.claim(Some(czxid));
        self.claim.is_some()
    }

    /// Deletes the node of the lost create at the end of the task.
    pub(super) async fn delete_lost(&mut self) {
        while let Some(session) = self.lost.as_ref().map(|lost| lost.session.clone()) {
            if self.plan.leaves_its_node() || session.end_reason().is_some() {
                return;
            }
            match self.find_lost(&session).await {
                Ok(Some(Input::FoundFirst { path, made })) => {
                    if session.delete(&path, Some(made.version)).await.is_err() {
                        session.delete_in_background(&path, self.kept.mode, Some(made.czxid));
                    }
                }
                Err(error) if error.is_retryable() => sleep(self.pauses.after(true)).await,
                _ => return,
            }
        }
    }
}

/// Returns `true` if the name is this one with a number behind it.
fn is_numbered(child: &str, name: &str) -> bool {
    let is_number = |number: &str| {
        let digits = number.strip_prefix('-').unwrap_or(number);
        number.len() >= DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    child.strip_prefix(name).is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_follows_the_name() {
        for child in ["i10000000000", "i12147483647", "i1-000000001", "i1-2147483648"] {
            assert!(is_numbered(child, "i1"), "{child}");
        }
        for child in ["i1", "i1000000000", "i1-other", "i1x0000000000", "i2000000000", "i1000000000x"] {
            assert!(!is_numbered(child, "i1"), "{child}");
        }
    }
}
