//! The task of a latch: joins, waits, leads, and begins again.

use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;

use curator_framework::recipe::{Budget, OwnedNode, RecipeClient as _, report};
use curator_framework::{Chain, CuratorFramework, Error, LossReason, RetryLoop, node_from_path};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::engine::caller::Caller;
use crate::engine::candidacy::{Candidacy, LATCH_NAME, LatchDriver, Record};
use crate::engine::hold::{HoldShare, Release};
use crate::engine::options::LockOptions;
use crate::engine::{Acquired, LockInternals, LockSpec, WaitMode, acquire};
use crate::leader::error::{LeaderError, TermEnd};
use crate::leader::options::{CloseMode, LeaderLatchOptions};
use crate::leader::record_io::{self, Found, Refused};
use crate::leader::state::{LeaderState, Orders, Shared};
use crate::leader::term::Term;
use crate::standing::{Pauses, Stop};

/// Returns the queue of a latch.
pub(super) fn latch_internals(
    client: CuratorFramework,
    path: &str,
    options: &LeaderLatchOptions,
    candidacy: &Arc<Candidacy>,
) -> Result<LockInternals, LeaderError> {
    let spec = LockSpec {
        recipe: "leader_latch",
        candidacy: Some(Arc::clone(candidacy)),
        // The election's record tells the next leader that this one has not resigned.
        has_containers: options.delay.is_none(),
        ..LockSpec::exclusive(LATCH_NAME, Arc::new(LatchDriver))
    };
    let lock = LockOptions {
        acl: options.acl.clone(),
        name: options.name.clone().map(Into::into),
        ..LockOptions::new().data(options.id.as_bytes())
    };
    LockInternals::new(client, path.to_owned(), spec, lock).map_err(LeaderError::of_path)
}

/// The reason to leave the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    Stopped,
    Abstains,
}

/// The conditions under which the candidate stands in the queue.
struct Standing {
    stop: Stop,
    orders: watch::Receiver<Orders>,
    eligible: Option<watch::Receiver<bool>>,
    /// The number of orders to abstain that were obeyed.
    obeyed: u64,
}

impl Standing {
    fn is_eligible(&mut self) -> bool {
        self.eligible.as_mut().is_none_or(|eligible| *eligible.borrow_and_update())
    }

    fn abstains(&mut self) -> Option<Budget> {
        self.orders.borrow_and_update().abstains.filter(|abstains| !abstains.is_over())
    }

    /// Returns whether the candidate has to leave the queue.
    fn must_leave(&mut self) -> bool {
        let abstentions = self.orders.borrow_and_update().abstentions;
        let is_new = std::mem::replace(&mut self.obeyed, abstentions) != abstentions;
        is_new || !self.is_eligible() || self.abstains().is_some()
    }

    /// Resolves when an order or the eligibility has changed.
    async fn changed(&mut self) {
        let eligible = async {
            let changed = match &mut self.eligible {
                Some(eligible) => eligible.changed().await.is_ok(),
                None => false,
            };
            // Without a sender the last value stays.
            if !changed {
                std::future::pending().await
            }
        };
        tokio::select! {
            changed = self.orders.changed() => if changed.is_err() { std::future::pending().await },
            () = eligible => {}
        }
    }

    /// Resolves when the candidate has to leave the queue.
    async fn leave(&mut self) -> Leave {
        loop {
            if self.must_leave() {
                return Leave::Abstains;
            }
            let mut stop = self.stop.clone();
            tokio::select! {
                biased;
                () = stop.requested() => return Leave::Stopped,
                () = self.changed() => {}
            }
        }
    }

    /// Resolves with `true` when the candidate may join, with `false` when it is stopped.
    async fn may_join(&mut self) -> bool {
        loop {
            let (is_eligible, abstains) = (self.is_eligible(), self.abstains());
            let mut stop = self.stop.clone();
            let stopped = stop.requested();
            match abstains {
                None if is_eligible => return true,
                Some(abstains) => tokio::select! {
                    biased;
                    () = stopped => return false,
                    () = self.changed() => {}
                    () = abstains.over() => {}
                },
                None => tokio::select! {
                    biased;
                    () = stopped => return false,
                    () = self.changed() => {}
                },
            }
        }
    }
}

/// The end of one attempt to lead.
enum Attempt {
    Left(Leave),
    Led,
    Failed(LeaderError),
    /// The connection was in an error state. The node may be kept, and with it the position in the queue.
    Suspended(Box<OwnedNode>),
}

/// The task of one latch.
pub(super) struct Candidate {
    internals: LockInternals,
    shared: Arc<Shared>,
    options: LeaderLatchOptions,
    standing: Standing,
}

