//! Formats locks and their contenders for people.

use std::time::{Duration, SystemTime};

use curator_framework::{SessionId, node_from_path};
use curator_recipes::{Participant, ParticipantKind};

use crate::contenders::Contender;
use crate::fields::shown_data;

/// Formats the session that owns a node; `-` for a node that is not ephemeral.
#[must_use]
pub fn shown_session(owner: Option<SessionId>) -> String {
    owner.map_or_else(|| "-".to_owned(), |session| session.to_string())
}

/// Formats the contenders as the lines of a table, with its head first.
#[must_use]
pub fn table<'a>(contenders: impl IntoIterator<Item = &'a Contender>) -> Vec<String> {
    let mut lines = vec![row("STATE", "KIND", "AGE", "SESSION", "DATA", "NODE")];
    for contender in contenders {
        let Contender { participant, state } = contender;
        let is_asked = contender.is_asked_to_release();
        let data = if is_asked { "asked to release".to_owned() } else { start_of(&participant.data) };
        lines.push(row(
            state,
            kind(participant.kind),
            &age(participant.age()),
            &shown_session(participant.session),
            &data,
            &participant.path,
        ));
    }
    lines
}

/// Formats the row of a persistent node that blocks a lock without contenders.
#[must_use]
pub fn row_of_blocker(node: &str) -> String {
    let kind = ParticipantKind::of_node(node_from_path(node)).map_or("-", |(participant, _)| kind(participant));
    row("blocks", kind, "-", &shown_session(None), "-", node)
}

fn row(state: &str, kind: &str, age: &str, session: &str, data: &str, node: &str) -> String {
    format!("{state:<6} {kind:<6} {age:>8}  {session:<18}  {data:<28}  {node}")
}

/// The longest data in a table or a line, in characters.
const LONGEST: usize = 120;

/// Formats data for a table or a line: the start of long data.
#[must_use]
pub fn start_of(data: &[u8]) -> String {
    let text = shown_data(data);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns the word for a kind.
#[must_use]
pub const fn kind(kind: ParticipantKind) -> &'static str {
    match kind {
        ParticipantKind::Lease => "lease",
        ParticipantKind::Read => "read",
        ParticipantKind::Write => "write",
        ParticipantKind::Candidate => "latch",
        _ => "lock",
    }
}

/// Formats the time when the contender's node was created, which is when it asked for the lock. ZooKeeper does not
/// record the time of the grant.
#[must_use]
pub fn created(participant: &Participant) -> String {
    rfc3339(participant.created)
}

/// Formats a time in UTC, in whole seconds. A time after the year 9999 is its end.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(time.min(last)).to_string()
}

/// Formats the present time in UTC, in milliseconds.
#[must_use]
pub fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// Returns a length of time as a number of seconds, in whole milliseconds as the servers' clocks.
#[must_use]
pub fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

/// Formats a length of time in at most two units.
#[must_use]
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..=59 => format!("{seconds}s"),
        seconds @ 60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds @ 3600..=86_399 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats any data as one line without control characters.
#[must_use]
pub fn shown(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    if text.is_empty() { "-".to_owned() } else { text.escape_debug().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_three_decimals() {
        assert_eq!(serde_json::to_string(&seconds(Duration::from_micros(2_530_900))).unwrap(), "2.53");
    }

    #[test]
    fn times_after_the_last_year_are_its_end() {
        let far = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::MAX >> 1);
        assert_eq!(rfc3339(far), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn only_ephemeral_nodes_have_a_session() {
        assert_eq!(shown_session(None), "-");
        assert_eq!(shown_session(SessionId::new(0x1000_17d8_29d0_01f0)), "0x100017d829d001f0");
    }
}
