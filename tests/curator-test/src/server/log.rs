//! The requests of clients, for tests.

use std::collections::VecDeque;
use std::time::Duration;

use crate::wire::{OpCode, Reader};

/// The number of requests that are kept.
const CAPACITY: usize = 1_000_000;

/// One request that a server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedRequest {
    /// The session of the request.
    pub session_id: i64,
    /// The operation. A connect shows as [`OpCode::CreateSession`].
    pub op: OpCode,
    /// The path in the request, without the number of a sequential node.
    pub path: Option<String>,
    /// The error in the reply, an [`ErrorCode`](crate::wire::ErrorCode); 0 is success.
    pub error: i32,
}

/// The bytes that a server has exchanged with its clients, in all frames of all connections: connects, requests,
/// replies, events and pings.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The bytes from the clients.
    pub received: u64,
    /// The bytes to the clients.
    pub sent: u64,
}

/// The packets of a server or of one connection, in frames. The four-letter words report them.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Packets {
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// The newest request of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    /// Apache's name of the operation.
    pub(super) op: &'static str,
    /// The number that the client gave to its newest request that is not a ping.
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) at: Duration,
}

impl Last {
    /// Before the first request, as Apache reports it.
    pub(super) const NONE: Self = Self { op: "null", xid: 0, zxid: 0, at: Duration::ZERO };
    /// After a reset.
    pub(super) const RESET: Self = Self { op: NO_NAME, xid: -1, zxid: -1, at: Duration::ZERO };
}

const NO_NAME: &str = "NA";

/// Returns Apache's name of an operation in `cons`.
pub(super) const fn short_name(op: OpCode) -> &'static str {
    match op {
        OpCode::CreateSession => "SESS",
        OpCode::Ping => "PING",
        OpCode::Multi => "MULT",
        OpCode::MultiRead => "MLTR",
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => "CREA",
        OpCode::Delete | OpCode::DeleteContainer => "DELE",
        OpCode::SetData => "SETD",
        OpCode::Reconfig => "RECO",
        OpCode::SetAcl => "SETA",
        OpCode::CloseSession => "CLOS",
        OpCode::Sync => "SYNC",
        OpCode::Check => "CHEC",
        OpCode::Exists => "EXIS",
        OpCode::GetData => "GETD",
        OpCode::SetWatches => "SETW",
        OpCode::SetWatches2 => "STW2",
        OpCode::AddWatch => "ADDW",
        OpCode::GetAcl => "GETA",
        OpCode::GetChildren | OpCode::GetChildren2 => "GETC",
        OpCode::GetAllChildrenNumber => "GETACN",
        OpCode::CheckWatches => "CHKW",
        OpCode::RemoveWatches => "REMW",
        OpCode::WhoAmI => "HOMI",
        OpCode::GetEphemerals => "GETE",
        OpCode::Auth | OpCode::Sasl | OpCode::Unknown(_) => NO_NAME,
    }
}

/// The newest requests.
#[derive(Debug, Default, Clone)]
pub(super) struct RequestLog {
    requests: VecDeque<LoggedRequest>,
}

impl RequestLog {
    pub(super) fn push(&mut self, request: LoggedRequest) {
        if self.requests.len() == CAPACITY {
            self.requests.pop_front();
        }
        self.requests.push_back(request);
    }

    pub(super) fn to_vec(&self) -> Vec<LoggedRequest> {
        self.requests.iter().cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
    }
}

/// Returns the path in a request's body, for operations that start with one.
pub(super) fn path_of(op: OpCode, body: &[u8]) -> Option<String> {
    use OpCode::{
        AddWatch, Check, CheckWatches, Create, Create2, CreateContainer, CreateTtl, Delete, Exists, GetAcl,
        GetAllChildrenNumber, GetChildren, GetChildren2, GetData, GetEphemerals, RemoveWatches, SetAcl, SetData, Sync,
    };
    match op {
        AddWatch | Check | CheckWatches | Create | Create2 | CreateContainer | CreateTtl | Delete | Exists | GetAcl
        | GetAllChildrenNumber | GetChildren | GetChildren2 | GetData | GetEphemerals | RemoveWatches | SetAcl
        | SetData | Sync => Reader::new(body).string().ok().map(str::to_owned),
        _ => None,
    }
}
