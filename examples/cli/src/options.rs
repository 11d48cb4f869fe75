//! The command line options. Each has an environment variable.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use curator_framework::{Acl, Permission};

use crate::Failure;

/// Runs commands under locks that processes on many machines share through ZooKeeper, while it leads an election, as
/// members of groups, or together at a barrier. Reads and changes counters.
///
/// The paths are those of Apache Curator's recipes, so Java, Rust and this program share the same locks, elections,
/// groups, counters and barriers.
#[derive(Debug, Parser)]
#[command(name = "curator", version, after_help = EXIT_STATUS)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) action: Action,
}

const EXIT_STATUS: &str = "\
Exit status: that of the command, 128 + n if signal n ended it; otherwise
    1  ls, status, revoke: no such lock, no such node; leader: no candidate leads; members: the group has none;
       watch --once: the node does not exist; count: no such counter; latch: no count is set
    2  wrong options, path or connect string; revoke: not a contender's node; count, latch: the node has other data
    3  status, ls --exit-code: a contender holds the lock; barrier status: the barrier is set, or members wait;
       latch status: a count remains
   69  no connection within --connect-timeout, or it was lost while waiting
   70  another error
   74  the lock, or with elect --once the leadership, was lost, or could soon be lost; the command was stopped;
       barrier enter: the own session ended before the command
   75  the lock was not acquired, no term began in time, join: the id is taken, barrier, latch: the wait was too long,
       count --cas: another value, latch set: a count remains (see -E)
   76  count, latch set, latch down: the connection was lost, and the change may have been made
   77  not authorized, or the servers do not accept the credentials;
       ls --exit-code: no listed lock is held, but not all could be read
  126  the command cannot be executed
  127  the command was not found
  128 + n if signal n ended this program while it waited, or during ls, status, leader, members, watch, count,
       barrier, latch, revoke";

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Servers, host:port[,host:port…], optionally followed by /chroot; the variable `ZK_CONNECT` is read too [default:
    /// localhost:2181]
    #[arg(long, global = true, env = "CURATOR_CONNECT")]
    connect: Option<String>,
    /// Credentials, such as digest:user:password, or sasl:user:password for a login by SASL; may be repeated. `ps`
    /// shows them: prefer the variable or --auth-file
    #[arg(long, global = true, value_name = "SCHEME:ID", env = "CURATOR_AUTH", hide_env_values = true)]
    auth: Vec<String>,
    /// A file with credentials, one in a line, beside those of --auth
    #[arg(long, global = true, value_name = "FILE", env = "CURATOR_AUTH_FILE")]
    auth_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) tls: Tls,
    /// The session timeout: the longest time for which a lock outlives its holder [default unit: seconds]
    #[arg(long, global = true, default_value = "30s", value_parser = duration, env = "CURATOR_SESSION_TIMEOUT")]
    pub(crate) session_timeout: Duration,
    /// The longest time to wait for a connection
    #[arg(long, global = true, default_value = "5s", value_parser = duration, env = "CURATOR_CONNECT_TIMEOUT")]
    pub(crate) connect_timeout: Duration,
    /// The longest reply in bytes, with the unit K, M or G; longer ones are left out. A list of children has 4 bytes and
    /// the name for each. A large reply delays the answers that keep a lock
    #[arg(long, global = true, default_value = "4M", value_parser = bytes, env = "CURATOR_MAX_REPLY")]
    pub(crate) max_reply: usize,
}

/// The files of TLS.
#[cfg(feature = "tls")]
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Tls {
    /// Connect by TLS, and trust the server certificates that this authority signed (PEM)
    #[arg(long = "tls-ca", global = true, value_name = "FILE", env = "CURATOR_TLS_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client, for servers that ask for one (PEM)
    #[arg(long = "tls-cert", global = true, value_name = "FILE", env = "CURATOR_TLS_CERT")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long = "tls-key", global = true, value_name = "FILE", env = "CURATOR_TLS_KEY")]
    pub(crate) key: Option<PathBuf>,
}

impl Connection {
    /// Returns the servers that an option or a variable names.
    fn given(&self) -> Option<String> {
        let set = |servers: &String| !servers.is_empty();
        self.connect.clone().filter(set).or_else(|| std::env::var("ZK_CONNECT").ok().filter(set))
    }

