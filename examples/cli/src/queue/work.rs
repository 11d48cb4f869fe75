//! `queue work`: a command for each item.

use std::ffi::OsString;
use std::future::pending;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use curator_cli::text::{now, seconds};
use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, Error};
use curator_recipes::{Delivery, QueueError};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;

use super::Source;
use crate::child::{self, Ended, Grace, Input, NOT_EXECUTABLE, NOT_FOUND, Order, Setting, Streams};
use crate::each::{check_place, command_for};
use crate::failure::Failure;
use crate::outages::Outages;
use crate::output::{print, tell};
use crate::show::line;
use crate::signals::Signals;
use crate::site::Site;
use crate::values::{at_least_one, duration};

/// The status of a command that asks for another try: `EX_TEMPFAIL`.
const TRY_AGAIN: u8 = 75;
/// The status of a command that refuses the item: `EX_DATAERR`.
const BAD_DATA: u8 = 65;

/// The options of `queue work`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Work {
    /// The number of commands at once
    #[arg(long, short = 'n', default_value_t = 1, value_parser = at_least_one, env = "CURATOR_CONCURRENCY")]
    concurrency: usize,
    /// The number of deliveries after which an item that fails goes to the dead letters
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..),
        env = "CURATOR_MAX_ATTEMPTS")]
    max_attempts: u32,
    /// The time for which an item that has failed stays with this process before it is given back
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration, env = "CURATOR_RETRY_DELAY")]
    retry_delay: Duration,
    /// End when no item has come for this time, and no command runs [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration, env = "CURATOR_IDLE")]
    idle: Option<Duration>,
    /// The way in which the command gets the item
    #[arg(long, value_enum, default_value_t = Way::Stdin, env = "CURATOR_INPUT")]
    input: Way,
    /// Print a line of JSON for each delivery that has ended; the commands then print on standard error
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    #[command(flatten)]
    grace: Grace,
    #[command(flatten)]
    pub(super) setting: Setting,
    #[command(flatten)]
    source: Source,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The way in which a command gets its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// On standard input, byte for byte
    Stdin,
    /// In the variable `CURATOR_ITEM`
    Variable,
    /// In place of each `{}` of the arguments
    Argument,
}

const NOTES: &str = "\
The status of the command decides:
  0          the item is deleted
  75         the item is given back, and delivered again; the count of deliveries does not end this
  65         the item goes to the dead letters
  others     the item is given back; the delivery number --max-attempts moves it to the dead letters
  126, 127   the command cannot be executed, or was not found: the item is given back, and this program ends
A command that a signal to this program ends does not count as failed: its item is given back.

After INT or TERM this program takes no more items, passes the signal on to the commands, and ends with 128 + n when they have
ended. A second consumer gets an item only after the first one has lost it: see `curator lock --help` for the times. The
command gets SIGTERM then, and SIGKILL after the grace. An item is delivered at least once, so let its work be repeatable.

The command gets CURATOR_QUEUE_PATH, CURATOR_NODE, CURATOR_ITEM_KEY (the same in each delivery of the item), CURATOR_ATTEMPT,
CURATOR_FENCING_TOKEN and CURATOR_DEADLINE. With --input argument or variable it finds no input. The command runs for each of the
items of one put, and the delivery counts once.

Exit status:
    0  no item has come for --idle
  126, 127  the command cannot be executed, or was not found
  128 + n  signal n ended this program
    2, 69, 70, 77  an error, as in `curator --help`";

