//! A node that is kept while a command runs, such as a member of a group: the lines about it, and the command.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::time::Duration;

use curator_recipes::NodeState;
use tokio::sync::watch;

use crate::child::{self, Order, Setting, Streams};
use crate::failure::Failure;
use crate::grant::Grant;
use crate::outages::Outages;
use crate::output::tell;
use crate::signals::Signals;

/// A node that is kept, as the grant of a command. Its end stops no command, because it excludes nothing.
pub(crate) trait Presence: Grant {
    /// Returns the state of the node, if there is to be one.
    fn state(&self) -> Option<NodeState>;

    /// Returns the line about a state. `is_first`: no line precedes it. The first attempt needs none.
    fn line(&self, state: &NodeState, is_first: bool) -> Option<String>;

    /// Returns the words for a node that exists while no connection does.
    fn stays(&self) -> String;
}

/// The lines about a node that is kept.
pub(crate) struct Report<'a, P> {
    pub(crate) presence: &'a P,
    /// The last line.
    told: RefCell<String>,
}

impl<'a, P: Presence> Report<'a, P> {
    pub(crate) fn new(presence: &'a P) -> Self {
        Self { presence, told: RefCell::default() }
    }

    /// Reports each change of the node, if there is to be one, and outages. Never ends: the caller drops it.
    pub(crate) async fn follow(
        &self,
        mut states: Option<watch::Receiver<NodeState>>,
        outages: &mut Outages,
    ) -> Infallible {
        loop {
            self.tell_state();
            tokio::select! {
                biased;
                () = next(&mut states) => {}
                is_connected = outages.change() => {
                    let is_standing = || self.presence.state().is_some_and(|state| state.standing().is_some());
                    match is_connected {
                        true => tell("the connection is back"),
                        false if is_standing() => {
                            tell(&format!("no connection: {} until its session ends", self.presence.stays()));
                        }
                        false => tell("no connection"),
                    }
                }
            }
        }
    }

    /// Reports the present state, unless its line was the last one.
    pub(crate) fn tell_state(&self) {
        let line = |state| self.presence.line(&state, self.told.borrow().is_empty());
        if let Some(line) = self.presence.state().and_then(line) {
            self.tell(line);
        }
    }

    /// Prints a line, unless it was the last one.
    pub(crate) fn tell(&self, line: String) {
        if *self.told.borrow() != line {
            tell(&line);
            self.told.replace(line);
        }
    }

    /// Forgets the last line.
    pub(crate) fn begin(&self) {
        self.told.take();
    }
}

/// Resolves at the next state of a node, if there is to be one.
async fn next(states: &mut Option<watch::Receiver<NodeState>>) {
    let is_open = match states {
        Some(states) => states.changed().await.is_ok(),
        None => false,
    };
    if !is_open {
        pending().await
    }
}

/// Runs the command, or waits for a signal without one.
pub(crate) async fn run(
    presence: &impl Presence,
    command: &[OsString],
    setting: &Setting,
    path: &str,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let Some(program) = command.first() else { return signals.unless_ended(pending()).await };
    let foreground = setting.foreground;
    let order =
        Order { command, foreground, path, grace: Duration::ZERO, revocable: false, streams: Streams::INHERITED };
    Ok(match child::run(presence, &order, signals).await {
        Ok(ended) => child::code(ended.status),
        Err(error) => child::cannot_run(program, &error),
    })
}
