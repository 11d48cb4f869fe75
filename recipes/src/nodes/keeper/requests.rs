//! The steps that send requests, each once.

use curator_framework::recipe::{NodeSpec, Parents, RecipeClient as _};
use curator_framework::spi::Operation;
use curator_framework::{CreateMode, Error, Session, make_path};
use tokio::time::Instant;

use crate::nodes::error::NodeError;
use crate::nodes::keeper::lost_create::LostCreate;
use crate::nodes::keeper::task::Keeper;
use crate::nodes::plan::verdict::Known;
use crate::nodes::plan::{Input, Step};
use crate::nodes::shared::KeptNode;

impl Keeper {
    pub(super) async fn request(&mut self, step: &Step) -> Result<Input, NodeError> {
        let Some(session) = &self.session.clone() else { return Ok(Input::SessionEnded) };
        let path = &self.plan.path.clone().unwrap_or_default();
        Ok(match step {
            Step::CreateFirst => self.create_first(session).await?,
            Step::Create => self.create(session, path).await?,
            Step::Look => {
                let (found, watch) = session.exists_watched(path).await?;
                self.watch = Some(watch);
                Input::Found(found.as_ref().map(Known::of))
            }
            Step::Claim(found) => {
                self.claim(Some(found.czxid));
                Input::Claimed(self.claim.is_some())
            }
            Step::Read(_) => self.read(session, path).await?,
            Step::Write { version } => self.write(session, path, *version).await?,
            Step::TakeBack => {
                self.take_back();
                Input::Done
            }
            Step::Replace(dying) => self.replace(session, path, dying).await?,
            Step::Touch => {
                self.touch(session, path).await?;
                Input::Done
            }
            Step::Check => Input::Found(session.exists(path).await?.as_ref().map(Known::of)),
            Step::Delete { version } => match session.delete(path, Some(*version)).await {
                Ok(()) => Input::Done,
                Err(error) => refused(error)?,
            },
            Step::Connect | Step::AwaitDeletion | Step::Pause(_) | Step::Wait | Step::End => Input::Done,
        })
    }

    async fn create_first(&mut self, session: &Session) -> Result<Input, NodeError> {
        if let Some(found) = self.find_lost(session).await? {
            return Ok(found);
        }
        let (wanted, kept) = (self.take(), &self.kept);
        let (path, stat) = if kept.is_protected {
            let mut create = self.client.create().with_mode(kept.mode).with_protection().with_data(&*wanted.data);
            if kept.parents != Parents::Expected {
                create = create.creating_parent_containers_if_needed();
            }
            if let Some(acl) = &kept.acl {
                create = create.with_acl(acl.clone());
            }
            let created = create.for_path_with_stat(&kept.path).await?;
            if self.kept.mode.is_ephemeral() {
                self.claim(Some(created.1.czxid));
            }
            created
        } else {
            let stored = self.client.to_stored_at(&kept.path, &wanted.data)?.into_owned();
            let since = session.zxid();
            let created = session.create_with_parents(&kept.path, kept.mode, &spec(kept, &stored)).await;
            let lost = |since| LostCreate { session: session.clone(), stored, since };
            match &created {
                _ if !kept.mode.is_ephemeral() => {}
                Err(error) if error.outcome_unknown() => self.lost = Some(lost(since)),
                // A task with the same path has taken it for the node of its lost create, which may be an earlier one.
                Ok((_, stat)) if !self.claims_one(stat.czxid) => {
                    self.lost = Some(lost(None));
                    return Ok(Input::Conflict);
                }
                _ => {}
            }
            created?
        };
        Ok(Input::CreatedFirst { path, made: Known::of(&stat) })
    }

