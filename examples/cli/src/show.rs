//! `ls` and `status`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::contenders::{Below, Contender, Lock, Look, locks_below, look};
use curator_cli::kinds::{LockKind, not_a_contender};
use curator_cli::text::{age, created, now, rfc3339, row_of_blocker, shown, shown_session, table};
use curator_framework::{AddWatchMode, Error};
use curator_recipes::LockError;
use serde::Serialize;

use crate::failure::Failure;
use crate::outages::Outages;
use crate::output::{print, tell};
use crate::site::Site;
use crate::values::{at_least_one, path};

#[derive(Debug, Args)]
#[command(after_help = LS_NOTES)]
pub(crate) struct Ls {
    /// Number of leases of a semaphore; without it the number in the data of the leases, or if they have none, each one is
    /// shown as `lease`, granted or not
    #[arg(short = 'n', long, value_parser = at_least_one, env = "CURATOR_LEASES")]
    pub(crate) leases: Option<usize>,
    /// List all locks at and below the path that have contenders
    #[arg(long, short, value_parser = BoolishValueParser::new(), env = "CURATOR_RECURSIVE")]
    pub(crate) recursive: bool,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    /// Print again on each change, until interrupted; needs ZooKeeper 3.6
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_WATCH")]
    watch: bool,
    /// End with status 3 if a listed lock is held, and with 4 if one is blocked by a persistent node. End with 77 if none
    /// is, but not all could be read
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_EXIT_CODE")]
    exit_code: bool,
    /// The lock's path
    #[arg(value_parser = path)]
    path: String,
}

const LS_NOTES: &str = "\
AGE is the time since the contender asked for the lock: ZooKeeper does not record when it was granted.

With --watch the table follows an empty line each time, and JSON is one line each time. Changes
within a tenth of a second are printed together.";

#[derive(Debug, Args)]
#[command(after_help = STATUS_NOTES)]
pub(crate) struct Status {
    /// Number of leases of a semaphore; without it the number in the data of the leases, or if they have none, each one
    /// counts as a holder, granted or not
    #[arg(short = 'n', long, value_parser = at_least_one, env = "CURATOR_LEASES")]
    leases: Option<usize>,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    /// The lock's path
    #[arg(value_parser = path)]
    path: String,
}

const STATUS_NOTES: &str = "\
Exit status:
    0  free: the lock has no holder
    1  no such lock: the node does not exist, or is not a lock
    3  held: a contender holds the lock, or a lease of it
    4  blocked: it has no holder, and gets none until a persistent node is deleted, which standard output names
    2, 69, 70, 77  an error, as in `curator --help`

The servers delete the empty node of a free lock after a while, so both 0 and 1 mean that no contender holds it. The times
are those at which the holders asked for the lock: ZooKeeper does not record when it was granted.";

/// The exit status for a lock that is held.
const HELD: u8 = 3;
const NO_LOCK: u8 = 1;
/// The exit status for a lock that a persistent node blocks.
const BLOCKED: u8 = 4;
/// The exit status if no listed lock is held, and not all locks could be read.
const NOT_ALL: u8 = 77;
/// The time for which changes are collected before they are printed.
const TOGETHER: Duration = Duration::from_millis(100);
/// The pause before the next attempt while the servers do not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// Prints a problem on standard error, unless it was printed last. Returns `true` if it was printed.
pub(crate) fn tell_anew(before: &mut Option<String>, problem: String) -> bool {
    let is_new = before.as_ref() != Some(&problem);
    if is_new {
        tell(&problem);
        *before = Some(problem);
    }
    is_new
}

/// Prints the holders and waiters, and returns the exit status.
pub(crate) async fn list(site: &Site, ls: &Ls) -> Result<u8, Failure> {
    site.first_session(None).await?;
    if ls.watch {
        return watch(site, ls).await;
    }
    let Below { locks, refused } = found(site, ls).await?;
    locks.iter().filter_map(Lock::blocker).for_each(|node| tell(&not_a_contender(node)));
    print(text(&locks, refused.keys(), None, ls)?).await?;
    tell_refused(&refused);
    match ls.exit_code {
        true if locks.iter().any(Lock::is_held) => Ok(HELD),
        true if locks.iter().any(Lock::is_blocked) => Ok(BLOCKED),
        true if !refused.is_empty() => {
            Err(Failure(NOT_ALL, "no listed lock is held, but not all could be read".to_owned()))
        }
        _ => Ok(0),
    }
}

