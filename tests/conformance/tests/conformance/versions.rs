//! Apache ZooKeeper has changed its answers from some versions on. The in-process server answers as 3.8.0 does, so a
//! comparison with a later server goes by these rules.

use curator_test::wire::{OpCode, Reader, ReplyHeader, WatchEvent, XID_EVENT};

use crate::request::Request;

/// The version of the Apache ZooKeeper in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) [u32; 3]);

impl Version {
    /// Notifications have the number of their transaction (ZOOKEEPER-4655). After a reconnect they have none.
    fn numbers_events(self) -> bool {
        self.0 >= [3, 9, 0]
    }

    /// The result of a `create2` in a multi has its own kind, and the stat of the node (ZOOKEEPER-4026).
    pub(crate) fn tells_stats_in_a_multi(self) -> bool {
        self.0 >= [3, 9, 0]
    }

    /// A path can have watches of several modes, each with a kind of its own (ZOOKEEPER-4466).
    pub(crate) fn keeps_modes_apart(self) -> bool {
        self.0 >= [3, 9, 0]
    }

    /// A `deleteContainer` is read as other requests are.
    pub(crate) fn reads_deletes_of_containers(self) -> bool {
        self.0 >= [3, 9, 0]
    }

    /// A multi is refused as a whole for the flags of one create, before any part is carried out. A node with a time to live
    /// is created by another request.
    pub(crate) fn refuses(self, request: &Request) -> bool {
        let has_bad_flags = |part: &Request| matches!(part, Request::Create(.., flags) if !(0..=4).contains(flags));
        self.0 >= [3, 9, 0]
            && matches!(request, Request::Multi(OpCode::Multi, parts) if parts.iter().any(has_bad_flags))
    }

    /// `exists` needs the permission to read an existing node (ZOOKEEPER-2590).
    pub(crate) fn exists_needs_read(self) -> bool {
        self.0 >= [3, 9, 2] || self.0[..2] == [3, 8] && self.0[2] >= 4
    }

    /// A `check` outside of a multi is refused, and closes the connection (ZOOKEEPER-2623).
    pub(crate) fn forbids_a_lone_check(self) -> bool {
        self.0 >= [3, 9, 3]
    }

    /// Returns the event in a frame, as text.
    pub(crate) fn event(self, frame: &[u8]) -> Option<String> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader).unwrap();
        if header.xid != XID_EVENT {
            return None;
        }
        let WatchEvent { kind, state, path } = WatchEvent::decode(&mut reader).unwrap();
        assert!(reader.is_empty());
        let zxid = if self.numbers_events() && header.zxid > 0 { -1 } else { header.zxid };
        Some(format!("{kind} {path} state {state} (zxid {zxid} error {})", header.err))
    }
}
