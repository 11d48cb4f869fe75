//! The time in which the node stands.

use curator_framework::recipe::{RecipeClient as _, owning_session};
use curator_framework::{CreateMode, Error, EventType, Session, WakeReason, Zxid, make_path};
use tokio::time::{Instant, sleep_until};

use crate::nodes::error::NodeError;
use crate::nodes::keeper::state::{Keeper, Placed, woken};
use crate::nodes::state::{NodeState, StandingNode};
use crate::nodes::verdict::Known;
use crate::standing::Pauses;

impl Keeper {
    /// Waits as long as the node stands.
    pub(super) async fn hold(&mut self, session: &Session, path: &str) -> Result<(), NodeError> {
        loop {
            if self.write(session, path).await? {
                let touch_at = self.touch(session, path).await?;
                self.publish_standing(path);
                let woken = tokio::select! {
                    biased;
                    () = self.stop.requested() => return Err(Error::Closed.into()),
                    woken = woken(&mut self.watch) => woken,
                    changed = self.wanted.changed() => match changed {
                        Ok(()) => continue,
                        Err(_no_owner) => return Ok(()),
                    },
                    () = wait_until(touch_at) => continue,
                };
                match woken {
                    WakeReason::SessionEnded(_) => return Ok(()),
                    WakeReason::Event(EventType::NodeDeleted) => {}
                    _ => match self.place(session, path).await? {
                        Placed::Standing => continue,
                        // The next attempt finds the other node.
                        Placed::Taken | Placed::Again => return Ok(()),
                    },
                }
            } else {
                // Takes the notification of the deletion, which must not fire the watch on the next node.
                self.notified().await?;
            }
            self.may_be_gone = true;
            self.shared.publish(NodeState::Creating);
            self.contest.pause(&mut self.stop).await?;
            return Ok(());
        }
    }

    /// Writes the child that keeps a node with a time to live, if that is due. Returns the time of the next write.
    async fn touch(&mut self, session: &Session, path: &str) -> Result<Option<Instant>, NodeError> {
        let Some(touch) = &self.plan.touch else { return Ok(None) };
        if let Some(next) = self.touched.map(|last| last + touch.every).filter(|&next| next > Instant::now()) {
            return Ok(Some(next));
        }
        let (child, data) = (make_path(path, &touch.child), self.client.default_data().to_vec());
        let begun = Instant::now();
        match session.set_data(&child, data.clone(), None).await {
            Err(Error::NoNode { .. }) => {
                let acl = self.plan.acl.clone().unwrap_or_else(|| session.acl_for(&child));
                match session.create(&child, data, acl, CreateMode::PersistentWithTtl(touch.ttl)).await {
                    // Without its parent: the watch on that reports the deletion.
                    Ok(_) | Err(Error::NodeExists { .. } | Error::NoNode { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            written => drop(written?),
        }
        self.touched = Some(begun);
        Ok(Some(begun + touch.every))
    }

    fn publish_standing(&mut self, path: &str) {
        let Some(known) = self.known else { return };
        self.pauses = Pauses::default();
        let Known { czxid, session, adopted, .. } = known;
        let foreign_data = self.foreign_data.clone();
        let node = StandingNode {
            path: path.to_owned(),
            czxid: Zxid::new(czxid),
            session: owning_session(session),
            adopted,
            foreign_data,
        };
        self.shared.publish(NodeState::Standing(node.clone()));
        if self.announced.replace(czxid) != Some(czxid) {
            tracing::info!(path, czxid, "a node stands");
            self.shared.listeners.notify(move |listener| listener(&node));
        }
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
