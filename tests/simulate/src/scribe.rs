//! The record of a storm, which its tasks share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::Error;
use curator_test::SimulatedEnsemble;
use parking_lot::Mutex;

/// Returns `true` for a permanent error that the servers of hard storms cause: refused reads and credentials, and large
/// replies. No other storm has it.
pub(crate) const fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::AuthFailed { .. } | Error::NoAuth { .. } | Error::ReplyTooLarge { .. })
}

/// The contents of a record.
pub trait Book {
    /// Writes down the changes at the servers since the last call.
    fn catch_up(&mut self, ensemble: &SimulatedEnsemble);

    /// Adds a line to the log.
    fn note(&mut self, now: Duration, what: impl fmt::Display);

    /// Writes down a violation.
    fn left_behind(&mut self, now: Duration, what: String);
}

/// The writer of a record. Clones write the same one.
#[derive(Debug)]
pub struct Scribe<B> {
    /// The time that clients may take to be connected after a fault.
    pub(crate) recovery: Duration,
    ensemble: SimulatedEnsemble,
    pub(crate) book: Arc<Mutex<B>>,
}

impl<B> Clone for Scribe<B> {
    fn clone(&self) -> Self {
        Self { recovery: self.recovery, ensemble: self.ensemble.clone(), book: Arc::clone(&self.book) }
    }
}

impl<B: Book> Scribe<B> {
    pub(crate) fn with_book(ensemble: SimulatedEnsemble, recovery: Duration, book: B) -> Self {
        Self { recovery, ensemble, book: Arc::new(Mutex::new(book)) }
    }

    /// Writes at the present time, behind the changes at the servers.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut B, Duration) -> T) -> T {
        let mut book = self.book.lock();
        book.catch_up(&self.ensemble);
        write(&mut book, self.ensemble.now())
    }

    /// Adds a line to the log.
    pub fn note(&self, what: impl fmt::Display) {
        self.write(|book, now| book.note(now, what));
    }

    /// Records a violation.
    pub fn wrong(&self, what: impl Into<String>) {
        self.write(|book, now| {
            let what = what.into();
            book.note(now, &what);
            book.left_behind(now, what);
        });
    }
}
