//! The callback for a node that is held for long.

use std::time::Duration;

type Call = Box<dyn FnOnce() + Send>;

/// A callback for a long hold. The next hold of the same node replaces it.
#[derive(Default)]
pub(crate) struct LongHold {
    due: Duration,
    call: Option<Call>,
    /// The first time at which the background task looks.
    looks_at: Option<Duration>,
}

impl LongHold {
    /// Sets the callback. Returns whether a look is to be scheduled for `due`.
    pub(crate) fn set(&mut self, due: Duration, call: Call) -> bool {
        (self.due, self.call) = (due, Some(call));
        let is_scheduled = self.looks_at.is_some_and(|at| at <= due);
        if !is_scheduled {
            self.looks_at = Some(due);
        }
        !is_scheduled
    }

    /// Withdraws the callback.
    pub(crate) fn forget(&mut self) {
        self.call = None;
    }

    /// Returns the callback if it is due, or else the time of the next look.
    pub(crate) fn look(&mut self, now: Duration) -> Result<Option<Call>, Duration> {
        if self.looks_at.is_some_and(|at| now < at) {
            // Another look is scheduled.
            return Ok(None);
        }
        if self.call.is_some() && now < self.due {
            self.looks_at = Some(self.due);
            return Err(self.due);
        }
        self.looks_at = None;
        Ok(self.call.take())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn each_hold_of_a_node_has_its_own_time_and_one_look_is_scheduled() {
        let (mut hold, calls) = (LongHold::default(), Arc::new(AtomicUsize::new(0)));
        let call = |number: usize| {
            let calls = Arc::clone(&calls);
            Box::new(move || calls.store(number, Ordering::SeqCst))
        };
        let s = Duration::from_secs;
        assert!(hold.set(s(10), call(1)));
        assert!(!hold.set(s(15), call(2)), "a look at 10 s is scheduled");
        assert_eq!(hold.look(s(10)).err(), Some(s(15)));
        assert!(!hold.set(s(17), call(3)));
        assert_eq!(hold.look(s(15)).err(), Some(s(17)));
        hold.look(s(17)).ok().flatten().expect("it is due")();
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        assert!(hold.set(s(30), call(4)) && hold.set(s(20), call(5)), "an earlier time needs an earlier look");
        assert!(hold.look(s(15)).is_ok_and(|call| call.is_none()), "a look at 20 s is scheduled");
        hold.forget();
        assert!(hold.look(s(20)).is_ok_and(|call| call.is_none()));
    }
}