/// Returns the locks that the options ask for.
async fn found(site: &Site, ls: &Ls) -> Result<Below, Failure> {
    if !ls.recursive {
        return Ok(Below { locks: vec![one(site, &ls.path, ls.leases).await?], ..Below::default() });
    }
    match locks_below(&site.client, &ls.path).await {
        Err(LockError::Framework(Error::NoNode { .. })) => Err(site.missing(&ls.path, Noun::Lock).await?),
        below => Ok(below?),
    }
}

fn tell_refused(refused: &BTreeMap<String, String>) {
    for reason in refused.values() {
        tell(&format!("{reason}: it is left out"));
    }
}

/// The word for what a command shows.
#[derive(Clone, Copy)]
pub(crate) enum Noun {
    Lock,
    Election,
    Group,
}

impl Noun {
    /// Returns the word with its article, and the word for a participant.
    pub(crate) const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Lock => ("a", "lock", "contenders"),
            Self::Election => ("an", "election", "candidates"),
            Self::Group => ("a", "group", "members"),
        }
    }
}

/// Returns the lock at a path.
async fn one(site: &Site, path: &str, leases: Option<usize>) -> Result<Lock, Failure> {
    lock_of(look(&site.client, path, leases).await?, site, path, Noun::Lock).await
}

/// Returns the lock or the election that a look has found.
pub(crate) async fn lock_of(look: Look, site: &Site, path: &str, noun: Noun) -> Result<Lock, Failure> {
    let (a, word, participants) = noun.words();
    let text = match look {
        Look::Lock(lock) => return Ok(lock),
        Look::Missing => return Err(site.missing(path, noun).await?),
        Look::PartOf(whole) => part_of(path, &whole, noun),
        Look::Other => format!(
            "{path} is not {a} {word}, because its children are not {participants}: list the {word}s below it with: \
             curator ls --recursive {path}"
        ),
    };
    Err(Failure(NO_LOCK, text))
}

/// Returns the message about a path that names a part of a lock or an election.
pub(crate) fn part_of(path: &str, whole: &str, noun: Noun) -> String {
    let (a, word, _) = noun.words();
    format!("{path} is part of {a} {word}: name the {word} itself, {whole}")
}

/// Formats the locks. The locks below the nodes of `left_out` are missing, or not up to date for a `reason`.
fn text<'a>(
    locks: &[Lock],
    left_out: impl IntoIterator<Item = &'a String>,
    reason: Option<&str>,
    ls: &Ls,
) -> Result<String, Failure> {
    if ls.json {
        let left_out: Vec<_> = left_out.into_iter().collect();
        return line(&Shot { time: now(), complete: left_out.is_empty(), left_out, reason, locks });
    }
    let mut lines = table(locks.iter().flat_map(|lock| &lock.contenders));
    lines.extend(locks.iter().filter_map(|lock| lock.blocked_by.as_deref()).map(row_of_blocker));
    Ok(lines.join("\n") + "\n")
}

/// The JSON of `ls`.
#[derive(Serialize)]
struct Shot<'a> {
    time: String,
    complete: bool,
    left_out: Vec<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    locks: &'a [Lock],
}

/// The JSON of `status` where no lock is.
#[derive(Serialize)]
struct Missing<'a> {
    path: &'a str,
    state: &'static str,
    reason: &'a str,
}

/// Formats a value as one line of JSON, for readers too that take other characters than a line feed for the end of a line.
pub(crate) fn line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure(70, error.to_string()))?;
    Ok(text.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029") + "\n")
}

/// Formats a change as a line of a stream, with its time: as JSON with these fields, or as a name and further facts.
pub(crate) fn change(
    json: bool,
    word: &'static str,
    fields: &impl Serialize,
    name: &str,
    facts: &str,
) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Change<'a, F> {
        time: String,
        change: &'static str,
        #[serde(flatten)]
        fields: &'a F,
    }
    if json {
        return line(&Change { time: now(), change: word, fields });
    }
    Ok(format!("{} {} {word} ({facts})\n", rfc3339(SystemTime::now()), shown(name.as_bytes())))
}

/// The JSON of a state of a stream, among the changes.
#[derive(Serialize, Default)]
pub(crate) struct StreamState<'a> {
    pub(crate) time: String,
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zxid: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) complete: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<&'a BTreeSet<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
}

impl StreamState<'_> {
    pub(crate) fn new(state: &'static str) -> Self {
        Self { time: now(), state, ..Self::default() }
    }
}

