//! Performs the steps of a member that leaves. The runner decides nothing.

use curator_framework::recipe::{Budget, OwnedNode, RecipeClient as _};
use curator_framework::spi::{Done, Operation};
use curator_framework::{Error, EventType, LossReason, RetryLoop, Session, Stat, WakeReason, Watch, make_path};
use tokio::time::{Instant, timeout};

use super::enter::{PATIENCE, child_count};
use super::nodes::{Nodes, drift};
use super::plan::leaving::{Input, Leaving, Step};
use crate::barriers::error::BarrierError;
use crate::barriers::session::connected;

/// The state of a leave, which a later call goes on with.
pub(super) struct Departing {
    pub(super) plan: Leaving,
    /// The own node, until it is deleted.
    pub(super) owned: Option<OwnedNode>,
    /// The [drift] of the barrier when the member arrived.
    arrival: i32,
    /// The [drift] of the barrier when the member left, or at a later read.
    departure: Option<i32>,
    left_at: Option<Instant>,
    /// The reason why the node was lost before the member left.
    lost: Option<LossReason>,
}

impl Departing {
    pub(super) fn new(plan: Leaving, owned: OwnedNode, arrival: i32) -> Self {
        Self { plan, owned: Some(owned), arrival, departure: None, left_at: None, lost: None }
    }

    /// Returns the number of members that died between the arrival and the newest read of the barrier.
    pub(super) fn died(&self) -> u32 {
        let died = self.departure.map_or(0, |departure| departure.wrapping_sub(self.arrival));
        u32::try_from(died).unwrap_or_default()
    }

    /// Records the deaths that a read behind the own departure shows.
    fn notice(&mut self, barrier: &Stat) {
        // The read includes the delete of this member's node.
        self.departure = Some(drift(barrier).wrapping_sub(1));
    }

    /// Leaves within a budget. Returns `false` if other members are left by then.
    pub(super) async fn leave(&mut self, nodes: &Nodes, budget: Budget) -> Result<bool, BarrierError> {
        let mut retries = nodes.client.retry_loop();
        let departs_within = nodes.client.close_budget();
        loop {
            if let Some(reason) = self.lost {
                return Err(BarrierError::Lost { path: nodes.client.path_text(&nodes.path), reason });
            }
            let session = match &self.owned {
                Some(owned) => owned.session().clone(),
                None => connected(&mut retries, &nodes.path).await?,
            };
            let mut attempt = Attempt { nodes, session, budget, departs_within, ready: None, other: None };
            let error = match attempt.run(self, &mut retries).await {
                Ok(all_left) => return Ok(all_left),
                Err(error) => error,
            };
            match (attempt.session.end_reason(), &self.owned) {
                (Some(_), None) => retries.failed(error.about(&nodes.path)).await?,
                (Some(ended), Some(_)) => self.lost = Some(LossReason::Session(ended)),
                (None, _) if self.lost.is_some() => {}
                (None, _) => return Err(error.into()),
            }
        }
    }
}

/// A member that leaves in one session.
struct Attempt<'a> {
    nodes: &'a Nodes,
    session: Session,
    budget: Budget,
    /// The budget until the own node is deleted.
    departs_within: Budget,
    /// The watch on `ready`.
    ready: Option<Watch>,
    /// The watch on another member.
    other: Option<Watch>,
}

