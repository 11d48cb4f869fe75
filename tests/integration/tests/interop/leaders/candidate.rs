//! The candidates of the process in Rust.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_recipes::{
    CloseMode, LeaderLatch, LeaderLatchOptions, LeaderSelector, LeaderSelectorOptions, Leadership, Participant,
    TermOutcome,
};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::rust_peer::{Answer, connect, is_stopped};

/// The pause between two checks of what ends a campaign.
const LOOK: Duration = Duration::from_millis(20);

static CANDIDATES: Mutex<BTreeMap<String, Candidate>> = Mutex::new(BTreeMap::new());

#[derive(Clone)]
enum Candidate {
    Latch(LeaderLatch),
    /// It leads until it is closed.
    Selector(LeaderSelector),
}

impl Candidate {
    fn join(client: &CuratorFramework, kind: &str, path: &str, id: &str) -> Answer<Self> {
        match kind {
            "latch" => Ok(Self::Latch(latch(client, path, id, CloseMode::Silent)?)),
            _ => {
                let selector = selector(client, path, id)?;
                let running = selector.clone();
                tokio::spawn(async move { running.run_once(|_| pending::<()>()).await });
                Ok(Self::Selector(selector))
            }
        }
    }

    fn leads(&self) -> bool {
        match self {
            Self::Latch(latch) => latch.has_leadership(),
            Self::Selector(selector) => selector.has_leadership(),
        }
    }

    async fn leader(&self) -> Answer<Option<Participant>> {
        Ok(match self {
            Self::Latch(latch) => latch.leader().await?,
            Self::Selector(selector) => selector.leader().await?,
        })
    }

    async fn participants(&self) -> Answer<Vec<Participant>> {
        Ok(match self {
            Self::Latch(latch) => latch.participants().await?,
            Self::Selector(selector) => selector.participants().await?,
        })
    }

    async fn close(&self) {
        match self {
            Self::Latch(latch) => latch.close().await,
            Self::Selector(selector) => selector.close().await,
        }
    }
}

/// Does what these words say, without the name of the thread.
pub(crate) async fn elect(client: &CuratorFramework, words: &[&str]) -> Answer<String> {
    if let ["join", kind, path, id] = *words {
        let candidate = Candidate::join(client, kind, path, id)?;
        CANDIDATES.lock().insert(format!("{path} {id}"), candidate);
        return Ok("joined".to_owned());
    }
    if let ["hand-over", path, id, to] = *words {
        let candidate = CANDIDATES.lock().get(&format!("{path} {id}")).cloned();
        let Some(Candidate::Latch(latch)) = candidate else { return Err("no such latch".into()) };
        let all = latch.participants().await?;
        let to = all.iter().find(|one| one.id() == to).ok_or("no such candidate")?;
        return Ok(latch.resign_to_timeout(to, Duration::from_secs(20)).await?.is_some().to_string());
    }
    let [verb, path, id] = *words else { return Err(format!("{words:?}").into()) };
    let candidate = CANDIDATES.lock().get(&format!("{path} {id}")).cloned().ok_or("no such candidate")?;
    Ok(match verb {
        "await" => {
            while !candidate.leads() {
                sleep(Duration::from_millis(1)).await;
            }
            "leads".to_owned()
        }
        "leads" => candidate.leads().to_string(),
        "leader" => candidate.leader().await?.map_or_else(String::new, |leader| leader.id().into_owned()),
        "candidates" => {
            let all = candidate.participants().await?;
            let all: Vec<_> =
                all.iter().map(|one| format!("{}{}", one.id(), if one.holds { "*" } else { "" })).collect();
            all.join(" ")
        }
        "leave" => {
            candidate.close().await;
            "left".to_owned()
        }
        _ => return Err(verb.into()),
    })
}

fn latch(client: &CuratorFramework, path: &str, id: &str, mode: CloseMode) -> Answer<LeaderLatch> {
    let latch = LeaderLatch::with_options(client.clone(), path, LeaderLatchOptions::new().id(id).close_mode(mode))?;
    latch.start()?;
    Ok(latch)
}

