//! The pauses of two clients that undo each other's changes.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::standing::Pauses;

/// The time without a foreign change after which the next one is undone at once.
const CALM: Duration = Duration::from_secs(5);

/// The pauses before foreign changes are undone, so that two clients that undo each other's changes do not spin.
#[derive(Default)]
pub(super) struct Contest {
    last: Option<Instant>,
    pauses: Pauses,
}

impl Contest {
    /// Pauses, unless the last change is long ago.
    pub(super) async fn pause(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() < CALM) {
            sleep(self.pauses.after(true)).await;
        } else {
            self.pauses = Pauses::default();
        }
        self.last = Some(Instant::now());
    }
}
