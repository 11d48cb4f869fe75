//! The program `curator` runs commands under locks. `curator --help` and `curator lock --help` describe it.

mod barrier;
mod child;
mod count;
mod elect;
mod enter;
mod fields;
mod grant;
mod hold;
mod join;
mod latch;
mod leader;
mod members;
mod options;
mod outages;
mod output;
mod pages;
mod serve;
mod show;
mod signals;
mod waiting;
mod watch;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use curator_cli::contenders::{LockKind, blocker, is_candidate, lock_of_contender, not_a_contender, other_kind};
use curator_framework::recipe::RecipeClient as _;
#[cfg(feature = "tls")]
use curator_framework::{Chain, TlsOptions};
use curator_framework::{CuratorFramework, Error, ExponentialBackoffRetry, SaslDigest, Session, node_from_path};
use curator_recipes::{
    BarrierError, CacheError, CounterError, InterProcessLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreV2, LeaderError, LockError, LockGuard, LockOptions, NodeError, ParticipantKind, Release,
    RevokeOutcome, Revoker,
};

use crate::barrier::Barrier;
use crate::child::{BECOME, Order};
use crate::options::{AccessList, Action, Connection, Options, Parsed, Run};
use crate::output::{print, tell};
use crate::show::Noun;
use crate::signals::Signals;
use crate::waiting::Waiting;

const LOST: u8 = 74;
/// The exit status of a change that may have been made behind a lost connection.
const UNKNOWN: u8 = 76;
/// The longest time for releasing the lock. After it, the end of the session releases the lock.
const RELEASE: Duration = Duration::from_secs(5);
/// The longest time for finding the reason of a refusal.
const REASON: Duration = Duration::from_secs(1);

/// A failure that ends the program: the exit status and the message.
struct Failure(u8, String);

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Framework(error) => error.into(),
            LockError::InvalidArgument { .. } | LockError::ProtocolMismatch { .. } => {
                Self(2, Chain(&error).to_string())
            }
            LockError::LockLost { .. } => Self(LOST, Chain(&error).to_string()),
            _ => Self(70, Chain(&error).to_string()),
        }
    }
}

impl From<LeaderError> for Failure {
    fn from(error: LeaderError) -> Self {
        match error {
            LeaderError::Framework(error) => error.into(),
            LeaderError::InvalidArgument { .. } | LeaderError::ForeignData { .. } => Self(2, Chain(&error).to_string()),
            LeaderError::LeadershipLost { .. } => Self(LOST, Chain(&error).to_string()),
            _ => Self(70, Chain(&error).to_string()),
        }
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Framework(error) => error.into(),
            NodeError::InvalidArgument { .. } => Self(2, Chain(&error).to_string()),
            _ => Self(70, Chain(&error).to_string()),
        }
    }
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Framework(error) => error.into(),
            CacheError::InvalidArgument { .. } => Self(2, Chain(&error).to_string()),
            _ => Self(70, Chain(&error).to_string()),
        }
    }
}

impl From<CounterError> for Failure {
    fn from(error: CounterError) -> Self {
        let (is_unknown, text) = (error.outcome_unknown(), Chain(&error).to_string());
        match error {
            CounterError::Framework(error) if is_unknown => {
                let Self(_, text) = error.into();
                Self(UNKNOWN, format!("{text}; the value may have been changed: read it before you repeat the command"))
            }
            CounterError::Framework(error) => error.into(),
            CounterError::Lock(error) => error.into(),
            CounterError::NotANumber { length: 4, expected: 8, .. } => Self(2, format!("{text}: use --integer")),
            CounterError::NotANumber { length: 8, expected: 4, .. } => Self(2, format!("{text}: leave --integer out")),
            CounterError::InvalidArgument { .. } | CounterError::NotANumber { .. } => Self(2, text),
            _ => Self(70, text),
        }
    }
}

