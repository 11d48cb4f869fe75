//! The hand-over of a term to a chosen candidate.
//!
//! ```text
//! leader:     check own node, write the wish into the path's data, check and call the candidate
//! candidate:  check the leader's node, write the path's data, create a node with the leader's number, delete its own
//! leader:     delete own node
//! ```
//!
//! Each line is one transaction. The writes of the path's data name the version that they replace: either the candidate
//! moves, or the leader withdraws the wish.
//!
//! The leader deletes its node only after the candidate has moved, so no third candidate leads between the two. If the
//! leader crashes in between, the move is still valid.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::Budget;
use curator_framework::spi::Operation;
use curator_framework::{Error, Session, Watch, make_path, node_from_path, parent_of};
use tokio::time::sleep;

use crate::engine::candidacy::{LATCH_NAME, call};
use crate::engine::driver::{is_far_from_the_end, standard_sequence};
use crate::engine::hold::Release;
use crate::engine::participants::Participant;
use crate::leader::error::LeaderError;
use crate::leader::record_io::{Found, Refused};
use crate::leader::term::Term;

/// The state of a wish.
enum Wish {
    /// The candidate has moved to the leader's place.
    Followed,
    /// The candidate's node is deleted, or another write has replaced the wish.
    Void,
    /// The wish is recorded and not yet followed. A watch fires when that changes.
    Stands { path: Watch, candidate: Watch },
}

impl Term {
    /// Hands the term over to a candidate. Returns `None` if the candidate does not follow within the budget.
    pub(super) async fn hand_over(
        self: &Arc<Self>,
        candidate: &Participant,
        budget: Duration,
    ) -> Result<Option<Release>, LeaderError> {
        self.check_candidate(candidate)?;
        let budget = Budget::of(budget);
        let Some(_alone) = budget.limit(self.writes_alone()).await else { return Ok(None) };
        let session = self.session().clone();
        let name = node_from_path(&candidate.path);
        let call = || {
            let mut operations = vec![Operation::Check { path: candidate.path.clone(), version: None }];
            operations.extend(call(&session, self.path(), name));
            operations
        };
        let written = match self.write(|record| record.wish = Some(name.to_owned()), call).await {
            // The candidate left in the meantime.
            Err(LeaderError::Framework(Error::Transaction { index: 2, cause, .. }))
                if matches!(*cause, Error::NoNode { .. }) =>
            {
                return Ok(None);
            }
            written => written?,
        };
        let followed = budget.limit(self.followed(&session, name, &written)).await.unwrap_or(Ok(false))?;
        if !followed && !self.withdraw(&session, name, &written).await? {
            return Ok(None);
        }
        self.resigned().await.map(Some)
    }

    fn check_candidate(&self, candidate: &Participant) -> Result<(), LeaderError> {
        let refused =
            |reason: &str| Err(LeaderError::InvalidArgument { argument: "candidate", reason: reason.to_owned() });
        let (own, other) = (self.node_name(), node_from_path(&candidate.path));
        if own == other {
            return refused("it is the leader itself");
        }
        let (Some(own), Some(other)) = (standard_sequence(own, LATCH_NAME), standard_sequence(other, LATCH_NAME))
        else {
            return refused("it is not a latch");
        };
        if parent_of(&candidate.path) != self.path() {
            return refused("it is a candidate of another election");
        }
        match is_far_from_the_end(own) && is_far_from_the_end(other) {
            true => Ok(()),
            false => refused("the path's sequence numbers are near their end"),
        }
    }

    /// Resolves with `true` when the candidate has moved, with `false` when its node is deleted.
    async fn followed(&self, session: &Session, candidate: &str, written: &Found) -> Result<bool, LeaderError> {
        let mut retries = self.client().retry_loop();
        loop {
            self.check()?;
            let (mut path, mut node) = match self.look(session, candidate, written).await {
                Ok(Wish::Followed) => return Ok(true),
                Ok(Wish::Void) => return Ok(false),
                Ok(Wish::Stands { path, candidate }) => (path, candidate),
                Err(error) => {
                    retries.failed(error).await.map_err(|error| self.failed(error))?;
                    retries.reconnected(session).await.map_err(|error| self.failed(error))?;
                    continue;
                }
            };
            loop {
                tokio::select! {
                    _ = self.ended() => break,
                    _ = &mut path => break,
                    _ = &mut node => break,
                    () = sleep(session.timeout() / 10) => {
                        // The candidate may not have watched for the last call. The watches show whether this one
                        // fails.
                        let _called = self.call_again(session, candidate).await;
                    }
                }
            }
        }
    }

    async fn call_again(&self, session: &Session, candidate: &str) -> Result<(), Error> {
        let own = make_path(self.path(), self.node_name());
        let mut operations = vec![Operation::Check { path: own, version: None }];
        operations.extend(call(session, self.path(), candidate));
        session.transaction(operations).await.map(drop)
    }

    async fn look(&self, session: &Session, candidate: &str, written: &Found) -> Result<Wish, Error> {
        let read = session.get_data_watched(self.path()).await?;
        let found = Found::new(&read.data, read.stat);
        if found.stat.version != written.stat.version {
            self.keep(found.clone());
            // A candidate that moves writes the name of its new node, which has the leader's number.
            let number = |name: &str| standard_sequence(name, LATCH_NAME);
            let moved = found.record.as_ref().is_some_and(|record| {
                record.leader != self.node_name() && number(&record.leader) == number(self.node_name())
            });
            return Ok(if moved { Wish::Followed } else { Wish::Void });
        }
        match session.get_data_watched(&make_path(self.path(), candidate)).await {
            Ok(node) => Ok(Wish::Stands { path: read.watch, candidate: node.watch }),
            Err(Error::NoNode { .. }) => Ok(Wish::Void),
            Err(error) => Err(error),
        }
    }

    /// Withdraws the wish. Returns `true` if the candidate has moved before.
    async fn withdraw(&self, session: &Session, candidate: &str, written: &Found) -> Result<bool, LeaderError> {
        match self.look(session, candidate, written).await {
            Ok(Wish::Followed) => return Ok(true),
            Ok(_) => {}
            Err(error) => return Err(self.failed(error)),
        }
        let Some(record) = &written.record else { return Ok(false) };
        let mut record = record.clone();
        record.wish = None;
        let own = make_path(self.path(), self.node_name());
        self.begins_to_write();
        match written.write(session, self.path(), &own, &record, Vec::new()).await {
            Ok(done) => {
                self.keep(Found::written(record, &done));
                Ok(false)
            }
            // The candidate has moved in this moment, or the leader has proclaimed.
            Err(Refused::Lost | Refused::Changed | Refused::Failed(Error::Transaction { .. })) => {
                match self.look(session, candidate, written).await {
                    Ok(wish) => Ok(matches!(wish, Wish::Followed)),
                    Err(error) => Err(self.failed(error)),
                }
            }
            Err(Refused::Failed(error)) => Err(self.failed(error)),
        }
    }
}
