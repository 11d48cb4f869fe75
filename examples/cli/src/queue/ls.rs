//! `queue ls`: the state of a queue, and the names of its items.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::fields::{DataFields, shown_data};
use curator_cli::queues::{OldestItem, QueueReader, QueueState, list as names_at};
use curator_cli::text::{age, rfc3339, seconds, shown, shown_session};
use curator_framework::{CuratorFramework, Error, SessionId, make_path};
use curator_recipes::{DistributedQueue, QueueError, QueuedItem};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;

use super::Paths;
use super::dead::NONE;
use crate::failure::Failure;
use crate::output::{print, tell};
use crate::show::line;
use crate::site::Site;

/// The most requests at once.
const AT_ONCE: usize = 32;

/// The options of `queue ls`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Ls {
    /// Print the names of the items and dead letters too, with one read for each that is in work or dead
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_NAMES")]
    names: bool,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    #[command(flatten)]
    paths: Paths,
}

const NOTES: &str = "\
An item in work counts as an item. The oldest item is the one that was put, or given a new place, first.

Exit status:
    0  the queue exists, even if it is empty
    1  no such queue
    2, 69, 70, 77  an error, as in `curator --help`";

/// Prints the state of a queue, and returns the exit status.
pub(super) async fn list(site: &Site, ls: &Ls) -> Result<u8, Failure> {
    let (client, paths) = (&site.client, &ls.paths);
    site.first_session(None).await?;
    let (locks, dead) = (paths.locks(), paths.dead());
    let queue = paths.queue(site)?;
    let mut reader = QueueReader::new(&paths.path, locks.clone(), dead.clone());
    let Some(state) = reader.read(client).await? else {
        site.check_chroot().await?;
        tell(&format!("no queue {}: no client has put an item yet", paths.path));
        return Ok(NONE);
    };
    let names = match ls.names {
        true => Some(Names { items: items(client, &paths.path, &locks).await?, dead: letters(&queue).await? }),
        false => None,
    };
    let text = match ls.json {
        true => line(&Shot::new(&paths.path, &state, names.as_ref()))?,
        false => summary(&paths.path, &dead, &state) + &names.map(|names| names.table()).unwrap_or_default(),
    };
    print(text).await?;
    Ok(0)
}

fn summary(path: &str, dead: &str, state: &QueueState) -> String {
    let QueueState { items, in_work, dead: letters, oldest } = state;
    let oldest = oldest.as_ref().map(|oldest| format!(", the oldest is {} old", age(since(oldest.created))));
    let count = |number: u64, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    format!(
        "{path} has {}, {in_work} in work{}\n{dead} has {}\n",
        count(*items, "item", "items"),
        oldest.unwrap_or_default(),
        count(*letters, "dead letter", "dead letters")
    )
}

fn since(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}

/// The items and dead letters of a queue.
struct Names {
    /// The names in the order of the listing, with the session that works on the item.
    items: Vec<(String, State)>,
    dead: Vec<QueuedItem<Vec<u8>>>,
}

enum State {
    Ready,
    InWork(Option<SessionId>),
    Foreign,
}

impl State {
    const fn word(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::InWork(_) => "work",
            Self::Foreign => "foreign",
        }
    }
}

/// Reads the names of the items, with their states.
async fn items(client: &CuratorFramework, path: &str, lock_path: &str) -> Result<Vec<(String, State)>, Error> {
    let (mut names, locked) = tokio::try_join!(names_at(client, path), names_at(client, lock_path))?;
    names.sort_unstable();
    let locked: HashSet<String> = locked.into_iter().collect();
    let state = async |name: String| {
        let state = match locked.contains(&name) {
            _ if !name.starts_with("queue-") => State::Foreign,
            false => State::Ready,
            true => match client.check_exists().for_path(&make_path(lock_path, &name)).await? {
                Some(lock) => State::InWork(SessionId::new(lock.ephemeral_owner)),
                None => State::Ready,
            },
        };
        Ok::<_, Error>((name, state))
    };
    stream::iter(names).map(state).buffered(AT_ONCE).try_collect().await
}

