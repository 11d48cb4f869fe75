//! The data of the node: compares what the server has, and writes what is wanted.

use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, Error, Session, Stat};

use crate::nodes::error::NodeError;
use crate::nodes::keeper::state::{Keeper, Placed};
use crate::nodes::options::ForeignData;
use crate::nodes::shared::Wanted;
use crate::nodes::verdict::Known;

impl Keeper {
    /// Reads the data of the known node, unless it is certainly the last that this task has written.
    pub(super) async fn check_data(
        &mut self,
        session: &Session,
        path: &str,
        found: &Stat,
    ) -> Result<Placed, NodeError> {
        let is_known =
            |known: &Known| (known.version, known.mzxid) == (found.version, found.mzxid) && self.written != 0;
        let Some(known) = self.known.filter(|known| !is_known(known)) else {
            return Ok(Placed::Standing);
        };
        let read = match session.get_data_watched(path).await {
            Ok(read) => read,
            Err(Error::NoNode { .. }) => return Ok(Placed::Again),
            // It may be written, but not read.
            Err(Error::NoAuth { .. }) => {
                self.known = Some(known.at(found));
                return Ok(Placed::Standing);
            }
            Err(error) => return Err(error.into()),
        };
        if read.stat.czxid != known.czxid {
            return Ok(Placed::Again);
        }
        self.watch = Some(read.watch);
        self.known = Some(known.at(&read.stat));
        let wanted = self.wanted.borrow().clone();
        let data = self.client.from_stored(path, read.data.clone(), None).unwrap_or(read.data);
        if *data == *wanted.data {
            // Also a write of this task with a lost reply.
            self.accept(&wanted);
        } else if self.written == wanted.generation {
            // A refused write leaves it.
            self.foreign_data = Some(data);
            if self.plan.foreign_data == ForeignData::Mend {
                self.contest.pause(&mut self.stop).await?;
                self.written = 0;
            }
        }
        Ok(Placed::Standing)
    }

    /// Writes the wanted data, unless the server has it. Returns `false` if the node has gone.
    pub(super) async fn write(&mut self, session: &Session, path: &str) -> Result<bool, NodeError> {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let Some(known) = self.known else { return Ok(false) };
            if self.written == wanted.generation {
                // The caller may not have looked at the refusal yet.
                if self.refused != wanted.generation {
                    self.report(wanted.generation, None);
                }
                return Ok(true);
            }
            let stored = self.client.to_stored_at(path, &wanted.data)?.into_owned();
            match session.set_data(path, stored, Some(known.version)).await {
                Ok(stat) if stat.czxid == known.czxid => {
                    self.known = Some(known.at(&stat));
                    self.accept(&wanted);
                }
                Ok(_) | Err(Error::NoNode { .. }) => return Ok(false),
                Err(Error::BadVersion { .. }) => match session.exists(path).await? {
                    Some(stat) if stat.czxid == known.czxid => {
                        self.known = Some(known.at(&stat));
                    }
                    _ => return Ok(false),
                },
                Err(error) if error.is_retryable() || !self.stands() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), path, "a node's data cannot be written");
                    self.refuse(&wanted, error.into());
                    return Ok(true);
                }
            }
        }
    }

    /// Records that the server has the data.
    pub(super) fn accept(&mut self, wanted: &Wanted) {
        self.written = wanted.generation;
        self.accepted = Some(Arc::clone(&wanted.data));
        self.foreign_data = None;
    }

    /// Takes back data that the server refuses: it must not keep the node from being created in a later session.
    fn refuse(&mut self, refused: &Wanted, error: NodeError) {
        (self.written, self.refused) = (refused.generation, refused.generation);
        if let Some(accepted) = &self.accepted {
            self.shared.wanted.send_if_modified(|wanted| {
                if wanted.generation == refused.generation {
                    wanted.data = Arc::clone(accepted);
                }
                false
            });
        }
        self.report(refused.generation, Some(error));
    }
}