/// Runs the command for each item, and returns the exit status.
pub(super) async fn work(site: &Site, work: &Work, signals: &mut Signals) -> Result<u8, Failure> {
    if work.input == Way::Argument {
        check_place(&work.command)?;
    }
    let mut consumer = work.source.consumer(site)?;
    let connected = async {
        let session = site.first_session(None).await?;
        site.check_chroot().await?;
        work.grace.in_session(session.timeout())
    };
    let grace = signals.unless_ended(connected).await?;
    let (mut outages, mut running) = (Outages::of(&site.client), FuturesUnordered::new());
    let outcome = loop {
        let has_room = running.len() < work.concurrency;
        let next = async {
            match has_room {
                true => Ok(consumer.next().await),
                false => pending().await,
            }
        };
        let is_idle = running.is_empty();
        tokio::select! {
            biased;
            Some(ended) = running.next() => match ended {
                Ok(()) => {}
                Err(failure) => break Err(failure),
            },
            next = signals.unless_ended(next) => match next {
                Ok(Some(Ok(delivery))) => running.push(one(delivery, work, grace)),
                Ok(Some(Err(error))) if error.is_of_one_item() => tell(&Chain(&error).to_string()),
                // `outages` reports a lost connection.
                Ok(Some(Err(error))) if error.is_retryable() => {}
                Ok(Some(Err(error))) => break Err(error.into()),
                Ok(None) => break Err(Error::Closed.into()),
                Err(failure) => break Err(failure),
            },
            is_connected = outages.change() => tell(if is_connected {
                "the connection is back"
            } else {
                "no connection: items are taken when it is back"
            }),
            () = idle(work.idle), if is_idle => break match site.client.is_connected() {
                true => Ok(0),
                false => Err(site.client.no_answer("the wait for an item").into()),
            },
        }
    };
    // An item that was not delivered yet is given back at once.
    drop(consumer);
    // The commands have got the signal too.
    while let Some(ended) = running.next().await {
        if let Err(Failure(_, text)) = ended {
            tell(&text);
        }
    }
    outcome
}

async fn idle(budget: Option<Duration>) {
    match budget {
        Some(budget) => tokio::time::sleep(budget).await,
        None => pending().await,
    }
}

/// The end of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Complete,
    /// The item stays for a while, and is given back.
    Retry(String),
    /// The item is given back at once: this program ends.
    GiveBack(String),
    Reject(String),
    Lost,
    /// The command cannot run: the item is given back, and this program ends with a status.
    Stop(u8),
}

impl End {
    /// Decides what becomes of an item after its command.
    fn of(ended: &Ended, attempt: u32, max_attempts: u32) -> Self {
        let (status, reason) = (child::code(ended.status), ended.status.to_string());
        match status {
            _ if ended.lost => Self::Lost,
            0 => Self::Complete,
            BAD_DATA => Self::Reject(reason),
            NOT_EXECUTABLE | NOT_FOUND => Self::Stop(status),
            _ if ended.asked_to_end => Self::GiveBack(reason),
            TRY_AGAIN => Self::Retry(reason),
            _ if attempt >= max_attempts => Self::Reject(reason),
            _ => Self::Retry(reason),
        }
    }
}

/// The end of a command.
struct Ran {
    end: End,
    status: Option<u8>,
    asked_to_end: bool,
}

impl Ran {
    const fn without_status(end: End) -> Self {
        Self { end, status: None, asked_to_end: false }
    }
}

/// Runs the command for the items of one delivery, and ends the delivery.
async fn one(delivery: Delivery<Vec<u8>>, work: &Work, grace: Duration) -> Result<(), Failure> {
    work.source.check(delivery.name(), delivery.sequence())?;
    let mut signals = Signals::catch(Some("its items"))?;
    let (begin, mut ran) = (Instant::now(), Ran::without_status(End::Complete));
    for item in delivery.items() {
        if ran.asked_to_end {
            ran.end = End::GiveBack("not all items of the put were worked on".to_owned());
        }
        if ran.end != End::Complete {
            break;
        }
        ran = run(&delivery, item, work, grace, &mut signals).await;
    }
    let took = begin.elapsed();
    if let End::Retry(_) = ran.end {
        tokio::select! {
            () = tokio::time::sleep(work.retry_delay) => {}
            _ = signals.end() => {}
            _ = delivery.lost() => {}
        }
    }
    let error = finish(&delivery, &ran.end).await.err();
    let (outcome, reason) = outcome(&ran.end, error.as_ref());
    let (name, attempt) = (delivery.name(), delivery.attempt());
    if outcome != "completed" {
        // A dead letter has another name.
        let to = match outcome {
            "rejected" => format!(" to {} (key {})", work.source.paths.dead(), delivery.key().get()),
            _ => String::new(),
        };
        tell(&format!("{name}: {outcome} after delivery {attempt}{to}: {}", reason.as_deref().unwrap_or_default()));
    }
    let (path, key, seconds) = (&*work.source.paths.path, delivery.key().get(), seconds(took));
    let record = Record { time: now(), path, name, key, attempt, outcome, status: ran.status, seconds, reason };
    if work.json && !print(line(&record)?).await? {
        return Err(Failure(70, "cannot print: the reader of the pipe has closed it".to_owned()));
    }
    match ran.end {
        End::Stop(code) => Err(Failure(code, "no more items are taken, because the command cannot run".to_owned())),
        _ => Ok(()),
    }
}