    /// Returns `true` if neither an option nor a variable names the servers.
    pub(crate) fn is_by_default(&self) -> bool {
        self.given().is_none()
    }

    pub(crate) fn servers(&self) -> String {
        self.given().unwrap_or_else(|| "localhost:2181".to_owned())
    }

    /// Returns the chroot of the connect string, with its slash.
    pub(crate) fn chroot(&self) -> Option<String> {
        let servers = self.servers();
        servers.find('/').map(|slash| servers[slash..].to_owned()).filter(|chroot| chroot.len() > 1)
    }

    /// Returns pairs of scheme and credentials. Errors never contain their text.
    pub(crate) fn credentials(&self) -> Result<Vec<(String, String)>, String> {
        let mut pairs = Vec::new();
        for auth in self.auth.iter().filter(|auth| !auth.is_empty()) {
            pairs.push(pair(auth)?);
        }
        let Some(file) = &self.auth_file else { return Ok(pairs) };
        for (index, line) in read(file)?.lines().map(str::trim).enumerate() {
            if !line.is_empty() && !line.starts_with('#') {
                pairs.push(pair(line).map_err(|text| format!("{}, line {}: {text}", file.display(), index + 1))?);
            }
        }
        Ok(pairs)
    }
}

fn pair(auth: &str) -> Result<(String, String), String> {
    match auth.split_once(':') {
        Some((scheme, id)) if !scheme.is_empty() => Ok((scheme.to_owned(), id.to_owned())),
        _ => Err("credentials are SCHEME:ID, as digest:user:password".to_owned()),
    }
}

/// Reads a file that an option names.
pub(crate) fn read(file: &std::path::Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs a command under an exclusive lock
    #[command(override_usage = "curator lock [OPTIONS] <PATH> -- <COMMAND>...")]
    Lock(Run),
    /// Runs a command under one of N leases
    #[command(override_usage = "curator semaphore [OPTIONS] <PATH> -- <COMMAND>...")]
    Semaphore {
        /// Number of leases; all clients must give the same number
        #[arg(short = 'n', long, default_value_t = 1, value_parser = at_least_one, env = "CURATOR_LEASES")]
        leases: usize,
        #[command(flatten)]
        run: Run,
    },
    /// Runs a command under a read lock: beside other readers, without a writer
    #[command(override_usage = "curator read [OPTIONS] <PATH> -- <COMMAND>...")]
    Read(Run),
    /// Runs a command under a write lock: without readers and other writers
    #[command(override_usage = "curator write [OPTIONS] <PATH> -- <COMMAND>...")]
    Write(Run),
    /// Runs a command while this process leads an election, anew in each term
    #[command(override_usage = "curator elect [OPTIONS] <PATH> -- <COMMAND>...")]
    Elect(Elect),
    /// Registers a member of a group, while a command runs or until interrupted
    #[command(override_usage = "curator join [OPTIONS] <PATH> [-- <COMMAND>...]")]
    Join(Join),
    /// Lists holders and waiters, in the order of the queue
    Ls(Ls),
    /// Tells whether a lock is held: by which node and session, when the holder asked, and how many wait
    Status(Status),
    /// Prints the leader of an election: its id, term, node and proclaimed data
    Leader(LeaderOptions),
    /// Prints the members of a group: their ids, data and sessions
    Members(MembersOptions),
    /// Prints the nodes at and below a path, then each change, until interrupted; needs ZooKeeper 3.6
    Watch(WatchOptions),
    /// Reads or changes a counter that processes share, or prints unique numbers
    Count(crate::count::Count),
    /// Holds processes back, or lets them begin and end together
    #[command(subcommand)]
    Barrier(crate::barrier::Barrier),
    /// Counts down, and waits for the end of the count
    #[command(subcommand)]
    Latch(crate::latch::Latch),
    /// Asks the owner of a node, as `curator ls` lists it, to release the lock. Nothing is forced
    Revoke {
        /// The node's path
        node: String,
    },
    /// Shows the locks below a path on a web page, as JSON and as metrics, without changing them
    Serve(crate::serve::Serve),
    /// Prints the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the manual page of this program, or of one of its commands
    Man {
        /// The command, such as `lock` or `barrier enter` [default: the whole program]
        command: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = LS_NOTES)]
