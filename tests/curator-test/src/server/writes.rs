//! The requests that write nodes, alone and as parts of a `multi`.

use super::acl::{ADMIN, CREATE, DELETE, READ, Requested, WRITE};
use super::changes::{Change, ChangeKind};
use super::core::{Caller, Core, Failure};
use super::tree::{CONTAINER_OWNER, NodeSpec, Stamp, is_permanent, is_valid, parent_path, ttl_owner};
use crate::wire::{DecodeError, ErrorCode, OpCode, Reader, Stat, Writer};

/// The version of a request that accepts any version.
const ANY_VERSION: i32 = -1;

/// The mode of a create, from the number in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) is_ephemeral: bool,
    pub(super) is_sequential: bool,
    pub(super) is_container: bool,
    pub(super) has_ttl: bool,
}

impl Mode {
    pub(super) const fn from_flags(flags: i32) -> Result<Self, ErrorCode> {
        if flags < 0 || flags > 6 {
            return Err(ErrorCode::BadArguments);
        }
        Ok(Self {
            is_ephemeral: matches!(flags, 1 | 3),
            is_sequential: matches!(flags, 2 | 3 | 6),
            is_container: flags == 4,
            has_ttl: flags > 4,
        })
    }
}

/// The kind of node that a create makes: the operation decides it, regardless of the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    Plain,
    Container,
    /// The time to live in milliseconds.
    WithTtl(i64),
}

/// A create, as requested.
#[derive(Debug)]
pub(super) struct Create {
    pub(super) path: Option<String>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) acl: Vec<Requested>,
    pub(super) flags: i32,
    pub(super) making: Making,
}

impl Create {
    /// Reads the body of one of the four operations that create.
    pub(super) fn decode(op: OpCode, body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            path: body.optional_string()?.map(str::to_owned),
            data: body.optional_buffer()?.map(<[u8]>::to_vec),
            acl: body.vector(Requested::decode)?,
            flags: body.int()?,
            making: match op {
                OpCode::CreateContainer => Making::Container,
                OpCode::CreateTtl => Making::WithTtl(body.long()?),
                _ => Making::Plain,
            },
        })
    }
}

/// One write.
#[derive(Debug)]
pub(super) enum Write {
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<Requested>,
        version: i32,
    },
    /// Writes nothing, but can fail.
    Check {
        path: String,
        version: i32,
    },
}

impl Write {
    /// Reads the body of a write.
    pub(super) fn decode(op: OpCode, body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if matches!(op, OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl) {
            return Create::decode(op, body).map(Self::Create);
        }
        // Apache takes null for an invalid path, but fails on it where it deletes.
        let path = match op {
            OpCode::Delete => body.string()?,
            _ => body.optional_string()?.unwrap_or_default(),
        };
        let path = path.to_owned();
        Ok(match op {
            OpCode::Delete => Self::Delete { path, version: body.int()? },
            OpCode::SetData => {
                let data = body.optional_buffer()?.map(<[u8]>::to_vec);
                Self::SetData { path, data, version: body.int()? }
            }
            OpCode::SetAcl => Self::SetAcl { path, acl: body.vector(Requested::decode)?, version: body.int()? },
            _ => Self::Check { path, version: body.int()? },
        })
    }
}

/// The result of a write.
#[derive(Debug)]
pub(super) enum Done {
    Created(String, Stat),
    Deleted,
    Set(Stat),
    Checked,
}

impl Core {
    /// Handles a request of one write.
    pub(super) fn write(&mut self, caller: Caller, op: OpCode, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        // A write that fails takes a transaction as well.
        let at = self.next_stamp();
        let write = Write::decode(op, body)?;
        let mut reply = Writer::new();
        match self.apply(caller, write, at)? {
            Done::Created(path, stat) => {
                reply.string(&path);
                if op != OpCode::Create {
                    stat.encode(&mut reply);
                }
            }
            Done::Set(stat) => stat.encode(&mut reply),
            Done::Deleted | Done::Checked => {}
        }
        Ok(reply)
    }

