//! The pure decisions of a count-down latch.
//!
//! The latch's data names its round. Each round has a node of its own, with one child for each count. The data also has
//! the mark that the round has ended, so a waiter needs one watch: on the latch itself.
//!
//! A count is a persistent child with the operation's id, so a repeated count finds its node in any session. A crash
//! after the count would take back an ephemeral child. The last count marks the latch's data as open in the same
//! transaction. No other count changes that data, so no other count wakes the waiters.

use curator_framework::spi::Done;
use curator_framework::{Error, Stat};

/// The last word in the data of a round that has ended.
const OPEN: &str = "open";

/// The data of a latch: its present round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The number of the round. The first round has the zxid of the newest write of the latch's node, each later one
    /// the next number. So a latch that is deleted and set again has other numbers.
    pub(super) round: u64,
    /// The number of counts that open the latch.
    pub(super) count: u32,
    /// The id of the call that started the round.
    pub(super) call_id: String,
    /// The count is complete.
    pub(super) is_open: bool,
}

impl Record {
    /// Returns `None` for data that is not a latch's.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(data).ok()?.split(' ');
        let (round, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let call_id = words.next().filter(|call_id| !call_id.is_empty())?.to_owned();
        let is_open = match (words.next(), words.next()) {
            (None, _) => false,
            (Some(OPEN), None) => true,
            _ => return None,
        };
        Some(Self { round, count, call_id, is_open })
    }

    pub(super) fn to_data(&self) -> Vec<u8> {
        let Self { round, count, call_id, is_open } = self;
        let mark = if *is_open { format!(" {OPEN}") } else { String::new() };
        format!("{round} {count} {call_id}{mark}").into_bytes()
    }

    /// Returns the record of the round after `before`; without `before`, of the first round. `mzxid` is from the stat
    /// of the latch's node.
    pub(super) fn next(before: Option<&Self>, mzxid: i64, count: u32, call_id: &str) -> Self {
        let round = before.map_or(mzxid.unsigned_abs(), |before| before.round.saturating_add(1));
        Self { round, count, call_id: call_id.to_owned(), is_open: false }
    }

    /// Returns the record of the round with its complete count.
    pub(super) fn opened(&self) -> Self {
        Self { is_open: true, ..self.clone() }
    }

    pub(super) fn is_same_round(&self, other: &Self) -> bool {
        (self.round, &self.call_id) == (other.round, &other.call_id)
    }

    /// Returns how many counts are left after `counted` ones.
    pub(super) const fn left(&self, counted: u32) -> u32 {
        if self.is_open { 0 } else { self.count.saturating_sub(counted) }
    }
}

/// The counts of a round: the state of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    /// The version of the node, which each count raises.
    pub(super) version: i32,
    pub(super) counted: u32,
}

impl Tally {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { version: stat.version, counted: u32::try_from(stat.num_children).unwrap_or_default() }
    }
}

/// The meaning of the reply to the transaction of a count: its first operations create the child and write the round's
/// node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Now(Tally),
    /// The child of this operation exists.
    Before,
    /// Nothing was changed. Another count was faster, the round has ended, or the participant's node was deleted.
    No,
}

/// Reads the reply to the transaction of a count.
pub(super) fn judge_count(reply: Result<Vec<Done>, Error>) -> Result<Counted, Error> {
    match reply {
        Ok(done) => Ok(match done.get(1) {
            Some(Done::Set(stat)) => Counted::Now(Tally::of(stat)),
            _ => Counted::No,
        }),
        Err(Error::Transaction { index, cause, .. }) => match *cause {
            Error::NodeExists { .. } if index == 0 => Ok(Counted::Before),
            Error::NoNode { .. } | Error::BadVersion { .. } => Ok(Counted::No),
            cause => Err(cause),
        },
        Err(error) => Err(error),
    }
}

/// The next step of the call that starts a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SetStep {
    /// The round has started: by an earlier try of this call if `true`, else by another call.
    Ended(bool),
    /// A later round has followed the one that an earlier try may have started, or the latch was deleted.
    Unknown,
    /// The call starts this round.
    Begin(Record),
}

/// Decides the next step of a call that starts the round `next`. `found` is the stored record.
///
/// `sent` is the round of a try with an unknown outcome.
pub(super) fn next_set(found: Option<&Record>, sent: Option<&Record>, next: Record) -> SetStep {
    match (sent, found) {
        (Some(sent), Some(found)) if found.round == sent.round => return SetStep::Ended(found.call_id == sent.call_id),
        (Some(sent), _) if next.round != sent.round => return SetStep::Unknown,
        _ => {}
    }
    // The last count has marked its round as over, in its own transaction.
    match found {
        Some(found) if !found.is_open => SetStep::Ended(false),
        _ => SetStep::Begin(next),
    }
}

