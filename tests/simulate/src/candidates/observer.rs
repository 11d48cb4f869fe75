//! Observers of an election.

use curator_checkers::elections::Report;
use curator_recipes::ObserverState;
use tokio::sync::watch;

use super::scribe::{Scribe, name};

/// Notes the reports of an observer until it is closed.
pub async fn observe(scribe: Scribe, mut states: watch::Receiver<ObserverState>) {
    let observer = scribe.observer();
    loop {
        let report = match &*states.borrow_and_update() {
            ObserverState::NoLeader => Report::NoLeader,
            ObserverState::Leader(leader) => Report::Leader(leader.token.czxid().get(), name(&leader.path).to_owned()),
            ObserverState::Closed => break,
            ObserverState::Refused { cause: error, .. } | ObserverState::Failed(error) => {
                scribe.error(error);
                Report::Unknown
            }
            _ => Report::Unknown,
        };
        scribe.reports(observer, report);
        if states.changed().await.is_err() {
            break;
        }
    }
    scribe.stops(observer);
}
