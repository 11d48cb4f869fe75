//! `semaphore --each`: a command for each line of standard input, each under a lease.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::pin::pin;
use std::time::Instant;

use curator_recipes::{MaxLeases, ParticipantKind};
use futures_util::StreamExt as _;
use futures_util::stream::{FuturesUnordered, unfold};
use tokio::sync::mpsc;

use crate::child::{Input, NOT_EXECUTABLE, NOT_FOUND};
use crate::failure::{Failure, LOST};
use crate::lock::{Held, Lock, Semaphore, acquire, present, refuse_itself};
use crate::output::tell;
use crate::signals::Signals;
use crate::site::Site;

/// The exit status if a command has failed, as with `xargs`.
const FAILED: u8 = 123;
/// The text that a line replaces.
const PLACE: &[u8] = b"{}";

/// The parts of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    Lines,
    /// All of it, up to its end.
    Whole,
}

/// Reads standard input in a thread of its own: a read that has started cannot be ended.
pub(crate) fn input(parts: Parts) -> Result<mpsc::Receiver<Result<Vec<u8>, Failure>>, Failure> {
    let failed = |error: io::Error| Failure(70, format!("cannot read standard input: {error}"));
    // One ahead: other processes may read the same pipe.
    let (sender, read) = mpsc::channel(1);
    let reader = move || match parts {
        Parts::Lines => {
            for line in io::stdin().lock().split(b'\n') {
                if sender.blocking_send(line.map_err(failed)).is_err() {
                    return;
                }
            }
        }
        Parts::Whole => {
            let mut whole = Vec::new();
            let outcome = io::stdin().lock().read_to_end(&mut whole).map(|_length| whole);
            // An error means that the receiver was dropped.
            let _receiver = sender.blocking_send(outcome.map_err(failed));
        }
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(reader).map_err(failed)?;
    Ok(read)
}

/// Returns the command for a line, or for an item.
pub(crate) fn command_for(command: &[OsString], line: &[u8]) -> Vec<OsString> {
    command.iter().map(|word| replaced(word, line)).collect()
}

/// Refuses a command that would run without its line or item.
pub(crate) fn check_place(command: &[OsString]) -> Result<(), Failure> {
    let has_place = |word: &OsString| word.as_bytes().windows(PLACE.len()).any(|window| window == PLACE);
    match command.iter().any(has_place) {
        true => Ok(()),
        false => Err(Failure(2, "the command has no {}, in place of which the line or the item comes".to_owned())),
    }
}

fn replaced(word: &OsStr, line: &[u8]) -> OsString {
    let (mut rest, mut made) = (word.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(PLACE.len()).position(|window| window == PLACE) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(line);
        rest = &rest[at + PLACE.len()..];
    }
    made.extend_from_slice(rest);
    OsString::from_vec(made)
}

/// Runs the command for each line, and returns the exit status. The process waits for one lease at a time.
pub(crate) async fn each(site: &Site, semaphore: &Semaphore, signals: &mut Signals) -> Result<u8, Failure> {
    check_place(&semaphore.run.work.command)?;
    let limit = signals.unless_ended(semaphore.limit(site, Instant::now())).await?;
    let refused = refuse_itself(site, ParticipantKind::Lease, Some(present(&limit)), &semaphore.run);
    signals.unless_ended(refused).await?;
    let lock = Lock::new(&site.client, ParticipantKind::Lease, Some(&limit), &semaphore.run)?;
    // A stream keeps the line that waits for its lease while commands end.
    let jobs = unfold(input(Parts::Lines)?, |mut lines| async {
        Some((next(site, semaphore, &limit, &lock, &mut lines).await, lines))
    });
    let (mut jobs, mut running, mut code) = (pin!(jobs), FuturesUnordered::new(), 0);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(ended) = running.next() => {
                code = worse(code, ended);
                if matches!(code, NOT_EXECUTABLE | NOT_FOUND) {
                    break Ok(());
                }
            }
            job = signals.unless_ended(async { jobs.next().await.unwrap_or(Ok(None)) }) => match job {
                Ok(Some((held, line))) => running.push(run(site, held, semaphore, line)),
                Ok(None) => break Ok(()),
                Err(failure) => break Err(failure),
            },
        }
    };
    // They have got the signal too.
    while let Some(ended) = running.next().await {
        code = worse(code, ended);
    }
    outcome.map(|()| code)
}

/// Reads a line, and acquires a lease for it. Returns `None` behind the last line.
async fn next(
    site: &Site,
    semaphore: &Semaphore,
    limit: &MaxLeases,
    lock: &Lock,
    lines: &mut mpsc::Receiver<Result<Vec<u8>, Failure>>,
) -> Result<Option<(Held, Vec<u8>)>, Failure> {
    let line = loop {
        match lines.recv().await.transpose() {
            Ok(None) => return Ok(None),
            Ok(Some(line)) if line.is_empty() => {}
            Ok(Some(line)) => break line,
            Err(failure) => return Err(failure),
        }
    };
    let held =
        acquire(site, lock, ParticipantKind::Lease, Some(present(limit)), &semaphore.run, Instant::now()).await?;
    Ok(held.map(|held| (held, line)))
}

async fn run(site: &Site, held: Held, semaphore: &Semaphore, line: Vec<u8>) -> Result<u8, Failure> {
    let run = &semaphore.run;
    let mut signals = Signals::catch(Some("its leases")).map_err(|error| Failure(70, error.to_string()))?;
    held.run(site, run, &command_for(&run.work.command, &line), Input::Nothing, &mut signals).await
}

/// Returns the exit status after another command.
fn worse(code: u8, ended: Result<u8, Failure>) -> u8 {
    let ended = ended.unwrap_or_else(|Failure(code, text)| {
        tell(&text);
        code
    });
    match (code, ended) {
        (code, 0) => code,
        (_, NOT_EXECUTABLE | NOT_FOUND | LOST) => ended,
        (0, _) => FAILED,
        (code, _) => code,
    }
}