pub(crate) struct Ls {
    /// Number of leases of a semaphore; without it all its nodes are shown as `lease`, granted or not
    #[arg(short = 'n', long, value_parser = at_least_one, env = "CURATOR_LEASES")]
    pub(crate) leases: Option<usize>,
    /// List all locks at and below the path that have contenders
    #[arg(long, short, value_parser = BoolishValueParser::new(), env = "CURATOR_RECURSIVE")]
    pub(crate) recursive: bool,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    pub(crate) json: bool,
    /// Print again on each change, until interrupted; needs ZooKeeper 3.6
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_WATCH")]
    pub(crate) watch: bool,
    /// End with status 3 if a listed lock is held, and with 77 if none is, but not all could be read
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_EXIT_CODE")]
    pub(crate) exit_code: bool,
    /// The lock's path
    pub(crate) path: String,
}

const LS_NOTES: &str = "\
AGE is the time since the contender asked for the lock: ZooKeeper does not record when it was granted.

With --watch the table follows an empty line each time, and JSON is one line each time. Changes
within a tenth of a second are printed together.";

#[derive(Debug, Args)]
#[command(after_help = STATUS_NOTES)]
pub(crate) struct Status {
    /// Number of leases of a semaphore; without it all its nodes count as holders, granted or not
    #[arg(short = 'n', long, value_parser = at_least_one, env = "CURATOR_LEASES")]
    pub(crate) leases: Option<usize>,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    pub(crate) json: bool,
    /// The lock's path
    pub(crate) path: String,
}

const STATUS_NOTES: &str = "\
Exit status:
    0  free: the lock has no holder
    1  no such lock: the node does not exist, or is not a lock
    3  held: a contender holds the lock, or a lease of it
    2, 69, 70, 77  an error, as in `curator --help`

The servers delete the empty node of a free lock after a while, so both 0 and 1 mean that no contender holds it. The times
are those at which the holders asked for the lock: ZooKeeper does not record when it was granted.";

#[derive(Debug, Args)]
#[command(after_help = TIMELINE)]
pub(crate) struct Run {
    /// Give up when the lock is not acquired in this time, which includes connecting [default: never]
    #[arg(long, short = 'w', value_parser = duration, env = "CURATOR_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// Give up at once when another contender has the lock
    #[arg(long = "try", value_parser = BoolishValueParser::new(), env = "CURATOR_TRY")]
    pub(crate) once: bool,
    /// The exit status when the lock was not acquired
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    pub(crate) conflict_exit_code: u8,
    /// Stop the command when another client asks for the lock with `curator revoke`
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_REVOCABLE")]
    pub(crate) revocable: bool,
    /// Data of this contender's node, which `curator ls` shows [default: host, process id and command]
    #[arg(long, env = "CURATOR_DATA")]
    pub(crate) data: Option<String>,
    /// The lock's path
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) work: Work,
}

/// The command, and the options that each command has. A path must precede it: the command is the last argument.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// The time from SIGTERM to SIGKILL; at most T/4 [default: 5s or T/6, the shorter; T is the session timeout]
    #[arg(long, value_parser = duration, env = "CURATOR_GRACE")]
    pub(crate) grace: Option<Duration>,
    #[command(flatten)]
    pub(crate) setting: Setting,
    /// Tell the place in the queue, the holder and the grant. On a terminal a line follows after 2 s of waiting anyhow
    #[arg(long, short, value_parser = BoolishValueParser::new(), env = "CURATOR_VERBOSE")]
    pub(crate) verbose: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// The process group of the command, and the access to the nodes.