/// The task's hold on a term. Its drop ends the term, because the task may be aborted.
struct Tenure(Arc<Term>);

impl Drop for Tenure {
    fn drop(&mut self) {
        self.0.abandon();
        self.0.was_released(Err(LeaderError::Closed { path: self.0.path_text() }));
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // However the task ends: it may be aborted, or panic in code of the program.
        self.shared.candidacy.begin();
        self.shared.state.end(LeaderState::Closed);
        // A listener may own its latch.
        self.shared.listeners.close();
    }
}

impl Candidate {
    pub(super) fn new(internals: LockInternals, shared: Arc<Shared>, options: LeaderLatchOptions, stop: Stop) -> Self {
        let standing =
            Standing { stop, orders: shared.orders.subscribe(), eligible: options.eligible.clone(), obeyed: 0 };
        Self { internals, shared, options, standing }
    }

    /// Stands again and again until the latch or the client is closed.
    pub(super) async fn run(mut self) {
        let mut pauses = Pauses::default();
        loop {
            self.shared.candidacy.begin();
            if self.standing.must_leave() {
                self.shared.state.publish(LeaderState::Abstaining);
                let joins = tokio::select! {
                    biased;
                    () = self.internals.client().closed() => false,
                    joins = self.standing.may_join() => joins,
                };
                if !joins {
                    break;
                }
            }
            if !matches!(self.shared.state.newest(), LeaderState::Failed(_)) {
                self.shared.state.publish(LeaderState::Waiting { position: None });
            }
            let error = match self.attempt().await {
                Attempt::Left(Leave::Stopped) | Attempt::Failed(LeaderError::Framework(Error::Closed)) => break,
                Attempt::Left(Leave::Abstains) => continue,
                Attempt::Led | Attempt::Suspended(_) => {
                    pauses = Pauses::default();
                    continue;
                }
                Attempt::Failed(error) => error,
            };
            // Without its node a candidate joins again, though the policy has given up on that attempt. The client may
            // be started later.
            let may_pass = error.is_retryable()
                || matches!(error, LeaderError::Framework(Error::NoNode { .. } | Error::NotStarted));
            let (path, pause) = (self.internals.base_path(), pauses.after(may_pass));
            if may_pass {
                tracing::debug!(error = %Chain(&error), path, pause_s = pause.as_secs_f64(), "a latch joins later");
            } else {
                tracing::warn!(error = %Chain(&error), path, pause_s = pause.as_secs_f64(), "a latch cannot join");
                self.shared.state.publish(LeaderState::Failed(error));
            }
            let mut stop = self.standing.stop.clone();
            tokio::select! {
                biased;
                () = stop.requested() => break,
                () = self.internals.client().closed() => break,
                () = sleep(pause) => {}
            }
        }
    }

    async fn attempt(&mut self) -> Attempt {
        let mut acquired = match self.wait_in_the_queue().await {
            Ok(acquired) => acquired,
            Err(attempt) => return attempt,
        };
        let mut has_led = false;
        loop {
            acquired = match self.term(acquired, &mut has_led).await {
                Attempt::Suspended(owned) => match self.resume(*owned).await {
                    Ok(acquired) => acquired,
                    Err(attempt) => return attempt,
                },
                ended => return ended,
            };
        }
    }

    /// Leads for one term. `has_led` tells whether an earlier term had the same node.
    async fn term(&mut self, acquired: Acquired, has_led: &mut bool) -> Attempt {
        let Self { internals, shared, standing, options } = self;
        let czxid = acquired.fencing_token;
        let caller = Caller { owner: None, at: Location::caller() };
        let hold = internals.hold(acquired, caller.origin());
        // If the attempt ends here, the drop of the share deletes the node.
        let share = HoldShare::first(hold);
        let begun = tokio::select! {
            biased;
            leave = standing.leave() => return Attempt::Left(leave),
            _ = share.lost() => return lost(&share),
            begun = begin(internals, &shared.candidacy, &share, (czxid, *has_led), options) => begun,
        };
        let (number, marks) = match begun {
            Ok(begun) => begun,
            Err(_) if share.hold().loss().is_some() => return lost(&share),
            // The node is gone, perhaps with the whole path, and the notification is on its way.
            Err(LeaderError::LeadershipLost { .. } | LeaderError::Framework(Error::NoNode { .. })) => {
                return Attempt::Led;
            }
            Err(error) => return Attempt::Failed(error),
        };
        let tenure = Tenure(Term::new(share, number, internals.base_path(), internals.client().clone(), marks));
        *has_led = true;
        self.lead(&tenure).await
    }

