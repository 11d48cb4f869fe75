//! Performs the steps of a member in one session. The runner decides nothing.

use curator_framework::recipe::{Budget, LossSignal, OwnedNode, RecipeClient as _};
use curator_framework::{
    Error, EventType, LossReason, RetryLoop, Session, Stat, WakeReason, Watch, make_path, node_from_path,
};
use futures_util::future::OptionFuture;
use tokio::time::{Instant, timeout};

use super::nodes::{Nodes, PATIENCE, drift};
use super::plan::{Input, Plan, Reading, Step};

/// The node of a member, over all sessions and calls. However a member ends, dropping this deletes the node.
#[derive(Default)]
pub(super) struct Own {
    /// The node, until the member has left.
    pub(super) node: Option<OwnedNode>,
    /// A node of an earlier session may exist at the planned path.
    pub(super) earlier_may_stand: bool,
    /// The [drift] of the barrier when the member arrived.
    pub(super) arrival: i32,
    /// The [drift] of the barrier when the member left, or at a later read.
    pub(super) departure: Option<i32>,
    pub(super) left_at: Option<Instant>,
    /// The reason why the node was lost before the member left.
    pub(super) lost: Option<LossReason>,
}

impl Own {
    /// Makes a node for a new session. It has the name of the earlier node, so only one of the two can exist. A server
    /// may receive the create of the ended session after the create of the next one.
    pub(super) fn renew(&mut self, nodes: &Nodes, session: &Session) {
        let earlier = self.node.as_ref();
        self.earlier_may_stand |= earlier.is_some_and(|node| node.is_uncertain() || node.path().is_some());
        let id = earlier.map_or_else(|| session.new_id(), OwnedNode::protected_id);
        self.node = Some(nodes.new_member(session, id));
    }

    /// Returns the node of a member that has not left.
    pub(super) fn node(&mut self, nodes: &Nodes) -> Result<&mut OwnedNode, Error> {
        self.node.as_mut().ok_or_else(|| Error::NoNode { path: nodes.path.as_str().into() })
    }

    /// Returns the name of the node, empty once the member has left.
    pub(super) fn name(&self) -> &str {
        self.node.as_ref().map_or("", |node| node_from_path(node.planned_path()))
    }

    /// Records the deaths that a read after the departure shows.
    fn notice(&mut self, barrier: &Stat) {
        // The read includes the delete of this member's node.
        self.departure = Some(drift(barrier).wrapping_sub(1));
    }

    /// Returns the number of members that died between the arrival and the newest read of the barrier.
    pub(super) fn died(&self) -> u32 {
        let died = self.departure.map_or(0, |departure| departure.wrapping_sub(self.arrival));
        u32::try_from(died).unwrap_or_default()
    }

    /// Reads the deaths during a long wait. If the read fails or is slow, the last known number stays: the round has
    /// ended in any case.
    pub(super) async fn count_deaths(&mut self, nodes: &Nodes, session: &Session) {
        let long = session.timeout() / (2 * PATIENCE);
        if self.left_at.is_none_or(|left_at| left_at.elapsed() < long) {
            return;
        }
        if let Ok(Ok(Some(barrier))) = timeout(long, session.exists(&nodes.path)).await {
            self.notice(&barrier);
        }
    }
}