#[derive(Debug, Args)]
pub(crate) struct Setting {
    /// Leave the command in this process's group, so that it can read from the terminal; this program then stops
    /// only the command, not the processes that it started
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_FOREGROUND")]
    pub(crate) foreground: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// The access to the nodes.
#[derive(Debug, Args)]
pub(crate) struct Access {
    /// The access control list of the nodes that this program creates, parents included: open, creator (only these
    /// credentials), read-only (others may list and read), or scheme:id:cdrwa[,…] as in ZooKeeper. The default is that
    /// of Java's Curator, with credentials too: all clients of the path must be allowed to create nodes below it
    #[arg(long, default_value = "open", value_parser = access_list, env = "CURATOR_ACL")]
    pub(crate) acl: AccessList,
}

impl Work {
    /// Returns the time from SIGTERM to SIGKILL in a session with this timeout.
    pub(crate) fn grace_in(&self, session_timeout: Duration) -> Result<Duration, Failure> {
        let longest = session_timeout / 4;
        let grace = self.grace.unwrap_or_else(|| (session_timeout / 6).min(Duration::from_secs(5)));
        if grace > longest {
            let text = format!("--grace {grace:?} is more than a quarter of the session timeout: at most {longest:?}");
            return Err(Failure(2, text));
        }
        Ok(grace)
    }
}

const TIMELINE: &str = "\
The command gets CURATOR_LOCK_PATH, CURATOR_NODE, CURATOR_FENCING_TOKEN and CURATOR_DEADLINE: the time (seconds since
1970) until which the lock was certain at the start. While this program runs, the actual deadline moves on.

When the servers are silent, times count from the newest evidence that the session lives. T is the session timeout that
the servers granted, G the grace:
  3/4 T - G   SIGTERM to the command and its process group
  3/4 T       the lock counts as lost: SIGKILL
  T           the earliest moment at which another contender can acquire the lock
If the session is killed or the node is deleted, another contender may acquire the lock at once. The command then gets
SIGTERM, and SIGKILL after G. Pass the fencing token to the resource to be safe from that, and from a paused process.

INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the command. The lock is released after the command has ended. If
this program is killed with SIGKILL, Linux kills the command too, but not the processes that it started, nor a setuid
program. The server releases the lock when the session ends, at most T later.";

#[derive(Debug, Args)]
#[command(after_help = ELECT_NOTES)]
pub(crate) struct Elect {
    /// End when a term does not begin in this time, which includes connecting; after a loss it counts anew [default:
    /// never]
    #[arg(long, short = 'w', value_parser = duration, env = "CURATOR_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// The exit status when no term began in the time of --timeout
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    pub(crate) conflict_exit_code: u8,
    /// End after one term, with status 74 if leadership was lost
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_ONCE")]
    pub(crate) once: bool,
    /// Wait for this time before a term, unless the earlier leader has resigned: processes that a killed leader left
    /// running then have it to end; give it to all candidates
    #[arg(long, value_parser = duration, env = "CURATOR_DELAY")]
    pub(crate) delay: Option<Duration>,
    /// The id of this candidate, which `curator leader` shows [default: host and process id]
    #[arg(long, env = "CURATOR_ID")]
    pub(crate) id: Option<String>,
    /// Text that the leader proclaims before the command starts, such as its address; `curator leader` shows it
    #[arg(long, value_name = "TEXT", env = "CURATOR_PROCLAIM")]
    pub(crate) proclaim: Option<String>,
    /// The election's path
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) work: Work,
}

const ELECT_NOTES: &str = "\
What happens:
  the command ends by itself     the process resigns, and ends with the command's status
  leadership is or may be lost   the command is stopped; the process joins again, and runs the command anew in its next
                                 term; with --once it ends with status 74
  a signal while waiting         the process leaves the election, and ends with 128 + n
  a signal while leading         the command gets it; the process resigns when the command has ended, with its status
  no connection while waiting    the process goes on waiting; with --timeout it ends with status 69 in the end

The command gets CURATOR_LOCK_PATH, CURATOR_NODE, CURATOR_TERM, CURATOR_FENCING_TOKEN (the term too) and
CURATOR_DEADLINE: the time (seconds since 1970) until which leadership was certain at the start. While this program runs,
the actual deadline moves on. A connection that is lost and comes back in time costs nothing.

When the servers are silent, times count from the newest evidence that the session lives. T is the session timeout that
the servers granted, G the grace:
  3/4 T - G   SIGTERM to the command and its process group
  3/4 T       leadership counts as lost: SIGKILL
  T           the earliest moment at which another candidate can lead
