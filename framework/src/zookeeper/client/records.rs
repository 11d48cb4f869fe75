//! Requests as bytes, and bytes as responses.

use curator_wire::{DecodeError, ErrorCode, EventKind, OpCode, Reader, Writer};

use crate::error::Error;
use crate::model::{Acl, AddWatchMode, CreateMode, EventType, Identity, Permission, Stat, WatchedEvent};
use crate::zookeeper::{Done, Operation, Read, ReadDone, Request, Response};

/// `ZooDefs.AddWatchModes`.
const ADD_WATCH_PERSISTENT: i32 = 0;
const ADD_WATCH_RECURSIVE: i32 = 1;

/// The error field in the headers of a multi request.
const NO_ERROR: i32 = -1;

/// The version that matches any version.
const ANY: i32 = -1;

pub(super) fn op_of(request: &Request) -> OpCode {
    match request {
        Request::Create { mode, .. } => op_of_create(*mode),
        Request::Delete { .. } => OpCode::Delete,
        Request::Exists { .. } => OpCode::Exists,
        Request::GetData { .. } => OpCode::GetData,
        Request::SetData { .. } => OpCode::SetData,
        Request::GetChildren { .. } => OpCode::GetChildren,
        Request::GetAcl { .. } => OpCode::GetAcl,
        Request::SetAcl { .. } => OpCode::SetAcl,
        Request::GetEphemerals { .. } => OpCode::GetEphemerals,
        Request::Sync { .. } => OpCode::Sync,
        Request::Transaction { .. } => OpCode::Multi,
        Request::MultiRead { .. } => OpCode::MultiRead,
        Request::WhoAmI => OpCode::WhoAmI,
        Request::Reconfig { .. } => OpCode::Reconfig,
    }
}

fn op_of_create(mode: CreateMode) -> OpCode {
    match mode {
        CreateMode::Container => OpCode::CreateContainer,
        CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) => OpCode::CreateTtl,
        _ => OpCode::Create2,
    }
}

/// Writes the body of a request, without its watch if that is `served` otherwise.
pub(super) fn encode(request: &Request, served: bool, to: &mut Writer) {
    match request {
        Request::Create { path, data, acl, mode } => encode_create(path, data, acl, *mode, to),
        Request::Delete { path, version } => _ = to.string(path).int(version.unwrap_or(ANY)),
        Request::Exists { path, watch } | Request::GetData { path, watch } | Request::GetChildren { path, watch } => {
            _ = to.string(path).bool(*watch && !served);
        }
        Request::SetData { path, data, version } => _ = to.string(path).buffer(data).int(version.unwrap_or(ANY)),
        Request::GetAcl { path } | Request::GetEphemerals { path } | Request::Sync { path } => _ = to.string(path),
        Request::SetAcl { path, acl, version } => {
            to.string(path);
            encode_acl(acl, to);
            to.int(version.unwrap_or(ANY));
        }
        Request::Transaction { operations } => encode_operations(operations, to),
        Request::MultiRead { reads } => encode_reads(reads, to),
        Request::WhoAmI => {}
        Request::Reconfig { joining, leaving, members, version } => {
            for servers in [joining, leaving, members] {
                if servers.is_empty() {
                    to.null()
                } else {
                    to.string(&servers.join(","))
                };
            }
            to.long(version.unwrap_or(-1));
        }
    }
}

