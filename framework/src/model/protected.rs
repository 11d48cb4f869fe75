//! The names of protected nodes, by which a creator finds its node after a lost reply (CURATOR-569). Curator's
//! `ProtectedUtils`.
//!
//! Such a name is `_c_<uuid>-<name>`. The UUID has 8, 4, 4, 4 and 12 hexadecimal digits, of either case. (Java's
//! `UUID.fromString` also accepts other forms; this does not.)

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::environment::randomness::{Randomness, uuid};
use crate::error::{Error, Result};
use crate::model::path::make_path;
use crate::model::zk_paths::path_and_node;

/// The text before the UUID in the name of a protected node, `_c_<uuid>-<name>`.
pub const PROTECTED_PREFIX: &str = "_c_";
/// The character after the UUID in the name of a protected node, `_c_<uuid>-<name>`.
pub const PROTECTED_SEPARATOR: char = '-';
/// The number of characters of `_c_<uuid>-`.
pub const PROTECTED_PREFIX_WITH_UUID_LENGTH: usize = 40;

/// The UUID in the name of a protected node.
///
/// Displayed, and parsed, as the UUID alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtectedId(Uuid);

impl ProtectedId {
    pub(crate) fn new(randomness: &dyn Randomness) -> Self {
        Self(uuid(randomness))
    }

    /// Returns an id that sorts behind this one; `None` at the end of the ids. Fewer than 2^64 ids are between the two.
    pub(crate) fn behind(self, randomness: &dyn Randomness) -> Option<Self> {
        let step = u128::from(randomness.next()) + 1;
        self.0.as_u128().checked_add(step).map(|id| Self(Uuid::from_u128(id)))
    }

    /// Returns `_c_<uuid>-`, as Curator writes it.
    #[must_use]
    pub fn prefix(self) -> String {
        let mut id = Uuid::encode_buffer();
        let id = self.0.hyphenated().encode_lower(&mut id);
        let mut prefix = String::with_capacity(PROTECTED_PREFIX_WITH_UUID_LENGTH);
        prefix.push_str(PROTECTED_PREFIX);
        prefix.push_str(id);
        prefix.push(PROTECTED_SEPARATOR);
        prefix
    }

    /// Returns the id in a node's name, if it has one: Curator's `ProtectedUtils.extractProtectedId`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        split_protected(name).map(|(id, _)| id)
    }
}

impl fmt::Display for ProtectedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for ProtectedId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self> {
        parse(id).ok_or_else(|| Error::invalid_config("protected id", format!("{id:?} is not a UUID with hyphens")))
    }
}

fn parse(id: &str) -> Option<ProtectedId> {
    let has_hyphens = id.len() == PROTECTED_PREFIX_WITH_UUID_LENGTH - PROTECTED_PREFIX.len() - 1;
    has_hyphens.then(|| Uuid::try_parse(id).ok())?.map(ProtectedId)
}

/// Returns the id and the name behind it, which is never empty.
fn split_protected(name: &str) -> Option<(ProtectedId, &str)> {
    let (prefix, rest) = name.split_at_checked(PROTECTED_PREFIX_WITH_UUID_LENGTH)?;
    let id = prefix.strip_prefix(PROTECTED_PREFIX)?.strip_suffix(PROTECTED_SEPARATOR)?;
    (!rest.is_empty()).then_some((parse(id)?, rest))
}

/// Returns `true` if this is the name of a protected node: Curator's `ProtectedUtils.isProtectedZNode`.
#[must_use]
pub fn is_protected_znode(name: &str) -> bool {
    split_protected(name).is_some()
}

/// Returns the name without its `_c_<uuid>-`, if it has one: Curator's `ProtectedUtils.normalize`.
#[must_use]
pub fn normalize(name: &str) -> &str {
    split_protected(name).map_or(name, |(_, rest)| rest)
}

/// Returns the path without the `_c_<uuid>-` of its last element, if that has one: Curator's
/// `ProtectedUtils.normalizePath`.
///
/// # Errors
///
/// `Error::InvalidPath`: ZooKeeper does not allow this path.
pub fn normalize_path(path: &str) -> Result<String> {
    let ends = path_and_node(path)?;
    Ok(make_path(ends.path, normalize(ends.node)))
}

/// Returns the id in a node's name like [`ProtectedId::of`]: Curator's `ProtectedUtils.extractProtectedId`.
#[must_use]
pub fn extract_protected_id(name: &str) -> Option<ProtectedId> {
    ProtectedId::of(name)
}

/// Returns the name of a node with protection: Curator's `ProtectedUtils.toProtectedZNode`.
#[must_use]
pub fn to_protected_znode(name: &str, id: ProtectedId) -> String {
    id.prefix() + name
}

