//! The command line: the commands, and the options of all. Each option has an environment variable.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::barrier::Barrier;
use crate::connection::Connection;
use crate::count::Count;
use crate::elect::Elect;
use crate::join::Join;
use crate::latch::Latch;
use crate::leader::LeaderOptions;
use crate::lock::{Run, Semaphore};
use crate::members::MembersOptions;
use crate::nested::Holds;
use crate::pages::{Completions, Man};
use crate::queue::Queue;
use crate::revoke::Revoke;
use crate::serve::Serve;
use crate::service::Service;
use crate::show::{Ls, Status};
use crate::values::AccessList;
use crate::watch::WatchOptions;

/// Runs commands under locks that processes on many machines share through ZooKeeper, while it leads an election, as
/// members of groups, or together at a barrier. Runs commands for the items of queues. Reads and changes counters.
///
/// The paths are those of Apache Curator's recipes, so Java, Rust and this program share the same locks, elections,
/// groups, counters, barriers and queues.
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
    1  ls, status, revoke: no such lock, no such node; holds: it does not run under the lock;
       leader: no candidate leads; members: the group has none;
       watch --once: the node does not exist; count: no such counter; latch: no count is set; service, queue: no such one
    2  wrong options, path or connect string; revoke: not a contender's node; count, latch: the node has other data
    3  status, ls --exit-code: a contender holds the lock; barrier status: the barrier is set, or members wait;
       latch status: a count remains
    4  status, ls --exit-code: a persistent node blocks the lock
   69  no connection within --connect-timeout, or it was lost while waiting
   70  another error
   73  another client asked for the lock with curator revoke, and the command was stopped (--revocable)
   74  the lock, or with elect --once the leadership, was lost, or could soon be lost; the command was stopped;
       barrier enter: the own session ended before the command; queue take: the item is delivered again
   75  the lock was not acquired, no term began in time, join: the id is taken, barrier, latch: the wait was too long,
       count --cas: another value, latch set: a count remains, queue take: no item came (see -E)
   76  count, latch set, latch down, queue: the connection was lost, and the change may have been made
   77  not authorized, or the servers do not accept the credentials;
       ls --exit-code: no listed lock is held, but not all could be read
  126  the command cannot be executed
  127  the command was not found
  128 + n if signal n ended this program while it waited, or during ls, status, leader, members, watch, count,
       barrier, latch, queue, revoke";

const EACH: &str = "\
With --each the command runs for each line of standard input, at most N at once over all processes and machines that use
the path: curator semaphore -n 8 --each /jobs -- convert {} {}.png <files. The process waits for one lease at a time. An
empty line runs nothing. The commands find no input. A shell takes the line as an argument, because it would run what a
line says in the text of a script: sh -c 'wc \"$1\"' sh {}. The exit status is 0 if all commands have succeeded, 123 if one
has failed, 74 if a lease was lost. After TERM or INT no further command begins.";

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs a command under an exclusive lock
    #[command(override_usage = "curator lock [OPTIONS] <PATH> -- <COMMAND>...")]
    Lock(Run),
    /// Runs a command under one of N leases
    #[command(override_usage = "curator semaphore [OPTIONS] <PATH> -- <COMMAND>...", after_help = EACH)]
    Semaphore(Semaphore),
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
    /// Tells by its exit status whether it runs under a lock, for scripts that lock their rest
    Holds(Holds),
    /// Prints the leader of an election: its id, term, node and proclaimed data
    Leader(LeaderOptions),
    /// Prints the members of a group: their ids, data and sessions
    Members(MembersOptions),
    /// Prints the nodes at and below a path, then each change, until interrupted; needs ZooKeeper 3.6
    Watch(WatchOptions),
    /// Reads or changes a counter that processes share, or prints unique numbers
    Count(Count),
    /// Holds processes back, or lets them begin and end together
    #[command(subcommand)]
    Barrier(Barrier),
    /// Counts down, and waits for the end of the count
    #[command(subcommand)]
    Latch(Latch),
    /// Registers a command as an instance of a service, and shows the instances: Curator's service discovery
    #[command(subcommand)]
    Service(Service),
    /// Puts items into queues, takes them out, and runs a command for each item
    #[command(subcommand)]
    Queue(Queue),
    /// Asks the owner of a node to release the lock, or deletes the node by force
    Revoke(Revoke),
    /// Shows locks, elections, services, groups, counters, barriers, latches and queues on a web page, as JSON and as
    /// metrics, without changing them
    Serve(Serve),
    /// Prints the completions of a shell
    Completions(Completions),
    /// Prints the manual page of this program, or of one of its commands
    Man(Man),
}

/// The outcome of the command line: options, or the mistake with the text that says what to do.
pub(crate) enum Parsed {
    Options(Box<Options>),
    /// The advice, in one line.
    Hint(String),
    Refused(clap::Error),
}

impl Options {
    /// Returns the definition of the command line, with the letters that `flock` has where they are free.
    pub(crate) fn whole_command() -> clap::Command {
        let exclusive = Arg::new("exclusive").short('x').long("exclusive").action(ArgAction::SetTrue).hide(true);
        let command = ["lock", "read", "write"].into_iter().fold(Self::command(), |command, name| {
            command
                .mut_subcommand(name, |action| action.mut_arg("once", |once| once.short('n').visible_alias("nonblock")))
        });
        let command = command.mut_subcommand("lock", |lock| lock.arg(exclusive));
        let mut built = command.clone();
        built.build();
        with_usage(command, &built)
    }

