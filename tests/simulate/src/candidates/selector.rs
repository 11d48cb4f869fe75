//! Candidates with a selector.

use std::sync::Arc;
use std::time::Duration;

use curator_checkers::elections::Candidate;
use curator_recipes::{LeaderSelector, LeaderSelectorOptions, Leadership, TermOutcome};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::{AT_ONCE, Campaigner};

impl Campaigner {
    /// Runs terms with one selector.
    pub(super) async fn selector(&mut self, is_last: bool) {
        let options = LeaderSelectorOptions::new().id(self.id());
        let options = options.back_off(Duration::from_millis(50), Duration::from_millis(800));
        let selector = LeaderSelector::with_options(self.client.clone(), &*self.path, options).expect("a valid path");
        match self.one_of(8) {
            0..=2 => {
                self.run_once(&selector, Duration::MAX).await;
            }
            3 | 4 => {
                // A run that is dropped leaves the queue.
                let soon = self.time(0..6000);
                self.run_once(&selector, soon).await;
            }
            5 => {
                let soon = self.time(0..6000);
                let interrupts = selector.clone();
                let interrupts = async move {
                    sleep(soon).await;
                    interrupts.interrupt_leadership();
                };
                tokio::join!(self.run_once(&selector, Duration::MAX), interrupts);
            }
            _ => self.run(&selector).await,
        }
        if is_last {
            let selector = LeaderSelector::new(self.client.clone(), &*self.path).expect("a valid path");
            while !self.run_once(&selector, Duration::MAX).await {}
        }
        selector.close().await;
    }

    /// Returns what a term does. It notes the term first.
    fn deputy(&mut self, candidate: Candidate) -> (Self, Candidate) {
        let random = StdRng::from_rng(&mut self.random);
        let deputy = Self {
            scribe: self.scribe.clone(),
            client: self.client.clone(),
            name: self.name,
            path: self.path.clone(),
            random,
            rounds: 1,
            hands_over: false,
        };
        (deputy, candidate)
    }

    /// Runs one term, or drops it after a time. Returns whether it ended by itself.
    async fn run_once(&mut self, selector: &LeaderSelector, soon: Duration) -> bool {
        let candidate = self.scribe.joins(self.name);
        let (mut deputy, candidate) = self.deputy(candidate);
        let term = |leadership: Leadership| async move {
            deputy.scribe.leads(candidate, &leadership);
            let time = deputy.term();
            deputy.rule(&leadership, time).await;
        };
        let outcome = timeout(soon, selector.run_once(term)).await;
        self.scribe.leaves(candidate);
        match outcome {
            Ok(Ok(TermOutcome::Done(()))) => true,
            Ok(Ok(end)) => {
                self.scribe.note(format_args!("{candidate:?}: {end:?}"));
                false
            }
            Ok(Err(error)) => {
                self.scribe.error(&error);
                self.pause(0..500).await;
                false
            }
            Err(_) => false,
        }
    }

    /// Runs terms of which some fail, until the selector is closed or the run is dropped.
    async fn run(&mut self, selector: &LeaderSelector) {
        let candidate = self.scribe.joins(self.name);
        let (deputy, candidate) = self.deputy(candidate);
        let deputy = Arc::new(tokio::sync::Mutex::new(deputy));
        let term = |leadership: Leadership| {
            let deputy = Arc::clone(&deputy);
            async move {
                let mut deputy = deputy.lock().await;
                deputy.scribe.leads(candidate, &leadership);
                let time = deputy.term();
                deputy.rule(&leadership, time).await;
                if deputy.one_of(3) == 0 { Err("a term that fails") } else { Ok(()) }
            }
        };
        let (while_running, drops) = (self.time(0..12_000), self.one_of(3) == 0);
        let runs = selector.run(term);
        let outcome = if drops {
            timeout(while_running, runs).await.ok()
        } else {
            let closes = async {
                sleep(while_running).await;
                let is_noted = async {
                    sleep(AT_ONCE).await;
                    self.scribe.leaves(candidate);
                };
                tokio::join!(selector.close(), is_noted);
            };
            Some(tokio::join!(runs, closes).0)
        };
        if drops {
            self.scribe.leaves(candidate);
        }
        if let Some(outcome) = outcome {
            self.scribe.may_fail(outcome);
        }
    }
}