fn encode_create(path: &str, data: &[u8], acl: &[Acl], mode: CreateMode, to: &mut Writer) {
    to.string(path).buffer(data);
    encode_acl(acl, to);
    to.int(match mode {
        CreateMode::Persistent => 0,
        CreateMode::Ephemeral => 1,
        CreateMode::PersistentSequential => 2,
        CreateMode::EphemeralSequential => 3,
        CreateMode::Container => 4,
        CreateMode::PersistentWithTtl(_) => 5,
        CreateMode::PersistentSequentialWithTtl(_) => 6,
    });
    if let CreateMode::PersistentWithTtl(ttl) | CreateMode::PersistentSequentialWithTtl(ttl) = mode {
        to.long(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
    }
}

fn encode_acl(acl: &[Acl], to: &mut Writer) {
    to.vector(acl, |to, entry| {
        to.int(i32::try_from(entry.permissions.bits()).unwrap_or_default()).string(&entry.scheme).string(&entry.id);
    });
}

fn encode_operations(operations: &[Operation], to: &mut Writer) {
    for operation in operations {
        let op = match operation {
            Operation::Create { mode, .. } => op_of_create(*mode),
            Operation::Delete { .. } => OpCode::Delete,
            Operation::SetData { .. } => OpCode::SetData,
            Operation::Check { .. } => OpCode::Check,
        };
        to.int(op.code()).bool(false).int(NO_ERROR);
        match operation {
            Operation::Create { path, data, acl, mode } => encode_create(path, data, acl, *mode, to),
            Operation::Delete { path, version } | Operation::Check { path, version } => {
                to.string(path).int(version.unwrap_or(ANY));
            }
            Operation::SetData { path, data, version } => {
                to.string(path).buffer(data).int(version.unwrap_or(ANY));
            }
        }
    }
    to.int(-1).bool(true).int(NO_ERROR);
}

fn encode_reads(reads: &[Read], to: &mut Writer) {
    for read in reads {
        let op = match read {
            Read::GetData { .. } => OpCode::GetData,
            Read::GetChildren { .. } => OpCode::GetChildren,
        };
        to.int(op.code()).bool(false).int(NO_ERROR).string(read.path()).bool(false);
    }
    to.int(-1).bool(true).int(NO_ERROR);
}

pub(super) fn encode_add_watch(path: &str, mode: AddWatchMode, to: &mut Writer) {
    to.string(path).int(match mode {
        AddWatchMode::Persistent => ADD_WATCH_PERSISTENT,
        AddWatchMode::PersistentRecursive => ADD_WATCH_RECURSIVE,
    });
}

/// Reads the body of a reply without an error in its header. A failed transaction has none there either.
///
/// # Errors
///
/// A text that says what is wrong with the body: bytes may be left over, or a created node may have another path.
pub(super) fn decode(request: &Request, from: &mut Reader<'_>) -> Result<Result<Response, Error>, String> {
    let response = decode_body(request, from).map_err(|error| error.to_string())?;
    if !from.is_empty() {
        return Err(format!("{} bytes are left over", from.rest().len()));
    }
    if let (Request::Create { path, mode, .. }, Ok(Response::Created { path: created, .. })) = (request, &response) {
        let is_asked = if mode.is_sequential() { created.starts_with(&**path) } else { created == path };
        if !is_asked {
            return Err(format!("it names {created:?}"));
        }
    }
    Ok(response)
}

fn decode_body(request: &Request, from: &mut Reader<'_>) -> Result<Result<Response, Error>, DecodeError> {
    Ok(Ok(match request {
        Request::Create { .. } => Response::Created { path: from.string()?.into(), stat: decode_stat(from)? },
        Request::Delete { .. } => Response::Deleted,
        Request::Exists { .. } => Response::Exists(Some(decode_stat(from)?)),
        Request::GetData { .. } | Request::Reconfig { .. } => {
            let data = from.buffer()?.to_vec();
            Response::Data(data, decode_stat(from)?)
        }
        Request::SetData { .. } | Request::SetAcl { .. } => Response::Stat(decode_stat(from)?),
        Request::GetChildren { .. } => Response::Children(from.vector(|from| from.string().map(ToOwned::to_owned))?),
        Request::GetEphemerals { .. } => {
            Response::Ephemerals(from.vector(|from| from.string().map(ToOwned::to_owned))?)
        }
        Request::GetAcl { .. } => Response::Acl(decode_acl(from)?, decode_stat(from)?),
        Request::Sync { .. } => {
            from.string()?;
            Response::Synced
        }
        Request::Transaction { operations } => return decode_transaction(operations, from),
        Request::MultiRead { reads } => Response::Reads(decode_reads(reads.len(), from)?),
        Request::WhoAmI => Response::Identities(from.vector(|from| {
            let (scheme, user) = (from.string()?.to_owned(), from.optional_string()?.unwrap_or_default().to_owned());
            Ok(Identity { scheme, user })
        })?),
    }))
}

/// Returns the outcome of a request from the error in its reply's header.
pub(super) fn decode_error(request: &Request, code: i32) -> Result<Response, Error> {
    match (ErrorCode::from_code(code), request) {
        (Some(ErrorCode::NoNode), Request::Exists { .. }) => Ok(Response::Exists(None)),
        _ => Err(Error::of_code(request.path(), code, request.needed(), || request.to_string())),
    }
}

/// Reads one result of a transaction: the operation's effect or its error code, `None` at the end of the results.
fn decode_result(from: &mut Reader<'_>) -> Result<Option<Result<Done, i32>>, DecodeError> {
    let (op, done) = (OpCode::from_code(from.int()?), from.bool()?);
    from.int()?;
    if done {
        return Ok(None);
    }
    Ok(Some(match op {
        OpCode::Create => Ok(Done::Created { path: from.string()?.to_owned(), stat: Stat::default() }),
        OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            Ok(Done::Created { path: from.string()?.to_owned(), stat: decode_stat(from)? })
        }
        OpCode::SetData => Ok(Done::Set(decode_stat(from)?)),
        OpCode::Delete => Ok(Done::Deleted),
        OpCode::Check => Ok(Done::Checked),
        _ => Err(from.int()?),
    }))
}