    /// Carries out one write. The watchers get their events later.
    pub(super) fn apply(&mut self, caller: Caller, write: Write, at: Stamp) -> Result<Done, Failure> {
        match write {
            Write::Create(create) => self.create(caller, create, at),
            Write::Delete { path, version } => self.delete(caller, &path, version, at),
            Write::SetData { path, data, version } => {
                self.check_existing(caller, &path, WRITE)?;
                check_version(version, self.tree.get(&path)?.stat().version)?;
                let stat = self.tree.set_data(&path, data, at)?;
                self.changed(ChangeKind::Data, &path);
                Ok(Done::Set(stat))
            }
            Write::SetAcl { path, acl, version } => {
                if !is_valid(&path) {
                    return Err(ErrorCode::BadArguments.into());
                }
                let acl = self.connection(caller)?.identities.resolve(acl)?;
                self.check_existing(caller, &path, ADMIN)?;
                check_version(version, self.tree.get(&path)?.stat().aversion)?;
                Ok(Done::Set(self.tree.set_acl(&path, acl)?))
            }
            Write::Check { path, version } => {
                self.check_existing(caller, &path, READ)?;
                check_version(version, self.tree.get(&path)?.stat().version)?;
                Ok(Done::Checked)
            }
        }
    }

    fn create(&mut self, caller: Caller, create: Create, at: Stamp) -> Result<Done, Failure> {
        let Create { path, data, acl, flags, making } = create;
        let mode = Mode::from_flags(flags)?;
        if mode.has_ttl && !self.has_extended_types() {
            return Err(ErrorCode::Unimplemented.into());
        }
        let owner = match making {
            Making::WithTtl(ttl) if mode.has_ttl => ttl_owner(ttl),
            // The mode and the operation must agree on a time to live, and on nothing else.
            Making::WithTtl(_) => None,
            _ if mode.has_ttl => None,
            Making::Container => Some(CONTAINER_OWNER),
            Making::Plain if mode.is_ephemeral => Some(caller.session),
            Making::Plain => Some(0),
        };
        let owner = owner.ok_or(ErrorCode::BadArguments)?;
        let path = path.ok_or(Failure::Unreadable)?;
        if parent_path(&path).is_none() {
            return Err(ErrorCode::BadArguments.into());
        }
        let acl = self.connection(caller)?.identities.resolve(acl)?;
        let parent_acl = self.tree.parent_of(&path)?.acl.clone();
        self.connection(caller)?.identities.check(&parent_acl, CREATE)?;
        let new = NodeSpec { data, acl, owner, sequential: mode.is_sequential };
        let path = self.tree.create(&path, new, at)?;
        self.changed(ChangeKind::Created, &path);
        let stat = self.tree.get(&path)?.stat();
        Ok(Done::Created(path, stat))
    }

    fn delete(&mut self, caller: Caller, path: &str, version: i32, at: Stamp) -> Result<Done, Failure> {
        if is_permanent(path) {
            return Err(ErrorCode::BadArguments.into());
        }
        let parent_acl = self.tree.parent_of(path)?.acl.clone();
        self.connection(caller)?.identities.check(&parent_acl, DELETE)?;
        check_version(version, self.tree.get(path)?.stat().version)?;
        self.delete_node(path, at)?;
        Ok(Done::Deleted)
    }

    /// Deletes a node, without a check of permissions.
    pub(super) fn delete_node(&mut self, path: &str, at: Stamp) -> Result<(), ErrorCode> {
        let acl = self.tree.delete(path, at)?;
        let parent_acl = self.tree.parent_of(path)?.acl.clone();
        self.note(Change { kind: ChangeKind::Deleted, path: path.to_owned(), acl, parent_acl });
        Ok(())
    }

    /// Records a change of an existing node.
    fn changed(&mut self, kind: ChangeKind, path: &str) {
        let acl = |path: Option<&str>| path.and_then(|path| self.tree.get(path).ok()).map(|node| node.acl.clone());
        let parent_acl = acl(parent_path(path)).unwrap_or_default();
        let acl = acl(Some(path)).unwrap_or_default();
        self.note(Change { kind, path: path.to_owned(), acl, parent_acl });
    }

    /// Checks a path and permissions for a write: an invalid path is an error of its own.
    fn check_existing(&mut self, caller: Caller, path: &str, wanted: i32) -> Result<(), Failure> {
        if !is_valid(path) {
            return Err(ErrorCode::BadArguments.into());
        }
        let acl = self.tree.get(path)?.acl.clone();
        Ok(self.connection(caller)?.identities.check(&acl, wanted)?)
    }
}

fn check_version(wanted: i32, actual: i32) -> Result<(), ErrorCode> {
    if wanted == ANY_VERSION || wanted == actual { Ok(()) } else { Err(ErrorCode::BadVersion) }
}
