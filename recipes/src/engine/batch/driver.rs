//! The task of a batch: it acquires nodes, and checks for contenders behind them.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::engine::acquire::no_end;
use crate::engine::acquired::Acquired;
use crate::engine::batch::lobby::{GrantedNode, Lobby};
use crate::engine::batch::plan::{Jobs, Then, Ticket};
use crate::engine::batch::source::Boxed;
use crate::engine::error::LockError;
use crate::engine::wait_mode::WaitMode;

/// Ends the waits, if the task is dropped before its end.
pub(super) struct Running(Option<Arc<Lobby>>);

impl Running {
    pub(super) fn new(lobby: Arc<Lobby>) -> Self {
        Self(Some(lobby))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(lobby) = &self.0 {
            lobby.stopped();
        }
    }
}

/// Runs until no entry waits and no node is granted.
pub(super) async fn run(mut running: Running) {
    if let Some(lobby) = &running.0 {
        Driver::new(lobby).run().await;
    }
    running.0 = None;
}

type Attempted = Result<Vec<Acquired>, LockError>;

struct Driver<'a> {
    lobby: &'a Arc<Lobby>,
    /// The attempt, and the ticket of the first entry that came after it started.
    attempt: Option<(Ticket, Boxed<'a, Attempted>)>,
    /// The one granted node, and its loss.
    node: Option<(GrantedNode, Boxed<'a, ()>)>,
    /// The check for other contenders.
    watching: Option<Boxed<'a, ()>>,
    /// The end of the idle time, and the pass with which it started.
    idle_until: Option<((u64, u64), Option<Instant>)>,
    /// The time of the next check whether an offer was taken, and the offer at the last check.
    next_tick: Option<Instant>,
    offer: Option<(u64, u64, Option<Ticket>)>,
}

impl<'a> Driver<'a> {
    fn new(lobby: &'a Arc<Lobby>) -> Self {
        Self { lobby, attempt: None, node: None, watching: None, idle_until: None, next_tick: None, offer: None }
    }

    async fn run(mut self) {
        let lobby = self.lobby;
        let mut limit = lobby.source.nodes().limit().follow();
        while let Some(jobs) = lobby.jobs(limit.get()) {
            self.follow(jobs);
            tokio::select! {
                biased;
                () = maybe(self.node.as_mut().map(|(_, loss)| loss)) => self.lost(),
                granted = maybe(self.attempt.as_mut().map(|(_, attempt)| attempt)) => self.attempted(granted),
                () = maybe(self.watching.as_mut()) => self.watching = None,
                () = at(self.idle_until.and_then(|(_, end)| end)) => self.end_idle(),
                () = at(self.next_tick) => self.tick(),
                () = lobby.changed.notified() => {}
                () = limit.changed() => {}
            }
        }
    }

    /// Starts and ends the parts that the jobs ask for.
    fn follow(&mut self, jobs: Jobs) {
        let lobby = self.lobby;
        if jobs.turn != self.node.as_ref().map(|(node, _)| node.turn) {
            self.watching = None;
            self.node = lobby.node().filter(|node| Some(node.turn) == jobs.turn).map(|node| {
                let signal = node.signal.clone();
                (
                    node,
                    Box::pin(async move {
                        signal.lost().await;
                    }) as Boxed<'a, ()>,
                )
            });
        }
        if jobs.looks && self.watching.is_none() {
            let node = self.node.as_ref().map(|(node, _)| node.clone());
            self.watching = Some(lobby.source.watch_others(lobby, node));
        }
        match (&self.attempt, jobs.acquires) {
            (None, true) if !jobs.has_all => {
                self.attempt = Some((lobby.plan(|plan| plan.next_ticket()), Box::pin(attempt(lobby))))
            }
            // The drop deletes its node.
            (Some(_), false) => {
                self.attempt = None;
                lobby.contention.is_unknown();
            }
            _ => {}
        }
        let idle = jobs.turn.zip(jobs.idle);
        if self.idle_until.map(|(of, _)| of) != idle {
            self.idle_until = idle.map(|of| (of, Instant::now().checked_add(lobby.linger)));
        }
        let ticks = lobby.ticks();
        self.next_tick = if ticks { self.next_tick.or_else(|| Some(Instant::now() + self.patience())) } else { None };
    }

    /// The time in which an entry is expected to take the node.
    fn patience(&self) -> Duration {
        self.lobby.client().session_timeout() / 100
    }

    fn lost(&mut self) {
        if let Some((node, _)) = self.node.take() {
            self.watching = None;
            self.lobby.over(node.turn);
        }
    }

    fn attempted(&mut self, granted: Attempted) {
        let Some((before, _)) = self.attempt.take() else { return };
        match granted {
            Ok(granted) => {
                granted.into_iter().for_each(|acquired| self.lobby.begin(acquired));
                self.lobby.contention.is_unknown();
            }
            Err(error) => self.lobby.fail(before, error.about(self.lobby.path())),
        }
    }

    fn end_idle(&mut self) {
        let Some(((turn, passes), _)) = self.idle_until.take() else { return };
        self.lobby.step(|plan| {
            // An entry may have taken and released the node since: a new idle time starts.
            let is_same = plan.idle() == Some(passes);
            ((), if is_same { plan.end_idle(Some(turn)) } else { Then::default() })
        });
    }

    fn tick(&mut self) {
        self.next_tick = None;
        let (offer, has_free) = self.lobby.plan(|plan| (plan.offer(), plan.free().next().is_some()));
        if offer.is_none() && has_free {
            // A check has withdrawn the offer for a while. The entry has had it before.
            self.next_tick = Some(Instant::now() + self.patience() / 10);
            return;
        }
        if offer.is_some() && offer == self.offer {
            self.lobby.offer_more();
        }
        self.offer = self.lobby.plan(|plan| plan.offer());
    }
}

/// Makes attempts, one session after the other, until one is granted.
async fn attempt(lobby: &Lobby) -> Attempted {
    lobby.contention.is_unknown();
    let granted = lobby.source.attempts(Some(lobby), WaitMode::Forever, &lobby.contention).await?;
    granted.ok_or_else(no_end)
}

async fn maybe<F: Future + Unpin>(part: Option<F>) -> F::Output {
    match part {
        Some(part) => part.await,
        None => pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