fn selector(client: &CuratorFramework, path: &str, id: &str) -> Answer<LeaderSelector> {
    Ok(LeaderSelector::with_options(client.clone(), path, LeaderSelectorOptions::new().id(id))?)
}

/// The connection to the resource, and how long a term uses it.
struct Use {
    id: String,
    stream: BufReader<TcpStream>,
    hold: Duration,
}

impl Use {
    async fn term(&mut self, leadership: &Leadership) -> Answer<()> {
        self.ask(&format!("begin {} {} {}", self.id, leadership.node_path(), leadership.token().czxid().get())).await?;
        tokio::select! {
            () = sleep(self.hold) => {}
            _ = leadership.lost() => {}
        }
        self.ask("end").await
    }

    async fn ask(&mut self, line: &str) -> Answer<()> {
        self.stream.write_all(format!("{line}\n").as_bytes()).await?;
        match self.stream.read_line(&mut String::new()).await? {
            0 => Err("the resource is gone".into()),
            _ => Ok(()),
        }
    }
}

/// Leads term after term until the path is stopped. The words are those behind `campaign`.
pub(crate) async fn campaign(words: &[&str]) -> Answer<String> {
    let [kind, path, id, port, hold, endings] = *words else { return Err(format!("{words:?}").into()) };
    let stream = TcpStream::connect(("127.0.0.1", port.parse()?)).await?;
    stream.set_nodelay(true)?;
    let hold = Duration::from_millis(hold.parse()?);
    let mut using = Use { id: id.to_owned(), stream: BufReader::new(stream), hold };
    let mut client = connect().await;
    let mut endings = endings.split(',').cycle();
    while !is_stopped(path) {
        let ending = endings.next().unwrap_or_default();
        match kind {
            "latch" => latch_term(&client, path, ending, &mut using).await?,
            _ => selector_term(&client, path, ending, &mut using).await?,
        }
        if ending == "client" {
            client.close().await;
            client = connect().await;
        }
        // As long as it takes Java to join again.
        sleep(hold * 2).await;
    }
    client.close().await;
    Ok("done".to_owned())
}

/// Has one term of a latch, or two: the latch that resigns joins again.
async fn latch_term(client: &CuratorFramework, path: &str, ending: &str, using: &mut Use) -> Answer<()> {
    let mode = if ending == "notify" { CloseMode::NotifyLeader } else { CloseMode::Silent };
    let latch = latch(client, path, &using.id, mode)?;
    let terms = if ending == "resign" { 2 } else { 1 };
    for term in 0..terms {
        if term > 0 && latch.resign().await?.is_none() {
            return Err("a leader that did not lead when it resigned".into());
        }
        let leadership = loop {
            match timeout(LOOK, latch.leading()).await {
                Ok(leadership) => break leadership?,
                Err(_) if is_stopped(path) => {
                    latch.close().await;
                    return Ok(());
                }
                Err(_) => {}
            }
        };
        using.term(&leadership).await?;
    }
    if ending != "client" {
        latch.close().await;
    }
    Ok(())
}

async fn selector_term(client: &CuratorFramework, path: &str, ending: &str, using: &mut Use) -> Answer<()> {
    let selector = selector(client, path, &using.id)?;
    let has_begun = AtomicBool::new(false);
    let term = async |leadership: Leadership| {
        has_begun.store(true, Ordering::Relaxed);
        using.term(&leadership).await?;
        match ending {
            "interrupt" => {
                assert!(selector.interrupt_leadership(), "it leads");
                pending().await
            }
            "client" => {
                client.close().await;
                Ok(())
            }
            _ => Answer::Ok(()),
        }
    };
    // A term that has started tells the resource of its end.
    let stopped = async {
        while has_begun.load(Ordering::Relaxed) || !is_stopped(path) {
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        outcome = selector.run_once(term) => match (outcome, ending) {
            (Ok(TermOutcome::Done(done)), _) => done?,
            (Ok(TermOutcome::Interrupted), "interrupt") | (_, "client") => {}
            (outcome, _) => return Err(format!("{ending}: {outcome:?}").into()),
        },
        () = stopped => {}
    }
    if ending == "close" {
        selector.close().await;
    }
    Ok(())
}
