//! Numbers with a meaning: operations, errors and events.

macro_rules! op_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// The operation of a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum OpCode {
            $($(#[$doc])* $variant,)*
            /// A number without a name here.
            Unknown(i32),
        }

        impl OpCode {
            /// Returns the operation with this number on the wire.
            #[must_use]
            pub const fn from_code(code: i32) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    unknown => Self::Unknown(unknown),
                }
            }

            /// Returns its number on the wire.
            #[must_use]
            pub const fn code(self) -> i32 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Returns its name in Apache's `ZooDefs.OpCode`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "unknown",
                }
            }
        }
    };
}

op_codes! {
    /// Creates a node; the reply is its path.
    Create = 1, "create";
    /// Deletes a node.
    Delete = 2, "delete";
    /// Reads a node's `Stat`.
    Exists = 3, "exists";
    /// Reads a node's data.
    GetData = 4, "getData";
    /// Replaces a node's data.
    SetData = 5, "setData";
    /// Reads a node's access list.
    GetAcl = 6, "getACL";
    /// Replaces a node's access list.
    SetAcl = 7, "setACL";
    /// Lists a node's children.
    GetChildren = 8, "getChildren";
    /// Waits until the server has caught up with the leader.
    Sync = 9, "sync";
    /// Keeps the session alive.
    Ping = 11, "ping";
    /// Lists a node's children; the reply has the `Stat` as well.
    GetChildren2 = 12, "getChildren2";
    /// Checks a node's version, inside a multi.
    Check = 13, "check";
    /// Does several writes at once.
    Multi = 14, "multi";
    /// Creates a node; the reply is its path and `Stat`.
    Create2 = 15, "create2";
    /// Changes the ensemble's members.
    Reconfig = 16, "reconfig";
    /// Checks that a watch is set.
    CheckWatches = 17, "checkWatches";
    /// Removes watches from a path.
    RemoveWatches = 18, "removeWatches";
    /// Creates a container.
    CreateContainer = 19, "createContainer";
    /// Deletes an empty container; only the server itself sends it.
    DeleteContainer = 20, "deleteContainer";
    /// Creates a node with a time to live.
    CreateTtl = 21, "createTTL";
    /// Does several reads at once.
    MultiRead = 22, "multiRead";
    /// Adds credentials to the connection.
    Auth = 100, "auth";
    /// Sets watches again after a reconnect.
    SetWatches = 101, "setWatches";
    /// Does one step of a SASL login.
    Sasl = 102, "sasl";
    /// Lists the session's ephemeral nodes.
    GetEphemerals = 103, "getEphemerals";
    /// Counts the nodes below a node.
    GetAllChildrenNumber = 104, "getAllChildrenNumber";
    /// Sets watches again after a reconnect, persistent ones included.
    SetWatches2 = 105, "setWatches2";
    /// Adds a persistent watch.
    AddWatch = 106, "addWatch";
    /// Reads the identities of the connection.
    WhoAmI = 107, "whoAmI";
    /// Starts a session; never in a request, but in the server's request log.
    CreateSession = -10, "createSession";
    /// Ends the session.
    CloseSession = -11, "closeSession";
}

impl std::fmt::Display for OpCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(code) => write!(f, "unknown({code})"),
            known => f.write_str(known.name()),
        }
    }
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal;)*) => {
        /// The error of a failed request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $variant = $code,)*
        }

        impl ErrorCode {
            /// Returns the error with this number on the wire, if it is a known one.
            #[must_use]
            pub const fn from_code(code: i32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns its name here: the name in Apache's `KeeperException.Code`, spelled differently.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }
        }
    };
}

