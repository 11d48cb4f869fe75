//! The process in Rust: this test binary, once more.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, Error, RetryNTimes};
use curator_integration::env::{Env, Kind};
use curator_integration::kinds::AnyLease;
use curator_recipes::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, LockError, LockGuard, MutexOptions, Release, SemaphoreOptions, WriteLock,
};
use parking_lot::Mutex;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::groups::group;
use crate::leaders::{campaign, elect};
use crate::peer::Peer;
use crate::queues::{Workers, queue};
use crate::record::Clock;

/// The arguments of the process: the server and its session.
const ROLE: &str = "CURATOR_INTEROP_PEER";
const TEST: &str = "rust_peer::a_process_of_its_own_acquires_and_releases";
const PATIENCE: Duration = Duration::from_secs(60);

/// The paths at which no thread of this process competes any more.
static STOPPED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

pub(crate) fn command(arguments: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact", "--nocapture"]).env(ROLE, arguments.join(" "));
    command
}

/// Starts a process in which a deliberate break is switched on.
#[cfg(curator_mutants)]
pub(crate) async fn broken(env: &Env, mutant: &str) -> Peer {
    let mut command = command(&[env.address().to_string(), "30000".to_owned()]);
    command.env("CURATOR_MUTANT", mutant);
    Peer::run(crate::peer::Language::Rust, command).await
}

#[test]
fn a_process_of_its_own_acquires_and_releases() {
    if std::env::var(ROLE).is_ok() {
        return serve();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let env = Env::new(Kind::InProcess);
        let rust = Peer::rust(&env).await;
        let (client, path) = (env.client().await, env.path("lock"));
        let mut thread = rust.thread("one");
        let token = thread.acquire("mutex", &path).await;
        let nodes = env.wait_for_children(&client, &path, 1).await;
        let node = client.check_exists().for_path(&format!("{path}/{}", nodes[0])).await.unwrap().unwrap();
        assert_eq!((node.czxid, node.ephemeral_owner), (token, rust.session().await));
        thread.release("mutex", &path).await;
        env.wait_for_children(&client, &path, 0).await;
        rust.end().await;
    });
}

pub(crate) fn say(thread: &str, answer: &str) {
    // In one piece, and not behind what the test runner has started to say.
    let mut output = std::io::stdout().lock();
    output.write_all(format!("\n> {thread} {answer}\n").as_bytes()).unwrap();
    output.flush().unwrap();
}

/// Connects the process to the server of its arguments.
pub(crate) async fn connect() -> CuratorFramework {
    let role = std::env::var(ROLE).unwrap();
    let (address, session) = role.split_once(' ').unwrap();
    let client = CuratorFramework::builder(address)
        .session_timeout(Duration::from_millis(session.parse().unwrap()))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
        .build()
        .unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

/// True if no thread of this process competes at the path any more.
pub(crate) fn is_stopped(path: &str) -> bool {
    STOPPED.lock().contains(path)
}

/// What the process does until its input ends.
fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (lines, mut read) = unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
    });
    runtime.block_on(async {
        let client = connect().await;
        say("main", "ready");
        let mut threads: HashMap<String, UnboundedSender<Vec<String>>> = HashMap::new();
        while let Some(line) = read.recv().await {
            let mut words = line.split(' ').map(ToOwned::to_owned);
            let name = words.next().unwrap();
            let thread = threads.entry(name.clone()).or_insert_with(|| {
                let (todo, told) = unbounded_channel();
                tokio::spawn(work(client.clone(), name, told));
                todo
            });
            thread.send(words.collect()).unwrap();
        }
        client.close().await;
    });
}

/// A thread of the process.
async fn work(client: CuratorFramework, name: String, mut todo: UnboundedReceiver<Vec<String>>) {
    let (mut held, mut workers) = (HashMap::new(), Workers::new());
    while let Some(words) = todo.recv().await {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let answer = match words[..] {
            ["queue", ref words @ ..] => queue(&client, &name, words, &mut workers).await,
            _ => answer(&client, &name, &words, &mut held).await,
        };
        say(&name, &answer.unwrap_or_else(|error| format!("error {error}")));
    }
}

