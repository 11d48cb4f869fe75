//! The terms of ZooKeeper, independent of the client in use: nodes, access control, events.

use std::borrow::Cow;
use std::fmt;
use std::ops::BitOr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;

use crate::error::{Error, Result};
use crate::model::ids::SessionId;

/// The server's record of a node.
///
/// Times are milliseconds since 1970 on the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// The transaction that created the node. It grows over the whole life of the ensemble.
    pub czxid: i64,
    /// The transaction that last changed the node's data.
    pub mzxid: i64,
    /// The time of the node's creation.
    pub ctime: i64,
    /// The time of the last change of the node's data.
    pub mtime: i64,
    /// The number of changes of the data.
    pub version: i32,
    /// The number of creations and deletions of children.
    pub cversion: i32,
    /// The number of changes of the access control list.
    pub aversion: i32,
    /// The session that owns the node, 0 if it is not ephemeral. See [`owning_session`].
    pub ephemeral_owner: i64,
    /// The length of the data in bytes.
    pub data_length: i32,
    /// The number of children.
    pub num_children: i32,
    /// The transaction that last created or deleted a child.
    pub pzxid: i64,
}

impl From<curator_wire::Stat> for Stat {
    fn from(stat: curator_wire::Stat) -> Self {
        Self {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            ctime: stat.ctime,
            mtime: stat.mtime,
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: stat.ephemeral_owner,
            data_length: stat.data_length,
            num_children: stat.num_children,
            pzxid: stat.pzxid,
        }
    }
}

/// Returns the session that owns a node, by the `ephemeral_owner` of its stat; `None` for a node that is not ephemeral.
/// Some servers send a mark there for a container, and for a node with a time to live.
#[must_use]
pub const fn owning_session(ephemeral_owner: i64) -> Option<SessionId> {
    const CONTAINER: i64 = i64::MIN;
    const TIME_TO_LIVE: u8 = 0xff;
    match ephemeral_owner {
        0 | CONTAINER => None,
        owner if owner.to_be_bytes()[0] == TIME_TO_LIVE => None,
        owner => SessionId::new(owner),
    }
}

/// The actions that an access control list allows; combined with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permission(u32);