If the session is killed or the node is deleted, another candidate may lead at once. The command then gets SIGTERM, and
SIGKILL after G. Pass the term to the resource to be safe from that, and from a paused process.

Candidates are those of LeaderLatch, in Java too. If this program is killed with SIGKILL, Linux kills the command too, but
not the processes that it started, nor a setuid program. Another candidate leads when the session ends, at most T later.";

#[derive(Debug, Args)]
#[command(after_help = LEADER_NOTES)]
pub(crate) struct LeaderOptions {
    /// Print all candidates too, in the order of the queue
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_ALL")]
    pub(crate) all: bool,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    pub(crate) json: bool,
    /// Print again on each change of the leader or of its data, until interrupted
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_WATCH")]
    pub(crate) watch: bool,
    /// The election's path
    pub(crate) path: String,
}

const LEADER_NOTES: &str = "\
Exit status:
    0  a candidate leads
    1  no leader: the election has no candidates, or does not exist, or the path is not an election
    2, 69, 70, 77  an error, as in `curator --help`

The path is that of a LeaderLatch or a LeaderSelector, in Java too. `curator ls --watch` follows all candidates.";

#[derive(Debug, Args)]
#[command(after_help = JOIN_NOTES)]
pub(crate) struct Join {
    /// End if the member is not registered within this time, which includes connecting [default: never]
    #[arg(long, short = 'w', visible_alias = "wait", value_parser = duration, env = "CURATOR_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// The exit status if another session has a member with this id at the end of --timeout
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    pub(crate) conflict_exit_code: u8,
    /// The id of the member, distinct from those of all others [default: host and process id]
    #[arg(long, env = "CURATOR_ID")]
    pub(crate) id: Option<String>,
    /// Data of the member's node, which `curator members` shows [default: the address of this host]
    #[arg(long, env = "CURATOR_DATA")]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    pub(crate) setting: Setting,
    /// The group's path
    pub(crate) path: String,
    /// The command and its arguments [default: registered until interrupted]
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

const JOIN_NOTES: &str = "\
What happens:
  the command ends by itself      the member leaves, and the process ends with the command's status
  a signal without a command      the member leaves, and the process ends with 128 + n
  a signal with a command         the command gets it; the member leaves when the command has ended, with its status
  the id is taken by a session    the process waits until that member has left; with --timeout it ends with status 75
  the registration ends           the process registers the member again; the command runs on
  no connection                   the process goes on; with --timeout it ends with status 69 if it has not yet joined

The process reports joins, waits and outages on standard error. A registration excludes nothing: for work that only one
process may do, use `curator lock` or `curator elect`. The command gets CURATOR_GROUP_PATH, CURATOR_MEMBER_ID and
CURATOR_NODE.

Members are those of GroupMember, in Java too. If this program is killed with SIGKILL, Linux kills the command too, but
not the processes that it started, nor a setuid program. The member leaves when the session ends, at most T later; T is
the session timeout. So a restart with the same --id needs a --timeout above T.";

#[derive(Debug, Args)]
#[command(after_help = MEMBERS_NOTES)]
pub(crate) struct MembersOptions {
    /// Print JSON, in one line; with --watch a line for each change
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    pub(crate) json: bool,
    /// Print a line when a member joins, changes its data or leaves, until interrupted; first one for each member
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_WATCH")]
    pub(crate) watch: bool,
    /// The group's path
    pub(crate) path: String,
}

const MEMBERS_NOTES: &str = "\
Exit status:
    0  the group has members
    1  no members: the group does not exist, or is empty, or the path is not a group
    2, 69, 70, 77  an error, as in `curator --help`

With --watch it goes on without members. After the first look it also goes on while the group cannot be read.

The path is that of a GroupMember, in Java too; for a Partition it is <path>/members. SINCE is the creation of the
member's node, on ZooKeeper's clock.";

#[derive(Debug, Args)]
#[command(after_help = WATCH_NOTES)]
pub(crate) struct WatchOptions {
    /// The number of levels below the path that are read: 0 for the node alone, 1 for its children too [default: all]
    #[arg(long, value_name = "LEVELS", env = "CURATOR_DEPTH")]
    pub(crate) depth: Option<usize>,
    /// Print JSON, a line for each node, change and state
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    pub(crate) json: bool,
    /// End behind the present nodes, with status 1 if the path does not exist
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_ONCE")]
    pub(crate) once: bool,
    /// The path of the topmost node; it may be created later
    pub(crate) path: String,
}

const WATCH_NOTES: &str = "\
Each line has a word for the node:
  present   it was there when the watch began
  created   it was created, or created again behind a line with its deletion
  changed   its data was written
  deleted   it was deleted; the line has its last data

Standard error tells when all present nodes are printed, and when the connection is lost and back. Then the changes of the
time between are printed, and only nodes that have changed are read. Values that were overwritten before they could be read
are left out. Data that is not text is shown as hexadecimal digits or as its length; JSON has all digits.

With --json the states are lines among the changes, with `state` in place of `change`:
  loading   all nodes follow; forget those before
  fresh     all nodes and changes up to the transaction `zxid` are printed
  stale     the connection is lost; later changes than `zxid` are printed when it is back";

/// An access control list.
#[derive(Debug, Clone)]
pub(crate) struct AccessList(pub(crate) Vec<Acl>);

impl AccessList {
    /// Returns `true` if an entry stands for the credentials of this client.
    pub(crate) fn names_the_creator(&self) -> bool {
        self.0.iter().any(|entry| entry.scheme == "auth")
    }
}

/// The outcome of the command line: options, or the mistake with the text that says what to do.
pub(crate) enum Parsed {
    Options(Box<Options>),
    /// The command stands in its place in the line.
    MissingDashes(String),
    Refused(clap::Error),
}

impl Options {
    pub(crate) fn from_arguments(arguments: &[OsString]) -> Parsed {
        let parse = || {
            let matches = Self::command().try_get_matches_from(arguments)?;
            let mut options = Self::from_arg_matches(&matches)?;
            if let Some((_, of_the_action)) = matches.subcommand() {
                options.action.settle(of_the_action)?;
            }
            Ok(options)
        };
        match parse() {
            Ok(options) => Parsed::Options(Box::new(options)),
            Err(error) => with_dashes(arguments, &error).map_or(Parsed::Refused(error), Parsed::MissingDashes),
        }
    }
}

impl Action {
    /// Settles options that exclude each other: one on the command line beats the variable of the other.
    fn settle(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let on_the_line = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let conflict = |text| Err(Options::command().error(ErrorKind::ArgumentConflict, text));
        match self {
            Self::Lock(run) | Self::Semaphore { run, .. } | Self::Read(run) | Self::Write(run)
                if run.once && run.timeout.is_some() =>
            {
                match (on_the_line("once"), on_the_line("timeout")) {
                    (true, false) => run.timeout = None,
                    (false, true) => run.once = false,
                    _ => return conflict("the argument '--try' cannot be used with '--timeout'"),
                }
            }
            Self::Ls(ls) if ls.recursive && ls.leases.is_some() => {
                match (on_the_line("leases"), on_the_line("recursive")) {
                    (true, true) => return conflict("the argument '--leases' cannot be used with '--recursive'"),
                    (true, false) => ls.recursive = false,
                    (false, _) => ls.leases = None,
                }
            }
            Self::Leader(leader) if leader.all && leader.watch => match (on_the_line("all"), on_the_line("watch")) {
                (true, true) => return conflict("the argument '--all' cannot be used with '--watch'"),
                (true, false) => leader.watch = false,
                (false, _) => leader.all = false,
            },
            Self::Count(count) if count.id.is_some() && count.integer => {
                if on_the_line("integer") {
                    return conflict("the argument '--id' cannot be used with '--integer'");
                }
                count.integer = false;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the line with the missing `--`, if a command stands without it.
fn with_dashes(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let words: Vec<String> = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let runs = words.iter().any(|word| {
        matches!(word.as_str(), "lock" | "semaphore" | "read" | "write" | "elect" | "join" | "hold" | "enter")
    });
    if error.kind() != ErrorKind::UnknownArgument || !runs || words.iter().any(|word| word == "--") {
        return None;
    }
    let Some(clap::error::ContextValue::String(first)) = error.get(clap::error::ContextKind::InvalidArg) else {
        return None;
    };
    let at = words.iter().rposition(|word| word == first).filter(|_| !first.starts_with('-'))?;
    let words = without_secrets(words);
    Some(format!("curator {} -- {}", words[..at].join(" "), words[at..].join(" ")))
}

/// Replaces the credentials of a line.
fn without_secrets(mut words: Vec<String>) -> Vec<String> {
    let mut follows_auth = false;
    for word in &mut words {
        let is_auth = word == "--auth";
        if follows_auth {
            "…".clone_into(word);
        } else if word.starts_with("--auth=") {
            "--auth=…".clone_into(word);
        }
        follows_auth = is_auth;
    }
    words
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Parses a number with the unit ms, s, m or h. The unit defaults to seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("the units are ms, s, m and h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_not_one| "it is not a number".to_owned())?;
    Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())
}

/// Parses a number of bytes with the unit K, M or G, or without one.
fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: usize = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err("the units are K, M and G".to_owned()),
    };
    let number: usize = number.parse().map_err(|_not_one| "it is not a number".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "it is too large".to_owned())
}

/// Parses an access control list.
fn access_list(text: &str) -> Result<AccessList, String> {
    let everyone = |permissions| Acl::new(permissions, "world", "anyone");
    match text {
        "open" => Ok(AccessList(Acl::open_unsafe())),
        "creator" => Ok(AccessList(Acl::creator_all())),
        "read-only" => Ok(AccessList([Acl::creator_all(), vec![everyone(Permission::READ)]].concat())),
        entries => entries.split(',').map(access_entry).collect::<Result<_, _>>().map(AccessList),
    }
}

fn access_entry(text: &str) -> Result<Acl, String> {
    let form = || "it is open, creator, read-only, or scheme:id:cdrwa[,…]".to_owned();
    let (scheme, rest) = text.split_once(':').ok_or_else(form)?;
    let (id, letters) = rest.rsplit_once(':').ok_or_else(form)?;
    let mut permissions = Permission::NONE;
    for letter in letters.chars() {
        permissions = permissions
            | match letter {
                'c' => Permission::CREATE,
                'd' => Permission::DELETE,
                'r' => Permission::READ,
                'w' => Permission::WRITE,
                'a' => Permission::ADMIN,
                _ => return Err(format!("{letter:?} is not one of the permissions c, d, r, w and a")),
            };
    }
    if scheme.is_empty() || letters.is_empty() {
        return Err(form());
    }
    // ZooKeeper compares the hash. A password in its place would shut out all clients, and all could read it.
    if scheme == "digest" && id.split_once(':').is_none_or(|(_, hash)| hash.len() != 28 || !hash.ends_with('=')) {
        return Err(
            "digest needs user:hash with ZooKeeper's hash; auth::cdrwa stands for your own credentials".to_owned()
        );
    }
    Ok(Acl::new(permissions, scheme.to_owned(), id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_of_the_options_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn access_lists_are_those_of_zookeeper() {
        let entry = |text: &str| access_list(text).map(|list| list.0[0].clone());
        assert_eq!(
            entry("digest:me:tdj+C43EtoAJMyvE6oNlBFuMEPw=:cr").unwrap(),
            Acl::new(Permission::CREATE | Permission::READ, "digest", "me:tdj+C43EtoAJMyvE6oNlBFuMEPw=")
        );
        assert_eq!(entry("auth::cdrwa").unwrap(), Acl::creator_all()[0]);
        assert_eq!(
            access_list("open,world:anyone:r").unwrap_err(),
            "it is open, creator, read-only, or scheme:id:cdrwa[,…]"
        );
        for text in ["", "creators", "world:anyone", "world:anyone:", ":x:r", "world:anyone:rx", "digest:me:word:r"] {
            assert!(access_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn chroot_is_what_follows_the_servers() {
        let chroot = |servers: &str| {
            let Parsed::Options(options) =
                Options::from_arguments(&["curator", "--connect", servers, "ls", "/"].map(OsString::from))
            else {
                return None;
            };
            options.connection.chroot()
        };
        assert_eq!(chroot("a:1,b:2/prod/x"), Some("/prod/x".to_owned()));
        assert_eq!((chroot("a:1"), chroot("a:1/")), (None, None));
    }
}