impl From<BarrierError> for Failure {
    fn from(error: BarrierError) -> Self {
        let code = match &error {
            BarrierError::InvalidArgument { .. } | BarrierError::NotALatch { .. } => 2,
            BarrierError::Lost { .. } => LOST,
            BarrierError::NotSet { .. } => 1,
            _ => 70,
        };
        match error {
            BarrierError::Framework(error) => error.into(),
            error => Self(code, Chain(&error).to_string()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::InvalidPath { .. } | Error::InvalidConfig { .. } | Error::InvalidAcl { .. } => 2,
            Error::ConnectionLoss { .. } | Error::SessionExpired { .. } => 69,
            Error::NoAuth { .. } | Error::AuthFailed { .. } => 77,
            Error::NoNode { .. } => 1,
            _ => 70,
        };
        let text = match error {
            // The user needs the cause, not the request that failed.
            Error::ConnectionLoss { cause: Some(cause), .. } if !cause.is_time_over() => cause.to_string(),
            error => Chain(&error).to_string(),
        };
        Self(code, text)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(70, Chain(&error).to_string())
    }
}

fn main() -> ExitCode {
    let code = program();
    output::flush(output::AT_THE_END);
    ExitCode::from(code)
}

/// Runs the program, and returns the exit status.
fn program() -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let [_, word, parent, command @ ..] = arguments.as_slice() {
        if word == BECOME {
            return child::become_command(parent, command);
        }
    }
    let options = match Options::from_arguments(&arguments) {
        Parsed::Options(options) => *options,
        Parsed::Refused(error) => error.exit(),
        Parsed::MissingDashes(line) => {
            tell(&format!("the command must stand behind --, as in: {line}"));
            return 2;
        }
    };
    let outcome = match &options.action {
        Action::Completions { shell } => pages::completions(*shell),
        Action::Man { command } => pages::manual(command),
        _ => start(options),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure(code, text)) => {
            tell(&text);
            code
        }
    }
}

#[tokio::main]
async fn start(options: Options) -> Result<u8, Failure> {
    let Options { connection, action } = options;
    let mut signals = Signals::catch(kept(&action))?;
    let client = connect(&connection, acl(&action))?;
    let chroot = connection.chroot();
    let chroot = chroot.as_deref();
    let outcome = match &action {
        Action::Ls(ls) => unless_ended(&mut signals, show::list(&client, ls, chroot)).await,
        Action::Status(status) => unless_ended(&mut signals, show::status(&client, status, chroot)).await,
        Action::Revoke { node } => unless_ended(&mut signals, revoke(&client, node)).await,
        Action::Serve(options) => serve::run(&client, options, &connection, signals.end()).await,
        Action::Lock(run) => under(&client, Kind::Lock, run, chroot, &mut signals).await,
        Action::Semaphore { leases, run } => under(&client, Kind::Semaphore(*leases), run, chroot, &mut signals).await,
        Action::Read(run) => under(&client, Kind::Read, run, chroot, &mut signals).await,
        Action::Write(run) => under(&client, Kind::Write, run, chroot, &mut signals).await,
        Action::Elect(elect) => elect::elect(&client, elect, chroot, &mut signals).await,
        Action::Join(join) => join::join(&client, join, chroot, &mut signals).await,
        Action::Leader(options) => unless_ended(&mut signals, leader::leader(&client, options, chroot)).await,
        Action::Members(options) => unless_ended(&mut signals, members::members(&client, options, chroot)).await,
        Action::Watch(options) => unless_ended(&mut signals, watch::watch(&client, options, chroot)).await,
        Action::Count(options) => unless_ended(&mut signals, count::count(&client, options, chroot)).await,
        Action::Barrier(command) => barrier::barrier(&client, command, chroot, &mut signals).await,
        Action::Latch(command) => unless_ended(&mut signals, latch::latch(&client, command, chroot)).await,
        // They need no server.
        Action::Completions { .. } | Action::Man { .. } => Ok(0),
    };
    client.close().await;
    outcome.map_err(|failure| advised(failure, &connection))
}

/// Returns the state in ZooKeeper that a stopped process would lose.
const fn kept(action: &Action) -> Option<&'static str> {
    match action {
        Action::Lock(_) | Action::Semaphore { .. } | Action::Read(_) | Action::Write(_) | Action::Elect(_) => {
            Some("its place in the queue")
        }
        Action::Join(_) => Some("its registration"),
        Action::Barrier(Barrier::Enter(_)) => Some("its place at the barrier"),
        Action::Barrier(Barrier::Hold(_)) => Some("the barrier"),
        _ => None,
    }
}

/// Returns the access control list of the nodes that an action creates.
const fn acl(action: &Action) -> Option<&AccessList> {
    match action {
        Action::Lock(run) | Action::Semaphore { run, .. } | Action::Read(run) | Action::Write(run) => {
            Some(&run.work.setting.access.acl)
        }
        Action::Elect(elect) => Some(&elect.work.setting.access.acl),
        Action::Join(join) => Some(&join.setting.access.acl),
        Action::Count(count) => Some(&count.access.acl),
        Action::Barrier(command) => command.acl(),
        Action::Latch(command) => command.acl(),
        _ => None,
    }
}

