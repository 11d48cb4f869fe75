//! Registrants with a `GroupMember`, and observers of the group.

use std::time::Duration;

use curator_checkers::groups::{Event, Watcher};
use curator_checkers::registrations::{Plan, Registration};
use curator_recipes::{Changes, GroupMember, GroupMemberOptions, GroupState, Member, MemberChange};
use curator_test::nodes::Node;
use tokio::sync::watch;
use tokio::time::timeout;

use super::node::{follow, number};
use super::{Registrant, Scribe};

impl Registrant {
    /// Joins the group with one member.
    pub(super) async fn member(&mut self, is_last: bool) {
        let id = match self.one_of(3) {
            // Workers of other clients may want it too.
            0 | 1 => format!("shared-{}", self.one_of(2) * 2 + self.worker),
            _ => format!("own-{}-{}", self.name.0, self.worker),
        };
        let data = self.scribe.data();
        let options = GroupMemberOptions::new().data(data.clone());
        let member = GroupMember::with_options(self.client.clone(), &*self.place.path, &*id, options);
        let member = member.expect("a valid path");
        let path = self.place.at_the_server(&self.place.node(&id));
        let registration = self.scribe.starts(Plan::ephemeral(self.name, path), data);
        let states = member.node().changes();
        let follows = tokio::spawn(follow(self.scribe.clone(), registration, self.place.clone(), states));
        self.scribe.may_fail(member.start());
        let observes = tokio::spawn(observe(self.scribe.clone(), member.watch(), member.changes()));
        for _ in 0..1 + self.one_of(6) {
            self.act(&member, registration).await;
        }
        if is_last {
            self.stay().await;
        }
        self.leave(member, registration).await;
        if follows.await.is_err() || observes.await.is_err() {
            self.scribe.wrong(format!("{registration:?} cannot be followed"));
        }
    }

    async fn act(&mut self, member: &GroupMember, registration: Registration) {
        match self.one_of(6) {
            0..=2 => self.pause(0..4000).await,
            3 => {
                // A wait that is dropped has no effect.
                let soon = self.time(0..6000);
                if let Ok(joined) = self.call(timeout(soon, member.join())).await {
                    self.scribe.may_fail(joined);
                }
            }
            4 => {
                let budget = self.time(0..6000);
                self.scribe.may_fail(self.call(member.join_timeout(budget)).await);
            }
            _ => {
                let data = self.scribe.data();
                self.scribe.wants(registration, data.clone());
                match self.call(timeout(Duration::from_secs(20), member.set_data(data.clone()))).await {
                    Ok(Ok(())) => self.scribe.wrote(registration, data),
                    Ok(failed) => self.scribe.may_fail(failed),
                    // The data is wanted anyway.
                    Err(_elapsed) => {}
                }
            }
        }
    }

    async fn leave(&mut self, member: GroupMember, registration: Registration) {
        self.scribe.closes(registration);
        match self.one_of(4) {
            0 => drop(member),
            1 => {
                // A close that is dropped continues by itself.
                let soon = self.time(0..200);
                let _closed = self.call(timeout(soon, member.close())).await;
            }
            _ => self.call(member.close()).await,
        }
    }
}

/// Notes what an observer shows and reports until it is closed.
pub async fn observe(scribe: Scribe, mut states: watch::Receiver<GroupState>, mut changes: Changes<MemberChange>) {
    let watcher = scribe.watcher();
    scribe.observes(Event::Unknown(watcher));
    let mut is_known = false;
    loop {
        let state = states.borrow_and_update().clone();
        if is_known && state.members().is_none() && !matches!(state, GroupState::Closed) {
            scribe.wrong(format_args!("{watcher:?} forgets the members: {state:?}"));
        }
        is_known |= state.members().is_some();
        let event = match &state {
            GroupState::Known(members) => Event::Shows(watcher, members.iter().map(node_of).collect()),
            GroupState::Closed => break,
            GroupState::Refused { cause: error, .. } | GroupState::Failed(error) => {
                scribe.fails(format_args!("{watcher:?}"), error);
                Event::Unknown(watcher)
            }
            _ => Event::Unknown(watcher),
        };
        scribe.observes(event);
        loop {
            tokio::select! {
                biased;
                change = changes.recv() => match change {
                    Some(change) => scribe.observes(event_of(watcher, &change)),
                    None => return scribe.observes(Event::Stopped(watcher)),
                },
                _ = states.changed() => break,
            }
        }
    }
    scribe.observes(Event::Stopped(watcher));
}

fn node_of(member: &Member) -> (String, Node) {
    let Member { id, data, session, czxid, .. } = member.clone();
    (id, Node { czxid: czxid.get(), session: number(session), data })
}

fn event_of(watcher: Watcher, change: &MemberChange) -> Event {
    let (event, member): (fn(Watcher, String, Node) -> Event, _) = match change {
        MemberChange::Joined(member) => (Event::Joined, member),
        MemberChange::DataChanged(member) => (Event::DataChanged, member),
        MemberChange::Left(member) => (Event::Left, member),
    };
    let (id, node) = node_of(member);
    event(watcher, id, node)
}