    /// Waits until the session is connected again, if it is, and asks whether the node still exists. No other candidate
    /// can lead meanwhile. The next term on the node has the number of the last one.
    async fn resume(&mut self, owned: OwnedNode) -> Result<Acquired, Attempt> {
        let (session, mut retries) = (owned.session().clone(), self.internals.client().retry_loop());
        let resumed = async {
            loop {
                session.connected().await?;
                // A signal of this round: an error state that it reports is newer than the question.
                let error = match owned.loss_signal().verify().await {
                    Ok(Some(LossReason::ConnectionError)) => {
                        self.internals.client().no_answer("asking for the node of a leader")
                    }
                    Err(error) if error.is_retryable_in_session() => error,
                    verified => return verified,
                };
                retries.failed_in(&session, error).await?;
            }
        };
        let resumed = tokio::select! {
            biased;
            leave = self.standing.leave() => return Err(Attempt::Left(leave)),
            resumed = resumed => resumed,
        };
        match resumed {
            Ok(None) => Ok(self.internals.acquired_from(owned, None)),
            Err(error) if error.is_retryable_in_session() => Err(Attempt::Failed(error.into())),
            _ => Err(Attempt::Led),
        }
    }

    /// Publishes the position in the queue until the own node is first in it.
    async fn wait_in_the_queue(&mut self) -> Result<Acquired, Attempt> {
        let Self { internals, shared, standing, .. } = self;
        let mut place = shared.candidacy.place();
        let mut granted = pin!(acquire(internals.client(), internals.base_path(), WaitMode::Forever, &*internals));
        loop {
            tokio::select! {
                biased;
                leave = standing.leave() => return Err(Attempt::Left(leave)),
                granted = &mut granted => return match granted {
                    Ok(Some(acquired)) => Ok(acquired),
                    // Without a budget this cannot happen.
                    Ok(None) => Err(Attempt::Failed(Error::Closed.into())),
                    Err(error) => Err(Attempt::Failed(error.into())),
                },
                _ = place.changed() => {
                    let position = place.borrow_and_update().as_ref().map(|place| place.position);
                    shared.state.publish(LeaderState::Waiting { position });
                }
            }
        }
    }

    /// Leads until the term ends.
    async fn lead(&mut self, tenure: &Tenure) -> Attempt {
        let Self { internals, shared, standing, .. } = self;
        let (term, path) = (&tenure.0, internals.base_path());
        let leading = LeaderState::Leading(term.view());
        shared.state.publish(leading.clone());
        let (log_path, node, number) = (path.to_owned(), term.node_path().to_owned(), term.number());
        report(move || tracing::info!(path = log_path, node, term = number, "a term has begun"));
        shared.listeners.notify(move |listener| listener(&leading));
        let ended = tokio::select! {
            biased;
            end = term.ended() => Ok(end),
            leave = standing.leave() => Err(leave),
        };
        term.resign();
        let state = match ended {
            Ok(end) => {
                let path = path.to_owned();
                report(move || tracing::info!(path, reason = %end, "a term has ended"));
                LeaderState::Waiting { position: None }
            }
            Err(Leave::Abstains) => LeaderState::Abstaining,
            Err(Leave::Stopped) => LeaderState::Closed,
        };
        // The streams end with the state that the run publishes.
        if ended != Err(Leave::Stopped) {
            shared.state.publish(state.clone());
        }
        if ended != Err(Leave::Stopped) || standing.orders.borrow().close_mode == CloseMode::NotifyLeader {
            shared.listeners.notify(move |listener| listener(&state));
        }
        if ended != Ok(TermEnd::Lost(LossReason::ConnectionError)) {
            // The latch has no node any more, as far as its owner is concerned.
            shared.candidacy.begin();
        }
        match ended {
            Ok(TermEnd::Lost(reason)) => {
                term.was_released(Ok(Release::AlreadyLost(reason)));
                if reason == LossReason::ConnectionError {
                    return term.take_node().map_or(Attempt::Led, |owned| Attempt::Suspended(Box::new(owned)));
                }
                term.abandon();
            }
            // Without a connection a close does not wait for the delete: the drop of the tenure leaves it to the session.
            Err(Leave::Stopped) if !internals.client().is_connected() => term.works_have_ended().await,
            _ => term.was_released(term.release().await),
        }
        ended.map_or_else(Attempt::Left, |_| Attempt::Led)
    }
}

/// Returns the end of an attempt that has lost its node or its connection.
fn lost(share: &HoldShare) -> Attempt {
    match share.hold().loss() {
        Some(LossReason::ConnectionError) => {
            share.take_node().map_or(Attempt::Led, |owned| Attempt::Suspended(Box::new(owned)))
        }
        _ => Attempt::Led,
    }
}