/// Adds what to do to a failure.
fn advised(Failure(code, mut text): Failure, connection: &Connection) -> Failure {
    match code {
        69 if connection.is_by_default() => text += "; neither --connect nor CURATOR_CONNECT is set",
        77 if connection.credentials().is_ok_and(|all| all.is_empty()) => {
            text += "; give credentials with --auth-file or CURATOR_AUTH";
        }
        _ => {}
    }
    Failure(code, text)
}

/// The kind of lock under which the command runs.
#[derive(Clone, Copy)]
enum Kind {
    Lock,
    Semaphore(usize),
    Read,
    Write,
}

impl Kind {
    const fn leases(self) -> Option<usize> {
        match self {
            Self::Semaphore(leases) => Some(leases),
            _ => None,
        }
    }

    const fn of_its_nodes(self) -> LockKind {
        match self {
            Self::Lock => LockKind::Mutex,
            Self::Semaphore(_) => LockKind::Semaphore,
            Self::Read | Self::Write => LockKind::ReadWrite,
        }
    }

    const fn of_its_contenders(self) -> ParticipantKind {
        match self {
            Self::Lock => ParticipantKind::Lock,
            Self::Semaphore(_) => ParticipantKind::Lease,
            Self::Read => ParticipantKind::Read,
            Self::Write => ParticipantKind::Write,
        }
    }
}

/// A lock of any kind. A semaphore is not an `InterProcessLock`, because one caller can hold several leases.
enum Lock {
    One(Box<dyn InterProcessLock>),
    Leases(InterProcessSemaphoreV2),
}

impl Lock {
    fn new(client: &CuratorFramework, kind: Kind, run: &Run) -> Result<Self, LockError> {
        let (client, path) = (client.clone(), &run.path);
        let read_write = InterProcessReadWriteLock::with_options;
        Ok(match kind {
            Kind::Lock => Self::One(Box::new(InterProcessMutex::with_options(client, path, lock_options(run))?)),
            Kind::Semaphore(n) => {
                Self::Leases(InterProcessSemaphoreV2::with_options(client, path, n, lock_options(run))?)
            }
            Kind::Read => Self::One(Box::new(read_write(client, path, lock_options(run))?.read_lock())),
            Kind::Write => Self::One(Box::new(read_write(client, path, lock_options(run))?.write_lock())),
        })
    }

    async fn acquire(&self) -> Result<LockGuard, LockError> {
        match self {
            Self::One(lock) => lock.acquire().await,
            Self::Leases(semaphore) => Ok(semaphore.acquire().await?.into()),
        }
    }

    async fn acquire_timeout(&self, budget: Duration) -> Result<Option<LockGuard>, LockError> {
        match self {
            Self::One(lock) => lock.acquire_timeout(budget).await,
            Self::Leases(semaphore) => Ok(semaphore.acquire_timeout(budget).await?.map(Into::into)),
        }
    }

    async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        match self {
            Self::One(lock) => lock.try_acquire().await,
            Self::Leases(semaphore) => Ok(semaphore.try_acquire().await?.map(Into::into)),
        }
    }
}

/// Runs work that a signal may end.
async fn unless_ended<T>(signals: &mut Signals, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        biased;
        outcome = work => outcome,
        signal = signals.end() => {
            let code = u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX);
            Err(Failure(code, format!("ended by {}", signals::name(signal))))
        }
    }
}

/// Runs the command under a lock, and returns the exit status.
async fn under(
    client: &CuratorFramework,
    kind: Kind,
    run: &Run,
    chroot: Option<&str>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lock = Lock::new(client, kind, run)?;
    let Some((guard, grace)) = unless_ended(signals, acquire(client, &lock, kind, run, chroot)).await? else {
        let other = format!("another contender has {0}: curator status {0} shows it", run.path);
        tell(&unless_ended(signals, refused_by(client, &run.path, kind.of_its_contenders(), other)).await?);
        return Ok(run.conflict_exit_code);
    };
    let (command, foreground) = (&run.work.command, run.work.setting.foreground);
    let order = Order { command, foreground, path: &run.path, grace, revocable: run.revocable };
    let ended = child::run(&guard, &order, signals).await;
    let released = tokio::time::timeout(RELEASE, guard.release()).await;
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Ok(child::cannot_run(&run.work.command[0], &error)),
    };
    match released {
        _ if ended.lost => return Ok(LOST),
        Ok(Ok(Release::Released)) => {}
        Ok(Ok(Release::AlreadyLost(reason))) => {
            return Err(Failure(LOST, format!("the lock was lost before the command ended: {reason}")));
        }
        Ok(Err(error)) => {
            tell(&format!("the lock goes with its session, it could not be given back: {}", Chain(&error)))
        }
        Err(_too_long) => tell("the lock goes with its session, the servers did not answer when it was given back"),
    }
    Ok(child::code(ended.status))
}