    pub(crate) fn from_arguments(arguments: &[OsString]) -> Parsed {
        let parse = || {
            let matches = Self::whole_command().try_get_matches_from(arguments)?;
            let mut options = Self::from_arg_matches(&matches)?;
            if let Some((_, of_the_action)) = matches.subcommand() {
                options.action.settle(of_the_action)?;
            }
            Ok(options)
        };
        match parse() {
            Ok(options) => Parsed::Options(Box::new(options)),
            Err(error) => {
                let hint = habit(arguments, &error).or_else(|| with_dashes(arguments, &error));
                hint.map_or(Parsed::Refused(error), Parsed::Hint)
            }
        }
    }
}

impl Action {
    /// Settles options that exclude each other: one on the command line beats the variable of the other.
    fn settle(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let on_the_line = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let conflict = |text| Err(Options::whole_command().error(ErrorKind::ArgumentConflict, text));
        if let Self::Semaphore(Semaphore { each: true, run, .. }) = self {
            if run.work.take_shell_line() {
                return conflict(
                    "the argument '--each' cannot be used with '-c': a shell would run what a line says; \
                     give it as an argument, -- sh -c 'wc \"$1\"' sh {}",
                );
            }
        }
        match self {
            Self::Lock(run) | Self::Semaphore(Semaphore { run, .. }) | Self::Read(run) | Self::Write(run) => {
                run.work.take_shell_line();
            }
            Self::Elect(elect) => _ = elect.work.take_shell_line(),
            _ => {}
        }
        match self {
            // Each line is to run, however long it waits.
            Self::Semaphore(Semaphore { each: true, run, .. }) => {
                if on_the_line("once") || on_the_line("timeout") {
                    return conflict("the argument '--each' cannot be used with '--try' or '--timeout'");
                }
                (run.once, run.timeout) = (false, None);
            }
            Self::Lock(run) | Self::Semaphore(Semaphore { run, .. }) | Self::Read(run) | Self::Write(run)
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

    /// Returns the state in ZooKeeper that a stopped process would lose.
    pub(crate) const fn kept(&self) -> Option<&'static str> {
        match self {
            Self::Lock(_) | Self::Semaphore(_) | Self::Read(_) | Self::Write(_) | Self::Elect(_) => {
                Some("its place in the queue")
            }
            Self::Join(_) | Self::Service(Service::Register(_)) => Some("its registration"),
            Self::Barrier(Barrier::Enter(_)) => Some("its place at the barrier"),
            Self::Barrier(Barrier::Hold(_)) => Some("the barrier"),
            Self::Queue(command) if command.holds_items() => Some("its items"),
            _ => None,
        }
    }

    /// Returns the access control list of the nodes that the action creates.
    pub(crate) const fn acl(&self) -> Option<&AccessList> {
        match self {
            Self::Lock(run) | Self::Semaphore(Semaphore { run, .. }) | Self::Read(run) | Self::Write(run) => {
                Some(&run.work.setting.access.acl)
            }
            Self::Elect(elect) => Some(&elect.work.setting.access.acl),
            Self::Join(join) => Some(&join.setting.access.acl),
            Self::Count(count) => Some(&count.access.acl),
            Self::Barrier(command) => command.acl(),
            Self::Latch(command) => command.acl(),
            Self::Service(command) => command.acl(),
            Self::Queue(command) => command.acl(),
            _ => None,
        }
    }
}

/// Gives each command a usage of its own. The usage of an error would name each option that has a variable.
fn with_usage(command: clap::Command, built: &clap::Command) -> clap::Command {
    built.get_subcommands().filter(|built| built.get_name() != "help").fold(command, |command, built| {
        let usage = built.clone().render_usage().to_string();
        let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
        command.mut_subcommand(built.get_name(), |action| match built.has_subcommands() {
            true => with_usage(action, built),
            false => action.override_usage(usage),
        })
    })
}

/// Returns the answer to an option or a command that other tools have.
fn habit(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(kind) else { return None };
    let is_lock = arguments.iter().any(|argument| argument == "lock");
    let released = "a lock is released when its command ends; curator revoke asks its holder for it";
    let text = match (kind, word.as_str()) {
        (ContextKind::InvalidSubcommand, "unlock" | "release") => released,
        (ContextKind::InvalidArg, "-u" | "--unlock") if is_lock => released,
        (ContextKind::InvalidArg, "-s" | "--shared") if is_lock => {
            "a shared lock is that of curator read; curator write excludes it"
        }
        (ContextKind::InvalidArg, "-o" | "--close" | "-F" | "--no-fork") if is_lock => {
            "-o and -F are not needed: the command has no descriptor of the lock"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns the line with the missing `--`, if a command follows without it.
fn with_dashes(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let words: Vec<String> = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let runs = words.iter().any(|word| {
        matches!(
            word.as_str(),
            "lock" | "semaphore" | "read" | "write" | "elect" | "join" | "hold" | "enter" | "register" | "work"
        )
    });
    let has_command = words.iter().any(|word| matches!(word.as_str(), "--" | "-c" | "--shell"));
    if error.kind() != ErrorKind::UnknownArgument || !runs || has_command {
        return None;
    }
    let Some(ContextValue::String(first)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let at = words.iter().rposition(|word| word == first).filter(|_| !first.starts_with('-'))?;
    let words: Vec<String> = without_secrets(words).iter().map(|word| quoted(word)).collect();
    let line = format!("curator {} -- {}", words[..at].join(" "), words[at..].join(" "));
    Some(format!("the command must stand behind --, as in: {line}"))
}

/// Quotes a word for a shell, if that is needed.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=@%+…".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_of_the_options_is_consistent() {
        Options::whole_command().debug_assert();
    }
}
