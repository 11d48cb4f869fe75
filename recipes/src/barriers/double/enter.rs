//! Performs the steps of a member that enters. The runner decides nothing.

use curator_framework::recipe::{Budget, NodeSpec, OwnedNode, ProtectedId, RecipeClient as _};
use curator_framework::spi::{Done, Operation};
use curator_framework::{Error, EventType, LossReason, RetryLoop, Session, Stat, WakeReason, Watch, node_from_path};
use futures_util::future::join3;

use super::nodes::{Nodes, drift};
use super::plan::entering::{Entering, Input, Quorum, Step};
use crate::barriers::error::BarrierError;
use crate::barriers::session::{check_transactions, connected};

/// The session timeout, divided by this, is the longest reply time of a healthy server. A member that leaves looks for
/// dead members after the same time.
pub(super) const PATIENCE: u32 = 10;
/// The most attempts to create a node while other clients delete its parents.
const MOST_PARENTS: usize = 16;

/// A member that has entered.
pub(super) struct Entered {
    pub(super) owned: OwnedNode,
    pub(super) name: String,
    /// The transaction that created the member's node.
    pub(super) own_czxid: i64,
    pub(super) round: Option<i64>,
    pub(super) opened: bool,
    /// The [drift] of the barrier when the member arrived.
    pub(super) drift: i32,
}

/// Enters within a budget. Returns `None` if the barrier has not opened by then.
pub(super) async fn enter(nodes: &Nodes, budget: Budget) -> Result<Option<Entered>, BarrierError> {
    bounded(nodes, budget, "entering the barrier", attempts(nodes, budget)).await
}

/// Runs `work`, which at the end of its budget sends the requests that decide its result. Fails if a server does not
/// reply to these within a further part of the session timeout.
pub(super) async fn bounded<T>(
    nodes: &Nodes,
    budget: Budget,
    request: &str,
    work: impl Future<Output = Result<T, BarrierError>>,
) -> Result<T, BarrierError> {
    let done = budget.plus(nodes.client.session_timeout() / PATIENCE).limit(work).await;
    done.unwrap_or_else(|| Err(nodes.client.no_answer(&format!("{request} {}", nodes.path)).into()))
}

async fn attempts(nodes: &Nodes, budget: Budget) -> Result<Option<Entered>, BarrierError> {
    check_transactions(&nodes.client, "double barrier", &nodes.path).await?;
    let quorum = nodes.options.quorum.map_or(Quorum::All, |(least, _)| Quorum::Of(least));
    let mut retries = nodes.client.retry_loop();
    let mut plan = Entering::new(nodes.quantity, quorum);
    let mut earlier = None;
    loop {
        let session = connected(&mut retries, &nodes.path).await?;
        let mut attempt = Attempt::new(nodes, session, budget, earlier.take());
        let error = match attempt.run(&mut plan, &mut retries).await {
            Ok(Some((round, opened))) => return Ok(Some(attempt.entered(round, opened))),
            Ok(None) => return Ok(None),
            Err(error) => error,
        };
        if attempt.session.end_reason().is_none() {
            return Err(error.into());
        }
        earlier = Some(Earlier { id: attempt.owned.protected_id(), may_stand: attempt.may_stand() });
        retries.failed(error.about(&nodes.path)).await?;
    }
}

/// The node of this member in its last session. The node of the next session has the same name, so one of the two can
/// stand. A server may receive the create of the ended session after the create of the next one.
struct Earlier {
    id: ProtectedId,
    may_stand: bool,
}

/// A member that enters in one session. However it ends, dropping `owned` deletes its node.
struct Attempt<'a> {
    nodes: &'a Nodes,
    session: Session,
    owned: OwnedNode,
    budget: Budget,
    /// A node of an earlier session may exist at the planned path.
    earlier_may_stand: bool,
    ready: Option<Watch>,
    grace: Option<Budget>,
    own_czxid: i64,
    drift: i32,
}

impl<'a> Attempt<'a> {
    fn new(nodes: &'a Nodes, session: Session, budget: Budget, earlier: Option<Earlier>) -> Self {
        let earlier = earlier.unwrap_or_else(|| Earlier { id: session.new_id(), may_stand: false });
        let owned = nodes.new_member(&session, earlier.id);
        let earlier_may_stand = earlier.may_stand;
        Self { nodes, session, owned, budget, earlier_may_stand, ready: None, grace: None, own_czxid: 0, drift: 0 }
    }

