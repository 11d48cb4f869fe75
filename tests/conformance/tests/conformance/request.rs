//! Requests, and replies as text.

use std::fmt::Write as _;

use curator_test::wire::{Acl, DecodeError, ErrorCode, OpCode, Reader, Stat, Writer};

use crate::versions::Version;

/// A null string: as a path, a scheme, an id or credentials.
pub(crate) const NULL: &str = "null";

/// One request. A path is put behind the root of the test, except after a `!` and for [`NULL`].
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Create(OpCode, &'static str, Vec<Acl>, i32),
    CreateTtl(&'static str, i32, i64),
    Delete(&'static str, i32),
    SetData(&'static str, Option<&'static [u8]>, i32),
    SetAcl(&'static str, Vec<Acl>, i32),
    Check(&'static str, i32),
    /// `exists`, `getData`, `getChildren` or `getChildren2`.
    Read(OpCode, &'static str, bool),
    /// `getACL`, `sync`, `getAllChildrenNumber` or `getEphemerals`.
    Path(OpCode, &'static str),
    Multi(OpCode, Vec<Self>),
    AddWatch(&'static str, i32),
    /// `checkWatches` or `removeWatches`.
    Watches(OpCode, &'static str, i32),
    /// Data, exists, child, persistent and recursive watches.
    SetWatches(OpCode, [Vec<&'static str>; 5]),
    Auth(&'static str, &'static str),
    /// Any body.
    Raw(OpCode, &'static [u8]),
}

use Request::*;

pub(crate) fn open() -> Vec<Acl> {
    vec![Acl::open()]
}

pub(crate) fn create(path: &'static str, flags: i32) -> Request {
    Create(OpCode::Create, path, open(), flags)
}

pub(crate) fn create2(path: &'static str, flags: i32) -> Request {
    Create(OpCode::Create2, path, open(), flags)
}

pub(crate) fn set(path: &'static str, version: i32) -> Request {
    SetData(path, Some(b"new"), version)
}

pub(crate) fn exists(path: &'static str) -> Request {
    Read(OpCode::Exists, path, false)
}

pub(crate) fn get(path: &'static str) -> Request {
    Read(OpCode::GetData, path, false)
}

pub(crate) fn watch_exists(path: &'static str) -> Request {
    Read(OpCode::Exists, path, true)
}

pub(crate) fn watch_data(path: &'static str) -> Request {
    Read(OpCode::GetData, path, true)
}

pub(crate) fn watch_children(path: &'static str) -> Request {
    Read(OpCode::GetChildren2, path, true)
}

pub(crate) fn multi<const N: usize>(parts: [Request; N]) -> Request {
    Multi(OpCode::Multi, parts.into())
}

impl Request {
    pub(crate) fn op(&self) -> OpCode {
        match self {
            Create(op, ..)
            | Read(op, ..)
            | Path(op, _)
            | Multi(op, _)
            | Watches(op, ..)
            | SetWatches(op, _)
            | Raw(op, _) => *op,
            CreateTtl(..) => OpCode::CreateTtl,
            Delete(..) => OpCode::Delete,
            SetData(..) => OpCode::SetData,
            SetAcl(..) => OpCode::SetAcl,
            Check(..) => OpCode::Check,
            AddWatch(..) => OpCode::AddWatch,
            Auth(..) => OpCode::Auth,
        }
    }

    /// `seen` is the newest transaction that the client says it knows.
    pub(crate) fn encode(&self, root: &str, seen: i64, to: &mut Writer) {
        let full = |path: &str| match path.strip_prefix('!') {
            Some(raw) => raw.to_owned(),
            None if path == NULL => path.to_owned(),
            None => format!("{root}{path}"),
        };
        let acls = |to: &mut Writer, acl: &[Acl]| {
            to.vector(acl, |to, entry| {
                text(to.int(entry.perms), &entry.scheme);
                text(to, &entry.id);
            });
        };
        match self {
            Create(_, path, acl, flags) => {
                text(to, &full(path)).buffer(b"data");
                acls(to, acl);
                to.int(*flags);
            }
            CreateTtl(path, flags, ttl) => {
                text(to, &full(path)).buffer(b"data");
                acls(to, &open());
                to.int(*flags).long(*ttl);
            }
            Delete(path, version) | Check(path, version) => {
                text(to, &full(path)).int(*version);
            }
            SetData(path, data, version) => {
                text(to, &full(path)).optional_buffer(*data).int(*version);
            }
            SetAcl(path, acl, version) => {
                text(to, &full(path));
                acls(to, acl);
                to.int(*version);
            }
            Read(_, path, watch) => {
                text(to, &full(path)).bool(*watch);
            }
            Path(_, path) => {
                text(to, &full(path));
            }
            Multi(_, parts) => {
                for part in parts {
                    to.int(part.op().code()).bool(false).int(-1);
                    part.encode(root, seen, to);
                }
                to.int(-1).bool(true).int(-1);
            }
            AddWatch(path, number) | Watches(_, path, number) => {
                text(to, &full(path)).int(*number);
            }
            SetWatches(op, lists) => {
                to.long(seen);
                let count = if *op == OpCode::SetWatches2 { 5 } else { 3 };
                for list in &lists[..count] {
                    to.vector(list, |to, path| {
                        text(to, &full(path));
                    });
                }
            }
            Auth(scheme, secret) => {
                text(to.int(0), scheme);
                text(to, secret);
            }
            Raw(_, body) => {
                to.raw(body);
            }
        }
    }

    /// The body of a reply without an error, as text.
    pub(crate) fn show_reply(&self, body: &[u8], version: Version) -> String {
        let mut reader = Reader::new(body);
        let mut text = String::new();
        if let Err(error) = show(self.op(), &mut reader, &mut text, version) {
            let _ = write!(text, " then {error}");
        }
        if !reader.is_empty() {
            let _ = write!(text, " then {} bytes", reader.rest().len());
        }
        text
    }
}

fn text<'a>(to: &'a mut Writer, text: &str) -> &'a mut Writer {
    if text == NULL { to.null() } else { to.string(text) }
}

pub(crate) fn show_error(error: i32) -> String {
    ErrorCode::from_code(error).map_or_else(|| format!("error {error}"), |code| format!("{code:?}"))
}

fn show(op: OpCode, body: &mut Reader<'_>, text: &mut String, version: Version) -> Result<(), DecodeError> {
    match op {
        OpCode::Create | OpCode::Sync => text.push_str(body.string()?),
        OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            text.push_str(body.string()?);
            show_stat(body, text)?;
        }
        OpCode::SetData | OpCode::SetAcl | OpCode::Exists => show_stat(body, text)?,
        OpCode::GetData => {
            let _ = write!(text, "{:?}", body.optional_buffer()?.map(String::from_utf8_lossy));
            show_stat(body, text)?;
        }
        OpCode::GetChildren | OpCode::GetChildren2 | OpCode::GetEphemerals => {
            let mut names = body.vector(Reader::string)?;
            names.sort_unstable();
            let _ = write!(text, "{names:?}");
            if op == OpCode::GetChildren2 {
                show_stat(body, text)?;
            }
        }
        OpCode::GetAcl => {
            // Apache puts the users of an `auth` entry in any order.
            let mut list = body.vector(Acl::decode)?;
            list.sort_by_key(|acl| (acl.scheme.clone(), acl.id.clone(), acl.perms));
            for acl in list {
                let _ = write!(text, "{}:{}:{} ", acl.scheme, acl.id, acl.perms);
            }
            show_stat(body, text)?;
        }
        OpCode::GetAllChildrenNumber | OpCode::AddWatch => {
            let _ = write!(text, "{}", body.int()?);
        }
        OpCode::WhoAmI => {
            let mut users = body.vector(|body| Ok((body.string()?, body.string()?)))?;
            users.sort_unstable();
            let _ = write!(text, "{users:?}");
        }
        OpCode::Multi | OpCode::MultiRead => loop {
            let (mut kind, is_end, error) = (body.int()?, body.bool()?, body.int()?);
            let has_stat =
                [OpCode::Create2, OpCode::CreateContainer, OpCode::CreateTtl].contains(&OpCode::from_code(kind));
            let shows_stat = has_stat && version.tells_stats_in_a_multi();
            kind = if shows_stat { OpCode::Create.code() } else { kind };
            let _ = write!(text, " [{kind} {error}");
            if is_end {
                text.push(']');
                break;
            }
            if kind == -1 {
                let _ = write!(text, " {}", show_error(body.int()?));
            } else {
                text.push(' ');
                // Deletes and checks have no body.
                show(OpCode::from_code(kind), body, text, version)?;
                if shows_stat {
                    Stat::decode(body)?;
                }
            }
            text.push(']');
        },
        _ => {}
    }
    Ok(())
}

/// Transactions and sessions are marked, to be numbered later.
fn show_stat(body: &mut Reader<'_>, text: &mut String) -> Result<(), DecodeError> {
    let stat = Stat::decode(body)?;
    let _ = write!(
        text,
        " v{} cv{} av{} length {} children {} owner <s{}> c<z{}> m<z{}> p<z{}>",
        stat.version,
        stat.cversion,
        stat.aversion,
        stat.data_length,
        stat.num_children,
        stat.ephemeral_owner,
        stat.czxid,
        stat.mzxid,
        stat.pzxid,
    );
    Ok(())
}
