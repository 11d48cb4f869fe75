//! The task of a latch: joins, waits, leads, and starts again.
//!
//! A latch keeps its node when an error policy ends its term at `Suspended`, as Curator's does. Otherwise each reset of
//! a connection would move the leadership. The latch leads again once the leader of the ensemble has confirmed the
//! node.

use std::convert::Infallible;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{Budget, OwnedNode, RecipeClient as _, report};
use curator_framework::{Chain, CuratorFramework, Error, LossReason, RetryLoop};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::engine::caller::Caller;
use crate::engine::candidacy::{Candidacy, LATCH_NAME, Record};
use crate::engine::driver::StandardLockInternalsDriver;
use crate::engine::hold::{HoldShare, Release};
use crate::engine::options::LockOptions;
use crate::engine::{Acquired, LockInternals, LockSpec, WaitMode, acquire};
use crate::leader::error::{LeaderError, TermEnd};
use crate::leader::options::{CloseMode, LeaderLatchOptions};
use crate::leader::record_io::{self, Found, IfUnknown, LeaderNode};
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
        // The election's record shows the next leader that this one has not resigned.
        has_containers: options.delay.is_none(),
        ..LockSpec::exclusive(LATCH_NAME, Arc::new(StandardLockInternalsDriver))
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

/// The conditions under which the candidate is in the queue.
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
enum End {
    Left(Leave),
    /// The term has ended, or the node was deleted before it.
    Led,
    Failed(LeaderError),
}

/// A node that was kept through an error state of the connection. It keeps its position in the queue.
struct Kept {
    owned: OwnedNode,
    /// The number of the last term, if the node has led.
    number: Option<i64>,
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

    /// Joins and leads again and again until the latch or the client is closed.
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
            let Err(end) = self.attempt().await;
            let error = match end {
                End::Left(Leave::Stopped) | End::Failed(LeaderError::Framework(Error::Closed)) => break,
                End::Left(Leave::Abstains) => continue,
                End::Led => {
                    pauses = Pauses::default();
                    continue;
                }
                End::Failed(error) => error,
            };
            // Without its node a candidate joins again, though the policy has given up on that attempt. The client may
            // be started later.
            let may_pass = error.is_retryable()
                || matches!(error, LeaderError::Framework(Error::NoNode { .. } | Error::NotStarted));
            // Nodes of the session may go at any time.
            let waits_for_room = matches!(error, LeaderError::Framework(Error::TooManyEphemeralNodes { .. }));
            let (path, pause) = (self.internals.base_path(), pauses.after(may_pass || waits_for_room));
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

    /// Leads with one node, for several terms if the connection is lost in between.
    async fn attempt(&mut self) -> Result<Infallible, End> {
        let (mut acquired, mut number) = (self.wait_in_the_queue().await?, None);
        loop {
            let kept = self.term(acquired, number).await?;
            number = kept.number;
            acquired = self.resume(kept.owned).await?;
        }
    }

    /// Leads for one term. `number` is known if an earlier term had the same node.
    async fn term(&mut self, acquired: Acquired, number: Option<i64>) -> Result<Kept, End> {
        let Self { internals, shared, standing, options } = self;
        let czxid = acquired.fencing_token.czxid().get();
        let caller = Caller { owner: None, at: Location::caller() };
        let hold = internals.hold(acquired, caller.origin());
        // If the attempt ends here, the drop of the share deletes the node.
        let share = HoldShare::first(hold);
        let node = LeaderNode { client: internals.client(), path: internals.base_path(), share: &share };
        let lost = || match share.hold().loss() {
            Some(LossReason::ConnectionError) => share.take_node().map(|owned| Kept { owned, number }).ok_or(End::Led),
            _ => Err(End::Led),
        };
        let begun = tokio::select! {
            biased;
            leave = standing.leave() => return Err(End::Left(leave)),
            _ = share.lost() => return lost(),
            begun = begin(&node, &shared.candidacy, czxid, number, options.delay) => begun,
        };
        let (number, marks) = match begun {
            Ok(begun) => begun,
            Err(_) if share.hold().loss().is_some() => return lost(),
            // The node is deleted, perhaps with the whole path, and the notification is on its way.
            Err(LeaderError::LeadershipLost { .. } | LeaderError::Framework(Error::NoNode { .. })) => {
                return Err(End::Led);
            }
            Err(error) => return Err(End::Failed(error)),
        };
        let tenure = Tenure(Term::new(share, number, internals.base_path(), internals.client().clone(), marks));
        self.lead(&tenure).await
    }

