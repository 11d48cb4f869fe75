//! Recognizes the nodes of locks by their names, as Curator and kazoo give them.

use curator_framework::{node_from_path, parent_of};
use curator_recipes::ParticipantKind;

/// The names of kazoo's recipes, which follow 32 hexadecimal digits.
const KAZOOS: [(&str, ParticipantKind); 2] =
    [("__lock__", ParticipantKind::Lock), ("__rlock__", ParticipantKind::Read)];

/// Returns the kind and the sequence number of a node with a contender's name, or `None` for any other node. The locks
/// order all nodes with such a name. The stat shows whether the node is a contender.
pub(crate) fn contender(name: &str) -> Option<(ParticipantKind, i64)> {
    let kazoos = || {
        let (id, rest) = name.split_at_checked(32)?;
        let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| KAZOOS.iter().find_map(|(mark, kind)| Some((*kind, sequence(rest.strip_prefix(mark)?)?))))?
    };
    ParticipantKind::of_node(name).or_else(kazoos)
}

fn sequence(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (text.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Splits a path into its parent and its last name. The root has neither.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    (path != "/").then(|| (parent_of(path), node_from_path(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_known_by_their_names() {
        let id = "0123456789abcdef0123456789abcdef";
        for (name, expected) in [
            ("_c_01234567-89ab-cdef-0123-456789abcdef-lease-0000000007", Some((ParticipantKind::Lease, 7))),
            ("lock-7", Some((ParticipantKind::Lock, 7))),
            (&format!("{id}__lock__0000000001"), Some((ParticipantKind::Lock, 1))),
            (&format!("{id}__rlock__0000000001"), Some((ParticipantKind::Read, 1))),
            (&format!("{id}__lock__7"), None),
            ("é123456789abcdef0123456789abcdef__lock__0000000001", None),
            ("leases", None),
        ] {
            assert_eq!(contender(name), expected, "{name}");
        }
    }

    #[test]
    fn paths_are_split() {
        assert_eq!((split("/a/b"), split("/a"), split("/")), (Some(("/a", "b")), Some(("/", "a")), None));
    }
}