/// Acquires the lock within the time that the options allow. Returns the guard, and the grace for the command.
async fn acquire(
    client: &CuratorFramework,
    lock: &Lock,
    kind: Kind,
    run: &Run,
    chroot: Option<&str>,
) -> Result<Option<(LockGuard, Duration)>, Failure> {
    let begin = Instant::now();
    let session = first_session(client, run.timeout).await?;
    let grace = run.work.grace_in(session.timeout())?;
    let left = || run.timeout.map(|budget| budget.saturating_sub(begin.elapsed()));
    match tokio::time::timeout(
        left().unwrap_or(Duration::MAX),
        check(client, Some(kind.of_its_nodes()), &run.path, chroot),
    )
    .await
    {
        Ok(checked) => checked?,
        // The acquire has no time left either, and reports it.
        Err(_too_long) => {}
    }
    let waiting = Waiting::new(client, &run.path, kind.leases(), run.work.verbose);
    let acquiring = async {
        match left() {
            _ if run.once => lock.try_acquire().await,
            Some(budget) => lock.acquire_timeout(budget).await,
            None => lock.acquire().await.map(Some),
        }
    };
    let guard = tokio::select! {
        biased;
        guard = acquiring => guard?,
        never = waiting.report() => match never {},
    };
    Ok(guard.map(|guard| {
        waiting.granted("has", &format!("fencing token {}", guard.token().czxid().get()));
        (guard, grace)
    }))
}

/// Waits for the connection, at most as long as the options allow. A budget of zero is that of one look, so it does not
/// limit the connection.
async fn first_session(client: &CuratorFramework, budget: Option<Duration>) -> Result<Session, Failure> {
    let budget = budget.filter(|budget| !budget.is_zero());
    let longest = budget.unwrap_or(Duration::MAX).min(client.connection_timeout());
    match tokio::time::timeout(longest, client.session()).await {
        Ok(session) => Ok(session?),
        Err(_too_long) => Err(client.no_answer("the wait for a connection").into()),
    }
}

/// Refuses a path that has the nodes of another kind of lock, before the first write: there the lock would exclude
/// nothing, or fail. A group is not a lock, so its kind is `None`. Refuses the node of a contender too: a node that is
/// created there, or below it, would block the lock.
async fn check(
    client: &CuratorFramework,
    kind: Option<LockKind>,
    path: &str,
    chroot: Option<&str>,
) -> Result<(), Failure> {
    if let Some(whole) = lock_of_contender(path) {
        let (participant, noun) =
            if is_candidate(node_from_path(path)) { ("candidate", Noun::Election) } else { ("contender", Noun::Lock) };
        let (_, word, _) = noun.words();
        let text = format!("{path} has the name of a {participant}'s node: name the {word} itself, {whole}");
        return Err(Failure(2, text));
    }
    let children = match client.get_children().for_path(path).await {
        Ok(children) => children,
        Err(Error::NoNode { .. }) => return check_chroot(client, chroot).await,
        // The acquire reports other errors.
        Err(_reported) => return Ok(()),
    };
    // A part that cannot be read may have contenders.
    let Some(found) = other_kind(client, path, &children, kind).await? else { return Ok(()) };
    let (name, right) = match found {
        LockKind::Mutex => ("mutex", "curator lock"),
        LockKind::ReadWrite => ("read-write lock", "curator read or curator write"),
        LockKind::Semaphore => ("semaphore", "curator semaphore"),
        LockKind::LeaderLatch => ("leader election", "curator elect"),
    };
    Err(Failure(2, format!("{path} is a {name} with contenders: use {right}, or another path")))
}

/// Returns the reason of a refusal: a persistent node with a contender's name, or `other`.
async fn refused_by(
    client: &CuratorFramework,
    path: &str,
    kind: ParticipantKind,
    other: String,
) -> Result<String, Failure> {
    let blocker = tokio::time::timeout(REASON, blocker(client, path, kind)).await;
    Ok(match blocker {
        Ok(Ok(Some(node))) => not_a_contender(&node),
        _ => other,
    })
}

/// Fails if the chroot does not exist.
async fn check_chroot(client: &CuratorFramework, chroot: Option<&str>) -> Result<(), Failure> {
    let Some(chroot) = chroot else { return Ok(()) };
    if client.check_exists().for_path("/").await?.is_some() {
        return Ok(());
    }
    let text = format!("the chroot {chroot} does not exist on the servers: create it, or correct the connect string");
    Err(Failure(2, text))
}

