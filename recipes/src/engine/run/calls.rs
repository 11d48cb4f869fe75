//! The calls of a leader that wants a candidate directly behind itself, and the move there.
//!
//! A call creates and deletes a node that this candidate alone watches, in one transaction. A write of the candidate's
//! node would use up the one watch of the Java latch after it, which handles only deletions. A watch on the path's data
//! by each of them would wake all candidates.

use curator_framework::recipe::ProtectedId;
use curator_framework::spi::Operation;
use curator_framework::{CreateMode, Error, Session, Watch, make_path, node_from_path};

use crate::engine::candidacy::{Record, call_path, name_beside};
use crate::engine::plan::Input;
use crate::engine::run::contender::Contender;
use crate::engine::same_session::Entry;

impl Contender<'_> {
    /// Watches for calls, if this contender is a candidate that needs it, and does not watch for them yet.
    pub(super) async fn watch_calls(&self, at: &Session, is_needed: bool) -> Result<Option<Watch>, Error> {
        let is_unwatched = self.lock.spec.candidacy.is_some() && is_needed && self.calls.watch.is_none();
        let Some(own) = self.owned.node_name().filter(|_| is_unwatched) else { return Ok(None) };
        let (_, watch) = at.exists_watched(&call_path(self.lock.base_path(), own)).await?;
        Ok(Some(watch))
    }

    /// Follows the wish that a call has announced. Moves directly behind the leader, if the wish in the path's data names
    /// this contender's node. Otherwise returns `None`.
    ///
    /// If the reply is lost, either node may be left. The error makes the runner check again: a contender without its
    /// old node joins at the back, and dropping the new node deletes it.
    pub(super) async fn follow_wish(&mut self) -> Result<Option<Input<'static>>, Error> {
        let followed = self.move_behind_the_leader().await?;
        self.calls.has_come = false;
        Ok(followed)
    }

    async fn move_behind_the_leader(&mut self) -> Result<Option<Input<'static>>, Error> {
        let (lock, at) = (self.lock, self.session.pinned());
        let base_path = lock.base_path();
        let (data, stat) = match at.get_data(base_path).await {
            Err(Error::NoNode { .. } | Error::NoAuth { .. }) => return Ok(None),
            read => read?,
        };
        let Some(record) = Record::parse(&data) else { return Ok(None) };
        if record.wish.as_deref() != self.owned.node_name() {
            return Ok(None);
        }
        let name = name_beside(&record.leader, lock.spec.lock_name).zip(ProtectedId::of(&record.leader));
        let behind = |(name, leader)| self.session.owned_node_behind(base_path, name, CreateMode::Ephemeral, leader);
        let Some(mut moved) = name.and_then(behind) else { return Ok(None) };
        let entry = Entry::new(&self.contenders, &moved, None);
        let leader = make_path(base_path, &record.leader);
        // Its transaction is the one that creates the new node: a later leader must exceed that term.
        let record = Record::claim(node_from_path(moved.planned_path()));
        let checks = vec![
            Operation::Check { path: leader.clone(), version: None },
            Operation::SetData { path: base_path.to_owned(), data: record.to_bytes(), version: Some(stat.version) },
        ];
        match moved.replace(&mut self.owned, lock.stored_data()?.into_owned(), checks).await {
            Ok(created) => {
                entry.has_node(&moved, None);
                if let Some(candidacy) = &lock.spec.candidacy {
                    candidacy.is_behind(node_from_path(&leader));
                }
                (self.owned, self.entry) = (moved, entry);
                self.forget_watches();
                Ok(Some(Input::Created { epoch: created.epoch, certain: true, ahead: None }))
            }
            // The leader has withdrawn the wish, or has left. Or this client may not or cannot follow it.
            Err(Error::Transaction { .. } | Error::Unsupported { .. } | Error::TooManyEphemeralNodes { .. }) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