pub(crate) type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn answer(
    client: &CuratorFramework,
    name: &str,
    words: &[&str],
    held: &mut HashMap<String, Vec<LockGuard>>,
) -> Answer<String> {
    Ok(match *words {
        ["clock"] => Clock::now().as_nanos().to_string(),
        ["session"] => own_session(client).await?.to_string(),
        ["acquire", kind, path, millis] => {
            let budget = Duration::from_millis(millis.parse()?);
            match Contended::new(client, kind, path)?.acquire(budget).await? {
                Some(guards) => {
                    let token = guards[0].token().czxid().get();
                    held.insert(format!("{kind}{path}"), guards);
                    format!("held {token}")
                }
                None => "timeout".to_owned(),
            }
        }
        ["release", kind, path] => {
            give_back(&held.remove(&format!("{kind}{path}")).ok_or("not held")?).await?;
            "released".to_owned()
        }
        ["lost", kind, path] => held[&format!("{kind}{path}")][0].lost().await.to_string(),
        ["stop", path] => {
            STOPPED.lock().insert(path.to_owned());
            "stopped".to_owned()
        }
        ["compete", kinds, path, rounds, hold, ref rest @ ..] => {
            let rest = rest.first().map_or(Ok(0), |rest| rest.parse())?;
            let [hold, rest] = [hold.parse()?, rest].map(Duration::from_millis);
            compete(client, name, kinds, path, rounds.parse()?, Pace { hold, rest }).await?;
            "done".to_owned()
        }
        ["group", ref words @ ..] => group(client, words).await?,
        ["campaign", ref words @ ..] => campaign(words).await?,
        _ => elect(client, words).await?,
    })
}

/// How long a contender has what it was granted, and how long it has nothing then.
struct Pace {
    hold: Duration,
    rest: Duration,
}

