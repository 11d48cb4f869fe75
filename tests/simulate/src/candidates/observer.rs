//! Observers of an election.

use curator_recipes::Observed;
use curator_test::elections::Report;
use tokio::sync::watch;

use super::scribe::{Scribe, name};

/// Notes the reports of an observer until it is closed.
pub async fn observe(scribe: Scribe, mut states: watch::Receiver<Observed>) {
    let observer = scribe.observer();
    loop {
        let report = match &*states.borrow_and_update() {
            Observed::NoLeader => Report::NoLeader,
            Observed::Leader(leader) => Report::Leader(leader.token.czxid().get(), name(&leader.path).to_owned()),
            Observed::Closed => break,
            Observed::Stale { cause: error, .. } | Observed::Failed(error) => {
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