    /// Waits until the session is connected again, if it is, and asks whether the node still exists. No other candidate
    /// can lead in the meantime. The next term on the node has the number of the last one.
    async fn resume(&mut self, owned: OwnedNode) -> Result<Acquired, End> {
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
            leave = self.standing.leave() => return Err(End::Left(leave)),
            resumed = resumed => resumed,
        };
        match resumed {
            Ok(None) => Ok(self.internals.acquired_from(owned, None, 1)),
            Err(error) if error.is_retryable_in_session() => Err(End::Failed(error.into())),
            _ => Err(End::Led),
        }
    }

    /// Publishes the position in the queue until the candidate's node is first in it.
    async fn wait_in_the_queue(&mut self) -> Result<Acquired, End> {
        let Self { internals, shared, standing, .. } = self;
        let mut place = shared.candidacy.place();
        let mut granted = pin!(acquire(internals.client(), internals.base_path(), WaitMode::Forever, &*internals));
        loop {
            tokio::select! {
                biased;
                leave = standing.leave() => return Err(End::Left(leave)),
                granted = &mut granted => return match granted {
                    Ok(Some(acquired)) => Ok(acquired),
                    // Without a budget this cannot happen.
                    Ok(None) => Err(End::Failed(Error::Closed.into())),
                    Err(error) => Err(End::Failed(error.into())),
                },
                _ = place.changed() => {
                    let position = place.borrow_and_update().as_ref().map(|place| place.position);
                    shared.state.publish(LeaderState::Waiting { position });
                }
            }
        }
    }

    /// Leads until the term ends.
    async fn lead(&mut self, tenure: &Tenure) -> Result<Kept, End> {
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
            // The latch no longer has a node, as far as its owner is concerned.
            shared.candidacy.begin();
        }
        match ended {
            Ok(TermEnd::Lost(reason)) => {
                term.was_released(Ok(Release::AlreadyLost(reason)));
                if reason == LossReason::ConnectionError {
                    let number = Some(term.number());
                    return term.take_node().map(|owned| Kept { owned, number }).ok_or(End::Led);
                }
                term.abandon();
            }
            // Without a connection a close does not wait for the delete: the drop of the tenure leaves it to the session.
            // The client's state shows a new connection a moment after the session has it.
            Err(Leave::Stopped) if !term.session().is_connected() => term.works_have_ended().await,
            _ => term.was_released(term.release().await),
        }
        Err(ended.map_or_else(End::Left, |_| End::Led))
    }
}

/// The number of a term, as the path's data decides it.
#[derive(Debug, PartialEq, Eq)]
enum TermStart {
    /// The leader writes nothing.
    Known(i64),
    /// The number of the node. A record passes it to the next leader, which may have to wait.
    Recorded(i64),
    /// A hand-over has let a younger node lead. The number is the transaction that writes the record.
    Claimed,
}

impl TermStart {
    /// `number` is known if an earlier term had the same node: no other candidate has led in between. `highest` is the
    /// highest term in the path's data.
    const fn of(czxid: i64, number: Option<i64>, highest: i64, has_delay: bool) -> Self {
        match number {
            Some(number) => Self::Known(number),
            None if highest > czxid => Self::Claimed,
            None if has_delay => Self::Recorded(czxid),
            None => Self::Known(czxid),
        }
    }
}

/// Reads the path's record, finds the number of the term, and waits out the delay. The record comes with the number if
/// the leader records its resignation there.
async fn begin(
    node: &LeaderNode<'_>,
    candidacy: &Candidacy,
    czxid: i64,
    number: Option<i64>,
    delay: Option<Duration>,
) -> Result<(i64, Option<Found>), LeaderError> {
    let mut retries = node.client.retry_loop();
    let found = match candidacy.take_read() {
        Some((data, stat)) => Found::new(&data, stat),
        None => record_io::read(node.session(), &mut retries, node.path).await?,
    };
    let is_clean = number.is_some() || is_clean(found.record.as_ref(), candidacy.last_ahead().as_deref());
    // Before the delay: observers wait for the number.
    let begun = match TermStart::of(czxid, number, found.highest_term(), delay.is_some()) {
        TermStart::Known(number) => (number, found.record.is_some().then_some(found)),
        TermStart::Recorded(number) => {
            match claim(node, &mut retries, found, &Record::of_leader(number, node.name())).await {
                // A client without transactions leads too, but its end always counts as a crash.
                Err(LeaderError::Framework(Error::Unsupported { .. })) => (number, None),
                written => (number, Some(written?)),
            }
        }
        TermStart::Claimed => {
            let written = claim(node, &mut retries, found, &Record::claim(node.name())).await?;
            (written.highest_term(), Some(written))
        }
    };
    if let Some(delay) = delay.filter(|_| !is_clean) {
        tracing::info!(path = node.path, delay_s = delay.as_secs_f64(), "the earlier leader did not resign");
        sleep(delay).await;
        // The grant was proven before the delay, and the node may have been deleted since.
        match node.share.verify().await {
            Err(error) if !error.is_retryable() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(begun)
}

/// Writes the record of a leader before its term starts.
async fn claim(
    node: &LeaderNode<'_>,
    retries: &mut RetryLoop,
    found: Found,
    record: &Record,
) -> Result<Found, LeaderError> {
    let change = |found: &Found| {
        node.share.check_held()?;
        // An earlier try with a lost reply may have written it.
        Ok((found.record.as_ref() != Some(record)).then(|| (record.clone(), Vec::new())))
    };
    node.write(retries, Some(found), IfUnknown::Repeat, change).await
}

/// Returns whether the earlier leader has resigned, as far as the record and the queue show.
fn is_clean(record: Option<&Record>, ahead: Option<&str>) -> bool {
    match (record, ahead) {
        (Some(record), Some(ahead)) => record.resigned && record.leader == ahead,
        (Some(record), None) => record.resigned,
        (None, ahead) => ahead.is_none(),
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

    #[test]
    fn a_term_has_the_number_of_its_node_unless_a_younger_one_has_led() {
        use TermStart::{Claimed, Known, Recorded};
        for (czxid, last, highest, has_delay, start) in [
            (5, None, 0, false, Known(5)),
            (5, None, 5, false, Known(5)),
            (5, None, 6, false, Claimed),
            (5, None, 4, true, Recorded(5)),
            (5, None, 6, true, Claimed),
            (5, Some(5), 6, true, Known(5)),
            (5, Some(9), 9, false, Known(9)),
        ] {
            let context = format!("{czxid} {last:?} {highest} {has_delay}");
            assert_eq!(TermStart::of(czxid, last, highest, has_delay), start, "{context}");
        }
    }
}