/// Returns the path of a node below `parent` with protection.
pub(crate) fn to_protected_path(parent: &str, name: &str, id: ProtectedId) -> String {
    let mut uuid = Uuid::encode_buffer();
    let uuid = id.0.hyphenated().encode_lower(&mut uuid);
    let parent = parent.strip_suffix('/').unwrap_or(parent);
    let mut path = String::with_capacity(parent.len() + 1 + PROTECTED_PREFIX_WITH_UUID_LENGTH + name.len());
    for part in [parent, "/", PROTECTED_PREFIX, uuid] {
        path.push_str(part);
    }
    path.push(PROTECTED_SEPARATOR);
    path.push_str(name);
    path
}

/// Returns the path of a node with protection: Curator's `ProtectedUtils.toProtectedZNodePath`.
///
/// # Errors
///
/// `Error::InvalidPath`: ZooKeeper does not allow this path.
pub fn to_protected_znode_path(path: &str, id: ProtectedId) -> Result<String> {
    let ends = path_and_node(path)?;
    Ok(make_path(ends.path, &to_protected_znode(ends.node, id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::randomness::ThreadRandomness;

    const UUID: &str = "53345f98-9423-4e0c-a7b5-9f819e3ec2e1";

    #[test]
    fn protected_names_have_curators_shape() {
        let id = ProtectedId::new(&ThreadRandomness);
        let prefix = id.prefix();
        assert_eq!(prefix.len(), PROTECTED_PREFIX_WITH_UUID_LENGTH);
        assert_eq!(ProtectedId::of(&format!("{prefix}lock-0000000001")), Some(id));
        for name in [
            "lock-0000000001",
            "_c_-lock-0000000001",
            "_c_00000000-0000-0000-0000-000000000000",
            "_c_00000000-0000-0000-0000-000000000000-",
            "_c_x0000000-0000-0000-0000-000000000000-lock",
            "_c_ü",
        ] {
            assert_eq!(ProtectedId::of(name), None, "{name}");
        }
    }

    /// Curator's `TestCreate.testProtectedUtils`.
    #[test]
    fn protected_names_are_known_and_stripped() {
        let name = format!("_c_{UUID}-yo");
        let id = UUID.parse::<ProtectedId>().unwrap();
        assert!(is_protected_znode(&name));
        assert_eq!(normalize(&name), "yo");
        assert_eq!(extract_protected_id(&name), Some(id));
        assert_eq!(id.to_string(), UUID);
        assert_eq!(normalize_path(&format!("/a/{name}")).unwrap(), "/a/yo");
        for name in [
            format!("c_{UUID}-yo"),
            format!("_c_{UUID}-"),
            format!("_c_{UUID}+yo"),
            format!("_d_{UUID}-yo"),
            "_c_53345f98-hola-4e0c-a7b5-9f819e3ec2e1-yo".into(),
            "_c_53345f98-hola-4e0c-a7b5-9f819e3ec2e1+yo".into(),
            // Byte 40 is not the start of a character.
            "_c_53345f98-9423-4e0c-a7b5-9f819e3ec2eüyo".into(),
            // Java's parser takes these for UUIDs.
            "_c_5334598-94235-4e0c-a7b5-9f819e3ec2e1-yo".into(),
            "parent".into(),
            String::new(),
        ] {
            assert!(!is_protected_znode(&name), "{name}");
            assert_eq!(normalize(&name), name);
            assert_eq!(extract_protected_id(&name), None);
            assert_eq!(normalize_path(&make_path("/a", &name)).unwrap(), make_path("/a", &name));
        }
    }

    /// The names of Curator's `TestCreate.testCreateProtectedUtils`.
    #[test]
    fn what_is_made_protected_is_known_as_such() {
        let id = UUID.parse::<ProtectedId>().unwrap();
        let name = to_protected_znode("test", id);
        assert_eq!(name, format!("_c_{UUID}-test"));
        assert_eq!(name.len(), PROTECTED_PREFIX_WITH_UUID_LENGTH + "test".len());
        assert_eq!(name.chars().nth(PROTECTED_PREFIX_WITH_UUID_LENGTH - 1), Some(PROTECTED_SEPARATOR));
        assert!(is_protected_znode(&name));
        assert_eq!(normalize(&name), "test");
        for (path, protected) in
            [("/parent/test", format!("/parent/_c_{UUID}-test")), ("/test", format!("/_c_{UUID}-test"))]
        {
            assert_eq!(to_protected_znode_path(path, id).unwrap(), protected);
            assert_eq!(normalize_path(&protected).unwrap(), path);
        }
        assert!(matches!(to_protected_znode_path("test", id), Err(Error::InvalidPath { .. })));
        assert!(matches!(normalize_path("test"), Err(Error::InvalidPath { .. })));
    }

    #[test]
    fn either_case_is_read_and_nothing_but_hyphens() {
        let id = UUID.parse::<ProtectedId>().unwrap();
        assert_eq!(UUID.to_uppercase().parse::<ProtectedId>().unwrap(), id);
        let error = UUID.replace('-', "").parse::<ProtectedId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid protected id: \"53345f9894234e0ca7b59f819e3ec2e1\" is not a UUID with hyphens"
        );
    }
}
