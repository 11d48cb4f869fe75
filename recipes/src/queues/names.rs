//! The names of items, byte for byte as Java's Curator writes and reads them. Pure.

use std::cmp::Ordering;

/// The start of the name of every item.
pub(super) const PREFIX: &str = "queue-";
/// The start of the names of a [`SimpleDistributedQueue`](crate::SimpleDistributedQueue).
pub(super) const SIMPLE_PREFIX: &str = "qn-";
/// The name of a node that is created and deleted in the transaction that gives an item back. Java's consumers list the
/// path again after that, and never see the node.
pub(super) const RETURNED: &str = "returned";
/// The digits of a number that a server appends.
const SEQUENCE_DIGITS: usize = 10;
/// The characters of a priority: its sign and 8 hexadecimal digits.
const PRIORITY_CHARACTERS: usize = 9;

/// A kind of queue, which decides the names and the order of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Plain,
    Id,
    Priority,
    Delay,
    /// A [`SimpleDistributedQueue`](crate::SimpleDistributedQueue).
    Simple,
}

impl Kind {
    /// Returns whether a node with this name is an item. All other children of a queue's path are foreign.
    pub(super) fn is_item(self, name: &str) -> bool {
        name.starts_with(if self == Self::Simple { SIMPLE_PREFIX } else { PREFIX })
    }

    /// Returns whether new items always come last.
    pub(super) const fn is_in_order_of_puts(self) -> bool {
        matches!(self, Self::Plain | Self::Id | Self::Simple)
    }
}

/// Returns the name of an item with an id, without the server's number.
pub(super) fn of_id(id: &str) -> String {
    format!("{PREFIX}|{}|", clean_id(id))
}

/// Returns the name of an item with a priority, without the server's number.
pub(super) fn of_priority(priority: i32) -> String {
    format!("{PREFIX}{}{priority:08X}", u8::from(priority >= 0))
}

/// Returns the name of an item that is due at this number of milliseconds after 1970, without the server's number.
pub(super) fn of_due(millis: i64) -> String {
    format!("{PREFIX}|{millis:08X}|")
}

/// Returns an id as it is in a name.
pub(super) fn clean_id(id: &str) -> String {
    id.replace(['/', '|'], "_")
}

/// Returns the id of an item. A name without two bars is its own id.
pub(super) fn id(name: &str) -> &str {
    bars(name).map_or(name, |(first, second)| &name[first + 1..second])
}

/// Returns the priority of an item; `None` without one, as after Java's requeue.
pub(super) fn priority(name: &str) -> Option<i32> {
    let rest = name.strip_prefix(PREFIX)?;
    let digits = rest.get(1..PRIORITY_CHARACTERS)?;
    let has_number = rest.len() >= PRIORITY_CHARACTERS + SEQUENCE_DIGITS && matches!(rest.as_bytes()[0], b'0' | b'1');
    let priority = u32::from_str_radix(digits, 16).ok().filter(|_| has_number)?;
    Some(i32::from_be_bytes(priority.to_be_bytes()))
}

/// Returns the time of an item, in milliseconds after 1970. A text that is not a time counts as 0, so it is due at once.
pub(super) fn due(name: &str) -> i64 {
    let time = name.rfind('|').and_then(|last| {
        let first = name[..last].rfind('|')?;
        i64::from_str_radix(&name[first + 1..last], 16).ok()
    });
    time.unwrap_or_default()
}

/// Returns the number that the server has appended; `None` if the name does not end with one.
pub(super) fn sequence(kind: Kind, name: &str) -> Option<i32> {
    name[prefix(kind, name).len()..].parse().ok()
}

/// Returns the name without the number that the server has appended, for a node that keeps id, priority or time.
pub(super) fn prefix(kind: Kind, name: &str) -> &str {
    let length = match kind {
        Kind::Plain => PREFIX.len(),
        Kind::Simple => SIMPLE_PREFIX.len(),
        Kind::Id | Kind::Delay => match name.rfind('|') {
            Some(last) => last + 1,
            None => PREFIX.len(),
        },
        Kind::Priority => match priority(name) {
            Some(_) => PREFIX.len() + PRIORITY_CHARACTERS,
            None => PREFIX.len(),
        },
    };
    name.get(..length).unwrap_or(name)
}