/// The name of a participant's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParticipantNode<'a> {
    /// The operation of the participant's count.
    pub(super) operation: &'a str,
    pub(super) round: u64,
    pub(super) name: &'a str,
}

impl<'a> ParticipantNode<'a> {
    /// The length of a UUID with hyphens.
    const OPERATION: usize = 36;

    /// Returns `None` for the name of another node.
    pub(super) fn parse(node: &'a str) -> Option<Self> {
        let (operation, rest) = node.split_at_checked(Self::OPERATION)?;
        let (round, name) = rest.strip_prefix('-')?.split_once('-')?;
        Some(Self { operation, round: round.parse().ok()?, name })
    }

    pub(super) fn to_name(&self) -> String {
        format!("{}-{}-{}", self.operation, self.round, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";

    fn record(round: u64, call_id: &str, is_open: bool) -> Record {
        Record { round, count: 3, call_id: call_id.to_owned(), is_open }
    }

    fn failure(index: usize, cause: Error) -> Result<Vec<Done>, Error> {
        Err(Error::Transaction { index, operation: "/l/1".into(), cause: Box::new(cause) })
    }

    fn node_exists() -> Error {
        Error::NodeExists { path: "/l/1/a".into() }
    }

    #[test]
    fn data_of_a_latch_is_read_as_it_was_written() {
        for is_open in [false, true] {
            let record = record(12, ID, is_open);
            assert_eq!(Record::parse(&record.to_data()), Some(record));
        }
        for other in ["", " ", "1 2", "1 2 ", "1 2 t open now", "1 2 t shut", "x 2 t", "1 -2 t", "1  2 t"] {
            assert_eq!(Record::parse(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(Record::parse(&[0xff]), None);
    }

    #[test]
    fn child_that_exists_proves_the_count() {
        let stat = Stat { version: 8, num_children: 2, ..Stat::default() };
        let created = Done::Created { path: "/l/1/a".to_owned(), stat: Stat::default() };
        let counted = judge_count(Ok(vec![created, Done::Set(stat)])).unwrap();
        assert_eq!(counted, Counted::Now(Tally { version: 8, counted: 2 }));
        assert_eq!(judge_count(failure(0, node_exists())).unwrap(), Counted::Before);
        // The participant's node has gone.
        assert_eq!(judge_count(Ok(Vec::new())).unwrap(), Counted::No);
        for cause in [Error::NoNode { path: "/l".into() }, Error::BadVersion { path: "/l".into() }] {
            assert_eq!(judge_count(failure(1, cause)).unwrap(), Counted::No);
        }
        let refused = judge_count(failure(0, Error::NoAuth { path: "/l".into() }));
        assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
        let lost = judge_count(Err(Error::ConnectionLoss { request: "multi".into(), sent: true, cause: None }));
        assert!(lost.unwrap_err().outcome_unknown());
    }

    #[test]
    fn round_begins_only_when_the_one_before_is_over() {
        let next = |found: Option<&Record>| next_set(found, None, Record::next(found, 70, 5, "new"));
        let begun = |round| SetStep::Begin(Record { round, count: 5, call_id: "new".to_owned(), is_open: false });
        assert_eq!(next(None), begun(70));
        let standing = record(4, ID, false);
        assert_eq!(next(Some(&standing)), SetStep::Ended(false));
        assert_eq!(next(Some(&standing.opened())), begun(5));
    }

    #[test]
    fn call_id_settles_a_try_with_an_unknown_outcome() {
        let sent = record(4, "ours", false);
        let set =
            |found: Option<&Record>, sent, mzxid| next_set(found, Some(sent), Record::next(found, mzxid, 3, "ours"));
        let next = |found: Option<&Record>| set(found, &sent, 70);
        assert_eq!(next(Some(&sent)), SetStep::Ended(true));
        assert_eq!(next(Some(&sent.opened())), SetStep::Ended(true));
        assert_eq!(next(Some(&record(4, "other", false))), SetStep::Ended(false));
        assert_eq!(next(Some(&record(5, "other", false))), SetStep::Unknown);
        // It was not applied.
        assert_eq!(next(Some(&record(3, "other", true))), SetStep::Begin(sent.clone()));
        // The latch was deleted.
        assert_eq!(next(None), SetStep::Unknown);
        let first = record(70, "ours", false);
        assert_eq!(set(None, &first, 70), SetStep::Begin(first.clone()));
        assert_eq!(set(None, &first, 71), SetStep::Unknown);
    }

    #[test]
    fn node_of_a_participant_names_its_operation_and_its_round() {
        let node = ParticipantNode { operation: ID, round: 3, name: "host-7 (b)" };
        assert_eq!(ParticipantNode::parse(&node.to_name()), Some(node));
        for other in ["", "host", ID, &format!("{ID}-3"), &format!("{ID}-x-y"), &"ü".repeat(30)] {
            assert_eq!(ParticipantNode::parse(other), None, "{other:?}");
        }
    }
}
