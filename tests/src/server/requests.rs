//! The requests that read and write nodes.

use super::acl::{ADMIN, CREATE, DELETE, READ, WRITE, without_secrets};
use super::core::{Caller, Core, Failure};
use super::tree::{CONTAINER_OWNER, NewNode, is_permanent, is_valid, parent_path};
use super::watch::WatchKind;
use crate::wire::{Acl, DecodeError, ErrorCode, EventKind, OpCode, Reader, Writer};

/// What a version must be for any version to do.
const ANY_VERSION: i32 = -1;

/// How a node is created, by the number in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Persistent { sequential: bool },
    Ephemeral { sequential: bool },
    Container,
    WithTtl,
}

impl Mode {
    const fn from_flags(flags: i32) -> Result<Self, ErrorCode> {
        match flags {
            0 => Ok(Self::Persistent { sequential: false }),
            1 => Ok(Self::Ephemeral { sequential: false }),
            2 => Ok(Self::Persistent { sequential: true }),
            3 => Ok(Self::Ephemeral { sequential: true }),
            4 => Ok(Self::Container),
            5 | 6 => Ok(Self::WithTtl),
            _ => Err(ErrorCode::BadArguments),
        }
    }

    const fn is_sequential(self) -> bool {
        matches!(self, Self::Persistent { sequential: true } | Self::Ephemeral { sequential: true })
    }
}

/// Writes.
impl Core {
    pub(super) fn create(&mut self, caller: Caller, op: OpCode, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let data = body.optional_buffer()?.map(<[u8]>::to_vec);
        let acl = body.vector(Acl::decode)?;
        let flags = body.int()?;
        if op == OpCode::CreateTtl {
            let _ttl = body.long()?;
        }
        let at = self.next_stamp();

        let mode = Mode::from_flags(flags)?;
        if mode == Mode::WithTtl {
            // Apache's answer unless it is told to have nodes with a time to live.
            return Err(ErrorCode::Unimplemented.into());
        }
        if op == OpCode::CreateTtl {
            return Err(ErrorCode::BadArguments.into());
        }
        if parent_path(path).is_none() {
            return Err(ErrorCode::BadArguments.into());
        }
        let acl = self.connection(caller)?.identities.resolve(acl)?;
        let parent_acl = self.tree.parent_of(path)?.acl.clone();
        self.connection(caller)?.identities.check(&parent_acl, CREATE)?;
        // It is the operation that makes a container. The mode alone makes a plain node.
        let owner = match mode {
            _ if op == OpCode::CreateContainer => CONTAINER_OWNER,
            Mode::Ephemeral { .. } => caller.session,
            _ => 0,
        };
        let new = NewNode { data, acl, owner, sequential: mode.is_sequential() };
        let path = self.tree.create(path, new, at)?;
        self.node_created(&path);

        let mut reply = Writer::new();
        reply.string(&path);
        if op != OpCode::Create {
            self.tree.get(&path)?.stat().encode(&mut reply);
        }
        Ok(reply)
    }

    pub(super) fn delete(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let version = body.int()?;
        let at = self.next_stamp();

        if is_permanent(path) {
            return Err(ErrorCode::BadArguments.into());
        }
        let parent_acl = self.tree.parent_of(path)?.acl.clone();
        self.connection(caller)?.identities.check(&parent_acl, DELETE)?;
        check_version(version, self.tree.get(path)?.stat().version)?;
        let acl = self.tree.delete(path, at)?;
        self.node_deleted(path, &acl);
        Ok(Writer::new())
    }

    pub(super) fn set_data(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let data = body.optional_buffer()?.map(<[u8]>::to_vec);
        let version = body.int()?;
        let at = self.next_stamp();

        self.check_existing(caller, path, WRITE)?;
        check_version(version, self.tree.get(path)?.stat().version)?;
        let stat = self.tree.set_data(path, data, at)?;
        self.data_changed(path);
        let mut reply = Writer::new();
        stat.encode(&mut reply);
        Ok(reply)
    }

    pub(super) fn set_acl(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let acl = body.vector(Acl::decode)?;
        let version = body.int()?;
        self.next_stamp();

        if !is_valid(path) {
            return Err(ErrorCode::BadArguments.into());
        }
        let acl = self.connection(caller)?.identities.resolve(acl)?;
        self.check_existing(caller, path, ADMIN)?;
        check_version(version, self.tree.get(path)?.stat().aversion)?;
        let stat = self.tree.set_acl(path, acl)?;
        let mut reply = Writer::new();
        stat.encode(&mut reply);
        Ok(reply)
    }

    /// For a write: an invalid path is an error of its own.
    fn check_existing(&mut self, caller: Caller, path: &str, wanted: i32) -> Result<(), Failure> {
        if !is_valid(path) {
            return Err(ErrorCode::BadArguments.into());
        }
        self.check(caller, path, wanted)
    }

    /// Whether the node is there and its list gives one of the bits in `wanted`.
    fn check(&mut self, caller: Caller, path: &str, wanted: i32) -> Result<(), Failure> {
        let acl = self.tree.get(path)?.acl.clone();
        Ok(self.connection(caller)?.identities.check(&acl, wanted)?)
    }
}

