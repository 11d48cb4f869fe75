//! Requests, replies and errors of the framework in the types of the crate, and back.

use zookeeper_async as crate_api;
use zookeeper_async::{ZkError, ZooKeeper};

use super::CLIENT;
use crate::error::{Error, Result};
use crate::model::{Acl, CreateMode, EventType, Permission, Stat, WatchedEvent};
use crate::zookeeper::{DEFAULT_CLIENT, Request, Response};

/// Returns the error of a request that the crate would refuse by itself: each reply of the crate must be one of the
/// server's. The rules for paths are the rules of the crate's `validate_path`.
pub(super) fn refused_here(request: &Request) -> Option<Error> {
    let path = request.path();
    let reason = match request {
        Request::Create {
            mode: CreateMode::Container | CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_),
            ..
        }
        | Request::GetEphemerals { .. }
        | Request::Sync { .. }
        | Request::Transaction { .. }
        | Request::MultiRead { .. }
        | Request::WhoAmI
        | Request::Reconfig { .. } => {
            let request = request.to_string().into();
            return Some(Error::Unsupported { request, client: CLIENT, needed: DEFAULT_CLIENT });
        }
        _ if path.is_empty() => "it is empty",
        _ if path.len() > 1 && path.ends_with('/') => "it ends with a slash",
        _ => return None,
    };
    Some(Error::InvalidPath { path: path.into(), reason })
}

pub(super) async fn crate_request(
    zookeeper: &ZooKeeper,
    request: &Request,
    data: Vec<u8>,
) -> Result<Response, ZkError> {
    match request {
        Request::Create { path, acl, mode, .. } => {
            let mode = match mode {
                CreateMode::Persistent => crate_api::CreateMode::Persistent,
                CreateMode::PersistentSequential => crate_api::CreateMode::PersistentSequential,
                CreateMode::Ephemeral => crate_api::CreateMode::Ephemeral,
                CreateMode::EphemeralSequential => crate_api::CreateMode::EphemeralSequential,
                // `refused_here` has refused these.
                CreateMode::Container
                | CreateMode::PersistentWithTtl(_)
                | CreateMode::PersistentSequentialWithTtl(_) => return Err(crate_api::ZkError::Unimplemented),
            };
            let acl = acl.iter().map(to_crate_acl).collect();
            let (path, stat) = zookeeper.create2(path, data, acl, mode).await?;
            Ok(Response::Created { path: path.into(), stat: from_crate_stat(&stat) })
        }
        Request::Delete { path, version } => {
            zookeeper.delete(path, *version).await?;
            Ok(Response::Deleted)
        }
        Request::Exists { path, watch } => {
            let stat = zookeeper.exists(path, *watch).await?;
            Ok(Response::Exists(stat.as_ref().map(from_crate_stat)))
        }
        Request::GetData { path, watch } => {
            let (data, stat) = zookeeper.get_data(path, *watch).await?;
            Ok(Response::Data(data, from_crate_stat(&stat)))
        }
        Request::SetData { path, version, .. } => {
            let stat = zookeeper.set_data(path, data, *version).await?;
            Ok(Response::Stat(from_crate_stat(&stat)))
        }
        Request::GetChildren { path, watch } => Ok(Response::Children(zookeeper.get_children(path, *watch).await?)),
        Request::GetAcl { path } => {
            let (acl, stat) = zookeeper.get_acl(path).await?;
            Ok(Response::Acl(acl.into_iter().map(from_crate_acl).collect(), from_crate_stat(&stat)))
        }
        Request::SetAcl { path, acl, version } => {
            let acl = acl.iter().map(to_crate_acl).collect();
            let stat = zookeeper.set_acl(path, acl, *version).await?;
            Ok(Response::Stat(from_crate_stat(&stat)))
        }
        // `refused_here` has refused these.
        Request::GetEphemerals { .. }
        | Request::Sync { .. }
        | Request::Transaction { .. }
        | Request::MultiRead { .. }
        | Request::WhoAmI
        | Request::Reconfig { .. } => Err(ZkError::Unimplemented),
    }
}

pub(super) fn translate_error(error: ZkError, request: &Request) -> Error {
    match error {
        ZkError::ConnectionLoss => {
            Error::ConnectionLoss { request: request.to_string().into(), sent: true, cause: None }
        }
        other => Error::of_code(request.path(), other as i32, request.needed(), || request.to_string()),
    }
}

pub(super) fn from_crate_event(event: crate_api::WatchedEvent) -> Option<WatchedEvent> {
    let event_type = match event.event_type {
        crate_api::WatchedEventType::NodeCreated => EventType::NodeCreated,
        crate_api::WatchedEventType::NodeDeleted => EventType::NodeDeleted,
        crate_api::WatchedEventType::NodeDataChanged => EventType::NodeDataChanged,
        crate_api::WatchedEventType::NodeChildrenChanged => EventType::NodeChildrenChanged,
        _ => return None,
    };
    Some(WatchedEvent { event_type, path: event.path? })
}

fn from_crate_stat(stat: &crate_api::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        ctime: stat.ctime,
        mtime: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
    }
}

const PERMISSIONS: [(Permission, crate_api::Permission); 5] = [
    (Permission::READ, crate_api::Permission::READ),
    (Permission::WRITE, crate_api::Permission::WRITE),
    (Permission::CREATE, crate_api::Permission::CREATE),
    (Permission::DELETE, crate_api::Permission::DELETE),
    (Permission::ADMIN, crate_api::Permission::ADMIN),
];

fn to_crate_acl(acl: &Acl) -> crate_api::Acl {
    let permissions = PERMISSIONS
        .iter()
        .filter(|(ours, _)| acl.permissions.contains(*ours))
        .fold(crate_api::Permission::NONE, |all, (_, theirs)| all | *theirs);
    crate_api::Acl::new(permissions, &*acl.scheme, &*acl.id)
}

fn from_crate_acl(acl: crate_api::Acl) -> Acl {
    let permissions = PERMISSIONS
        .iter()
        .filter(|(_, theirs)| acl.perms.can(*theirs))
        .fold(Permission::NONE, |all, (ours, _)| all | *ours);
    Acl::new(permissions, acl.scheme, acl.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_the_crate_answers_by_itself_are_refused_before() {
        let exists = |path: &str| refused_here(&Request::Exists { path: path.into(), watch: false });
        for path in ["", "/a/", "a/", "//"] {
            assert!(matches!(exists(path), Some(Error::InvalidPath { .. })), "{path:?}");
        }
        for path in ["/", "/a", "a", "/a//b"] {
            assert!(exists(path).is_none(), "{path:?}");
        }
        let sync = refused_here(&Request::Sync { path: "/".into() });
        assert!(matches!(sync, Some(Error::Unsupported { client: CLIENT, .. })), "{sync:?}");
    }

    #[test]
    fn permissions_survive_the_way_there_and_back() {
        for permissions in [Permission::NONE, Permission::ALL, Permission::READ | Permission::ADMIN] {
            let acl = Acl::new(permissions, "world", "anyone");
            assert_eq!(from_crate_acl(to_crate_acl(&acl)), acl);
        }
    }
}