/// Reads the results of a transaction, one for each operation. If it failed, operations before the failed one have the
/// error code 0, those behind it another one.
fn decode_transaction(operations: &[Operation], from: &mut Reader<'_>) -> Result<Result<Response, Error>, DecodeError> {
    let (mut all, mut failed) = (Vec::new(), None);
    for (index, operation) in operations.iter().enumerate() {
        match decode_result(from)? {
            None => return Err(DecodeError::Truncated { needed: operations.len(), available: index }),
            Some(Ok(done)) => all.push(done),
            Some(Err(0)) => {}
            Some(Err(code)) => _ = failed.get_or_insert((index, operation, code)),
        }
    }
    let is_ended = decode_result(from)?.is_none();
    if let (Some((index, operation, code)), true) = (failed, is_ended) {
        let cause = Error::of_code(operation.path(), code, operation.needed(), || operation.to_string());
        let operation = operation.to_string().into();
        return Ok(Err(Error::Transaction { index, operation, cause: Box::new(cause) }));
    }
    if all.len() < operations.len() || !is_ended {
        return Err(DecodeError::Truncated { needed: operations.len(), available: all.len() });
    }
    Ok(Ok(Response::Done(all)))
}

/// Reads the results of several reads. An error is the result of its read alone.
fn decode_reads(count: usize, from: &mut Reader<'_>) -> Result<Vec<ReadDone>, DecodeError> {
    let mut all = Vec::new();
    loop {
        let (op, is_end) = (OpCode::from_code(from.int()?), from.bool()?);
        from.int()?;
        if is_end != (all.len() == count) {
            return Err(DecodeError::Truncated { needed: count, available: all.len() });
        }
        if is_end {
            return Ok(all);
        }
        all.push(match op {
            OpCode::GetData => {
                let data = from.buffer()?.to_vec();
                ReadDone::Data(data, decode_stat(from)?)
            }
            OpCode::GetChildren => ReadDone::Children(from.vector(|from| from.string().map(ToOwned::to_owned))?),
            _ => ReadDone::Failed(from.int()?),
        });
    }
}

fn decode_acl(from: &mut Reader<'_>) -> Result<Vec<Acl>, DecodeError> {
    from.vector(|from| {
        let permissions = Permission::from_bits(u32::try_from(from.int()?).unwrap_or_default());
        Ok(Acl::new(permissions, from.string()?.to_owned(), from.string()?.to_owned()))
    })
}

fn decode_stat(from: &mut Reader<'_>) -> Result<Stat, DecodeError> {
    curator_wire::Stat::decode(from).map(Stat::from)
}

/// Reads the body of a reply to `exists`.
///
/// # Errors
///
/// A text that says what is wrong with the body.
pub(super) fn decode_only_stat(from: &mut Reader<'_>) -> Result<Stat, String> {
    let stat = decode_stat(from).map_err(|error| error.to_string())?;
    if from.is_empty() { Ok(stat) } else { Err(format!("{} bytes are left over", from.rest().len())) }
}