impl Attempt<'_> {
    /// Returns `true` when all have left, `false` at the end of the budget.
    async fn run(&mut self, leave: &mut Departing, retries: &mut RetryLoop) -> Result<bool, Error> {
        let mut step = leave.plan.begin();
        loop {
            match step {
                Step::Over => {
                    self.count_deaths(leave).await;
                    return Ok(true);
                }
                Step::GiveUp => return Ok(false),
                _ => {}
            }
            let budget = if leave.owned.is_some() { self.departs_within } else { Budget::ENDLESS };
            let client = &self.nodes.client;
            let input = client.within(budget, self.input(leave, retries, step)).await;
            step = leave.plan.next(input.unwrap_or_else(|| Err(client.no_answer("delete")))?);
            if leave.plan.has_departed() {
                leave.left_at.get_or_insert_with(Instant::now);
                // Its session counts it no longer among those that own nodes.
                leave.owned = None;
            }
        }
    }

    /// Performs a step. After an error it waits until the next try.
    async fn input(&mut self, leave: &mut Departing, retries: &mut RetryLoop, step: Step) -> Result<Input, Error> {
        let input = match step {
            Step::Wait { grace } => {
                retries.progressed();
                self.wait(grace).await
            }
            // Boxed: these are short, and a wait may be long.
            step => Box::pin(self.perform(leave, step)).await,
        };
        match input {
            Err(error) if leave.lost.is_none() => {
                retries.failed_in(&self.session, error).await?;
                Ok(Input::Interrupted)
            }
            input => input,
        }
    }

    async fn perform(&mut self, leave: &mut Departing, step: Step) -> Result<Input, Error> {
        let (nodes, session) = (self.nodes, &self.session);
        Ok(match step {
            Step::Depart => self.depart(leave).await?,
            Step::Watch => match session.get_data_watched(&nodes.ready).await {
                Ok(read) => {
                    self.ready = Some(read.watch);
                    Input::Watched(Some(read.stat.czxid))
                }
                Err(Error::NoNode { .. }) => Input::Watched(None),
                Err(error) => return Err(error),
            },
            Step::Look => {
                let (read, watch) = nodes.watch_round(session).await?;
                // A notification ahead of the reply may be that of an earlier `ready`.
                let is_set = watch.as_ref().is_none_or(|watch| !watch.has_fired());
                self.ready = watch;
                leave.notice(&read.barrier);
                if is_set { Input::Looked(read.look) } else { Input::Woken }
            }
            Step::WatchOther(name) => {
                let (found, watch) = session.exists_watched(&make_path(&nodes.path, &name)).await?;
                self.other = found.is_some().then_some(watch);
                if found.is_some() { Input::OtherWatched } else { Input::Left }
            }
            Step::Remove { version } => match nodes.remove_ready(session, version, None).await? {
                true => Input::Removed,
                false => Input::Refused,
            },
            Step::Wait { .. } | Step::Over | Step::GiveUp => Input::Woken,
        })
    }

    /// Reads the deaths during a long wait. If the read fails or is slow, the number of an earlier one stays: the round
    /// is over all the same.
    async fn count_deaths(&self, leave: &mut Departing) {
        let long = self.session.timeout() / (2 * PATIENCE);
        if leave.left_at.is_none_or(|left_at| left_at.elapsed() < long) {
            return;
        }
        if let Ok(Ok(Some(barrier))) = timeout(long, self.session.exists(&self.nodes.path)).await {
            leave.notice(&barrier);
        }
    }

    /// Deletes the own node.
    async fn depart(&mut self, leave: &mut Departing) -> Result<Input, Error> {
        let nodes = self.nodes;
        let Some(owned) = leave.owned.as_mut() else { return Ok(Input::DepartedBefore) };
        let Some(path) = owned.path().map(str::to_owned) else { return Ok(Input::DepartedBefore) };
        // The data of the own node shows its watchers that the member leaves: a death deletes it only.
        let mark = Operation::SetData { path, data: b"left".to_vec(), version: None };
        let done = match owned.delete_with(vec![nodes.write_quantity(None), mark]).await {
            Ok(done) => done,
            // The own node is gone, perhaps by an earlier request.
            Err(Error::Transaction { cause, .. }) if matches!(*cause, Error::NoNode { .. }) => {
                owned.delete().await?.then(Vec::new)
            }
            Err(Error::Transaction { cause, .. }) => return Err(*cause),
            Err(error) => return Err(error),
        };
        let Some(done) = done else { return Err(self.is_lost(leave)) };
        let Some(Done::Set(barrier)) = done.first() else { return Ok(Input::DepartedBefore) };
        leave.departure = Some(drift(barrier));
        let others = child_count(barrier).saturating_sub(1);
        Ok(Input::Departed { zxid: barrier.mzxid, others, version: barrier.version })
    }

    /// Records that the own node was lost before the member left.
    fn is_lost(&self, leave: &mut Departing) -> Error {
        let reason = self.session.end_reason().map_or(LossReason::NodeDeleted, LossReason::Session);
        leave.lost = Some(reason);
        Error::NoNode { path: self.nodes.path.as_str().into() }
    }

    async fn wait(&mut self, grace: bool) -> Result<Input, Error> {
        let over = if grace { Budget::of(self.session.timeout() / PATIENCE) } else { Budget::ENDLESS };
        let Some(ready) = self.ready.as_mut() else { return Ok(Input::Woken) };
        let other = async {
            match self.other.as_mut() {
                Some(other) => other.await,
                None => std::future::pending().await,
            }
        };
        let (woken, is_ready) = tokio::select! {
            biased;
            woken = ready => (woken, true),
            woken = other => (woken, false),
            () = over.over() => return Ok(Input::GraceOver),
            () = self.budget.over() => return Ok(Input::BudgetOver),
        };
        if is_ready {
            self.ready = None;
        } else {
            self.other = None;
        }
        match woken {
            WakeReason::SessionEnded(_) => Err(self.session.closed_error(self.nodes.path.as_str())),
            WakeReason::Event(EventType::NodeDeleted) if is_ready => Ok(Input::Deleted),
            WakeReason::Event(_) if !is_ready => Ok(Input::Left),
            _ => Ok(Input::Woken),
        }
    }
}