    /// Sends a create and, in the same write, a read that sets a watch.
    async fn create(&mut self, session: &Session, path: &str) -> Result<Input, NodeError> {
        let wanted = self.take();
        let stored = self.client.to_stored_at(path, &wanted.data)?;
        let spec = spec(&self.kept, &stored);
        let create = session.create_with_parents(path, self.kept.mode_of_name(), &spec);
        let both = futures_util::future::join(create, session.exists_watched(path));
        let (created, looked) = session.in_one_write(both).await;
        // Without the result of the read the plan reads again.
        let found = looked.ok().map(|(found, watch)| {
            self.watch = Some(watch);
            found.as_ref().map(Known::of)
        });
        Ok(match (created, found) {
            (Ok((_, stat)), found) => {
                // If the parents were missing, the read was executed before the create.
                let found = found.flatten().filter(|found| found.czxid >= stat.czxid);
                Input::Created { made: Known::of(&stat), found }
            }
            (Err(Error::NodeExists { .. }), Some(found)) => Input::Found(found),
            (Err(Error::NodeExists { .. }), None) => Input::Conflict,
            (Err(error), _) => return Err(error.into()),
        })
    }

    async fn read(&mut self, session: &Session, path: &str) -> Result<Input, NodeError> {
        let read = match session.get_data_watched(path).await {
            Ok(read) => read,
            Err(Error::NoAuth { .. }) => return Ok(Input::Unreadable),
            Err(error) => return Ok(refused(error)?),
        };
        self.watch = Some(read.watch);
        let wanted = self.take();
        let data = self.client.from_stored(path, read.data.clone(), None).unwrap_or(read.data);
        Ok(Input::Data { found: Known::of(&read.stat), foreign: (*data != *wanted.data).then_some(data) })
    }

    async fn write(&mut self, session: &Session, path: &str, version: i32) -> Result<Input, NodeError> {
        let wanted = self.take();
        let stored = self.client.to_stored_at(path, &wanted.data)?.into_owned();
        Ok(match session.set_data(path, stored, Some(version)).await {
            Ok(stat) => Input::Written(Known::of(&stat)),
            Err(error) => refused(error)?,
        })
    }

    async fn replace(&mut self, session: &Session, path: &str, dying: &Known) -> Result<Input, NodeError> {
        let wanted = self.take();
        let data = self.client.to_stored_at(path, &wanted.data)?.into_owned();
        let acl = self.kept.acl.clone().unwrap_or_else(|| session.acl_for(path));
        let (path, mode) = (path.to_owned(), self.kept.mode_of_name());
        let operations = vec![
            Operation::Delete { path: path.clone(), version: Some(dying.version) },
            Operation::Create { path, data, acl, mode },
        ];
        let cause = match session.transaction(operations).await {
            Ok(_) => return Ok(Input::Replaced),
            Err(Error::Unsupported { .. }) => return Ok(Input::Irreplaceable),
            Err(Error::Transaction { cause, .. }) => *cause,
            Err(error) => error,
        };
        Ok(match cause {
            Error::NodeExists { .. } => Input::Conflict,
            Error::NoAuth { .. } => Input::Irreplaceable,
            cause => refused(cause)?,
        })
    }

    /// Writes the child that keeps a node with a time to live, if that is due.
    async fn touch(&mut self, session: &Session, path: &str) -> Result<(), Error> {
        let Some(touch) = self.kept.touch.as_ref() else { return Ok(()) };
        if self.touch_at().is_some_and(|next| next > Instant::now()) {
            return Ok(());
        }
        let (child, data) = (make_path(path, &touch.child), self.client.default_data().to_vec());
        let begun = Instant::now();
        match session.set_data(&child, data.clone(), None).await {
            Err(Error::NoNode { .. }) => {
                let acl = self.kept.acl.clone().unwrap_or_else(|| session.acl_for(&child));
                match session.create(&child, data, acl, CreateMode::PersistentWithTtl(touch.ttl)).await {
                    // Without its parent: the watch on that reports the deletion.
                    Ok(_) | Err(Error::NodeExists { .. } | Error::NoNode { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            written => drop(written?),
        }
        self.touched = Some(begun);
        Ok(())
    }
}

/// Returns the answer of a server that finds no node, or another version, at the path.
fn refused(error: Error) -> Result<Input, Error> {
    match error {
        Error::NoNode { .. } => Ok(Input::Gone),
        Error::BadVersion { .. } => Ok(Input::Conflict),
        error => Err(error),
    }
}

fn spec<'a>(kept: &'a KeptNode, stored: &'a [u8]) -> NodeSpec<'a> {
    let spec = NodeSpec::new(stored).with_parents(kept.parents);
    match &kept.acl {
        Some(acl) => spec.with_acl(acl),
        None => spec,
    }
}