/// A member that enters or leaves in one session.
pub(super) struct Attempt<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) own: &'a mut Own,
    pub(super) session: &'a Session,
    budget: Budget,
    /// The budget until the member's node is deleted.
    departs_within: Budget,
    ready: Option<Watch>,
    /// The watch on another member.
    other: Option<Watch>,
    /// The grace of the quorum, which started with an earlier wait.
    grace: Option<Budget>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        nodes: &'a Nodes,
        own: &'a mut Own,
        session: &'a Session,
        budget: Budget,
        departs_within: Budget,
    ) -> Self {
        Self { nodes, own, session, budget, departs_within, ready: None, other: None, grace: None }
    }

    /// Returns `true` when all have arrived or left, `false` at the end of the budget.
    pub(super) async fn run(&mut self, plan: &mut impl Plan, retries: &mut RetryLoop) -> Result<bool, Error> {
        let client = &self.nodes.client;
        let mut step = plan.begin(self.own.name());
        loop {
            let budget = if self.own.node.is_some() { self.departs_within } else { Budget::ENDLESS };
            let input = match step {
                Step::Done => match self.loss().await? {
                    Some(LossReason::NodeDeleted) => Input::Gone,
                    _ => return Ok(true),
                },
                Step::Refuse => return Ok(false),
                Step::Rejoin => {
                    let path = self.own.node(self.nodes)?.planned_path().into();
                    self.own.node = Some(self.nodes.new_member(self.session, self.session.new_id()));
                    Box::pin(retries.pause_after(Error::NoNode { path })).await?;
                    step = plan.begin(self.own.name());
                    continue;
                }
                step => {
                    let input = client.within(budget, self.input(retries, step)).await;
                    input.unwrap_or_else(|| Err(client.no_answer("delete")))?
                }
            };
            step = plan.next(input);
        }
    }

    /// Returns the reason if the member's node is lost with its session still there.
    async fn loss(&self) -> Result<Option<LossReason>, Error> {
        let loss = self.own.node.as_ref().and_then(|node| node.loss_signal().loss());
        if let Some(LossReason::Session(_)) = loss {
            self.session.ended().await;
            return Err(self.session.closed_error(self.nodes.path.as_str()));
        }
        Ok(loss)
    }

    /// Performs a step. After an error it waits until the next try.
    async fn input(&mut self, retries: &mut RetryLoop, step: Step) -> Result<Input, Error> {
        let input = match step {
            Step::Wait { grace } => {
                retries.progressed();
                self.wait(grace).await
            }
            // Boxed: these are short, and a wait may be long.
            step => Box::pin(self.perform(step)).await,
        };
        let Err(error) = input else { return input };
        retries.failed_in(self.session, error).await?;
        Ok(Input::Interrupted { may_stand: self.own.node.as_ref().is_some_and(OwnedNode::is_uncertain) })
    }

    async fn perform(&mut self, step: Step) -> Result<Input, Error> {
        let (nodes, session) = (self.nodes, self.session);
        Ok(match step {
            Step::Arrive => self.arrive().await?,
            Step::Settle => self.settle().await?,
            Step::List => Input::Listed(nodes.members_unless_ready(session).await?),
            Step::Watch(reading) => {
                let (ready, watch) = nodes.read_ready(session, reading).await?;
                let (has_fired, round) = (watch.as_ref().is_some_and(Watch::has_fired), ready.map(|ready| ready.czxid));
                self.ready = watch;
                if has_fired { Input::Fired(round) } else { Input::Watched(round) }
            }
            Step::Look(reading) => {
                let (look, watch, barrier) = nodes.look(session, reading).await?;
                // A notification that arrives before the reply may be about an earlier `ready`.
                let has_fired = watch.as_ref().is_some_and(Watch::has_fired);
                // Without a new watch the present one stays.
                self.ready = watch.or_else(|| self.ready.take());
                if self.own.node.is_none() {
                    self.own.notice(&barrier);
                }
                match reading {
                    _ if has_fired => Input::Woken,
                    Reading::Existence => Input::Looked(look),
                    Reading::Data | Reading::WatchedData => Input::Round(look),
                }
            }
            Step::ReadCreations(names) => Input::Creations(nodes.creations(session, names).await?),
            Step::Open { names, version } => {
                let opened = nodes.change(session, nodes.open(session, &names, version)).await?;
                opened.map_or(Input::Refused, Input::Opened)
            }
            Step::Join { beside, ready } => {
                let joined = nodes.change(session, nodes.join(self.own.name(), &beside, &ready)).await?;
                joined.map_or(Input::Refused, |_| Input::Joined)
            }
            Step::Remove { version, ready } => {
                let removed = nodes.change(session, nodes.remove(version, ready)).await?;
                removed.map_or(Input::Refused, |_| Input::Removed)
            }
            Step::GiveUp { version } => self.give_up(version).await?,
            Step::Depart => self.depart().await?,
            Step::WatchOther(name) => {
                let (found, watch) = session.exists_watched(&make_path(&nodes.path, &name)).await?;
                self.other = found.is_some().then_some(watch);
                if found.is_some() { Input::OtherWatched } else { Input::Left }
            }
            Step::Wait { .. } | Step::Rejoin | Step::Done | Step::Refuse => Input::Woken,
        })
    }

    async fn wait(&mut self, grace: bool) -> Result<Input, Error> {
        let loss = self.own.node.as_ref().map(OwnedNode::loss_signal);
        self.grace = match &loss {
            _ if !grace => None,
            // A member that enters has one grace for all its waits.
            Some(_) => self.grace.or_else(|| self.nodes.options.quorum.map(|(_, grace)| Budget::of(grace))),
            None => Some(Budget::of(self.session.timeout() / PATIENCE)),
        };
        let Some(ready) = self.ready.as_mut() else { return Ok(Input::Woken) };
        let (woken, is_ready) = tokio::select! {
            biased;
            woken = ready => (woken, true),
            Some(woken) = OptionFuture::from(self.other.as_mut()) => (woken, false),
            Some(loss) = OptionFuture::from(loss.as_ref().map(LossSignal::lost)) => return match loss {
                LossReason::NodeDeleted => Ok(Input::Gone),
                LossReason::Session(_) => Err(self.session.closed_error(self.nodes.path.as_str())),
                _ => Ok(Input::Woken),
            },
            () = self.grace.unwrap_or(Budget::ENDLESS).over() => {
                self.grace = None;
                return Ok(Input::GraceOver);
            }
            () = self.budget.over() => return Ok(Input::BudgetOver),
        };
        *(if is_ready { &mut self.ready } else { &mut self.other }) = None;
        Ok(match woken {
            WakeReason::SessionEnded(_) => return Err(self.session.closed_error(self.nodes.path.as_str())),
            WakeReason::Event(_) if !is_ready => Input::Left,
            WakeReason::Event(EventType::NodeDeleted) if loss.is_none() => Input::Deleted,
            WakeReason::Event(EventType::NodeCreated) if loss.is_some_and(|loss| loss.loss().is_none()) => {
                Input::Created
            }
            _ => Input::Woken,
        })
    }
}
