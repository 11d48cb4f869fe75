//! ZooKeeper's wire format: the records that the client and the testing server share.
//!
//! ```toml
//! [dependencies]
//! curator-wire = { path = "../curator/framework/wire" }
//! ```
//!
//! The crate opens no socket, so it needs neither tokio nor a feature. The path points to a copy of the repository.
//!
//! A frame is a four-byte big-endian length and as many bytes of jute records.
//! Numbers are big-endian, strings and buffers carry their length in front, and
//! the length −1 means null. The first frame of a connection is a
//! [`ConnectRequest`], and its reply a [`ConnectResponse`]. Each later request is
//! a [`RequestHeader`] and a body, and its reply a [`ReplyHeader`] and a body.
//!
//! Decoding never panics and never allocates more than the input is long.
//!
//! ```
//! use curator_wire::{OpCode, Reader, RequestHeader, Writer};
//!
//! let mut frame = Writer::new();
//! RequestHeader { xid: 1, op: OpCode::Exists }.encode(&mut frame);
//! frame.string("/lock").bool(false);
//! let bytes = frame.into_bytes();
//!
//! let mut reader = Reader::new(&bytes);
//! assert_eq!(RequestHeader::decode(&mut reader)?.op.name(), "exists");
//! assert_eq!(reader.string()?, "/lock");
//! # Ok::<(), curator_wire::DecodeError>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

/// The program of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod codec;
mod codes;

pub use codec::{DecodeError, Reader, Writer};
pub use codes::{ErrorCode, EventKind, OpCode};

/// The xid of a watch event.
pub const XID_EVENT: i32 = -1;
/// The xid that clients give to a ping.
pub const XID_PING: i32 = -2;
/// The xid that clients give to an `auth` request.
pub const XID_AUTH: i32 = -4;
/// The xid that clients give to a `setWatches` request.
pub const XID_SET_WATCHES: i32 = -8;

/// The longest frame that a server takes by default (Apache's `jute.maxbuffer`).
pub const MAX_FRAME: usize = 0xf_ffff;

/// The first frame from a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectRequest {
    /// Always 0.
    pub protocol_version: i32,
    /// The newest zxid that the client knows; a server that is behind it refuses.
    pub last_zxid_seen: i64,
    /// The requested session timeout, in milliseconds.
    pub timeout_ms: i32,
    /// The session to continue, or 0 for a new one.
    pub session_id: i64,
    /// The password of that session.
    pub password: Vec<u8>,
    /// `true` accepts a read-only server; `None` if the client is too old to send it.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// Writes the record.
    pub fn encode(&self, to: &mut Writer) {
        to.int(self.protocol_version).long(self.last_zxid_seen).int(self.timeout_ms);
        to.long(self.session_id).buffer(&self.password);
        if let Some(read_only) = self.read_only {
            to.bool(read_only);
        }
    }

    /// Reads the record.
    ///
    /// # Errors
    /// Any [`DecodeError`], if the bytes are not this record.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: from.int()?,
            last_zxid_seen: from.long()?,
            timeout_ms: from.int()?,
            session_id: from.long()?,
            password: from.buffer()?.to_vec(),
            read_only: if from.is_empty() { None } else { Some(from.bool()?) },
        })
    }
}

/// The first frame from a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol_version: i32,
    /// The granted session timeout, in milliseconds; 0 if the session is refused.
    pub timeout_ms: i32,
    /// The session's id; 0 if it is refused.
    pub session_id: i64,
    /// The session's password; zeroes if it is refused.
    pub password: Vec<u8>,
    /// `true` if the server is read-only; `None` if the client is too old for it.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// Writes the record.
    pub fn encode(&self, to: &mut Writer) {
        to.int(self.protocol_version).int(self.timeout_ms);
        to.long(self.session_id).buffer(&self.password);
        if let Some(read_only) = self.read_only {
            to.bool(read_only);
        }
    }

    /// Reads the record.
    ///
    /// # Errors
    /// Any [`DecodeError`], if the bytes are not this record.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: from.int()?,
            timeout_ms: from.int()?,
            session_id: from.long()?,
            password: from.buffer()?.to_vec(),
            read_only: if from.is_empty() { None } else { Some(from.bool()?) },
        })
    }
}

/// The header in front of every request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// The client's number of the request; the reply carries it.
    pub xid: i32,
    /// The operation.
    pub op: OpCode,
}