/// Runs the command for one item.
async fn run(delivery: &Delivery<Vec<u8>>, item: &[u8], work: &Work, grace: Duration, signals: &mut Signals) -> Ran {
    if work.input != Way::Stdin && item.contains(&0) {
        return Ran::without_status(End::Reject("the item has a NUL byte: use --input stdin".to_owned()));
    }
    let (command, input) = match work.input {
        Way::Stdin => (work.command.clone(), Input::Bytes(item)),
        Way::Variable => (work.command.clone(), Input::Variable(item)),
        Way::Argument => (command_for(&work.command, item), Input::Nothing),
    };
    let order = Order {
        command: &command,
        foreground: work.setting.foreground,
        path: &work.source.paths.path,
        grace,
        revocable: false,
        streams: Streams { input, prints_on_stderr: work.json },
    };
    match child::run(delivery, &order, signals).await {
        Ok(ended) => Ran {
            end: End::of(&ended, delivery.attempt(), work.max_attempts),
            status: Some(child::code(ended.status)),
            asked_to_end: ended.asked_to_end,
        },
        Err(error) if error.kind() == ErrorKind::ArgumentListTooLong => {
            Ran::without_status(End::Reject("the item is too long: use --input stdin".to_owned()))
        }
        Err(error) => Ran::without_status(End::Stop(child::cannot_run(&command[0], &error))),
    }
}

/// Ends a delivery. Tries again while the delivery is held.
async fn finish(delivery: &Delivery<Vec<u8>>, end: &End) -> Result<(), QueueError> {
    loop {
        let finished = match end {
            End::Complete => delivery.complete().await,
            End::Reject(reason) => delivery.reject(reason).await,
            End::Retry(_) | End::GiveBack(_) | End::Stop(_) | End::Lost => delivery.retry().await,
        };
        match finished {
            Err(error) if error.is_retryable() && delivery.is_held() => {}
            finished => return finished,
        }
    }
}

/// Returns the words for the end of a delivery, and the reason.
fn outcome(end: &End, error: Option<&QueueError>) -> (&'static str, Option<String>) {
    let text = error.map(|error| Chain(error).to_string());
    match (end, error) {
        (End::Lost, _) => ("lost", text.or_else(|| Some("the command was stopped".to_owned()))),
        (_, Some(QueueError::Lost { .. })) => ("lost", text),
        (_, Some(error)) if error.outcome_unknown() => ("unknown", text),
        // The drop of the delivery gives the item back.
        (_, Some(_)) => ("given-back", text),
        (End::Complete, None) => ("completed", None),
        (End::Reject(reason), None) => ("rejected", Some(reason.clone())),
        (End::Retry(reason) | End::GiveBack(reason), None) => ("given-back", Some(reason.clone())),
        (End::Stop(_), None) => ("given-back", Some("the command cannot run".to_owned())),
    }
}

/// The JSON of a delivery that has ended.
#[derive(Serialize)]
struct Record<'a> {
    time: String,
    path: &'a str,
    name: &'a str,
    key: i64,
    attempt: u32,
    outcome: &'static str,
    status: Option<u8>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn status_of_the_command_decides() {
        let ended = |status: i32| Ended {
            status: ExitStatus::from_raw(status << 8),
            lost: false,
            revoked: false,
            asked_to_end: false,
        };
        let reason = |status: i32| format!("exit status: {status}");
        for (status, attempt, end) in [
            (0, 9, End::Complete),
            (65, 1, End::Reject(reason(65))),
            (75, 1, End::Retry(reason(75))),
            (75, 9, End::Retry(reason(75))),
            (1, 4, End::Retry(reason(1))),
            (1, 5, End::Reject(reason(1))),
            (1, 6, End::Reject(reason(1))),
            (126, 9, End::Stop(126)),
            (127, 1, End::Stop(127)),
        ] {
            assert_eq!(End::of(&ended(status), attempt, 5), end, "{status} {attempt}");
        }
        let asked = |status: i32| End::of(&Ended { asked_to_end: true, ..ended(status) }, 9, 5);
        assert_eq!((asked(0), asked(143)), (End::Complete, End::GiveBack(reason(143))));
        assert_eq!(End::of(&Ended { lost: true, ..ended(0) }, 1, 5), End::Lost);
    }
}