/// Returns the name of an item without the number that the server has appended, regardless of the kind of its queue.
/// `None` if it is not an item's.
pub(super) fn prefix_of_any_kind(name: &str) -> Option<&str> {
    // A name of a delay queue has the form of one with an id.
    let kinds = [Kind::Plain, Kind::Id, Kind::Priority];
    let kind = kinds.into_iter().find(|kind| kind.is_item(name) && sequence(*kind, name).is_some())?;
    Some(prefix(kind, name))
}

/// Returns the places of the first two bars.
fn bars(name: &str) -> Option<(usize, usize)> {
    let first = name.find('|')?;
    let second = first + 1 + name[first + 1..].find('|')?;
    Some((first, second))
}

/// A name of an item, in the order in which its queue delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ordered {
    /// The time of an item of a delay queue, else 0.
    due: i64,
    /// The creation number within one time of a delay queue, else 0. A negative number is a later one.
    number: u32,
    name: Box<str>,
    /// The part of the name that does not count: the id with its bars.
    cut: (usize, usize),
}

impl Ordered {
    pub(super) fn new(kind: Kind, name: &str) -> Self {
        let (mut due_at, mut number, mut cut) = (0, 0, (0, 0));
        match kind {
            Kind::Delay => {
                due_at = due(name);
                let appended = sequence(kind, name).unwrap_or_default();
                number = u32::from_be_bytes(appended.to_be_bytes());
            }
            Kind::Id => cut = bars(name).map_or((0, 0), |(first, second)| (first, second + 1)),
            Kind::Plain | Kind::Priority | Kind::Simple => {}
        }
        Self { due: due_at, number, name: name.into(), cut }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the time from which on the item is due, in milliseconds after 1970.
    pub(super) const fn due(&self) -> i64 {
        self.due
    }

    /// Returns the units of Java's strings that count.
    fn counted(&self) -> impl Iterator<Item = u16> {
        let (first, second) = self.cut;
        self.name[..first].encode_utf16().chain(self.name[second..].encode_utf16())
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        let earlier = (self.due, self.number).cmp(&(other.due, other.number));
        earlier.then_with(|| self.counted().cmp(other.counted())).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in the order of their queue.
    fn sorted(kind: Kind, names: &[&str]) -> Vec<String> {
        let mut ordered: Vec<_> = names.iter().map(|name| Ordered::new(kind, name)).collect();
        ordered.sort();
        ordered.iter().map(|ordered| ordered.name().to_owned()).collect()
    }

    #[test]
    fn names_are_those_that_java_writes() {
        assert_eq!(of_id("job 7"), "queue-|job 7|");
        assert_eq!(of_id("a/b|c"), "queue-|a_b_c|");
        assert_eq!(of_id("ä"), "queue-|ä|");
        for (priority, name) in [
            (0, "queue-100000000"),
            (5, "queue-100000005"),
            (10, "queue-10000000A"),
            (-1, "queue-0FFFFFFFF"),
            (i32::MIN, "queue-080000000"),
            (i32::MAX, "queue-17FFFFFFF"),
        ] {
            assert_eq!(of_priority(priority), name);
            assert_eq!(super::priority(&format!("{name}0000000001")), Some(priority));
            assert_eq!(super::priority(&format!("{name}-2147483648")), Some(priority));
        }
        for (millis, name) in [
            (1, "queue-|00000001|"),
            (5000, "queue-|00001388|"),
            (1_900_000_000_000, "queue-|1BA60D33800|"),
            (i64::MAX, "queue-|7FFFFFFFFFFFFFFF|"),
        ] {
            assert_eq!(of_due(millis), name);
            assert_eq!(due(&format!("{name}0000000002")), millis);
        }
    }

    #[test]
    fn names_of_other_forms_are_read_as_java_reads_them() {
        assert_eq!(due("queue-0000000002"), 0);
        assert_eq!(due("queue-|xyz|0000000002"), 0);
        assert_eq!(due("queue-|a|00001388|0000000002"), 5000, "the last two bars count");
        assert_eq!(due("queue-|FFFFFFFFFFFFFFFFF|0000000002"), 0, "too large");
        assert_eq!(id("queue-|job 7|0000000000"), "job 7");
        assert_eq!(id("queue-||0000000000"), "");
        assert_eq!(id("queue-0000000002"), "queue-0000000002");
        assert_eq!(id("queue-|0000000002"), "queue-|0000000002");
        assert_eq!(priority("queue-0000000002"), None, "Java's requeue drops the priority");
        assert_eq!(priority("queue-1000000ä00000000001"), None);
    }

    #[test]
    fn prefix_and_number_are_apart() {
        for (kind, prefix, number) in [
            (Kind::Plain, "queue-", "0000000007"),
            (Kind::Plain, "queue-", "-2147483648"),
            (Kind::Simple, "qn-", "0000000007"),
            (Kind::Id, "queue-|job 7|", "0000000007"),
            (Kind::Id, "queue-", "0000000007"),
            (Kind::Priority, "queue-10000000A", "0000000007"),
            (Kind::Priority, "queue-10000000A", "-2147483648"),
            (Kind::Priority, "queue-", "0000000007"),
            (Kind::Delay, "queue-|1BA60D33800|", "0000000007"),
            (Kind::Delay, "queue-", "-2147483647"),
        ] {
            let name = format!("{prefix}{number}");
            assert_eq!(super::prefix(kind, &name), prefix, "{name}");
            assert_eq!(sequence(kind, &name), number.parse().ok(), "{name}");
            assert_eq!(prefix_of_any_kind(&name), Some(prefix).filter(|_| kind != Kind::Simple), "{name}");
        }
        for name in ["queue-", "queue-last", "notes-0000000007", "queue-|a|", "queue-1000000ä00000000001", ""] {
            assert_eq!(prefix_of_any_kind(name), None, "{name}");
        }
        // The smallest and the largest priority.
        for prefix in ["queue-080000000", "queue-17FFFFFFF"] {
            assert_eq!(prefix_of_any_kind(&format!("{prefix}0000000007")), Some(prefix));
        }
        assert_eq!(sequence(Kind::Plain, "queue-last"), None);
        assert_eq!(prefix(Kind::Plain, "q"), "q");
    }

    #[test]
    fn items_have_the_prefix_of_their_kind() {
        for (name, is_item, is_simple) in [
            ("queue-0000000000", true, false),
            ("queue-", true, false),
            ("_c_6f1b8d5e-0c4e-4b42-8b0e-7a1f1c6f8f33-queue-0000000000", false, false),
            ("qn-0000000000", false, true),
            ("entry-100-0000000000", false, false),
        ] {
            assert_eq!(Kind::Plain.is_item(name), is_item, "{name}");
            assert_eq!(Kind::Simple.is_item(name), is_simple, "{name}");
        }
    }

    #[test]
    fn orders_are_those_of_java() {
        // A negative number sorts before all others.
        let plain = ["queue--2147483648", "queue-0000000000", "queue-0000000002", "queue-0000000010"];
        assert_eq!(sorted(Kind::Plain, &[plain[2], plain[3], plain[0], plain[1]]), plain);
        // The id does not count; a bad name counts as it is.
        let id = ["queue-0000000001", "queue-|z|0000000002", "queue-|a|0000000003"];
        assert_eq!(sorted(Kind::Id, &[id[2], id[0], id[1]]), id);
        let priority = [
            "queue-0000000009",
            "queue-0800000000000000003",
            "queue-0FFFFFFFF0000000002",
            "queue-1000000000000000004",
            "queue-1000000000000000005",
            "queue-17FFFFFFF0000000001",
        ];
        let mut reversed = priority;
        reversed.reverse();
        assert_eq!(sorted(Kind::Priority, &reversed), priority);
        // The number of digits of a time varies. Items of one time have the order of their creation.
        let delay = [
            "queue-0000000009",
            "queue-|00001388|0000000001",
            "queue-|FFFFFFFF|0000000000",
            "queue-|1BA60D33800|0000000003",
            "queue-|1BA60D33800|0000000010",
            "queue-|1BA60D33800|-2147483648",
        ];
        let mut reversed = delay;
        reversed.reverse();
        assert_eq!(sorted(Kind::Delay, &reversed), delay);
    }

    #[test]
    fn names_compare_by_the_units_of_javas_strings() {
        // By code points the second one is larger; by units it is smaller.
        let names = ["queue-|\u{10000}", "queue-|\u{ff00}"];
        assert_eq!(sorted(Kind::Plain, &[names[1], names[0]]), names);
    }
}