impl Permission {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Read data and list children.
    pub const READ: Self = Self(1);
    /// Change data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Change the access control list.
    pub const ADMIN: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Returns `true` if every permission in `other` is in `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the permissions with these of ZooKeeper's bits; unknown bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns ZooKeeper's bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Permission {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

const DIGEST_NEEDS_HASH: &str =
    "the id of the scheme `digest` is `user:base64(sha1(user:password))`; make it with `Acl::digest(user, password)`";

/// One entry of an access control list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The permissions that the entry gives.
    pub permissions: Permission,
    /// The scheme: `world`, `auth`, `digest`, `ip` …
    pub scheme: Cow<'static, str>,
    /// The user or address, in the form of the scheme.
    pub id: Cow<'static, str>,
}

impl Acl {
    /// Creates an entry that gives permissions to the `id` of a `scheme`, such as `ip` and `10.0.0.7`.
    #[must_use]
    pub fn new(
        permissions: Permission,
        scheme: impl Into<Cow<'static, str>>,
        id: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { permissions, scheme: scheme.into(), id: id.into() }
    }

    /// Creates an entry that gives all permissions to clients with this user's password: ZooKeeper's
    /// `DigestAuthenticationProvider.generateDigest`. The list shows only a hash of the password, without a salt. The
    /// user must not contain a colon.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
    /// use curator_framework::{Acl, CuratorFramework, Permission, RetryOneTime};
    ///
    /// let list = [Acl::digest("ops", "pw"), Acl::digest("ann", "secret").with_permissions(Permission::READ)];
    /// client.create().with_acl(list).for_path("/settings").await?;
    /// // The credentials of a client that may then read and write `/settings`:
    /// # let retry = RetryOneTime::new(std::time::Duration::from_secs(1));
    /// let ops = CuratorFramework::builder("localhost:2181").authorization("digest", "ops:pw");
    /// let ops = ops.retry_policy(retry).build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn digest(user: &str, password: &str) -> Self {
        let hash = STANDARD.encode(Sha1::from(format!("{user}:{password}")).digest().bytes());
        Self::new(Permission::ALL, "digest", format!("{user}:{hash}"))
    }

    /// Replaces the permissions.
    #[must_use]
    pub fn with_permissions(mut self, permissions: Permission) -> Self {
        self.permissions = permissions;
        self
    }

    /// Refuses a list with an id of the scheme `digest` that is not a hash: such an entry fits no password. The server
    /// would accept it.
    pub(crate) fn check(list: &[Self], path: &str) -> Result<()> {
        let is_hash = |hash: &str| STANDARD.decode(hash).is_ok_and(|hash| hash.len() == sha1_smol::DIGEST_LENGTH);
        let fits = |entry: &Self| {
            entry.scheme != "digest"
                || matches!(entry.id.split(':').collect::<Vec<_>>().as_slice(), [_, hash] if is_hash(hash))
        };
        match list.iter().all(fits) {
            true => Ok(()),
            false => Err(Error::InvalidAcl { path: path.into(), reason: Some(DIGEST_NEEDS_HASH) }),
        }
    }

    /// Returns a list that allows everything to all clients: ZooKeeper's `OPEN_ACL_UNSAFE`, the default.
    #[must_use]
    pub fn open_unsafe() -> Vec<Self> {
        vec![Self::new(Permission::ALL, "world", "anyone")]
    }

    /// Returns a list that allows all clients to read: ZooKeeper's `READ_ACL_UNSAFE`.
    #[must_use]
    pub fn read_unsafe() -> Vec<Self> {
        vec![Self::new(Permission::READ, "world", "anyone")]
    }

    /// Returns a list that allows everything to the creator only: ZooKeeper's `CREATOR_ALL_ACL`.
    #[must_use]
    pub fn creator_all() -> Vec<Self> {
        vec![Self::new(Permission::ALL, "auth", "")]
    }
}

/// The lifetime of a node and the form of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CreateMode {
    /// Stays until it is deleted.
    #[default]
    Persistent,
    /// Stays until it is deleted; the server appends a number to its name.
    PersistentSequential,
    /// Is deleted with the session that created it.
    Ephemeral,
    /// Is deleted with the session that created it; the server appends a number to its name.
    EphemeralSequential,
    /// Is deleted once it had children and has none any more.
    Container,
    /// Is deleted when it was not changed and had no children for this long. The server must allow it
    /// (`extendedTypesEnabled`).
    PersistentWithTtl(Duration),
    /// Is deleted when it was not changed and had no children for this long; the server appends a number to its name.
    /// The server must allow it (`extendedTypesEnabled`).
    PersistentSequentialWithTtl(Duration),
}

impl CreateMode {
    /// The longest time to live that a server accepts: 2^40 − 1 milliseconds, some 34 years.
    pub const LONGEST_TTL: Duration = Duration::from_millis((1 << 40) - 1);

    /// Checks the time to live, if the mode has one.
    pub(crate) fn check_ttl(self) -> Result<()> {
        let (Self::PersistentWithTtl(ttl) | Self::PersistentSequentialWithTtl(ttl)) = self else { return Ok(()) };
        match ttl {
            _ if ttl < Duration::from_millis(1) => {
                Err(Error::invalid_config("time to live", "it is below a millisecond"))
            }
            _ if ttl > Self::LONGEST_TTL => {
                Err(Error::invalid_config("time to live", "it is above 2^40 - 1 milliseconds"))
            }
            _ => Ok(()),
        }
    }

    /// Returns `true` if the node is deleted with its session.
    #[must_use]
    pub const fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// Returns `true` if the server appends a number to the name.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(self, Self::PersistentSequential | Self::EphemeralSequential | Self::PersistentSequentialWithTtl(_))
    }
}

/// The change of a watched node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// The node was created.
    NodeCreated,
    /// The node was deleted.
    NodeDeleted,
    /// The node's data was changed.
    NodeDataChanged,
    /// A child was created or deleted.
    NodeChildrenChanged,
}

/// An event of a watch: a hint that a node changed, never its present state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchedEvent {
    /// The kind of the change.
    pub event_type: EventType,
    /// The node's path.
    pub path: String,
}

/// An event of a [`PersistentWatcher`](crate::PersistentWatcher).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PersistentEvent {
    /// A node changed.
    Changed(WatchedEvent),
    /// Changes are unknown: read again. Either the connection was lost, and the watch is set again; or 10,000 events
    /// waited for their reader, and this replaces them.
    Reset,
}

/// An identity of a connection, by which access control lists know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[doc(alias = "ClientInfo")]
pub struct Identity {
    /// The scheme: `ip`, `digest`, `sasl`, `x509`.
    pub scheme: String,
    /// The user, without the hash of a password.
    pub user: String,
}

/// Credentials that are added to every connection.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthInfo {
    /// The scheme, `digest` for example.
    pub scheme: String,
    /// The credentials in the form of the scheme, `user:password` for `digest`.
    pub auth: Vec<u8>,
}

impl fmt::Debug for AuthInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthInfo").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// The kind of a one-shot watch that a read sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WatchKind {
    /// The node itself: it is created, changed or deleted.
    Data,
    /// The node's children.
    Children,
}

/// The scope of a [`PersistentWatcher`](crate::PersistentWatcher): ZooKeeper's `AddWatchMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AddWatchMode {
    /// The node itself and the list of its children.
    Persistent,
    /// The node and all nodes below it. Each creation and deletion is an event with its own path, so
    /// [`NodeChildrenChanged`](crate::EventType::NodeChildrenChanged) does not occur.
    PersistentRecursive,
}

/// The result of one of several reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultiReadResult {
    /// The node's data, and its stat.
    Data(Vec<u8>, Stat),
    /// The names of the node's children, in no order.
    Children(Vec<String>),
}

