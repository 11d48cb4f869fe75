//! This project's candidates, in a process of their own. The words are those of [`process`](crate::process).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use curator_bench::process::{lines, say};
use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
use curator_recipes::{LeaderLatch, LeaderLatchOptions};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::process::{Result, now};

/// A pause between two looks at all candidates.
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

/// Looks at all candidates over and over.
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

async fn connect(servers: &str, session: Duration) -> Result<CuratorFramework> {
    let client = CuratorFramework::builder(servers)
        .session_timeout(session)
        .connection_timeout(Duration::from_secs(15))
        .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?)
        .build()?;
    client.start()?;
    client.block_until_connected().await?;
    Ok(client)
}

impl Queue {
    /// Queues candidates in so many sessions, one behind the other. Each will lead once, and close its latch.
    async fn fill(size: usize, sessions: usize, servers: &str, path: &str) -> Result<Self> {
        let mut queue = Self::default();
        for _ in 0..sessions {
            queue.clients.push(connect(servers, Duration::from_secs(60)).await?);
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

/// Does what the lines of the standard input say.
pub(crate) async fn serve() -> Result<()> {
    let candidates = Candidates::default();
    std::thread::spawn({
        let candidates = Arc::clone(&candidates);
        move || look(&candidates)
    });
    let (mut queue, mut lines) = (Queue::default(), lines());
    while let Some(line) = lines.recv().await {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["join", name, _, servers, millis, path] => {
                let client = connect(servers, Duration::from_millis(millis.parse()?)).await?;
                let latch = LeaderLatch::with_options(client.clone(), path, LeaderLatchOptions::new().id(name))?;
                latch.start()?;
                let candidate = Candidate { client, latch, leads: false, seen: Duration::ZERO };
                candidates.lock().insert(name.to_owned(), candidate);
                say(&format!("joined {name}"));
            }
            ["leave", name] => {
                let candidate = candidates.lock().remove(name).ok_or("no such candidate")?;
                if candidate.leads {
                    say(&format!("down {name} {}", candidate.seen.as_nanos()));
                }
                candidate.latch.close().await;
                candidate.client.close().await;
                say(&format!("left {name}"));
            }
            ["queue", size, sessions, servers, path] => {
                queue = Queue::fill(size.parse()?, sessions.parse()?, servers, path).await?;
                say("queued");
            }
            ["drain"] => say(&format!("drained {}", std::mem::take(&mut queue).drain().await?.as_nanos())),
            _ => return Err(format!("{line:?} is unknown").into()),
        }
    }
    Ok(())
}