/// Prints the locks now and after each change, until the reader of the pipe closes it.
async fn watch(site: &Site, ls: &Ls) -> Result<u8, Failure> {
    let client = &site.client;
    let mut watcher = client.add_watch(&ls.path, AddWatchMode::PersistentRecursive).await?;
    let (mut before, mut outages) = (None::<Below>, Outages::of(client));
    // The last known locks are printed as such, once in an outage.
    let mut is_stale = false;
    loop {
        let below = match found(site, ls).await {
            // A lock's node may come, and go while the lock is free.
            Err(Failure(NO_LOCK, _)) => Below::default(),
            // The client connects again.
            Err(Failure(69, text)) if before.is_some() => {
                if let Some(Below { locks, .. }) = before.as_ref().filter(|_| !is_stale) {
                    tell(&format!("no connection: the locks above may have changed: {text}"));
                    let left_out = [&ls.path];
                    if ls.json && !print(self::text(locks, left_out, Some(&text), ls)?).await? {
                        return Ok(0);
                    }
                }
                is_stale = true;
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            found => found?,
        };
        if is_stale {
            tell("the connection is back");
        }
        let facts = |below: &Below| -> Vec<_> {
            let contenders = below.locks.iter().flat_map(|lock| &lock.contenders).map(fact);
            let blockers = below.locks.iter().filter_map(|lock| lock.blocked_by.clone());
            contenders.chain(blockers.map(|node| (node, "blocks", Vec::new()))).collect()
        };
        let is_known = before.as_ref().is_some_and(|before| before.refused == below.refused);
        if !is_known || is_stale && ls.json || before.as_ref().map(facts) != Some(facts(&below)) {
            let gap = if before.is_some() && !ls.json { "\n" } else { "" };
            if !print(gap.to_owned() + &text(&below.locks, below.refused.keys(), None, ls)?).await? {
                return Ok(0);
            }
        }
        if !is_known {
            tell_refused(&below.refused);
        }
        (before, is_stale) = (Some(below), false);
        tokio::select! {
            biased;
            event = watcher.recv() => match event {
                Some(Err(error)) if !error.is_retryable() => return Err(error.into()),
                _event_or_outage => tokio::time::sleep(TOGETHER).await,
            },
            // The next read shows whether the connection is back in time.
            _is_connected = outages.change() => {}
        }
        while watcher.try_recv().is_ok() {}
    }
}

/// Returns the facts of a contender that make a new print.
fn fact(one: &Contender) -> (String, &'static str, Vec<u8>) {
    (one.participant.path.clone(), one.state, one.participant.data.clone())
}

/// Prints the state of a lock, and returns the exit status.
pub(crate) async fn status(site: &Site, status: &Status) -> Result<u8, Failure> {
    site.first_session(None).await?;
    let lock = match one(site, &status.path, status.leases).await {
        Err(Failure(NO_LOCK, text)) if status.json => {
            print(line(&Missing { path: &status.path, state: "missing", reason: &text })?).await?;
            return Ok(NO_LOCK);
        }
        lock => lock?,
    };
    if status.json {
        print(line(&lock)?).await?;
    } else {
        print(summary(&lock).join("\n") + "\n").await?;
    }
    Ok(match (lock.is_held(), lock.is_blocked()) {
        (true, _) => HELD,
        (false, true) => BLOCKED,
        (false, false) => 0,
    })
}

/// Formats the state of a lock, with a line for each holder.
fn summary(lock: &Lock) -> Vec<String> {
    let path = &lock.path;
    let (free, held, holds) = match lock.kind {
        Some(LockKind::LeaderLatch) => ("has no leader", "led", "leads"),
        _ => ("is free", "held", "holds"),
    };
    let blocked = lock.blocker().map(not_a_contender);
    if !lock.is_held() {
        let wait = if lock.waiting() > 0 { format!(": {} wait", lock.waiting()) } else { String::new() };
        let free = if blocked.is_some() { "is blocked" } else { free };
        return [format!("{path} {free}{wait}")].into_iter().chain(blocked).collect();
    }
    let mut lines = vec![format!("{path} is {held}: {} {holds}, {} wait", lock.holding(), lock.waiting())];
    for contender in lock.contenders.iter().filter(|one| one.holds()) {
        let (one, data) = (&contender.participant, contender.words());
        let (asked, at) = (age(one.age()), created(one));
        lines.push(format!(
            "{held} by {data} (asked {asked} ago, at {at}, session {}, node {})",
            shown_session(one.session),
            one.path
        ));
    }
    if lock.has_unknown_limit() {
        lines.push("its limit is not known, so each lease counts as a holder: give it with -n".to_owned());
    }
    lines.extend(blocked);
    lines
}
