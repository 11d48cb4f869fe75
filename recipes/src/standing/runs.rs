//! The runs of an object that its callers drive: one at a time, and none after the close.

use tokio::sync::watch;

use crate::standing::StartError;

#[derive(Debug, Clone, Copy, Default)]
struct Life {
    runs: bool,
    closed: bool,
}

/// The runs of one object.
#[derive(Debug, Default)]
pub(crate) struct Runs(watch::Sender<Life>);

/// One run. Its drop ends the run.
#[derive(Debug)]
pub(crate) struct Run<'a>(&'a Runs);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|life| life.runs = false);
    }
}

impl Runs {
    /// Begins a run, unless one runs or the object is closed.
    pub(crate) fn begin(&self) -> Result<Run<'_>, StartError> {
        let mut begun = Ok(());
        self.0.send_if_modified(|life| {
            begun = match life {
                Life { closed: true, .. } => Err(StartError::Closed),
                Life { runs: true, .. } => Err(StartError::AlreadyStarted),
                _ => Ok(()),
            };
            life.runs |= begun.is_ok();
            begun.is_ok()
        });
        begun.map(|()| Run(self))
    }

    /// Orders the run to end, and refuses later ones.
    pub(crate) fn close(&self) {
        self.0.send_modify(|life| life.closed = true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.borrow().closed
    }

    /// Resolves when the object is closed.
    pub(crate) async fn closed(&self) {
        // Never fails: `self` has the sender.
        drop(self.0.subscribe().wait_for(|life| life.closed).await);
    }

    /// Resolves when no run goes on.
    pub(crate) async fn ended(&self) {
        // Never fails: `self` has the sender.
        drop(self.0.subscribe().wait_for(|life| !life.runs).await);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn one_run_goes_on_at_a_time_and_none_begins_after_the_close() {
        let runs = Runs::default();
        runs.ended().await;
        let run = runs.begin().unwrap();
        assert_eq!(runs.begin().err(), Some(StartError::AlreadyStarted));
        drop(run);
        let run = runs.begin().unwrap();
        let (mut closed, mut ended) = (pin!(runs.closed()), pin!(runs.ended()));
        assert!(poll!(&mut closed).is_pending() && !runs.is_closed());
        runs.close();
        assert!(poll!(&mut closed).is_ready() && runs.is_closed());
        assert_eq!(runs.begin().err(), Some(StartError::Closed));
        assert!(poll!(&mut ended).is_pending());
        drop(run);
        assert!(poll!(&mut ended).is_ready());
        assert_eq!(runs.begin().err(), Some(StartError::Closed));
    }
}