    /// Returns `true` if a node of this session or an earlier one may exist.
    fn may_stand(&self) -> bool {
        self.earlier_may_stand || self.owned.is_uncertain() || self.owned.path().is_some()
    }

    fn name(&self) -> String {
        node_from_path(self.owned.planned_path()).to_owned()
    }

    /// Enters, and returns the round, if it is known, and whether this member has opened it.
    async fn run(
        &mut self,
        plan: &mut Entering,
        retries: &mut RetryLoop,
    ) -> Result<Option<(Option<i64>, bool)>, Error> {
        let mut step = plan.begin(&self.name());
        loop {
            let input = match step {
                Step::Enter { round, opened } => match self.loss().await? {
                    Some(LossReason::NodeDeleted) => Ok(Input::Gone),
                    _ => return Ok(Some((round, opened))),
                },
                Step::Refuse => return Ok(None),
                Step::Rejoin => {
                    let path = self.owned.planned_path().into();
                    self.owned = self.nodes.new_member(&self.session, self.session.new_id());
                    Box::pin(retries.pause_after(Error::NoNode { path })).await?;
                    step = plan.begin(&self.name());
                    continue;
                }
                Step::Wait { grace } => {
                    retries.progressed();
                    self.wait(grace).await
                }
                // Boxed: these are short, and a wait may be long.
                step => Box::pin(self.perform(step)).await,
            };
            step = match input {
                Ok(input) => plan.next(input),
                Err(error) => {
                    retries.failed_in(&self.session, error).await?;
                    plan.next(Input::Interrupted { may_stand: self.owned.is_uncertain() })
                }
            };
        }
    }

    /// Returns the reason if the own node is lost with its session still there.
    async fn loss(&self) -> Result<Option<LossReason>, Error> {
        let loss = self.owned.loss_signal().loss();
        if let Some(LossReason::Session(_)) = loss {
            self.session.ended().await;
            return Err(self.session.closed_error(self.nodes.path.as_str()));
        }
        Ok(loss)
    }

    fn entered(self, round: Option<i64>, opened: bool) -> Entered {
        Entered { name: self.name(), own_czxid: self.own_czxid, round, opened, drift: self.drift, owned: self.owned }
    }

    async fn perform(&mut self, step: Step) -> Result<Input, Error> {
        let (nodes, session) = (self.nodes, self.session.clone());
        Ok(match step {
            Step::Arrive => self.arrive().await?,
            Step::Settle => self.settle().await?,
            Step::Watch => {
                let (ready, watch) = session.exists_watched(&nodes.ready).await?;
                // A notification ahead of the reply may be that of an earlier `ready`.
                let is_set = !watch.has_fired();
                self.ready = Some(watch);
                if is_set { Input::Watched(ready.map(|ready| ready.czxid)) } else { Input::Unwatched }
            }
            Step::List => Input::Listed(nodes.members_unless_ready(&session).await?),
            Step::Look => {
                let (read, watch) = nodes.look(&session).await?;
                // A notification ahead of the reply may be that of an earlier `ready`.
                let is_set = !watch.has_fired();
                self.ready = Some(watch);
                if is_set { Input::Looked(read.look) } else { Input::Woken }
            }
            Step::ReadRound => Input::Round(nodes.read_round(&session).await?.look),
            Step::ReadCreations(names) => Input::Creations(nodes.creations(&session, names).await?),
            Step::Open { names, version } => match nodes.change(&session, nodes.open(&session, &names, version)).await?
            {
                Some(done) => Input::Opened(written_in(&done)),
                None => Input::Refused,
            },
            Step::RemoveStale { version, ready } => match nodes.remove_ready(&session, version, Some(ready)).await? {
                true => Input::Removed,
                false => Input::Refused,
            },
            Step::Join { beside, ready } => {
                match nodes.change(&session, nodes.join(&self.name(), &beside, &ready)).await? {
                    Some(_) => Input::Joined,
                    None => Input::Refused,
                }
            }
            Step::GiveUp { version } => self.give_up(version).await?,
            Step::Wait { .. } | Step::Enter { .. } | Step::Rejoin | Step::Refuse => Input::Woken,
        })
    }