/// Reads.
impl Core {
    pub(super) fn exists(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let watch = body.bool()?;
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments.into());
        }
        // Set on a missing node too, for its creation.
        if watch {
            self.watches.add(WatchKind::Data, path, caller.connection);
        }
        let mut reply = Writer::new();
        self.tree.get(path)?.stat().encode(&mut reply);
        Ok(reply)
    }

    pub(super) fn get_data(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let watch = body.bool()?;
        self.check(caller, path, READ)?;
        if watch {
            self.watches.add(WatchKind::Data, path, caller.connection);
        }
        let node = self.tree.get(path)?;
        let mut reply = Writer::new();
        reply.optional_buffer(node.data.as_deref());
        node.stat().encode(&mut reply);
        Ok(reply)
    }

    pub(super) fn get_children(
        &mut self,
        caller: Caller,
        op: OpCode,
        body: &mut Reader<'_>,
    ) -> Result<Writer, Failure> {
        let path = body.string()?;
        let watch = body.bool()?;
        self.check(caller, path, READ)?;
        if watch {
            self.watches.add(WatchKind::Child, path, caller.connection);
        }
        let node = self.tree.get(path)?;
        let mut reply = Writer::new();
        reply.vector(node.children(), |reply, name| {
            reply.string(name);
        });
        if op == OpCode::GetChildren2 {
            node.stat().encode(&mut reply);
        }
        Ok(reply)
    }

    pub(super) fn get_acl(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        self.check(caller, path, READ | ADMIN)?;
        let node = self.tree.get(path)?;
        let (acl, stat) = (node.acl.clone(), node.stat());
        let shown = match self.connection(caller)?.identities.check(&acl, ADMIN) {
            Ok(()) => acl,
            Err(_) => without_secrets(&acl),
        };
        let mut reply = Writer::new();
        reply.vector(&shown, |reply, entry| entry.encode(reply));
        stat.encode(&mut reply);
        Ok(reply)
    }

    /// One server is always in step with itself.
    pub(super) fn sync(&self, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let mut reply = Writer::new();
        reply.string(body.string()?);
        Ok(reply)
    }
}

/// Watches that are set, looked for or taken off by requests of their own.
impl Core {
    /// A client that was away names its watches: those that would have fired fire now.
    pub(super) fn set_watches(&mut self, caller: Caller, op: OpCode, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        fn paths<'a>(body: &mut Reader<'a>) -> Result<Vec<&'a str>, DecodeError> {
            body.vector(Reader::string)
        }
        let seen = body.long()?;
        let (data, exists, child) = (paths(body)?, paths(body)?, paths(body)?);
        if op == OpCode::SetWatches2 {
            let (persistent, recursive) = (paths(body)?, paths(body)?);
            if !persistent.is_empty() || !recursive.is_empty() {
                return Err(ErrorCode::Unimplemented.into());
            }
        }
        let stat = |core: &Self, path: &str| core.tree.get(path).map(|node| node.stat()).ok();
        for path in data {
            let event = match stat(self, path) {
                None => Some(EventKind::NodeDeleted),
                Some(stat) => (stat.mzxid > seen).then_some(EventKind::NodeDataChanged),
            };
            self.fire_or_set(caller, WatchKind::Data, path, event);
        }
        for path in exists {
            let event = stat(self, path).map(|_| EventKind::NodeCreated);
            self.fire_or_set(caller, WatchKind::Data, path, event);
        }
        for path in child {
            let event = match stat(self, path) {
                None => Some(EventKind::NodeDeleted),
                Some(stat) => (stat.pzxid > seen).then_some(EventKind::NodeChildrenChanged),
            };
            self.fire_or_set(caller, WatchKind::Child, path, event);
        }
        Ok(Writer::new())
    }

    fn fire_or_set(&mut self, caller: Caller, kind: WatchKind, path: &str, event: Option<EventKind>) {
        match event {
            Some(event) => self.send_event(caller.connection, event, path),
            None => self.watches.add(kind, path, caller.connection),
        }
    }

    /// `checkWatches` and `removeWatches`.
    pub(super) fn find_watches(
        &mut self,
        caller: Caller,
        op: OpCode,
        body: &mut Reader<'_>,
    ) -> Result<Writer, Failure> {
        let path = body.string()?;
        let kinds: &[WatchKind] = match body.int()? {
            1 => &[WatchKind::Child],
            2 => &[WatchKind::Data],
            3 => &[WatchKind::Child, WatchKind::Data],
            _ => return Err(ErrorCode::MarshallingError.into()),
        };
        let mut found = false;
        for kind in kinds {
            found |= if op == OpCode::RemoveWatches {
                self.watches.remove(*kind, path, caller.connection)
            } else {
                self.watches.contains(*kind, path, caller.connection)
            };
        }
        if found { Ok(Writer::new()) } else { Err(ErrorCode::NoWatcher.into()) }
    }
}

fn check_version(wanted: i32, actual: i32) -> Result<(), ErrorCode> {
    if wanted == ANY_VERSION || wanted == actual { Ok(()) } else { Err(ErrorCode::BadVersion) }
}
