//! Recognizes the nodes of locks by their names.

use curator_recipes::standard_sequence;

/// The part that a contender's node has in its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A mutex, or the queue of a semaphore.
    Lock,
    /// A lease of a semaphore.
    Lease,
    /// The read half of a read-write lock.
    Read,
    /// Its write half.
    Write,
    /// A leader election.
    Latch,
}

impl Role {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Lease => "lease",
            Self::Read => "read",
            Self::Write => "write",
            Self::Latch => "latch",
        }
    }
}

/// The names of Curator's recipes, then those of kazoo's, which follow 32 hexadecimal digits.
const CURATORS: [(&str, Role); 5] = [
    ("lock-", Role::Lock),
    ("lease-", Role::Lease),
    ("latch-", Role::Latch),
    ("__READ__", Role::Read),
    ("__WRIT__", Role::Write),
];
const KAZOOS: [(&str, Role); 2] = [("__lock__", Role::Lock), ("__rlock__", Role::Read)];

/// Returns the role and the sequence number of a node with a contender's name, or `None` for any other node. The
/// locks order all nodes with such a name. The stat shows whether the node is a contender.
pub(crate) fn contender(name: &str) -> Option<(Role, i64)> {
    let curators = || CURATORS.iter().find_map(|(mark, role)| Some((*role, standard_sequence(name, mark)?)));
    let kazoos = || {
        let (id, rest) = name.split_at_checked(32)?;
        let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| KAZOOS.iter().find_map(|(mark, role)| Some((*role, sequence(rest.strip_prefix(mark)?)?))))?
    };
    curators().or_else(kazoos)
}

fn sequence(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (text.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Returns the path of a child.
pub(crate) fn child(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

/// Splits a path into its parent and its last name. The root has neither.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    (!name.is_empty()).then_some((if parent.is_empty() { "/" } else { parent }, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_known_by_their_names() {
        let protected = "_c_01234567-89ab-cdef-0123-456789abcdef-";
        for (name, expected) in [
            ("lock-0000000007", Some((Role::Lock, 7))),
            (&format!("{protected}lock-0000000007"), Some((Role::Lock, 7))),
            (&format!("{protected}lease-2147483647"), Some((Role::Lease, 2_147_483_647))),
            ("latch-0000000000", Some((Role::Latch, 0))),
            (&format!("{protected}__READ__0000000003"), Some((Role::Read, 3))),
            ("__WRIT__-000000003", Some((Role::Write, -3))),
            ("0123456789abcdef0123456789abcdef__lock__0000000001", Some((Role::Lock, 1))),
            ("0123456789abcdef0123456789abcdef__rlock__0000000001", Some((Role::Read, 1))),
            ("lock-7", Some((Role::Lock, 7))),
            ("report-lock-2024", Some((Role::Lock, 2024))),
            ("lock-000000000x", None),
            ("0123456789abcdef0123456789abcdef__lock__7", None),
            ("é123456789abcdef0123456789abcdef__lock__0000000001", None),
            ("leases", None),
            ("", None),
        ] {
            assert_eq!(contender(name), expected, "{name}");
        }
    }

    #[test]
    fn paths_are_split_and_joined() {
        assert_eq!((child("/", "a"), child("/a", "b")), ("/a".to_owned(), "/a/b".to_owned()));
        assert_eq!((split("/a/b"), split("/a"), split("/")), (Some(("/a", "b")), Some(("/", "a")), None));
    }
}