impl RequestHeader {
    /// Writes the record.
    pub fn encode(&self, to: &mut Writer) {
        to.int(self.xid).int(self.op.code());
    }

    /// Reads the record.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the input ends early.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { xid: from.int()?, op: OpCode::from_code(from.int()?) })
    }
}

/// The header in front of every reply's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The number of the request, or [`XID_EVENT`].
    pub xid: i32,
    /// The newest transaction that the server has processed; −1 in an event.
    pub zxid: i64,
    /// An [`ErrorCode`]; a body follows only if it is 0.
    pub err: i32,
}

impl ReplyHeader {
    /// Writes the record.
    pub fn encode(&self, to: &mut Writer) {
        to.int(self.xid).long(self.zxid).int(self.err);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the input ends early.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { xid: from.int()?, zxid: from.long()?, err: from.int()? })
    }
}

/// The metadata of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// The transaction that created the node.
    pub czxid: i64,
    /// The transaction that last wrote its data.
    pub mzxid: i64,
    /// The time of its creation, in milliseconds since 1970.
    pub ctime: i64,
    /// The time of the last write of its data, in milliseconds since 1970.
    pub mtime: i64,
    /// The number of writes of its data.
    pub version: i32,
    /// The number of creates and deletes of its children.
    pub cversion: i32,
    /// The number of writes of its access list.
    pub aversion: i32,
    /// The session that owns it; 0 for a persistent node.
    pub ephemeral_owner: i64,
    /// The length of its data.
    pub data_length: i32,
    /// The number of its children.
    pub num_children: i32,
    /// The transaction that last created or deleted a child.
    pub pzxid: i64,
}

impl Stat {
    /// Writes the record.
    pub fn encode(&self, to: &mut Writer) {
        to.long(self.czxid).long(self.mzxid).long(self.ctime).long(self.mtime);
        to.int(self.version).int(self.cversion).int(self.aversion);
        to.long(self.ephemeral_owner).int(self.data_length).int(self.num_children);
        to.long(self.pzxid);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the input ends early.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            czxid: from.long()?,
            mzxid: from.long()?,
            ctime: from.long()?,
            mtime: from.long()?,
            version: from.int()?,
            cversion: from.int()?,
            aversion: from.int()?,
            ephemeral_owner: from.long()?,
            data_length: from.int()?,
            num_children: from.int()?,
            pzxid: from.long()?,
        })
    }
}

/// One entry of an access list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The permissions, one bit each: read 1, write 2, create 4, delete 8, admin 16.
    pub perms: i32,
    /// The check of the id: `world`, `auth`, `digest`, `ip`.
    pub scheme: String,
    /// The identity, in the scheme's syntax.
    pub id: String,
}

impl Acl {
    /// Returns the entry that grants all permissions to all clients (`world:anyone`).
    #[must_use]
    pub fn open() -> Self {
        Self { perms: 0x1f, scheme: "world".to_owned(), id: "anyone".to_owned() }
    }

    /// Writes the record.
    pub fn encode(&self, to: &mut Writer) {
        to.int(self.perms).string(&self.scheme).string(&self.id);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// Any [`DecodeError`], if the bytes are not this record.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { perms: from.int()?, scheme: from.string()?.to_owned(), id: from.string()?.to_owned() })
    }
}

/// The body of a frame with the xid [`XID_EVENT`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// An [`EventKind`], or −1.
    pub kind: i32,
    /// The client's state; 3, connected, in every event of a node.
    pub state: i32,
    /// The watched path.
    pub path: String,
}

impl WatchEvent {
    /// Writes the record.
    pub fn encode(&self, to: &mut Writer) {
        to.int(self.kind).int(self.state).string(&self.path);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// Any [`DecodeError`], if the bytes are not this record.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { kind: from.int()?, state: from.int()?, path: from.string()?.to_owned() })
    }
}

