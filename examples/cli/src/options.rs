//! The command line options.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Runs commands under locks that processes on many machines share through ZooKeeper.
///
/// The paths are those of Apache Curator's recipes, so Java, Rust and this program share the same locks.
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
    1  ls, revoke: the node does not exist
    2  wrong options, path or connect string; revoke: not a contender's node
   69  no connection within --connect-timeout
   70  another error
   74  the lock was lost, or could soon be lost; the command was stopped if it still ran
   75  the lock was not acquired (see -E)
   77  not authorized, or the servers do not accept the credentials
  126  the command cannot be executed
  127  the command was not found
  128 + n if signal n ended this program while it waited for the lock";

#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// Servers, host:port[,host:port…], optionally followed by /chroot [env: CURATOR_CONNECT, ZK_CONNECT] [default: localhost:2181]
    #[arg(long, global = true)]
    connect: Option<String>,
    /// Credentials, such as digest:user:password; may be repeated [env: CURATOR_AUTH]
    #[arg(long, global = true, value_name = "SCHEME:ID")]
    auth: Vec<String>,
    /// The session timeout: the longest time for which a lock outlives its holder [default unit: seconds]
    #[arg(long, global = true, default_value = "30s", value_parser = duration)]
    pub(crate) session_timeout: Duration,
    /// The longest time to wait for a connection
    #[arg(long, global = true, default_value = "5s", value_parser = duration)]
    pub(crate) connect_timeout: Duration,
}

impl Connection {
    pub(crate) fn servers(&self) -> String {
        let named = |name| std::env::var(name).ok().filter(|servers| !servers.is_empty());
        let servers = self.connect.clone().or_else(|| named("CURATOR_CONNECT")).or_else(|| named("ZK_CONNECT"));
        servers.unwrap_or_else(|| "localhost:2181".to_owned())
    }

    /// Returns pairs of scheme and credentials. Errors never contain their text.
    pub(crate) fn credentials(&self) -> Result<Vec<(String, String)>, String> {
        let from_environment = std::env::var("CURATOR_AUTH").ok().filter(|auth| !auth.is_empty());
        let given = if self.auth.is_empty() { from_environment.into_iter().collect() } else { self.auth.clone() };
        let pair = |auth: String| match auth.split_once(':') {
            Some((scheme, id)) if !scheme.is_empty() => Ok((scheme.to_owned(), id.to_owned())),
            _ => Err("credentials are SCHEME:ID, as digest:user:password".to_owned()),
        };
        given.into_iter().map(pair).collect()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs a command under an exclusive lock
    Lock(Run),
    /// Runs a command under one of N leases
    Semaphore {
        /// Number of leases; all clients must give the same number
        #[arg(short = 'n', long, default_value_t = 1, value_parser = at_least_one)]
        leases: usize,
        #[command(flatten)]
        run: Run,
    },
    /// Runs a command under a read lock: beside other readers, without a writer
    Read(Run),
    /// Runs a command under a write lock: without readers and other writers
    Write(Run),
    /// Lists holders and waiters, in the order of the queue
    Ls {
        /// Number of leases of a semaphore; without it all its nodes are shown as `lease`, granted or not
        #[arg(short = 'n', long, value_parser = at_least_one)]
        leases: Option<usize>,
        /// The lock's path
        path: String,
    },
    /// Asks the owner of a node, as `curator ls` lists it, to release the lock. Nothing is forced
    Revoke {
        /// The node's path
        node: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = TIMELINE)]
pub(crate) struct Run {
    /// Give up when the lock is not acquired in this time, which includes connecting [default: never]
    #[arg(long, short = 'w', value_parser = duration, conflicts_with = "once")]
    pub(crate) timeout: Option<Duration>,
    /// Give up at once when another contender has the lock
    #[arg(long = "try")]
    pub(crate) once: bool,
    /// The exit status when the lock was not acquired
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS")]
    pub(crate) conflict_exit_code: u8,
    /// The time from SIGTERM to SIGKILL; at most T/4 [default: 5s or T/6, the shorter; T is the session timeout]
    #[arg(long, value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Stop the command when another client asks for the lock with `curator revoke`
    #[arg(long)]
    pub(crate) revocable: bool,
    /// Leave the command in this process's group, so that it can read from the terminal; a loss then stops only the
    /// command, not the processes that it started
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Data of this contender's node, which `curator ls` shows [default: host, process id and command]
    #[arg(long)]
    pub(crate) data: Option<String>,
    /// The lock's path
    pub(crate) path: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

const TIMELINE: &str = "\
The command gets CURATOR_LOCK_PATH, CURATOR_NODE, CURATOR_FENCING_TOKEN and CURATOR_DEADLINE: the time (seconds since
1970) until which the lock was certain at the start. While this program runs, the actual deadline moves on.

When the servers are silent, times count from the newest evidence that the session lives. T is the session timeout, G
the grace:
  3/4 T - G   SIGTERM to the command and its process group
  3/4 T       the lock counts as lost: SIGKILL
  T           the earliest moment at which another contender can acquire the lock
If the session is killed or the node is deleted, another contender may acquire the lock at once. The command then gets
SIGTERM, and SIGKILL after G. Pass the fencing token to the resource to be safe from that, and from a paused process.

INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the command. The lock is released after the command has ended. If
this program is killed with SIGKILL, Linux kills the command too, but not the processes that it started, nor a setuid
program. The server releases the lock when the session ends, at most T later.";

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Parses a number with the unit ms, s, m or h. The unit defaults to seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("the units are ms, s, m and h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_not_one| "it is no number".to_owned())?;
    Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())
}
