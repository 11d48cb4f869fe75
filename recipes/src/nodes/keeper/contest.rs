//! The pauses of two clients that undo each other's changes.

use std::time::Duration;

use curator_framework::Error;
use tokio::time::{Instant, sleep};

use crate::nodes::error::NodeError;
use crate::standing::{Pauses, Stop};

/// The time without a foreign change after which the next one is undone at once.
const CALM: Duration = Duration::from_secs(5);

/// The pauses before foreign changes are undone, so that two clients that undo each other's changes do not spin.
#[derive(Default)]
pub(super) struct Contest {
    last: Option<Instant>,
    pauses: Pauses,
}

impl Contest {
    /// Pauses, unless the last change is long ago. Fails when the task has to end.
    pub(super) async fn pause(&mut self, stop: &mut Stop) -> Result<(), NodeError> {
        if self.last.is_some_and(|last| last.elapsed() < CALM) {
            tokio::select! {
                biased;
                () = stop.requested() => return Err(Error::Closed.into()),
                () = sleep(self.pauses.after(true)) => {}
            }
        } else {
            self.pauses = Pauses::default();
        }
        self.last = Some(Instant::now());
        Ok(())
    }
}