impl MultiReadResult {
    /// Returns the node's data and its stat. `None` for a list of children.
    #[must_use]
    pub fn into_data(self) -> Option<(Vec<u8>, Stat)> {
        match self {
            Self::Data(data, stat) => Some((data, stat)),
            Self::Children(_) => None,
        }
    }

    /// Returns the names of the node's children, in no order. `None` for data.
    #[must_use]
    pub fn into_children(self) -> Option<Vec<String>> {
        match self {
            Self::Children(names) => Some(names),
            Self::Data(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_own_ephemeral_nodes_alone() {
        let time_to_live = i64::from_be_bytes([0xff, 0, 0, 0, 0, 0, 0x13, 0x88]);
        assert_eq!([0, i64::MIN, time_to_live].map(owning_session), [None; 3]);
        // The id of a server is the first byte of its sessions.
        let of_servers = [0x1000_17d8_29d0_01f0, i64::MIN + 1, i64::from_be_bytes([0xfe, 0, 0, 0, 0, 0, 0, 1])];
        assert_eq!(of_servers.map(owning_session), of_servers.map(SessionId::new));
    }

    #[test]
    fn credentials_are_not_printed() {
        let auth = AuthInfo { scheme: "digest".into(), auth: b"user:secret".to_vec() };
        assert_eq!(format!("{auth:?}"), "AuthInfo { scheme: \"digest\", .. }");
    }

    /// The id that `DigestAuthenticationProvider.generateDigest` returns for `super:secret`.
    #[test]
    fn digest_is_that_of_zookeeper() {
        let acl = Acl::digest("super", "secret");
        assert_eq!((acl.scheme.as_ref(), acl.id.as_ref()), ("digest", "super:lK75jTNcA+U9vtVEw5vB51mj/w4="));
        assert_eq!(acl.permissions, Permission::ALL);
        assert_eq!(acl.with_permissions(Permission::READ).permissions, Permission::READ);
    }

    #[test]
    fn digest_without_a_hash_is_refused() {
        let check = |id: &str| Acl::check(&[Acl::new(Permission::ALL, "digest", id.to_owned())], "/a");
        for id in [
            "ops:pw",
            "ops",
            "",
            "ops:",
            ":",
            "a:b:lK75jTNcA+U9vtVEw5vB51mj/w4=",
            "ops:lK75jTNcA+U9vtVEw5vB51mj/w4=x",
            "ops:x",
        ] {
            let error = check(id).unwrap_err().to_string();
            assert!(
                error.starts_with("invalid access control list for /a: ") && error.contains("Acl::digest"),
                "{error}"
            );
        }
        check("super:lK75jTNcA+U9vtVEw5vB51mj/w4=").unwrap();
        Acl::check(&[Acl::new(Permission::ALL, "ip", "10.0.0.7"), Acl::digest("ops", "pw")], "/a").unwrap();
    }

    #[test]
    fn permissions_combine() {
        let both = Permission::READ | Permission::WRITE;
        assert!(both.contains(Permission::READ) && !both.contains(Permission::ADMIN));
        assert!(Permission::ALL.contains(both));
    }
}
