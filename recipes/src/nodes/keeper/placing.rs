//! One attempt: creates the node, or decides what stands at its path.

use curator_framework::recipe::{NodeSpec, Parents, RecipeClient as _, owning_session};
use curator_framework::spi::Operation;
use curator_framework::{Error, Session, SessionId, Stat, Watch, Zxid};

use crate::nodes::claims::Claim;
use crate::nodes::error::NodeError;
use crate::nodes::keeper::state::{Keeper, Placed};
use crate::nodes::shared::Plan;
use crate::nodes::state::NodeState;
use crate::nodes::verdict::{Facts, Known, Verdict};

impl Keeper {
    /// Creates the node of which the server, or the client, chooses the name.
    pub(super) async fn create_first(&mut self, session: &Session) -> Result<(), NodeError> {
        let (wanted, plan) = (self.wanted.borrow_and_update().clone(), &self.plan);
        let created = if plan.is_protected {
            let mut create = self.client.create().with_mode(plan.mode).with_protection().with_data(&*wanted.data);
            if plan.parents != Parents::Expected {
                create = create.creating_parent_containers_if_needed();
            }
            if let Some(acl) = &plan.acl {
                create = create.with_acl(acl.clone());
            }
            create.for_path_with_stat(&plan.path).await
        } else {
            let stored = self.client.to_stored_at(&plan.path, &wanted.data)?;
            session.create_with_parents(&plan.path, plan.mode, &spec(plan, &stored)).await
        };
        let (path, stat) = created?;
        self.adopt(session, &stat, false);
        self.accept(&wanted);
        self.session = Some(session.clone());
        self.shared.actual_path.send_replace(Some(path));
        Ok(())
    }

    /// Creates the node, or finds it. Leaves a watch on the node at the path.
    pub(super) async fn place(&mut self, session: &Session, path: &str) -> Result<Placed, NodeError> {
        let is_ephemeral = self.plan.mode.is_ephemeral();
        let is_of_session = |known: Known| !is_ephemeral || session.id().map(SessionId::get) == Some(known.session);
        let may_stand = !self.may_be_gone && self.known.is_some_and(is_of_session);
        let (found, watch) = match may_stand {
            true => session.exists_watched(path).await?,
            false => self.create(session, path).await?,
        };
        (self.watch, self.may_be_gone) = (Some(watch), false);
        let Some(found) = found else {
            self.forget();
            return Ok(Placed::Again);
        };
        let facts = Facts {
            is_ephemeral,
            session: session.id().map(SessionId::get),
            known: self.known,
            uncertain: &self.uncertain,
        };
        match facts.judge(&found) {
            Verdict::Known => {}
            Verdict::Found => {
                self.adopt(session, &found, false);
                if self.claim.is_none() {
                    return Ok(self.give_way(&found));
                }
            }
            Verdict::Adopt => self.adopt(session, &found, self.uncertain.is_empty()),
            Verdict::Dying => return self.replace(session, path, &found).await,
            Verdict::Taken => return Ok(self.give_way(&found)),
        }
        self.check_data(session, path, &found).await
    }

    fn adopt(&mut self, session: &Session, found: &Stat, adopted: bool) {
        self.claim = Claim::new(session, found.czxid);
        self.known = Some(Known::of(found, adopted));
        self.uncertain.clear();
        self.written = 0;
        self.foreign_data = None;
        self.touched = None;
    }

    fn forget(&mut self) {
        (self.known, self.claim) = (None, None);
        self.shared.publish(NodeState::Creating);
    }

    fn give_way(&mut self, found: &Stat) -> Placed {
        let (session, czxid) = (owning_session(found.ephemeral_owner), Zxid::new(found.czxid));
        (self.known, self.claim) = (None, None);
        // The answered create was behind all earlier ones of the session.
        if let Some(session) = &self.session {
            self.uncertain.remove(&session.id().map(SessionId::get).unwrap_or_default());
        }
        let state = NodeState::TakenBy { session, czxid };
        if !state.is_same(&self.shared.state.newest()) {
            let session_id = session.map(tracing::field::display);
            tracing::warn!(path = self.plan.path, session_id, "a node is taken");
        }
        self.shared.publish(state);
        self.report_taken();
        Placed::Taken
    }

