//! Registrants with a `PersistentNode`.

use std::time::Duration;

use curator_checkers::registrations::{Plan, Registration, State};
use curator_framework::{CreateMode, SessionId};
use curator_recipes::{Change, Changes, ForeignData, NodeState, PersistentNode, PersistentNodeOptions};
use tokio::time::timeout;

use super::{Place, Registrant, Scribe};

/// Returns the number of the session that owns a node; 0 for a node that is not ephemeral.
pub(super) fn number(session: Option<SessionId>) -> i64 {
    session.map_or(0, SessionId::get)
}

impl Registrant {
    /// Keeps one node.
    pub(super) async fn node(&mut self, is_last: bool) {
        let (node, plan) = self.plan();
        let data = node.data();
        let registration = self.scribe.starts(plan, data);
        let follows = tokio::spawn(follow(self.scribe.clone(), registration, self.place.clone(), node.changes()));
        self.scribe.may_fail(node.start());
        for _ in 0..1 + self.one_of(6) {
            self.step(&node, registration).await;
        }
        if is_last {
            self.stay().await;
        }
        self.close(node, registration).await;
        if follows.await.is_err() {
            self.scribe.wrong(format!("{registration:?} cannot be followed"));
        }
    }

    /// Chooses a node.
    fn plan(&mut self) -> (PersistentNode, Plan) {
        let mut options = PersistentNodeOptions::new();
        let mends = self.one_of(3) == 0;
        if mends {
            options = options.foreign_data(ForeignData::Mend);
        }
        let own = format!("{}-{}", self.name.0, self.worker);
        // Workers of other clients may want this name too.
        let shared = format!("shared-{}", self.one_of(2) * 2 + self.worker);
        let (name, mode, is_protected) = match self.one_of(12) {
            0..=2 => (shared, CreateMode::Ephemeral, false),
            3 => (format!("own-{own}"), CreateMode::Ephemeral, false),
            4 => (format!("deep/own-{own}"), CreateMode::Ephemeral, false),
            5 if self.unprotected => (format!("unprotected-{own}-"), CreateMode::EphemeralSequential, false),
            6 => ("protected".to_owned(), CreateMode::Ephemeral, true),
            5 | 7 | 8 => ("sequence-".to_owned(), CreateMode::EphemeralSequential, true),
            9 => (format!("stays-{own}"), CreateMode::Persistent, false),
            10 => ("stays".to_owned(), CreateMode::Persistent, false),
            _ => ("stays-".to_owned(), CreateMode::PersistentSequential, true),
        };
        // Two registrations that repair the data of one node would write it without an end.
        let mends = mends && name != "stays";
        let options = if mends { options } else { options.foreign_data(ForeignData::Keep) };
        let options = if is_protected { options.protected() } else { options };
        let path = self.place.node(&name);
        let plan = Plan {
            client: self.name,
            path: self.place.at_the_server(&path),
            ephemeral: mode.is_ephemeral(),
            exact: !is_protected && !mode.is_sequential(),
            mends,
        };
        let data = self.scribe.data();
        let node = PersistentNode::with_options(self.client.clone(), path, data, options.mode(mode));
        (node.expect("a valid path"), plan)
    }

    async fn step(&mut self, node: &PersistentNode, registration: Registration) {
        match self.one_of(8) {
            0..=2 => self.pause(0..4000).await,
            3 => {
                // A wait that is dropped has no effect.
                let soon = self.time(0..6000);
                if let Ok(created) = self.call(timeout(soon, node.created())).await {
                    self.scribe.may_fail(created);
                }
            }
            4 => {
                let budget = self.time(0..6000);
                self.scribe.may_fail(self.call(node.created_timeout(budget)).await);
            }
            _ => {
                for _ in 0..1 + self.one_of(3) {
                    let data = self.scribe.data();
                    self.scribe.wants(registration, data.clone());
                    let soon = if self.one_of(2) == 0 { self.time(0..200) } else { Duration::from_secs(20) };
                    match self.call(timeout(soon, node.set_data(data.clone()))).await {
                        Ok(Ok(())) => self.scribe.wrote(registration, data),
                        Ok(failed) => self.scribe.may_fail(failed),
                        // The data is wanted anyway.
                        Err(_elapsed) => {}
                    }
                }
            }
        }
    }

    async fn close(&mut self, node: PersistentNode, registration: Registration) {
        self.scribe.closes(registration);
        match self.one_of(4) {
            0 => drop(node),
            1 => {
                // A close that is dropped continues by itself.
                let soon = self.time(0..200);
                let _closed = self.call(timeout(soon, node.close())).await;
            }
            _ => self.call(node.close()).await,
        }
    }
}

/// Notes the states of a node until it is closed.
pub(super) async fn follow(
    scribe: Scribe,
    registration: Registration,
    place: Place,
    mut states: Changes<Change<NodeState>>,
) {
    while let Some(change) = states.recv().await {
        let state = match change {
            Change::Item(NodeState::Standing(node)) => State::Standing {
                path: place.at_the_server(&node.path),
                czxid: node.czxid.get(),
                session: number(node.session),
                foreign: node.foreign_data,
            },
            Change::Item(NodeState::TakenBy { session, czxid }) => {
                State::TakenBy { session: number(session), czxid: czxid.get() }
            }
            Change::Item(NodeState::Refused { cause: error, .. } | NodeState::Failed(error)) => {
                scribe.fails(format_args!("{registration:?}"), &error);
                State::Absent
            }
            Change::Item(_) => State::Absent,
            Change::Dropped(number) => {
                scribe.wrong(format!("{number} states of {registration:?} are dropped"));
                continue;
            }
        };
        scribe.tells(registration, state);
    }
}