/// Reads the path's record, finds the number of the term, and waits out the delay. The number is the node's `czxid`,
/// unless a hand-over has let a younger node lead before. The record comes with it if the resignation is to be recorded
/// there.
async fn begin(
    internals: &LockInternals,
    candidacy: &Candidacy,
    share: &HoldShare,
    (czxid, has_led): (i64, bool),
    options: &LeaderLatchOptions,
) -> Result<(i64, Option<Found>), LeaderError> {
    let (client, path) = (internals.client(), internals.base_path());
    let (session, mut retries) = (share.hold().session().clone(), client.retry_loop());
    let found = match candidacy.take_read() {
        Some((data, stat)) => Found::new(&data, stat),
        None => record_io::read(&session, &mut retries, path).await?,
    };
    let own = node_from_path(share.path());
    if has_led {
        // No other candidate has led meanwhile: the number stays, and the proclaimed data with it.
        let number = found.record_by(own).map_or(czxid, |record| record.term(&found.stat).max(czxid));
        return Ok((number, found.record.is_some().then_some(found)));
    }
    let Some(delay) = options.delay else {
        let marks = found.record.is_some().then(|| found.clone());
        return Ok(match found.highest_term() > czxid {
            true => claim(internals, share, found, Record::claim(own), &mut retries).await?,
            false => (czxid, marks),
        });
    };
    let is_clean = is_clean(found.record.as_ref(), candidacy.last_ahead().as_deref());
    let record = if found.highest_term() > czxid { Record::claim(own) } else { Record::of_leader(czxid, own) };
    // Before the delay: observers wait for the number.
    let begun = match claim(internals, share, found.clone(), record, &mut retries).await {
        // A client without transactions leads too, but its end always counts as a crash.
        Err(LeaderError::Framework(Error::Unsupported { .. })) if found.highest_term() <= czxid => (czxid, None),
        claimed => claimed.map(|(number, marks)| (number.max(czxid), marks))?,
    };
    if !is_clean {
        tracing::info!(path, delay_s = delay.as_secs_f64(), "the earlier leader did not resign");
        sleep(delay).await;
        // The proof of the grant is as old as the delay. Meanwhile the node may have been deleted.
        match share.verify().await {
            Err(error) if !error.is_retryable() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(begun)
}

/// Returns whether the earlier leader has resigned, as far as the record and the queue show.
fn is_clean(record: Option<&Record>, ahead: Option<&str>) -> bool {
    match (record, ahead) {
        (Some(record), Some(ahead)) => record.resigned && record.leader == ahead,
        (Some(record), None) => record.resigned,
        (None, ahead) => ahead.is_none(),
    }
}

/// Writes the record of a leader before its term begins, and returns the highest term in it.
async fn claim(
    internals: &LockInternals,
    share: &HoldShare,
    mut found: Found,
    record: Record,
    retries: &mut RetryLoop,
) -> Result<(i64, Option<Found>), LeaderError> {
    let (client, path, session) = (internals.client(), internals.base_path(), share.hold().session());
    loop {
        share.check_held()?;
        if found.is_foreign {
            return Err(LeaderError::ForeignData { path: client.path_text(path) });
        }
        // By an earlier try with a lost reply.
        if found.record.as_ref() == Some(&record) {
            return Ok((found.highest_term(), Some(found)));
        }
        match found.write(session, path, share.path(), &record, Vec::new()).await {
            Ok(done) => {
                let written = Found::written(record, &done);
                return Ok((written.highest_term(), Some(written)));
            }
            Err(Refused::Lost) => {
                let reason = TermEnd::Lost(LossReason::NodeDeleted);
                return Err(LeaderError::LeadershipLost { path: client.path_text(path), reason });
            }
            Err(Refused::Changed) => {}
            Err(Refused::Failed(error)) => retries.failed_in(session, error).await?,
        }
        found = record_io::read(session, retries, path).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_begins_at_once_only_behind_a_leader_that_has_resigned() {
        let leads = Record::of_leader(5, "a");
        let mut resigned = leads.clone();
        resigned.resigned = true;
        for (record, ahead, clean) in [
            (None, None, true),
            (None, Some("a"), false),
            (Some(&leads), None, false),
            (Some(&leads), Some("a"), false),
            (Some(&resigned), None, true),
            (Some(&resigned), Some("a"), true),
            (Some(&resigned), Some("b"), false),
        ] {
            assert_eq!(is_clean(record, ahead), clean, "{record:?} {ahead:?}");
        }
    }
}