error_codes! {
    /// No error.
    Ok = 0;
    /// An internal error of the server.
    SystemError = -1;
    /// The server found itself inconsistent.
    RuntimeInconsistency = -2;
    /// The server found its data inconsistent.
    DataInconsistency = -3;
    /// The connection was lost; clients report it themselves.
    ConnectionLoss = -4;
    /// The request's body could not be read.
    MarshallingError = -5;
    /// The server does not know this operation.
    Unimplemented = -6;
    /// The operation took too long; clients report it themselves.
    OperationTimeout = -7;
    /// An argument is not valid, such as a path.
    BadArguments = -8;
    /// The session does not exist at the server.
    UnknownSession = -12;
    /// The servers of the new configuration have no quorum.
    NewConfigNoQuorum = -13;
    /// Another change of the ensemble's members has not ended.
    ReconfigInProgress = -14;
    /// The first of the codes that are not about the system: a bound, not an answer.
    ApiError = -100;
    /// The node does not exist.
    NoNode = -101;
    /// The connection may not do this.
    NoAuth = -102;
    /// The node has another version.
    BadVersion = -103;
    /// An ephemeral node cannot have children.
    NoChildrenForEphemerals = -108;
    /// The node exists already.
    NodeExists = -110;
    /// The node has children.
    NotEmpty = -111;
    /// The session has ended.
    SessionExpired = -112;
    /// The callback is not valid; clients report it themselves.
    InvalidCallback = -113;
    /// The access list is not valid.
    InvalidAcl = -114;
    /// The credentials were refused.
    AuthFailed = -115;
    /// The session is on another connection now.
    SessionMoved = -118;
    /// The server is read-only.
    NotReadOnly = -119;
    /// A local session cannot create an ephemeral node.
    EphemeralOnLocalSession = -120;
    /// The watch does not exist.
    NoWatcher = -121;
    /// The request took longer than a client's limit; clients report it themselves.
    RequestTimeout = -122;
    /// The ensemble's members cannot be changed by request.
    ReconfigDisabled = -123;
    /// The server requires a login by SASL and has closed the session, which had none.
    SessionClosedRequireSaslAuth = -124;
    /// A quota of the node or of a parent is used up.
    QuotaExceeded = -125;
    /// The server has too many requests and did not carry this one out: try it again.
    ThrottledOp = -127;
}

impl ErrorCode {
    /// Returns its number on the wire.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// The change of a watched node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// The node was created.
    NodeCreated = 1,
    /// The node was deleted.
    NodeDeleted = 2,
    /// The node's data was written.
    NodeDataChanged = 3,
    /// A child was created or deleted.
    NodeChildrenChanged = 4,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants of `KeeperException.Code`, with their numbers.
    const JAVA: [(&str, i32); 32] = [
        ("OK", 0),
        ("SYSTEMERROR", -1),
        ("RUNTIMEINCONSISTENCY", -2),
        ("DATAINCONSISTENCY", -3),
        ("CONNECTIONLOSS", -4),
        ("MARSHALLINGERROR", -5),
        ("UNIMPLEMENTED", -6),
        ("OPERATIONTIMEOUT", -7),
        ("BADARGUMENTS", -8),
        ("NEWCONFIGNOQUORUM", -13),
        ("RECONFIGINPROGRESS", -14),
        ("UNKNOWNSESSION", -12),
        ("APIERROR", -100),
        ("NONODE", -101),
        ("NOAUTH", -102),
        ("BADVERSION", -103),
        ("NOCHILDRENFOREPHEMERALS", -108),
        ("NODEEXISTS", -110),
        ("NOTEMPTY", -111),
        ("SESSIONEXPIRED", -112),
        ("INVALIDCALLBACK", -113),
        ("INVALIDACL", -114),
        ("AUTHFAILED", -115),
        ("SESSIONMOVED", -118),
        ("NOTREADONLY", -119),
        ("EPHEMERALONLOCALSESSION", -120),
        ("NOWATCHER", -121),
        ("REQUESTTIMEOUT", -122),
        ("RECONFIGDISABLED", -123),
        ("SESSIONCLOSEDREQUIRESASLAUTH", -124),
        ("QUOTAEXCEEDED", -125),
        ("THROTTLEDOP", -127),
    ];

    #[test]
    fn error_codes_are_those_of_java() {
        for (name, code) in JAVA {
            let known = ErrorCode::from_code(code).map(|known| (known.name().to_uppercase(), known.code()));
            assert_eq!(known, Some((name.to_owned(), code)));
        }
        let known = (-200..=0).filter_map(ErrorCode::from_code).count();
        assert_eq!(known, JAVA.len(), "no other code has a name");
    }
}
