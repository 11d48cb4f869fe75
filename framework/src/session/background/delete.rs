//! Deletes of nodes that their owners have left.

use super::pending::{Delete, PendingDelete};
use crate::error::{Error, Result};
use crate::model::path::make_path;
use crate::model::{Stat, owning_session};
use crate::session::Session;
use crate::session::delete_tree::delete_tree;
use crate::zookeeper::Operation;

pub(super) async fn try_clean(session: &Session, remains: &PendingDelete) -> Result<()> {
    if remains.is_looked_for() {
        // A server that lags could omit the node; after an answered write it does not.
        session.write_barrier().await?;
    }
    loop {
        let mut is_changed = false;
        let unchanged = session.unchanged(remains.written()).await?;
        for (path, delete) in find(session, remains).await? {
            match delete_if_there(session, &path, delete, unchanged.clone()).await {
                // The node was changed, or another one has replaced it.
                Err(Error::BadVersion { .. }) if remains.is_looked_for() => is_changed = true,
                deleted => deleted?,
            }
        }
        if !is_changed {
            return Ok(());
        }
    }
}

/// Returns the paths to delete, each with the options of its delete.
async fn find(session: &Session, remains: &PendingDelete) -> Result<Vec<(String, Delete)>> {
    let (path, found) = match remains {
        PendingDelete::Guaranteed { path, delete } => return Ok(vec![(path.clone(), *delete)]),
        PendingDelete::Claimed { path: Some(path), .. } => return Ok(vec![(path.clone(), Delete::default())]),
        PendingDelete::Claimed { parent, prefix, path: None, .. } => {
            let children = match session.get_children(parent).await {
                Err(Error::NoNode { .. }) => Vec::new(),
                children => children?,
            };
            let own = children.iter().filter(|child| child.starts_with(prefix));
            return Ok(own.map(|child| (make_path(parent, child), Delete::default())).collect());
        }
        PendingDelete::Uncertain { path, ephemeral } => {
            let may_be_own = |stat: &Stat| match owning_session(stat.ephemeral_owner) {
                Some(owner) => *ephemeral && session.id() == Some(owner),
                None => !*ephemeral,
            };
            (path, session.exists(path).await?.filter(may_be_own))
        }
        PendingDelete::Created { path, czxid, .. } => {
            (path, session.exists(path).await?.filter(|stat| stat.czxid == *czxid))
        }
        PendingDelete::Marked { path, data, .. } => match session.get_data(path).await {
            Ok((found, stat)) => (path, (found == data.as_bytes()).then_some(stat)),
            Err(Error::NoNode { .. }) => (path, None),
            Err(error) => return Err(error),
        },
    };
    let in_its_version = |stat: Stat| (path.clone(), Delete { version: Some(stat.version), children: false });
    Ok(found.map(in_its_version).into_iter().collect())
}

async fn delete_if_there(session: &Session, path: &str, delete: Delete, check: Option<Operation>) -> Result<()> {
    let deleted = match delete.children {
        true => delete_tree(session, path, delete.version).await,
        false => session.delete_if(check, path, delete.version).await,
    };
    match deleted {
        Err(Error::NoNode { .. }) => Ok(()),
        deleted => deleted,
    }
}
