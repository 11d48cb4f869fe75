//! `elect`: runs a command in each term in which this process leads an election.

use std::time::{Duration, Instant};

use curator_cli::contenders::LockKind;
use curator_framework::{Chain, CuratorFramework};
use curator_recipes::{LeaderError, LeaderLatch, LeaderLatchOptions, Leadership, ParticipantKind};

use crate::child::{self, Order};
use crate::options::Elect;
use crate::signals::Signals;
use crate::waiting::Waiting;
use crate::{Failure, LOST, check, first_session, give_back, own_id, refused_by, tell, unless_ended};

/// Runs the command in each term, and returns the exit status.
pub(crate) async fn elect(
    client: &CuratorFramework,
    elect: &Elect,
    chroot: Option<&str>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut options = LeaderLatchOptions::new().id(own_id(elect.id.as_deref()));
    if let Some(delay) = elect.delay {
        options = options.delay_after_unclean_loss(delay);
    }
    let latch = LeaderLatch::with_options(client.clone(), &elect.path, options)?;
    let begin = Instant::now();
    unless_ended(signals, prepare(client, elect, chroot)).await?;
    latch.start()?;
    let outcome = terms(client, &latch, elect, begin, signals).await;
    give_back("candidate", latch.close()).await;
    outcome
}

/// Waits for the connection, and refuses options and a path that cannot work.
async fn prepare(client: &CuratorFramework, elect: &Elect, chroot: Option<&str>) -> Result<(), Failure> {
    let session = first_session(client, elect.timeout).await?;
    elect.work.grace_in(session.timeout())?;
    check(client, Some(LockKind::LeaderLatch), &elect.path, chroot).await
}

/// Runs the command in one term after the other, until it ends by itself or a signal ends it.
async fn terms(
    client: &CuratorFramework,
    latch: &LeaderLatch,
    elect: &Elect,
    mut begin: Instant,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    loop {
        let left = elect.timeout.map(|budget| budget.saturating_sub(begin.elapsed()));
        let Some((term, grace)) = unless_ended(signals, lead(client, latch, elect, left)).await? else {
            let other = format!("another candidate leads {0}: curator leader {0} shows it", elect.path);
            tell(&unless_ended(signals, refused_by(client, &elect.path, ParticipantKind::Candidate, other)).await?);
            return Ok(elect.conflict_exit_code);
        };
        let (command, foreground) = (&elect.work.command, elect.work.setting.foreground);
        let order = Order { command, foreground, path: &elect.path, grace, revocable: false };
        let ended = match child::run(&term, &order, signals).await {
            Ok(ended) => ended,
            Err(error) => return Ok(child::cannot_run(&elect.work.command[0], &error)),
        };
        if !ended.lost {
            if term.is_held() {
                return Ok(child::code(ended.status));
            }
            tell("the term was over before the command ended");
        }
        if elect.once || ended.asked_to_end {
            return Ok(LOST);
        }
        begin = Instant::now();
        // The silence that stopped the command may be over before the session is. After a loss the latch may lead anew.
        if term.is_held() {
            if let Err(error) = unless_ended(signals, async { Ok(latch.resign().await) }).await? {
                tell(&format!(
                    "the candidate's node goes with its session, it could not be given back: {}",
                    Chain(&error)
                ));
            }
        }
        tell(&format!("waits for the next term of {}", elect.path));
    }
}

/// Waits until this process leads. Returns the term, and the grace for the command.
async fn lead(
    client: &CuratorFramework,
    latch: &LeaderLatch,
    elect: &Elect,
    left: Option<Duration>,
) -> Result<Option<(Leadership, Duration)>, Failure> {
    let waiting = Waiting::new(client, &elect.path, None, elect.work.verbose);
    loop {
        let leading = latch.leading_timeout(left.unwrap_or(Duration::MAX));
        let term = tokio::select! {
            biased;
            term = leading => term?,
            never = waiting.report() => match never {},
        };
        let Some(term) = term else { return Ok(None) };
        match begin(client, elect, &term).await {
            Ok(session_timeout) => {
                waiting.granted("leads", &format!("term {}", term.token().czxid().get()));
                return Ok(Some((term, elect.work.grace_in(session_timeout)?)));
            }
            // The term is lost too, or the next attempt reaches the servers.
            Err(error) if error.is_retryable() || matches!(error, LeaderError::LeadershipLost { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Proclaims the text of the options, and returns the session timeout.
async fn begin(client: &CuratorFramework, elect: &Elect, term: &Leadership) -> Result<Duration, LeaderError> {
    if let Some(text) = &elect.proclaim {
        term.proclaim(text.as_str()).await?;
    }
    Ok(client.session().await?.timeout())
}