async fn compete(
    client: &CuratorFramework,
    name: &str,
    kinds: &str,
    path: &str,
    rounds: usize,
    pace: Pace,
) -> Answer<()> {
    let mut locks = Vec::new();
    for kind in kinds.split(',') {
        locks.push((kind, Contended::new(client, kind, path)?));
    }
    let mut turns = locks.iter().cycle().take(rounds);
    let mut turn = turns.next();
    while let Some((kind, lock)) = turn.filter(|_| !is_stopped(path)) {
        let now = || Clock::now().as_nanos();
        say(name, &format!("asked {} {kind}", now()));
        let guards = if let Contended::Downgrade(write) = lock {
            let writing = write.acquire_timeout(PATIENCE).await?.ok_or("not granted in time")?;
            say(name, &format!("granted {} {}", now(), writing.token().czxid().get()));
            // Readers may be granted before this process sees the reply.
            let started = now();
            let reading = writing.downgrade().await?;
            say(name, &format!("downgraded {started} {}", reading.token().czxid().get()));
            vec![reading.into()]
        } else {
            let Some(guards) = lock.acquire(PATIENCE).await? else {
                say(name, &format!("refused {}", now()));
                // A client that is refused at once does something else first.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            };
            say(name, &format!("granted {} {}", now(), guards[0].token().czxid().get()));
            guards
        };
        // As long as it takes Java to ask for its token.
        client.check_exists().for_path(path).await?;
        tokio::time::sleep(pace.hold).await;
        say(name, &format!("releasing {}", now()));
        give_back(&guards).await?;
        say(name, &format!("released {}", now()));
        tokio::time::sleep(pace.rest).await;
        turn = turns.next();
    }
    Ok(())
}

async fn give_back(guards: &[LockGuard]) -> Answer<()> {
    for guard in guards {
        match guard.release().await? {
            Release::Released => {}
            lost => return Err(format!("{lost:?}").into()),
        }
    }
    Ok(())
}

/// Its nodes tell it.
async fn own_session(client: &CuratorFramework) -> Answer<i64> {
    let node = client.create().with_mode(CreateMode::EphemeralSequential).for_path("/session-of-").await?;
    let stat = client.check_exists().for_path(&node).await?.ok_or("it is gone")?;
    client.delete().for_path(&node).await?;
    Ok(stat.ephemeral_owner)
}

/// Something that is competed for.
enum Contended {
    Lock(Box<dyn InterProcessLock>),
    Leases {
        semaphore: InterProcessSemaphoreV2,
        leases: usize,
        how: How,
    },
    /// To write, and then to read.
    Downgrade(WriteLock),
}

/// How leases are acquired.
enum How {
    WithinPatience,
    Wait,
    Try,
    Within(Duration),
}

impl How {
    fn new(how: &str) -> Answer<Self> {
        Ok(match how {
            "wait" => Self::Wait,
            "try" => Self::Try,
            millis => Self::Within(Duration::from_millis(millis.parse()?)),
        })
    }
}

impl Contended {
    fn new(client: &CuratorFramework, kind: &str, path: &str) -> Answer<Self> {
        let client = client.clone();
        Ok(Self::Lock(match kind.split(':').collect::<Vec<_>>()[..] {
            ["mutex"] => Box::new(InterProcessMutex::new(client, path)?),
            ["kazoo"] => {
                let options = MutexOptions::new().extra_lock_patterns(["__lock__"]);
                Box::new(InterProcessMutex::with_options(client, path, options)?)
            }
            ["read"] => Box::new(InterProcessReadWriteLock::new(client, path)?.read_lock()),
            ["write"] => Box::new(InterProcessReadWriteLock::new(client, path)?.write_lock()),
            ["downgrade"] => return Ok(Self::Downgrade(InterProcessReadWriteLock::new(client, path)?.write_lock())),
            ["one-node-mutex"] => {
                let options = MutexOptions::new().one_node_per_client();
                Box::new(InterProcessMutex::with_options(client, path, options)?)
            }
            ["one-node-semaphore", limit] => {
                let options = SemaphoreOptions::new().one_node_per_client();
                let semaphore = InterProcessSemaphoreV2::with_options(client, path, limit.parse::<usize>()?, options)?;
                Box::new(AnyLease(semaphore))
            }
            ["semaphore-mutex"] => Box::new(InterProcessSemaphoreMutex::new(client, path)?),
            ["multi"] => Box::new(InterProcessMultiLock::new(client, [path, &format!("{path}-too")])?),
            ["semaphore", limit, ref leases @ ..] => {
                let semaphore = InterProcessSemaphoreV2::new(client, path, limit.parse::<usize>()?)?;
                let how = leases.get(1).map_or(Ok(How::WithinPatience), |how| How::new(how))?;
                let leases = leases.first().map_or(Ok(1), |leases| leases.parse())?;
                return Ok(Self::Leases { semaphore, leases, how });
            }
            _ => return Err(kind.into()),
        }))
    }

    async fn acquire(&self, budget: Duration) -> Result<Option<Vec<LockGuard>>, LockError> {
        Ok(match self {
            Self::Downgrade(write) => write.acquire_timeout(budget).await?.map(|guard| vec![guard.into()]),
            Self::Lock(lock) => lock.acquire_timeout(budget).await?.map(|guard| vec![guard]),
            Self::Leases { semaphore, leases, how } => {
                let leases = match how {
                    How::WithinPatience => semaphore.acquire_many_timeout(*leases, budget).await?,
                    How::Within(budget) => match semaphore.acquire_many_timeout(*leases, *budget).await {
                        // A busy server may not reply within so short a budget.
                        Err(LockError::Framework(Error::ConnectionLoss { .. })) => None,
                        leases => leases?,
                    },
                    How::Wait if *leases == 1 => return Ok(Some(vec![semaphore.acquire().await?.into()])),
                    How::Wait => Some(semaphore.acquire_many(*leases).await?),
                    How::Try => semaphore.try_acquire_many(*leases).await?,
                };
                leases.map(|leases| leases.into_iter().map(Into::into).collect())
            }
        })
    }
}
