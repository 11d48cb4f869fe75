//! Numbers with a meaning: operations, errors and events.

macro_rules! op_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// What a request asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum OpCode {
            $($(#[$doc])* $variant,)*
            /// A number without a name here.
            Unknown(i32),
        }

        impl OpCode {
            /// The operation with this number on the wire.
            #[must_use]
            pub const fn from_code(code: i32) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    unknown => Self::Unknown(unknown),
                }
            }

            /// Its number on the wire.
            #[must_use]
            pub const fn code(self) -> i32 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Its name in Apache's `ZooDefs.OpCode`.
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
    /// Create a node; the reply is its path.
    Create = 1, "create";
    /// Delete a node.
    Delete = 2, "delete";
    /// Read a node's `Stat`.
    Exists = 3, "exists";
    /// Read a node's data.
    GetData = 4, "getData";
    /// Replace a node's data.
    SetData = 5, "setData";
    /// Read a node's access list.
    GetAcl = 6, "getACL";
    /// Replace a node's access list.
    SetAcl = 7, "setACL";
    /// List a node's children.
    GetChildren = 8, "getChildren";
    /// Wait until the server has caught up with the leader.
    Sync = 9, "sync";
    /// Keep the session alive.
    Ping = 11, "ping";
    /// List a node's children; the reply has the `Stat` as well.
    GetChildren2 = 12, "getChildren2";
    /// Check a node's version, inside a multi.
    Check = 13, "check";
    /// Several writes at once.
    Multi = 14, "multi";
    /// Create a node; the reply is its path and `Stat`.
    Create2 = 15, "create2";
    /// Change the ensemble's members.
    Reconfig = 16, "reconfig";
    /// Ask whether a watch is set.
    CheckWatches = 17, "checkWatches";
    /// Take watches off a path.
    RemoveWatches = 18, "removeWatches";
    /// Create a container.
    CreateContainer = 19, "createContainer";
    /// Delete an empty container; only the server itself asks for it.
    DeleteContainer = 20, "deleteContainer";
    /// Create a node with a time to live.
    CreateTtl = 21, "createTTL";
    /// Several reads at once.
    MultiRead = 22, "multiRead";
    /// Add credentials to the connection.
    Auth = 100, "auth";
    /// Set watches again after a reconnect.
    SetWatches = 101, "setWatches";
    /// One step of a SASL login.
    Sasl = 102, "sasl";
    /// List the session's ephemeral nodes.
    GetEphemerals = 103, "getEphemerals";
    /// Count the nodes below a node.
    GetAllChildrenNumber = 104, "getAllChildrenNumber";
    /// Set watches again after a reconnect, persistent ones included.
    SetWatches2 = 105, "setWatches2";
    /// Add a persistent watch.
    AddWatch = 106, "addWatch";
    /// Ask who the connection is authenticated as.
    WhoAmI = 107, "whoAmI";
    /// Begin a session; never in a request, but in the server's request log.
    CreateSession = -10, "createSession";
    /// End the session.
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
        /// Why a request failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $variant = $code,)*
        }

        impl ErrorCode {
            /// The error with this number on the wire, if it is a known one.
            #[must_use]
            pub const fn from_code(code: i32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its name here, which is that of Apache's `KeeperException.Code` in other letters.
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
    /// Something went wrong inside the server.
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
    /// The node does not exist.
    NoNode = -101;
    /// The connection may not do this.
    NoAuth = -102;
    /// The node's version is another one.
    BadVersion = -103;
    /// An ephemeral node cannot have children.
    NoChildrenForEphemerals = -108;
    /// The node exists already.
    NodeExists = -110;
    /// The node has children.
    NotEmpty = -111;
    /// The session has ended.
    SessionExpired = -112;
    /// The access list is not valid.
    InvalidAcl = -114;
    /// The credentials were refused.
    AuthFailed = -115;
    /// The session is on another connection now.
    SessionMoved = -118;
    /// The server is read-only.
    NotReadOnly = -119;
    /// There is no such watch.
    NoWatcher = -121;
    /// The ensemble's members cannot be changed by request.
    ReconfigDisabled = -123;
    /// The server requires a login by SASL and has closed the session, which had none.
    SessionClosedRequireSaslAuth = -124;
}

impl ErrorCode {
    /// Its number on the wire.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// What happened to a watched node.
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
