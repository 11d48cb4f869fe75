//! Candidates of an election, and the notes on it: the part of a storm that is the same in any world.

mod latch;
mod observer;
mod scribe;
mod selector;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_recipes::Leadership;
use curator_test::ClientId;
use rand::Rng;
use rand::rngs::StdRng;

pub use observer::observe;
pub use scribe::{Book, Scribe};

/// The limit of the time in which a candidate's task must obey. It needs no message for that.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The recipe of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// `LeaderLatch`.
    Latch,
    /// `LeaderSelector`.
    Selector,
}

impl Election {
    /// Returns the election of a seed: in a hundred seeds in a row each meets all kinds of weather.
    pub const fn of(seed: u64) -> Self {
        if seed / 8 % 3 == 0 { Self::Selector } else { Self::Latch }
    }
}

impl fmt::Display for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Latch => "leader latch",
            Self::Selector => "leader selector",
        })
    }
}

/// One that wants to lead, again and again.
#[derive(Debug)]
pub struct Campaigner {
    pub scribe: Scribe,
    pub client: CuratorFramework,
    /// The name of its client in the simulation.
    pub name: ClientId,
    pub path: String,
    pub random: StdRng,
    pub rounds: u32,
    /// It often hands over what it leads.
    pub hands_over: bool,
}

impl Campaigner {
    /// Campaigns some times. In the end it leads once.
    pub async fn campaign(mut self, election: Election) {
        for round in 1..=self.rounds {
            self.pause(0..3000).await;
            match election {
                Election::Latch => self.latch(round == self.rounds).await,
                Election::Selector => self.selector(round == self.rounds).await,
            }
        }
    }

    fn one_of(&mut self, cases: u32) -> u32 {
        self.random.random_range(0..cases)
    }

    fn time(&mut self, milliseconds: Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(milliseconds))
    }

    async fn pause(&mut self, milliseconds: Range<u64>) {
        tokio::time::sleep(self.time(milliseconds)).await;
    }

    /// Returns the time of a term.
    fn term(&mut self) -> Duration {
        if self.one_of(6) == 0 { self.time(4000..14_000) } else { self.time(0..2000) }
    }

    fn id(&mut self) -> String {
        match self.one_of(4) {
            0 => String::new(),
            _ => format!("{:?}", self.name),
        }
    }

    /// Does what a leader does with its term: looks, writes, proclaims.
    async fn rule(&mut self, leadership: &Leadership, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < until && leadership.is_held() {
            let sleep = self.time(50..800);
            let work = async {
                match self.random.random_range(0..6) {
                    0 => self.scribe.may_fail(leadership.verify().await),
                    1 => self.scribe.may_fail(leadership.proclaim("http://leader").await),
                    2 => self.scribe.may_fail(leadership.protect(tokio::time::sleep(sleep)).await),
                    3 => {
                        let left = leadership.remaining();
                        if left > Duration::ZERO && !leadership.is_held() {
                            self.scribe.wrong(format!("{left:?} remain of term {}, which is over", leadership.token()));
                        }
                    }
                    _ => {}
                }
                tokio::time::sleep(sleep).await;
            };
            tokio::select! {
                biased;
                _ = leadership.lost() => return,
                () = work => {}
            }
        }
    }
}
