//! The digest of a migration, as Java's `MigrationManager` computes it: SHA-256 over each operation's path, type, and
//! request as jute's text.

use std::fmt::Write as _;
use std::time::Duration;

use curator_framework::spi::Operation;
use curator_framework::{Acl, CreateMode, make_path};
use sha2::{Digest as _, Sha256};

/// A digest of the operations of a migration.
pub(super) type Hash = [u8; 32];

/// Returns the digest of these operations, sent in a namespace. The namespace is empty for a client without one.
pub(super) fn digest(namespace: &str, operations: &[Operation]) -> Hash {
    let mut digest = Sha256::new();
    for operation in operations {
        let path = match namespace {
            "" => operation.path().to_owned(),
            namespace => make_path(&format!("/{namespace}"), operation.path()),
        };
        let (kind, fields) = request(operation);
        digest.update(&path);
        digest.update(kind);
        digest.update(format!("{}{fields}\n", string(&path)));
    }
    digest.finalize().into()
}

/// Returns the number of an operation's type, and the fields of its request after the path.
fn request(operation: &Operation) -> (&'static str, String) {
    let version = |version: &Option<i32>| version.unwrap_or(-1);
    match operation {
        Operation::Create { data, acl, mode, .. } => {
            let (kind, flags, ttl) = kind_of_create(*mode);
            let ttl = ttl.map_or_else(String::new, |ttl| format!(",{}", ttl.as_millis()));
            (kind, format!(",{},{},{flags}{ttl}", buffer(data), list(acl)))
        }
        Operation::Delete { version: expected, .. } => ("2", format!(",{}", version(expected))),
        Operation::SetData { data, version: expected, .. } => ("5", format!(",{},{}", buffer(data), version(expected))),
        Operation::Check { version: expected, .. } => ("13", format!(",{}", version(expected))),
        // Java has no other one.
        _ => ("", String::new()),
    }
}

/// Returns the type of a create, its flags, and its time to live.
const fn kind_of_create(mode: CreateMode) -> (&'static str, u8, Option<Duration>) {
    match mode {
        CreateMode::Ephemeral => ("1", 1, None),
        CreateMode::PersistentSequential => ("1", 2, None),
        CreateMode::EphemeralSequential => ("1", 3, None),
        CreateMode::Container => ("19", 4, None),
        CreateMode::PersistentWithTtl(ttl) => ("21", 5, Some(ttl)),
        CreateMode::PersistentSequentialWithTtl(ttl) => ("21", 6, Some(ttl)),
        // Persistent.
        _ => ("1", 0, None),
    }
}

fn list(acl: &[Acl]) -> String {
    let entry = |acl: &Acl| format!("s{{{},s{{{},{}}}}}", acl.permissions.bits(), string(&acl.scheme), string(&acl.id));
    format!("v{{{}}}", acl.iter().map(entry).collect::<Vec<_>>().join(","))
}

fn string(text: &str) -> String {
    let mut escaped = "'".to_owned();
    for character in text.chars() {
        match character {
            '\0' | '\n' | '\r' | ',' | '}' | '%' => _ = write!(escaped, "%{:02X}", u32::from(character)),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Java prints each byte as a number with a sign, without leading zeros. Data without bytes has no `#`.
fn buffer(data: &[u8]) -> String {
    let mut text = if data.is_empty() { String::new() } else { "#".to_owned() };
    for byte in data {
        _ = write!(text, "{:x}", i32::from(i8::from_ne_bytes([*byte])));
    }
    text
}

#[cfg(test)]
mod tests {
    use curator_framework::Permission;

    use super::*;

    fn create_in(path: &str, data: &[u8], acl: Vec<Acl>, mode: CreateMode) -> Operation {
        Operation::Create { path: path.to_owned(), data: data.to_vec(), acl, mode }
    }

    fn create(path: &str, data: &[u8], mode: CreateMode) -> Operation {
        create_in(path, data, Acl::open_unsafe(), mode)
    }

    fn hex(namespace: &str, operations: &[Operation]) -> String {
        digest(namespace, operations).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// The digests are Java's, with ZooKeeper 3.8.0.
    #[test]
    fn digests_are_javas() {
        let persistent = CreateMode::Persistent;
        let expected = "744398a019b349713ae2d52c93a9fcb1e6da6732dffe7981be3d72bda8e55ca7";
        assert_eq!(hex("", &[create("/a", b"one", persistent)]), expected);
        let expected = "b11964ba95e4e9ce2933c8d7d66221bda1437ca0b954f7eb1be439db490f89b4";
        assert_eq!(hex("", &[create("/a", b"", persistent)]), expected);
        let expected = "35aaeec7ec29ca2317f5f0069983b9e736327da98da10923dcce51ab382050ae";
        assert_eq!(hex("", &[create("/a", &[0, 10, 13, 127, 128, 255, 16], persistent)]), expected);
        let two =
            vec![Acl::new(Permission::READ, "world", "anyone"), Acl::new(Permission::ALL, "digest", "a,b:%}{'\"=")];
        let expected = "1afa9d5d257a82d6d25f211656cda87a1cc7db79783bc14f1ebaf6ee5de02bd7";
        assert_eq!(hex("", &[create_in("/a", b"x", two, persistent)]), expected);
        let expected = "868acc371b78eca26df6d4c5d858fd3c29908858cf34250a0794d5c055dc2871";
        assert_eq!(hex("", &[create("/a,b}%{'ä c", b"x", persistent)]), expected);
        let expected = "34b41ae73a747ff285775634164c241b622946d3a583509c6e8e917639f4df33";
        let two = |parent: &str, child: &str| [create(parent, b"a", persistent), create(child, b"first", persistent)];
        assert_eq!(hex("", &two("/test", "/test/bar")), expected);
        assert_eq!(hex("test", &two("/", "/bar")), expected);
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex("", &[]), expected);
    }

    #[test]
    fn digests_of_all_kinds_are_javas() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let modes = [
            create("/a", b"x", CreateMode::PersistentSequential),
            create("/b", b"x", CreateMode::Ephemeral),
            create("/c", b"x", CreateMode::EphemeralSequential),
            create("/d", b"x", CreateMode::Container),
            create("/e", b"x", CreateMode::PersistentWithTtl(second)),
            create("/f", b"x", CreateMode::PersistentSequentialWithTtl(day)),
        ];
        assert_eq!(hex("", &modes), "726a6ada95fe8bd5ce80907103109ac765781306e1f14919360de3ad92535d3f");
        let path = || "/a".to_owned();
        let others = [
            Operation::Delete { path: path(), version: None },
            Operation::Delete { path: path(), version: Some(7) },
            Operation::SetData { path: path(), data: b"two".to_vec(), version: None },
            Operation::SetData { path: path(), data: Vec::new(), version: Some(3) },
            Operation::Check { path: path(), version: Some(-1) },
            Operation::Check { path: path(), version: Some(5) },
        ];
        assert_eq!(hex("", &others), "b8a7cdc196f1f39f9ed08d0cc37f2b288236e7aa61a6f186e70798f20209dad7");
    }
}
