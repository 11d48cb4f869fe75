//! The program `curator` runs commands under locks. `curator --help` and `curator lock --help` describe it.

mod barrier;
mod child;
mod connection;
mod count;
mod each;
mod elect;
mod enter;
mod failure;
mod grant;
mod hold;
mod join;
mod latch;
mod leader;
mod lock;
mod members;
mod nested;
mod options;
mod outages;
mod output;
mod pages;
mod presence;
mod question;
mod queue;
mod revoke;
mod serve;
mod service;
mod show;
mod signals;
mod site;
mod values;
mod waiting;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use curator_recipes::ParticipantKind;

use crate::child::BECOME;
use crate::failure::Failure;
use crate::lock::{leased, under};
use crate::options::{Action, Options, Parsed};
use crate::output::tell;
use crate::signals::Signals;
use crate::site::Site;

fn main() -> ExitCode {
    let code = program();
    output::flush(output::AT_THE_END);
    ExitCode::from(code)
}

/// Runs the program, and returns the exit status.
fn program() -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let [_, word, parent, command @ ..] = arguments.as_slice() {
        if word == BECOME {
            return child::become_command(parent, command);
        }
    }
    let options = match Options::from_arguments(&arguments) {
        Parsed::Options(options) => *options,
        Parsed::Refused(error) => error.exit(),
        Parsed::Hint(text) => {
            tell(&text);
            return 2;
        }
    };
    let outcome = match &options.action {
        Action::Completions(options) => pages::completions(options),
        Action::Man(options) => pages::manual(options),
        _ => start(options),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure(code, text)) => {
            tell(&text);
            code
        }
    }
}

/// Starts the runtime, and runs the action.
fn start(options: Options) -> Result<u8, Failure> {
    // tokio panics without descriptors for its signals, and without threads.
    std::panic::set_hook(Box::new(|_| {}));
    let built = std::panic::catch_unwind(|| tokio::runtime::Builder::new_multi_thread().enable_all().build());
    drop(std::panic::take_hook());
    let cannot_start = |cause: String| Failure(70, format!("cannot start: {cause}"));
    let runtime = match built {
        Ok(runtime) => runtime.map_err(|error| cannot_start(error.to_string()))?,
        Err(panic) => return Err(cannot_start(panic.downcast_ref::<String>().cloned().unwrap_or_default())),
    };
    runtime.block_on(act(options))
}

/// Runs an action that needs servers.
async fn act(options: Options) -> Result<u8, Failure> {
    let Options { connection, action } = options;
    if let Some(servers) = connection.connect() {
        child::set_connect(servers);
    }
    let mut signals = Signals::catch(action.kept())?;
    let site = Site::new(connection::connect(&connection, action.acl())?, &connection);
    let outcome = match &action {
        Action::Ls(ls) => signals.unless_ended(show::list(&site, ls)).await,
        Action::Status(status) => signals.unless_ended(show::status(&site, status)).await,
        Action::Revoke(options) => signals.unless_ended(revoke::revoke(&site, options)).await,
        Action::Serve(options) => serve::run(&site, options, &connection, signals.end()).await,
        Action::Lock(run) => under(&site, ParticipantKind::Lock, None, run, Instant::now(), &mut signals).await,
        Action::Semaphore(semaphore) if semaphore.each => each::each(&site, semaphore, &mut signals).await,
        Action::Semaphore(semaphore) => leased(&site, semaphore, &mut signals).await,
        Action::Read(run) => under(&site, ParticipantKind::Read, None, run, Instant::now(), &mut signals).await,
        Action::Write(run) => under(&site, ParticipantKind::Write, None, run, Instant::now(), &mut signals).await,
        Action::Holds(options) => signals.unless_ended(nested::holds(&site, options)).await,
        Action::Elect(elect) => elect::elect(&site, elect, &mut signals).await,
        Action::Join(join) => join::join(&site, join, &mut signals).await,
        Action::Leader(options) => signals.unless_ended(leader::leader(&site, options)).await,
        Action::Members(options) => signals.unless_ended(members::members(&site, options)).await,
        Action::Watch(options) => signals.unless_ended(watch::watch(&site, options)).await,
        Action::Count(options) => signals.unless_ended(count::count(&site, options)).await,
        Action::Barrier(command) => barrier::barrier(&site, command, &mut signals).await,
        Action::Latch(command) => signals.unless_ended(latch::latch(&site, command)).await,
        Action::Service(command) => service::service(&site, command, &mut signals).await,
        Action::Queue(command) => queue::queue(&site, command, &mut signals).await,
        // They need no server.
        Action::Completions(_) | Action::Man(_) => Ok(0),
    };
    site.close().await;
    outcome.map_err(|failure| connection::advised(failure, &connection))
}
