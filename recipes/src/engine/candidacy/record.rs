//! The election record: the data of an election's path. Pure.
//!
//! A line of ASCII, then the bytes that the leader has proclaimed:
//!
//! ```text
//! election/1 term=4294967301 leader=_c_…-latch-0000000005 resigned wish=_c_…-latch-0000000007
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `term` | the leader's term; without it the term is the transaction that wrote the record |
//! | `high` | the highest term that any node of the path has had, if it is another one |
//! | `leader` | the name of the leader's node |
//! | `resigned` | the leader has deleted its node itself, in the same transaction |
//! | `wish` | the node of the candidate that the leader resigns for |
//!
//! The record is in the data of the election's path. A child would be a candidate to Java's latches, and the data of a
//! candidate's node is its id. Each write names the version that it replaces. A leader's write checks the leader's node
//! in the same transaction.

use curator_framework::Stat;

const MAGIC: &str = "election/1";

/// The data of an election's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    term: Option<i64>,
    high: Option<i64>,
    pub(crate) leader: String,
    pub(crate) resigned: bool,
    pub(crate) wish: Option<String>,
    /// The proclaimed bytes; `None` if the leader has proclaimed nothing.
    pub(crate) data: Option<Vec<u8>>,
}

impl Record {
    /// Returns the record of a leader.
    pub(crate) fn of_leader(term: i64, leader: &str) -> Self {
        Self { term: Some(term), high: None, leader: leader.to_owned(), resigned: false, wish: None, data: None }
    }

    /// Returns the record of a node that takes the transaction of the record's write as its term.
    pub(crate) fn claim(leader: &str) -> Self {
        Self { term: None, high: None, leader: leader.to_owned(), resigned: false, wish: None, data: None }
    }

    /// Returns the term of the leader. `stat` is from the same read.
    pub(crate) fn term(&self, stat: &Stat) -> i64 {
        self.term.unwrap_or(stat.mzxid)
    }

    /// Returns the highest term that any node of the path has had. A later leader must exceed it.
    pub(crate) fn highest(&self, stat: &Stat) -> i64 {
        self.term(stat).max(self.high.unwrap_or_default())
    }

    /// Returns the record with the highest term of an earlier one.
    pub(crate) fn above(mut self, highest: i64) -> Self {
        self.high = (self.term.is_some_and(|term| term < highest)).then_some(highest);
        self
    }

    /// Returns the record in bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut line = MAGIC.to_owned();
        if let Some(term) = self.term {
            line += &format!(" term={term}");
        }
        if let Some(high) = self.high {
            line += &format!(" high={high}");
        }
        line += &format!(" leader={}", self.leader);
        if self.resigned {
            line += " resigned";
        }
        if let Some(wish) = &self.wish {
            line += &format!(" wish={wish}");
        }
        let mut bytes = line.into_bytes();
        if let Some(data) = &self.data {
            bytes.push(b'\n');
            bytes.extend_from_slice(data);
        }
        bytes
    }

    /// Returns the record in some data; `None` for the data of another program.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (line, data) = match bytes.iter().position(|&byte| byte == b'\n') {
            Some(end) => (&bytes[..end], Some(bytes[end + 1..].to_vec())),
            None => (bytes, None),
        };
        let mut fields = std::str::from_utf8(line).ok()?.split(' ');
        if fields.next()? != MAGIC {
            return None;
        }
        let mut record = Self { data, ..Self::claim("") };
        for field in fields {
            match field.split_once('=').unwrap_or((field, "")) {
                ("term", term) => record.term = Some(term.parse().ok()?),
                ("high", high) => record.high = Some(high.parse().ok()?),
                ("leader", leader) => leader.clone_into(&mut record.leader),
                ("resigned", _) => record.resigned = true,
                ("wish", wish) => record.wish = Some(wish.to_owned()),
                // A later version may have more fields.
                _ => {}
            }
        }
        (!record.leader.is_empty()).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_bytes() {
        let leader = Record::of_leader(77, "_c_a-latch-0000000001");
        for record in [
            leader.clone(),
            Record { resigned: true, ..leader.clone() },
            Record {
                wish: Some("_c_b-latch-0000000002".into()),
                data: Some(b"with\nlines\xff".to_vec()),
                ..leader.clone()
            },
            Record { data: Some(Vec::new()), ..leader.clone() },
            leader.above(78),
            Record::claim("_c_a-latch-0000000001"),
        ] {
            assert_eq!(Record::parse(&record.to_bytes()), Some(record));
        }
    }

    #[test]
    fn the_data_of_another_program_is_not_a_record() {
        for data in
            ["", "10.0.0.1", "election/1", "election/2 leader=a", "election/1 term=x leader=a", "election/1 term=1"]
        {
            assert_eq!(Record::parse(data.as_bytes()), None, "{data:?}");
        }
        assert_eq!(Record::parse(b"election/1 leader=\xff"), None);
        let later = Record::parse(b"election/1 term=1 leader=a colour=red").unwrap();
        assert_eq!(later, Record::of_leader(1, "a"));
    }

    #[test]
    fn a_claim_has_the_term_of_its_transaction() {
        let stat = Stat { mzxid: 9, ..Stat::default() };
        assert_eq!(Record::claim("a").term(&stat), 9);
        assert_eq!(Record::of_leader(7, "a").term(&stat), 7);
        assert_eq!(Record::claim("a").highest(&stat), 9);
        assert_eq!(Record::of_leader(7, "a").above(8).highest(&stat), 8);
        assert_eq!(Record::of_leader(7, "a").above(6).highest(&stat), 7);
    }
}
