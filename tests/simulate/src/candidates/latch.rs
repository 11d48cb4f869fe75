//! Candidates with a latch.

use std::time::Duration;

use curator_checkers::elections::Candidate;
use curator_recipes::{CloseMode, LeaderError, LeaderLatch, LeaderLatchOptions, LeaderState, Leadership};
use rand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::{AT_ONCE, Campaigner, Scribe};

/// A latch that has been started.
struct Standing {
    latch: LeaderLatch,
    candidate: Candidate,
    eligible: watch::Sender<bool>,
}

impl Campaigner {
    /// Runs in an election with one latch.
    pub(super) async fn latch(&mut self, is_last: bool) {
        let (eligible, is_eligible) = watch::channel(true);
        let mut options = LeaderLatchOptions::new().id(self.id()).eligible(is_eligible);
        if self.one_of(3) == 0 {
            options = options.delay_after_unclean_loss(self.time(0..1000));
        }
        if self.one_of(3) == 0 {
            options = options.close_mode(CloseMode::NotifyLeader);
        }
        let latch = LeaderLatch::with_options(self.client.clone(), &*self.path, options).expect("a valid path");
        let candidate = self.scribe.joins(self.name);
        self.scribe.may_fail(latch.start());
        let follows = tokio::spawn(follow(self.scribe.clone(), candidate, latch.watch()));
        let standing = Standing { latch, candidate, eligible };
        for _ in 0..self.random.random_range(1..6) {
            self.step(&standing).await;
        }
        if is_last || self.one_of(3) == 0 {
            match standing.latch.leading().await {
                Ok(leadership) => {
                    let time = self.term();
                    self.rule(&leadership, time).await;
                }
                Err(error) => self.scribe.error(&error),
            }
        }
        self.close(standing).await;
        if follows.await.is_err() {
            self.scribe.wrong(format!("{candidate:?} cannot be followed"));
        }
    }

    async fn step(&mut self, standing: &Standing) {
        let latch = &standing.latch;
        let waits = self.hands_over && self.one_of(3) > 0;
        match if waits { 3 } else { self.one_of(14) } {
            0..=2 => self.pause(0..4000).await,
            3 | 4 => {
                // A wait that is dropped has no effect.
                let soon = if waits { self.time(4000..12_000) } else { self.time(0..6000) };
                match timeout(soon, latch.leading()).await {
                    Ok(Ok(leadership)) => {
                        self.reign(latch, &leadership).await;
                    }
                    Ok(Err(error)) => self.scribe.error(&error),
                    Err(_) => {}
                }
            }
            5 => {
                let budget = self.time(0..6000);
                match latch.leading_timeout(budget).await {
                    Ok(Some(leadership)) => {
                        self.reign(latch, &leadership).await;
                    }
                    Ok(None) => {}
                    Err(error) => self.scribe.error(&error),
                }
            }
            6..=8 => self.resign(latch).await,
            9 => self.hand_over(latch).await,
            10 => self.abstain(standing).await,
            11 => {
                let time = self.time(0..3000);
                standing.eligible.send_replace(false);
                sleep(AT_ONCE).await;
                self.scribe.is_absent(standing.candidate, Instant::now() + time);
                sleep(time).await;
                self.scribe.rejoins(standing.candidate);
                standing.eligible.send_replace(true);
            }
            12 => self.scribe.may_fail(latch.leader().await),
            _ => {
                if let Some(leadership) = latch.leadership() {
                    self.reign(latch, &leadership).await;
                }
            }
        }
    }

    async fn reign(&mut self, latch: &LeaderLatch, leadership: &Leadership) {
        let time = if self.hands_over { self.time(0..600) } else { self.term() };
        self.rule(leadership, time).await;
        if self.hands_over && self.one_of(4) > 0 {
            self.hand_over(latch).await;
        }
    }

    async fn resign(&mut self, latch: &LeaderLatch) {
        let before = latch.leadership();
        let soon = if self.one_of(3) == 0 { self.time(0..100) } else { Duration::MAX };
        match timeout(soon, latch.resign()).await {
            Ok(Ok(resigned)) => {
                self.scribe.note(format_args!("{:?} resigned: {resigned:?}", self.name));
                if before.is_some_and(|before| before.is_held()) {
                    self.scribe.wrong(format!("{:?} leads after it resigned", self.name));
                }
            }
            Ok(Err(error)) => self.scribe.error(&error),
            Err(_) => {}
        }
    }

    async fn hand_over(&mut self, latch: &LeaderLatch) {
        let participants = match latch.participants().await {
            Ok(participants) => participants,
            Err(error) => return self.scribe.error(&error),
        };
        // Best to one that has another ahead.
        let first = if self.hands_over && participants.len() > 2 { 2 } else { 0 };
        let chosen = self.random.random_range(first..participants.len().max(1));
        let Some(to) = participants.get(chosen) else { return };
        let budget = self.time(0..4000);
        let soon = if self.one_of(4) == 0 { self.time(0..200) } else { Duration::MAX };
        self.scribe.note(format_args!("{:?} hands over to {}", self.name, to.path));
        let outcome = self.scribe.during_hand_over(timeout(soon, latch.resign_to_timeout(to, budget))).await;
        match outcome {
            Ok(Ok(done)) => self.scribe.note(format_args!("{:?} handed over: {done:?}", self.name)),
            // It may choose itself.
            Ok(Err(LeaderError::InvalidArgument { .. })) => {}
            Ok(Err(error)) => self.scribe.error(&error),
            Err(_) => {}
        }
    }

    async fn abstain(&mut self, standing: &Standing) {
        let time = self.time(100..3000);
        let until = Instant::now() + time;
        standing.latch.abstain(time);
        sleep(AT_ONCE).await;
        self.scribe.is_absent(standing.candidate, until);
        tokio::time::sleep_until(until).await;
        self.scribe.rejoins(standing.candidate);
    }

    /// Closes a latch in one of several ways.
    async fn close(&mut self, Standing { latch, candidate, .. }: Standing) {
        let soon = self.time(0..200);
        let kind = self.one_of(5);
        let closes = async move {
            match kind {
                0 => latch.close_with(CloseMode::NotifyLeader).await,
                1 => {
                    let _dropped = timeout(soon, latch.close()).await;
                    latch.close().await;
                }
                2 => {
                    tokio::join!(latch.close(), latch.close());
                }
                // The drop of the last clone closes it.
                3 => drop(latch),
                _ => latch.close().await,
            }
        };
        let is_noted = async {
            sleep(AT_ONCE).await;
            self.scribe.leaves(candidate);
        };
        tokio::join!(closes, is_noted);
    }
}

/// Notes the terms of a latch until it is closed.
async fn follow(scribe: Scribe, candidate: Candidate, mut states: watch::Receiver<LeaderState>) {
    let mut newest = None;
    loop {
        let state = states.borrow_and_update().clone();
        match state {
            LeaderState::Leading(leadership) if newest != Some(leadership.token()) => {
                newest = Some(leadership.token());
                scribe.leads(candidate, &leadership);
            }
            LeaderState::Failed(error) => scribe.wrong(format!("{candidate:?} has failed: {error}")),
            LeaderState::Closed => return,
            LeaderState::Leading(_) => {}
            // It may resume its term.
            _ => newest = None,
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}