/// Reads the dead letters.
async fn letters(queue: &DistributedQueue<Vec<u8>>) -> Result<Vec<QueuedItem<Vec<u8>>>, Failure> {
    queue.dead_letters(usize::MAX).await.map_err(|error| match error {
        QueueError::Refused { cause, .. } => cause.into(),
        error => error.into(),
    })
}

impl Names {
    fn table(&self) -> String {
        let row =
            |state: &str, name: &str, rest: &str| format!("{state:<7}  {name}  {rest}").trim_end().to_owned() + "\n";
        let mut text = row("STATE", "NAME", "");
        for (name, state) in &self.items {
            let rest = match state {
                State::InWork(session) => format!("session {}", shown_session(*session)),
                _ => String::new(),
            };
            text += &row(state.word(), &shown(name.as_bytes()), &rest);
        }
        for letter in &self.dead {
            let rest = match &letter.items {
                Err(_) => "its data is not an item's".to_owned(),
                Ok(items) => {
                    let key = letter.key.map(|key| format!("key {}, ", key.get())).unwrap_or_default();
                    let deliveries = attempts(letter).map(|attempts| format!("deliveries: {attempts}, "));
                    let reason = letter.reason.as_deref().unwrap_or("no reason");
                    let items: Vec<String> = items.iter().map(|item| shown_data(item)).collect();
                    let (deliveries, reason) = (deliveries.unwrap_or_default(), shown(reason.as_bytes()));
                    format!("{key}{deliveries}{reason}: {}", items.join(", "))
                }
            };
            text += &row("dead", &shown(letter.name.as_bytes()), &rest);
        }
        text
    }
}

/// The JSON of a queue.
#[derive(Serialize)]
struct Shot<'a> {
    path: &'a str,
    items: u64,
    in_work: u64,
    oldest: Option<Oldest<'a>>,
    dead: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<Item<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters: Option<Vec<Letter<'a>>>,
}

#[derive(Serialize)]
struct Oldest<'a> {
    name: &'a str,
    created: String,
    age: f64,
}

#[derive(Serialize)]
struct Item<'a> {
    name: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
}

#[derive(Serialize)]
struct Letter<'a> {
    name: &'a str,
    key: Option<i64>,
    attempts: Option<u32>,
    reason: Option<&'a str>,
    /// `None`: the data is not an item's.
    items: Option<Vec<DataFields<'a>>>,
}

impl<'a> Shot<'a> {
    fn new(path: &'a str, state: &'a QueueState, names: Option<&'a Names>) -> Self {
        let oldest = |oldest: &'a OldestItem| Oldest {
            name: &oldest.name,
            created: rfc3339(oldest.created),
            age: seconds(since(oldest.created)),
        };
        let item = |(name, state): &'a (String, State)| Item {
            name,
            state: state.word(),
            session: if let State::InWork(session) = state { Some(shown_session(*session)) } else { None },
        };
        Self {
            path,
            items: state.items,
            in_work: state.in_work,
            oldest: state.oldest.as_ref().map(oldest),
            dead: state.dead,
            names: names.map(|names| names.items.iter().map(item).collect()),
            dead_letters: names.map(|names| names.dead.iter().map(Letter::of).collect()),
        }
    }
}

impl<'a> Letter<'a> {
    fn of(letter: &'a QueuedItem<Vec<u8>>) -> Self {
        Self {
            name: &letter.name,
            key: letter.key.map(|key| key.get()),
            attempts: attempts(letter),
            reason: letter.reason.as_deref(),
            items: letter.items.as_ref().ok().map(|items| items.iter().map(|item| DataFields::new(item)).collect()),
        }
    }
}

/// Returns the number of deliveries of a dead letter, if it is known.
const fn attempts(letter: &QueuedItem<Vec<u8>>) -> Option<u32> {
    if letter.attempts == 0 { None } else { Some(letter.attempts) }
}
