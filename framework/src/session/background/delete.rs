//! Deletes of nodes that their owners have left.

use super::pending::{Delete, PendingDelete};
use crate::error::{Error, Result};
use crate::model::Stat;
use crate::model::path::make_path;
use crate::session::Session;
use crate::session::delete_tree::delete_tree;

pub(super) async fn try_clean(session: &Session, remains: &PendingDelete) -> Result<()> {
    match remains {
        PendingDelete::Guaranteed { path, delete } => delete_if_there(session, path, *delete).await,
        PendingDelete::Claimed { path: Some(path), .. } => delete_if_there(session, path, Delete::default()).await,
        PendingDelete::OwnEphemeral { path } => {
            let is_own = |stat: &Stat| session.id().is_some_and(|own| own.get() == stat.ephemeral_owner);
            delete_if(session, path, is_own).await
        }
        PendingDelete::Marked { path, data } => {
            // A server that lags could omit the node; after an answered write it does not.
            session.write_barrier().await?;
            match session.get_data(path).await {
                Ok((found, stat)) if found == data.as_bytes() => delete_created(session, path, stat.czxid).await,
                Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
        PendingDelete::Created { path, czxid, .. } => delete_created(session, path, *czxid).await,
        PendingDelete::Claimed { parent, prefix, path: None, .. } => {
            // A server that lags could omit the node; after an answered write it does not.
            session.write_barrier().await?;
            let children = match session.get_children(parent).await {
                Err(Error::NoNode { .. }) => return Ok(()),
                children => children?,
            };
            for child in children.iter().filter(|child| child.starts_with(prefix)) {
                delete_if_there(session, &make_path(parent, child), Delete::default()).await?;
            }
            Ok(())
        }
    }
}

/// Deletes the node that a transaction has created, and not a later node at its path.
async fn delete_created(session: &Session, path: &str, czxid: i64) -> Result<()> {
    delete_if(session, path, |stat| stat.czxid == czxid).await
}

/// Deletes the node at a path if it is the one that is meant.
async fn delete_if(session: &Session, path: &str, is_meant: impl Fn(&Stat) -> bool) -> Result<()> {
    // A server that lags could omit the node; after an answered write it does not.
    session.write_barrier().await?;
    while let Some(stat) = session.exists(path).await?.filter(&is_meant) {
        match delete_if_there(session, path, Delete { version: Some(stat.version), children: false }).await {
            // The node was changed, or another one has replaced it.
            Err(Error::BadVersion { .. }) => {}
            deleted => return deleted,
        }
    }
    Ok(())
}

async fn delete_if_there(session: &Session, path: &str, delete: Delete) -> Result<()> {
    let deleted = match delete.children {
        true => delete_tree(session, path, delete.version).await,
        false => session.delete(path, delete.version).await,
    };
    match deleted {
        Err(Error::NoNode { .. }) => Ok(()),
        deleted => deleted,
    }
}