/// Reads the event of a notification; `None` for a change of state, which a client detects by itself.
pub(super) fn decode_event(from: &mut Reader<'_>) -> Result<Option<WatchedEvent>, String> {
    let event = curator_wire::WatchEvent::decode(from).map_err(|error| error.to_string())?;
    let event_type = match event.kind {
        -1 => return Ok(None),
        kind if kind == EventKind::NodeCreated as i32 => EventType::NodeCreated,
        kind if kind == EventKind::NodeDeleted as i32 => EventType::NodeDeleted,
        kind if kind == EventKind::NodeDataChanged as i32 => EventType::NodeDataChanged,
        kind if kind == EventKind::NodeChildrenChanged as i32 => EventType::NodeChildrenChanged,
        kind => return Err(format!("unknown event type {kind}")),
    };
    Ok(Some(WatchedEvent { event_type, path: event.path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> String {
        "/a".to_owned()
    }

    fn stat(to: &mut Writer) {
        curator_wire::Stat::default().encode(to);
    }

    /// Returns each kind of request with the body of a reply.
    fn replies() -> Vec<(Request, Vec<u8>)> {
        let acl = Acl::open_unsafe;
        let mode = CreateMode::Persistent;
        let create = Operation::Create { path: path(), data: Vec::new(), acl: acl(), mode };
        let operations = vec![
            create,
            Operation::SetData { path: path(), data: Vec::new(), version: None },
            Operation::Delete { path: path(), version: None },
            Operation::Check { path: path(), version: None },
        ];
        let header = |to: &mut Writer, op: OpCode| _ = to.int(op.code()).bool(false).int(0);
        let body = |write: &dyn Fn(&mut Writer)| {
            let mut to = Writer::new();
            write(&mut to);
            to.into_bytes()
        };
        let empty = Vec::new;
        vec![
            (
                Request::Create { path: path().into(), data: Vec::new(), acl: acl(), mode },
                body(&|to| {
                    to.string("/a");
                    stat(to);
                }),
            ),
            (Request::Exists { path: path().into(), watch: true }, body(&stat)),
            (
                Request::GetData { path: path().into(), watch: true },
                body(&|to| {
                    to.buffer(b"data");
                    stat(to);
                }),
            ),
            (Request::SetData { path: path().into(), data: Vec::new(), version: None }, body(&stat)),
            (
                Request::GetChildren { path: path().into(), watch: true },
                body(&|to| _ = to.vector(["b", "c"], |to, name| _ = to.string(name))),
            ),
            (
                Request::GetEphemerals { path: path().into() },
                body(&|to| _ = to.vector(["/a/b", "/a/c"], |to, path| _ = to.string(path))),
            ),
            (
                Request::GetAcl { path: path().into() },
                body(&|to| {
                    encode_acl(&acl(), to);
                    stat(to);
                }),
            ),
            (Request::SetAcl { path: path().into(), acl: acl(), version: None }, body(&stat)),
            (Request::Sync { path: path().into() }, body(&|to| _ = to.string("/a"))),
            (Request::WhoAmI, body(&|to| _ = to.vector(["ip"], |to, scheme| _ = to.string(scheme).string("::1")))),
            (
                Request::Transaction { operations },
                body(&|to| {
                    header(to, OpCode::Create2);
                    to.string("/a");
                    stat(to);
                    header(to, OpCode::SetData);
                    stat(to);
                    header(to, OpCode::Delete);
                    header(to, OpCode::Check);
                    to.int(-1).bool(true).int(-1);
                }),
            ),
            (
                Request::MultiRead {
                    reads: vec![
                        Read::GetData { path: path() },
                        Read::GetChildren { path: path() },
                        Read::GetData { path: path() },
                    ],
                },
                body(&|to| {
                    header(to, OpCode::GetData);
                    to.buffer(b"data");
                    stat(to);
                    header(to, OpCode::GetChildren);
                    to.vector(["b", "c"], |to, name| _ = to.string(name));
                    to.int(-1).bool(false).int(ErrorCode::NoNode.code()).int(ErrorCode::NoNode.code());
                    to.int(-1).bool(true).int(-1);
                }),
            ),
            (
                Request::Reconfig { joining: empty(), leaving: empty(), members: empty(), version: None },
                body(&|to| {
                    to.buffer(b"config");
                    stat(to);
                }),
            ),
        ]
    }

    #[test]
    fn every_reply_that_is_cut_short_is_an_error() {
        for (request, body) in replies() {
            decode(&request, &mut Reader::new(&body)).unwrap().unwrap();
            for length in 0..body.len() {
                let cut = decode(&request, &mut Reader::new(&body[..length]));
                assert!(cut.is_err(), "{request} cut to {length} bytes: {cut:?}");
            }
        }
    }

    #[test]
    fn bytes_left_over_and_other_paths_are_errors() {
        for (request, mut body) in replies() {
            body.push(0);
            assert_eq!(decode(&request, &mut Reader::new(&body)).unwrap_err(), "1 bytes are left over", "{request}");
        }
        for (mode, path, is_right) in [
            (CreateMode::Persistent, "/a", true),
            (CreateMode::Persistent, "/b", false),
            (CreateMode::Persistent, "/a\u{7f}", false),
            (CreateMode::EphemeralSequential, "/a0000000001", true),
            (CreateMode::EphemeralSequential, "/b0000000001", false),
        ] {
            let request = Request::Create { path: "/a".into(), data: Vec::new(), acl: Acl::open_unsafe(), mode };
            let mut body = Writer::new();
            body.string(path);
            stat(&mut body);
            assert_eq!(decode(&request, &mut Reader::new(&body.into_bytes())).is_ok(), is_right, "{mode:?} {path}");
        }
    }

    /// Replaces every four bytes in turn, so every length and count too. The result may be an error.
    #[test]
    fn no_length_or_count_makes_a_reply_panic() {
        for (request, body) in replies() {
            for at in 0..body.len().saturating_sub(3) {
                for value in [i32::MAX, i32::MIN, -1, -2, 0, 0x7fff_ff00, 1 << 20] {
                    let mut changed = body.clone();
                    changed[at..at + 4].copy_from_slice(&value.to_be_bytes());
                    drop(decode(&request, &mut Reader::new(&changed)));
                    drop(decode_error(&request, value));
                    drop(decode_event(&mut Reader::new(&changed)));
                }
            }
        }
    }

    #[test]
    fn transaction_with_fewer_results_than_operations_is_an_error() {
        let operations = vec![Operation::Check { path: path(), version: None }; 2];
        let mut to = Writer::new();
        to.int(OpCode::Check.code()).bool(false).int(0).int(-1).bool(true).int(-1);
        let short = decode(&Request::Transaction { operations }, &mut Reader::new(&to.into_bytes()));
        assert!(short.is_err(), "{short:?}");
    }

    #[test]
    fn fewer_or_more_results_than_reads_are_an_error() {
        let reads = |count| Request::MultiRead { reads: vec![Read::GetChildren { path: path() }; count] };
        let mut to = Writer::new();
        to.int(OpCode::GetChildren.code()).bool(false).int(0).vector(["b"], |to, name| _ = to.string(name));
        to.int(-1).bool(false).int(ErrorCode::NoNode.code()).int(ErrorCode::NoNode.code());
        to.int(-1).bool(true).int(-1);
        let body = to.into_bytes();
        let both = decode(&reads(2), &mut Reader::new(&body)).unwrap().unwrap();
        let missing = ReadDone::Failed(ErrorCode::NoNode.code());
        assert_eq!(both, Response::Reads(vec![ReadDone::Children(vec!["b".to_owned()]), missing]));
        for count in [0, 1, 3] {
            assert!(decode(&reads(count), &mut Reader::new(&body)).is_err(), "{count}");
        }
    }

    #[test]
    fn failed_transaction_names_the_first_operation_that_failed() {
        let operations = ["/a", "/b", "/c"].map(|path| Operation::Delete { path: path.to_owned(), version: None });
        let mut to = Writer::new();
        for code in [0, ErrorCode::NoNode.code(), -2] {
            to.int(-1).bool(false).int(code).int(code);
        }
        to.int(-1).bool(true).int(-1);
        let request = Request::Transaction { operations: operations.to_vec() };
        let failed = decode(&request, &mut Reader::new(&to.into_bytes())).unwrap().unwrap_err();
        let Error::Transaction { index: 1, cause, .. } = failed else { panic!("{failed}") };
        assert!(matches!(*cause, Error::NoNode { path } if path == "/b"));
    }
}
