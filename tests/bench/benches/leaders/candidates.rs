//! This project's candidates, in a process of their own. `main.rs` lists the words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use curator_bench::clients::{SESSION, connect};
use curator_bench::process::{Commands, Result, now, say};
use curator_framework::CuratorFramework;
use curator_recipes::{LeaderLatch, LeaderLatchOptions};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A pause between two checks of all candidates.
const LOOK: Duration = Duration::from_micros(200);
/// A look that takes longer was interrupted by a stop of the process.
const STOPPED: Duration = Duration::from_millis(50);

struct Candidate {
    client: CuratorFramework,
    latch: LeaderLatch,
    /// The term at the last look.
    leads: bool,
    seen: Duration,
}

type Candidates = Arc<Mutex<BTreeMap<String, Candidate>>>;

#[derive(Default)]
struct Queue {
    clients: Vec<CuratorFramework>,
    terms: JoinSet<Result<()>>,
    begin: watch::Sender<bool>,
}

/// Checks all candidates over and over.
fn look(candidates: &Candidates) {
    loop {
        for (name, candidate) in candidates.lock().iter_mut() {
            let before = now();
            let leads = candidate.latch.has_leadership();
            let after = now();
            if leads && !candidate.leads {
                say(&format!("up {name} {}", before.as_nanos()));
            }
            if !leads && candidate.leads {
                say(&format!("down {name} {}", candidate.seen.as_nanos()));
            }
            candidate.leads = leads;
            if leads {
                // A process that was stopped within the look had read the flag before.
                candidate.seen = if after - before > STOPPED { before } else { after };
            }
        }
        std::thread::sleep(LOOK);
    }
}

impl Queue {
    /// Queues candidates in so many sessions, one behind the other. Each will lead once, and close its latch.
    async fn fill(size: usize, sessions: usize, servers: &str, path: &str) -> Result<Self> {
        let mut queue = Self::default();
        for _ in 0..sessions {
            queue.clients.push(connect(servers, SESSION).await?);
        }
        for number in 0..size {
            let options = LeaderLatchOptions::new().id(format!("candidate-{number}"));
            let latch = LeaderLatch::with_options(queue.clients[number % sessions].clone(), path, options)?;
            latch.start()?;
            while latch.participants().await?.len() <= number {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut begin = queue.begin.subscribe();
            queue.terms.spawn(async move {
                latch.leading().await?;
                begin.wait_for(|begin| *begin).await?;
                latch.close().await;
                Ok(())
            });
        }
        Ok(queue)
    }

    /// Lets the candidates have their terms.
    async fn drain(mut self) -> Result<Duration> {
        let began = Instant::now();
        self.begin.send_replace(true);
        while let Some(term) = self.terms.join_next().await {
            term??;
        }
        let time = began.elapsed();
        for client in self.clients {
            client.close().await;
        }
        Ok(time)
    }
}

#[derive(Default)]
pub(crate) struct All {
    /// The candidates that a thread checks, once it runs.
    candidates: Option<Candidates>,
    queue: Queue,
}

impl All {
    fn candidates(&mut self) -> &Candidates {
        self.candidates.get_or_insert_with(|| {
            let candidates = Candidates::default();
            let looked_at = Arc::clone(&candidates);
            std::thread::spawn(move || look(&looked_at));
            candidates
        })
    }
}

impl Commands for All {
    async fn run(&mut self, words: &[&str]) -> Result<String> {
        Ok(match *words {
            ["join", name, _, servers, millis, path] => {
                let client = connect(servers, Duration::from_millis(millis.parse()?)).await?;
                let latch = LeaderLatch::with_options(client.clone(), path, LeaderLatchOptions::new().id(name))?;
                latch.start()?;
                let candidate = Candidate { client, latch, leads: false, seen: Duration::ZERO };
                self.candidates().lock().insert(name.to_owned(), candidate);
                format!("joined {name}")
            }
            ["leave", name] => {
                let candidate = self.candidates().lock().remove(name).ok_or("no such candidate")?;
                if candidate.leads {
                    say(&format!("down {name} {}", candidate.seen.as_nanos()));
                }
                candidate.latch.close().await;
                candidate.client.close().await;
                format!("left {name}")
            }
            ["queue", size, sessions, servers, path] => {
                self.queue = Queue::fill(size.parse()?, sessions.parse()?, servers, path).await?;
                "queued".to_owned()
            }
            ["drain"] => format!("drained {}", std::mem::take(&mut self.queue).drain().await?.as_nanos()),
            _ => return Err(format!("{words:?} is unknown").into()),
        })
    }
}