/// Returns the failure for a path that does not exist.
async fn missing(client: &CuratorFramework, path: &str, chroot: Option<&str>, noun: Noun) -> Result<Failure, Failure> {
    check_chroot(client, chroot).await?;
    let (_, word, _) = noun.words();
    let text = format!("no {word} {path}: no client has used it yet, or the servers have deleted its empty node");
    Ok(Failure(1, text))
}

/// Gives a node back, at most as long as a release may take.
async fn give_back(owner: &str, closing: impl Future<Output = ()>) {
    if tokio::time::timeout(RELEASE, closing).await.is_err() {
        tell(&format!("the {owner}'s node goes with its session, the servers did not answer when it was given back"));
    }
}

/// Returns the id of this candidate or member.
fn own_id(given: Option<&str>) -> String {
    given.map_or_else(|| format!("{}-{}", host(), std::process::id()), ToOwned::to_owned)
}

/// Returns the name of this machine.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn lock_options<K: Default>(run: &Run) -> LockOptions<K> {
    let data = run.data.clone().unwrap_or_else(|| {
        let command = run.work.command.first().map(|command| command.to_string_lossy().into_owned());
        format!("{} {} {}", host(), std::process::id(), command.unwrap_or_default())
    });
    LockOptions::new().data(data)
}

/// ZooKeeper does not show the watches of another session.
const UNKNOWN_LISTENER: &str =
    "only a holder that listens is notified (`curator` with --revocable); ZooKeeper does not show whether it does";

async fn revoke(client: &CuratorFramework, node: &str) -> Result<u8, Failure> {
    client.session().await?;
    if is_candidate(node_from_path(node)) {
        return Err(Failure(
            2,
            format!("{node} is a candidate's node, and candidates do not listen: stop its process"),
        ));
    }
    let requested = match Revoker::attempt_revoke(client, node).await? {
        RevokeOutcome::NodeGone => return Err(Failure(1, format!("no node {node}"))),
        RevokeOutcome::RequestedAgain => "requested again",
        _ => "requested",
    };
    let text = format!("{requested} the release of {node}\n{UNKNOWN_LISTENER}\n");
    print(text).await?;
    Ok(0)
}

fn connect(connection: &Connection, acl: Option<&AccessList>) -> Result<CuratorFramework, Failure> {
    let wrong = |text| Failure(2, text);
    let retry = ExponentialBackoffRetry::new(Duration::from_millis(100), 3)?;
    let mut builder = CuratorFramework::builder(connection.servers())
        .retry_policy(retry)
        .session_timeout(connection.session_timeout)
        .connection_timeout(connection.connect_timeout)
        .max_reply(connection.max_reply);
    let credentials = connection.credentials().map_err(wrong)?;
    #[cfg(feature = "tls")]
    let has_certificate = connection.tls.cert.is_some();
    #[cfg(not(feature = "tls"))]
    let has_certificate = false;
    let is_known = has_certificate || !credentials.is_empty();
    for (scheme, id) in credentials {
        builder = match (scheme.as_str(), id.split_once(':')) {
            ("sasl", Some((user, password))) => builder.sasl(SaslDigest::new(user, password)),
            ("sasl", None) => return Err(wrong("credentials for SASL are sasl:user:password".to_owned())),
            _ => builder.authorization(scheme, id),
        };
    }
    #[cfg(feature = "tls")]
    if let Some(options) = tls(&connection.tls).map_err(wrong)? {
        builder = builder.tls(options);
    }
    if let Some(acl) = acl {
        if acl.names_the_creator() && !is_known {
            let text = "--acl creator and read-only need credentials: give them with --auth-file or CURATOR_AUTH";
            return Err(wrong(text.to_owned()));
        }
        builder = builder.acl_provider(acl.0.clone());
    }
    let client = builder.build()?;
    client.start()?;
    Ok(client)
}

/// Returns the options for TLS, if an authority is given.
#[cfg(feature = "tls")]
fn tls(files: &options::Tls) -> Result<Option<TlsOptions>, String> {
    let Some(authority) = &files.ca else {
        let alone = files.cert.is_some() || files.key.is_some();
        return if alone { Err("--tls-cert and --tls-key need --tls-ca".to_owned()) } else { Ok(None) };
    };
    let options = TlsOptions::new(options::read(authority)?);
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => Ok(Some(options.with_client_certificate(options::read(cert)?, options::read(key)?))),
        (None, None) => Ok(Some(options)),
        _ => Err("--tls-cert and --tls-key need each other".to_owned()),
    }
}