    /// Reports that the newest wanted data waits for another session's node to go.
    pub(super) fn report_taken(&mut self) {
        let generation = self.wanted.borrow_and_update().generation;
        if let NodeState::TakenBy { session, .. } = self.shared.state.newest() {
            let path = self.client.path_text(&self.plan.path);
            self.report(generation, Some(NodeError::TakenBy { path, session }));
        }
    }

    /// Sends a create and, in the same write, a read that sets a watch. Returns the node at the path.
    async fn create(&mut self, session: &Session, path: &str) -> Result<(Option<Stat>, Watch), NodeError> {
        let wanted = self.wanted.borrow_and_update().clone();
        let stored = self.client.to_stored_at(path, &wanted.data)?;
        let id = session.id().map(SessionId::get).unwrap_or_default();
        // Until the reply arrives the node may or may not exist, also if this future is dropped.
        let was_certain = self.uncertain.insert(id);
        let spec = spec(&self.plan, &stored);
        let create = session.create_with_parents(path, self.plan.mode_of_name(), &spec);
        let both = futures_util::future::join(create, session.exists_watched(path));
        let (created, looked) = session.in_one_write(both).await;
        if was_certain && !matches!(&created, Err(error) if error.outcome_unknown()) {
            self.uncertain.remove(&id);
        }
        match created {
            Ok((_, stat)) => {
                self.adopt(session, &stat, false);
                self.accept(&wanted);
                match looked? {
                    (Some(found), watch) if found.czxid >= stat.czxid => Ok((Some(found), watch)),
                    // The parents were missing, so the read was executed before the create.
                    _ => Ok(session.exists_watched(path).await?),
                }
            }
            Err(Error::NodeExists { .. }) => Ok(looked?),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the node of an earlier session of this client, in one transaction: its name does not vanish meanwhile.
    async fn replace(&mut self, session: &Session, path: &str, dying: &Stat) -> Result<Placed, NodeError> {
        let wanted = self.wanted.borrow_and_update().clone();
        let data = self.client.to_stored_at(path, &wanted.data)?.into_owned();
        let acl = self.plan.acl.clone().unwrap_or_else(|| session.acl_for(path));
        let (path_of_new, mode) = (path.to_owned(), self.plan.mode_of_name());
        let operations = vec![
            Operation::Delete { path: path.to_owned(), version: Some(dying.version) },
            Operation::Create { path: path_of_new, data, acl, mode },
        ];
        let id = session.id().map(SessionId::get).unwrap_or_default();
        let was_certain = self.uncertain.insert(id);
        let replaced = session.transaction(operations).await;
        if was_certain && matches!(&replaced, Err(error) if !error.outcome_unknown()) {
            self.uncertain.remove(&id);
        }
        match replaced {
            Ok(_) => {
                // Takes the notification of the deletion, which must not fire the watch on the new node.
                self.notified().await?;
                let (found, watch) = session.exists_watched(path).await?;
                self.watch = Some(watch);
                match found.filter(|found| session.id().map(SessionId::get) == Some(found.ephemeral_owner)) {
                    Some(found) => {
                        // Another client may have written the node since.
                        self.adopt(session, &Stat { version: 0, mzxid: found.czxid, ..found }, false);
                        self.accept(&wanted);
                        self.check_data(session, path, &found).await
                    }
                    None => Ok(Placed::Again),
                }
            }
            Err(Error::Unsupported { .. }) => Ok(self.give_way(dying)),
            Err(Error::Transaction { cause, .. }) => match *cause {
                Error::NoNode { .. } | Error::BadVersion { .. } | Error::NodeExists { .. } => Ok(Placed::Again),
                // No permission to delete the node: it goes with its session.
                Error::NoAuth { .. } => Ok(self.give_way(dying)),
                cause => Err(cause.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

fn spec<'a>(plan: &'a Plan, stored: &'a [u8]) -> NodeSpec<'a> {
    let spec = NodeSpec::new(stored).with_parents(plan.parents);
    match &plan.acl {
        Some(acl) => spec.with_acl(acl),
        None => spec,
    }
}