/// Returns the password that Apache's server makes from a session's id.
///
/// The id alone is enough to compute it, so a test can attach to any session of
/// known id, for instance from [`Stat::ephemeral_owner`].
///
/// ```
/// let password = curator_wire::session_password(0x1000_0012_3450_0001);
/// assert_eq!(password.len(), 16);
/// ```
#[must_use]
pub fn session_password(session_id: i64) -> [u8; 16] {
    // java.util.Random(id ^ 0xB3415C00).nextBytes(16)
    const MULTIPLIER: u64 = 0x5_deec_e66d;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = (session_id as u64 ^ 0xb341_5c00 ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for four in password.chunks_exact_mut(4) {
        seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(0xb) & MASK;
        let int = (seed >> 16).to_le_bytes();
        four.copy_from_slice(&int[..4]);
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::new();
        write(&mut writer);
        writer.into_bytes()
    }

    /// Asserts that a record survives the way there and back, and that no part of it decodes to the same record.
    fn assert_round_trip<T: PartialEq + std::fmt::Debug>(
        record: &T,
        encode: impl Fn(&T, &mut Writer),
        decode: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) {
        let whole = bytes(|writer| encode(record, writer));
        let mut reader = Reader::new(&whole);
        assert_eq!(decode(&mut reader).as_ref(), Ok(record));
        assert!(reader.is_empty());
        for length in 0..whole.len() {
            let cut = decode(&mut Reader::new(&whole[..length]));
            assert_ne!(cut.as_ref(), Ok(record), "cut to {length} bytes");
        }
    }

    #[test]
    fn records_come_back_as_they_went() {
        for read_only in [None, Some(false), Some(true)] {
            let request = ConnectRequest {
                protocol_version: 0,
                last_zxid_seen: 7,
                timeout_ms: 30_000,
                session_id: -5,
                password: vec![1; 16],
                read_only,
            };
            assert_round_trip(&request, ConnectRequest::encode, ConnectRequest::decode);
            let response = ConnectResponse {
                protocol_version: 0,
                timeout_ms: 30_000,
                session_id: -5,
                password: vec![1; 16],
                read_only,
            };
            assert_round_trip(&response, ConnectResponse::encode, ConnectResponse::decode);
        }
        let header = RequestHeader { xid: -2, op: OpCode::Ping };
        assert_round_trip(&header, RequestHeader::encode, RequestHeader::decode);
        let header = ReplyHeader { xid: 1, zxid: i64::MAX, err: -101 };
        assert_round_trip(&header, ReplyHeader::encode, ReplyHeader::decode);
        assert_round_trip(&Acl::open(), Acl::encode, Acl::decode);
        let event = WatchEvent { kind: 4, state: 3, path: "/ä".to_owned() };
        assert_round_trip(&event, WatchEvent::encode, WatchEvent::decode);
        let stat = Stat { czxid: 1, pzxid: 2, num_children: 3, ..Stat::default() };
        assert_round_trip(&stat, Stat::encode, Stat::decode);
        assert_eq!(bytes(|writer| stat.encode(writer)).len(), 68);
    }

    #[test]
    fn codes_come_back_as_they_went() {
        for code in -200..200 {
            assert_eq!(OpCode::from_code(code).code(), code);
            if let Some(error) = ErrorCode::from_code(code) {
                assert_eq!(error.code(), code);
            }
        }
        assert_eq!(OpCode::GetChildren2.to_string(), "getChildren2");
        assert_eq!(OpCode::Unknown(77).to_string(), "unknown(77)");
    }

    #[test]
    fn bad_lengths_are_errors() {
        let length = |length: i32| length.to_be_bytes();
        assert_eq!(Reader::new(&length(-1)).optional_buffer(), Ok(None));
        assert_eq!(Reader::new(&length(-1)).buffer(), Ok(&[][..]));
        assert_eq!(Reader::new(&length(-1)).string(), Err(DecodeError::Null));
        assert_eq!(Reader::new(&length(-2)).buffer(), Err(DecodeError::NegativeLength(-2)));
        let needed = i32::MAX as usize;
        let truncated = DecodeError::Truncated { needed, available: 0 };
        assert_eq!(Reader::new(&length(i32::MAX)).buffer(), Err(truncated));
        let list = Reader::new(&length(i32::MAX)).vector(|_| Ok(()));
        assert_eq!(list, Err(truncated));
        let string = bytes(|writer| {
            writer.buffer(b"\xff");
        });
        assert_eq!(Reader::new(&string).string(), Err(DecodeError::NotUtf8));
    }

    #[test]
    fn passwords_are_javas() {
        // Computed with java.util.Random.
        for (session_id, password) in [
            (0x1000_0123_4567_0001, 0x5e05_8fd2_1c13_19ff_9666_8b75_f9a2_88e2_u128),
            (1, 0x054c_c74a_3732_7db2_15e7_02e2_0c73_f005),
            (-1, 0x20f6_2cb5_648d_c2d7_7147_1c8a_2486_a9ee),
        ] {
            assert_eq!(session_password(session_id), password.to_be_bytes());
        }
    }
}