    /// Creates the own node.
    async fn arrive(&mut self) -> Result<Input, Error> {
        let nodes = self.nodes;
        for _ in 0..=MOST_PARENTS {
            let spec = NodeSpec::new(nodes.member_data());
            let mut before = vec![nodes.write_quantity(None)];
            if self.earlier_may_stand {
                let path = self.owned.planned_path().to_owned();
                before.extend([Operation::Delete { path, version: None }, nodes.write_quantity(None)]);
            }
            match self.owned.create_with(&spec, before).await {
                Ok((created, done)) => {
                    let barrier = done.last().map(|done| if let Done::Set(stat) = done { *stat } else { created.stat });
                    let barrier = barrier.unwrap_or(created.stat);
                    self.drift = drift(&barrier);
                    return Ok(self.arrived(created.stat.czxid, child_count(&barrier) + 1, barrier.version));
                }
                Err(Error::Transaction { index, cause, .. }) => match *cause {
                    // The server has deleted the node of the earlier session, or has not received its create yet.
                    Error::NoNode { .. } if index == 1 && self.earlier_may_stand => self.earlier_may_stand = false,
                    Error::NoNode { .. } => self.create_parents().await?,
                    // A lost reply, or the late create of an earlier session.
                    Error::NodeExists { .. } => return Ok(Input::Interrupted { may_stand: true }),
                    cause => return Err(cause),
                },
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoNode { path: nodes.path.as_str().into() })
    }

    async fn create_parents(&self) -> Result<(), Error> {
        let spec = NodeSpec::new(&[]).with_parents(self.nodes.client.lock_parents());
        self.session.create_parents(self.owned.planned_path(), &spec).await.map(drop)
    }

    fn arrived(&mut self, czxid: i64, count: usize, version: i32) -> Input {
        self.own_czxid = czxid;
        self.earlier_may_stand = false;
        self.owned.watch_node(self.session.timeout() / PATIENCE);
        Input::Arrived { czxid, count, version }
    }

    /// Finds the own node after a lost reply.
    async fn settle(&mut self) -> Result<Input, Error> {
        let path = self.owned.planned_path().to_owned();
        let (session, nodes) = (&self.session, self.nodes);
        let reads = join3(session.write_barrier(), session.exists(&path), session.exists(&nodes.path));
        let (answered, found, barrier) = session.in_one_write(reads).await;
        answered?;
        let (Some(found), Some(barrier)) = (found?, barrier?) else { return Ok(Input::Missing) };
        if !self.owned.is_own(&found) {
            self.earlier_may_stand = true;
            return Ok(Input::Missing);
        }
        self.owned.adopt(&self.name(), &found, &[]).await?;
        self.owned.watch_node(self.session.timeout() / PATIENCE);
        self.earlier_may_stand = false;
        self.own_czxid = found.czxid;
        // The read includes the own create.
        self.drift = drift(&barrier).wrapping_sub(1);
        Ok(Input::Found { czxid: found.czxid })
    }

    async fn give_up(&mut self, version: i32) -> Result<Input, Error> {
        let deleted = match self.owned.delete_with(vec![self.nodes.write_quantity(Some(version))]).await {
            Err(Error::Transaction { .. }) => return Ok(Input::Refused),
            deleted => deleted?.is_some(),
        };
        Ok(if deleted { Input::GaveUp } else { Input::Gone })
    }

    async fn wait(&mut self, grace: bool) -> Result<Input, Error> {
        let delay = self.nodes.options.quorum.map(|(_, grace)| grace).filter(|_| grace);
        self.grace = delay.map(|delay| self.grace.unwrap_or_else(|| Budget::of(delay)));
        let Some(ready) = self.ready.as_mut() else { return Ok(Input::Woken) };
        let loss = self.owned.loss_signal();
        let woken = tokio::select! {
            biased;
            woken = ready => woken,
            loss = loss.lost() => return match loss {
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
        self.ready = None;
        match woken {
            WakeReason::Event(EventType::NodeCreated) if loss.loss().is_none() => Ok(Input::Created),
            WakeReason::SessionEnded(_) => Err(self.session.closed_error(self.nodes.ready.as_str())),
            _ => Ok(Input::Woken),
        }
    }
}

/// Returns the number of children of a barrier.
pub(super) fn child_count(barrier: &Stat) -> usize {
    usize::try_from(barrier.num_children).unwrap_or_default()
}

/// Returns the number of a transaction that has written the barrier's node.
fn written_in(done: &[Done]) -> i64 {
    done.iter()
        .find_map(|done| if let Done::Set(barrier) = done { Some(barrier.mzxid) } else { None })
        .unwrap_or_default()
}
