//! A write that was started: the knowledge whether one of its tries was applied. Pure.

use curator_framework::Error;

use crate::marker::Proof;

/// A write that was started and is not settled. It ends when a reply or a marker shows that it was applied, and when a
/// refusal ends it without doubt. Each error in it is the first one of a try with an unknown outcome.
#[derive(Debug)]
pub(super) enum Flight {
    /// No try was applied.
    Unsent,
    /// The newest try was sent, and has no reply. The earlier ones were not applied.
    Sent(Option<Error>),
    /// A try may have been applied, and nothing can prove it. So a refused condition proves nothing either.
    Ambiguous(Option<Error>),
}

impl Flight {
    /// Records that a try is sent.
    pub(super) fn sends(&mut self) {
        if let Self::Unsent = self {
            *self = Self::Sent(None);
        }
    }

    /// Records the reply to the newest try, or the error that leaves its outcome unknown.
    pub(super) fn replied(&mut self, unknown: Option<&Error>) {
        match (self, unknown) {
            (Self::Sent(first) | Self::Ambiguous(first), Some(error)) => {
                first.get_or_insert_with(|| error.clone());
            }
            (flight @ Self::Sent(_), None) => *flight = Self::Unsent,
            _ => {}
        }
    }

    /// Records the proof that a marker gives of the newest try.
    pub(super) fn proved(&mut self, proof: Proof) {
        match (self, proof) {
            (flight @ Self::Sent(_), Proof::NotApplied) => *flight = Self::Unsent,
            (flight @ Self::Sent(_), Proof::None) => *flight = Self::Ambiguous(flight.unknown().cloned()),
            _ => {}
        }
    }

    /// Returns `true` if a try may have been applied.
    pub(super) const fn may_be_applied(&self) -> bool {
        !matches!(self, Self::Unsent)
    }

    pub(super) const fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Ambiguous(_))
    }

    /// Returns the first error of a try with an unknown outcome.
    pub(super) const fn unknown(&self) -> Option<&Error> {
        match self {
            Self::Sent(error) | Self::Ambiguous(error) => error.as_ref(),
            Self::Unsent => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(request: &'static str) -> Error {
        Error::ConnectionLoss { request: request.into(), sent: true, cause: None }
    }

    /// The name of a state, with its error.
    fn state(flight: &Flight) -> String {
        let name = match flight {
            Flight::Unsent => "unsent",
            Flight::Sent(_) => "sent",
            Flight::Ambiguous(_) => "ambiguous",
        };
        match flight.unknown() {
            Some(Error::ConnectionLoss { request, .. }) => format!("{name}, {request}"),
            _ => name.to_owned(),
        }
    }

    #[test]
    fn each_event_moves_each_state_as_in_the_table() {
        type Event = fn(&mut Flight);
        let events: [(&str, Event); 6] = [
            ("sends", Flight::sends),
            ("reply", |flight| flight.replied(None)),
            ("lost", |flight| flight.replied(Some(&lost("second")))),
            ("applied", |flight| flight.proved(Proof::Applied)),
            ("not applied", |flight| flight.proved(Proof::NotApplied)),
            ("no marker", |flight| flight.proved(Proof::None)),
        ];
        let unsent: fn() -> Flight = || Flight::Unsent;
        #[rustfmt::skip]
        let table = [
            // The state, and the states after: sends, reply, lost, applied, not applied, no marker.
            (unsent, ["sent", "unsent", "unsent", "unsent", "unsent", "unsent"]),
            (|| Flight::Sent(None),
                ["sent", "unsent", "sent, second", "sent", "unsent", "ambiguous"]),
            (|| Flight::Sent(Some(lost("first"))),
                ["sent, first", "unsent", "sent, first", "sent, first", "unsent", "ambiguous, first"]),
            (|| Flight::Ambiguous(None),
                ["ambiguous", "ambiguous", "ambiguous, second", "ambiguous", "ambiguous", "ambiguous"]),
            (|| Flight::Ambiguous(Some(lost("first"))), ["ambiguous, first"; 6]),
        ];
        for (before, after) in table {
            for ((event, apply), after) in events.iter().zip(after) {
                let mut flight = before();
                apply(&mut flight);
                assert_eq!(state(&flight), after, "{}: {event}", state(&before()));
                assert_eq!(flight.may_be_applied(), after != "unsent", "{after}");
                assert_eq!(flight.is_ambiguous(), after.starts_with("ambiguous"), "{after}");
            }
        }
    }
}
