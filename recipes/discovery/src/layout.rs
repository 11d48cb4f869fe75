//! The paths of services and instances, and the names that may be in them.

use std::fmt;
use std::sync::Arc;

use curator_framework::{make_path, validate_path};

use crate::error::DiscoveryError;

/// The node that each server has at its root.
pub(crate) const RESERVED: &str = "zookeeper";

/// Returns the path of a service's node by the service's name.
pub(crate) type PathOfName = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The paths of a discovery.
#[derive(Clone)]
pub(crate) struct Layout {
    pub(crate) base: String,
    pub(crate) path: Option<PathOfName>,
}

impl Layout {
    /// Returns the path of a service's node.
    pub(crate) fn service(&self, name: &str) -> Result<String, DiscoveryError> {
        check_name(name)?;
        let path = match &self.path {
            Some(path) => path(name),
            None => make_path(&self.base, name),
        };
        validate_path(&path)?;
        Ok(path)
    }

    /// Returns the path of an instance's node, without the number of a sequential one.
    pub(crate) fn instance(&self, name: &str, id: &str) -> Result<String, DiscoveryError> {
        let service = self.service(name)?;
        check_id(id)?;
        Ok(make_path(&service, id))
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout").field("base", &self.base).field("has_path", &self.path.is_some()).finish()
    }
}

/// Checks the name of a service. A name may have slashes, as Spring's dependencies do.
pub(crate) fn check_name(name: &str) -> Result<(), DiscoveryError> {
    let reason = if name.is_empty() {
        "the node of a service needs a name".to_owned()
    } else if name.split('/').next() == Some(RESERVED) {
        "ZooKeeper has a node of this name".to_owned()
    } else {
        match validate_path(&format!("/{name}")) {
            Ok(()) if name.starts_with('/') => "it starts with a slash".to_owned(),
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        }
    };
    Err(DiscoveryError::InvalidArgument { argument: "name", reason })
}

/// Checks the id of an instance, the name of one node.
pub(crate) fn check_id(id: &str) -> Result<(), DiscoveryError> {
    let reason = if id.is_empty() {
        "the node of an instance needs a name".to_owned()
    } else if id == RESERVED {
        "ZooKeeper has a node of this name".to_owned()
    } else if id.contains('/') {
        format!("{id:?} has a slash, so it is not the name of one node")
    } else {
        match validate_path(&format!("/{id}")) {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        }
    };
    Err(DiscoveryError::InvalidArgument { argument: "id", reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Curator's `DiscoveryPathConstructorImplTest`, without the null and the empty name.
    #[test]
    fn paths_are_those_of_java() {
        for (base, service, instance) in [
            ("/foo/bar", "/foo/bar/baz", "/foo/bar/baz/i1"),
            ("/", "/baz", "/baz/i1"),
            ("/foo", "/foo/baz", "/foo/baz/i1"),
        ] {
            let layout = Layout { base: base.to_owned(), path: None };
            assert_eq!(layout.service("baz").unwrap(), service);
            assert_eq!(layout.instance("baz", "i1").unwrap(), instance);
        }
        let layout = Layout { base: "/foo".to_owned(), path: None };
        assert_eq!(layout.service("shop/cart").unwrap(), "/foo/shop/cart");
        assert!(layout.service("").is_err() && layout.instance("baz", "a/b").is_err());
        // Below ZooKeeper's own node are quotas and the configuration.
        let at_the_root = Layout { base: "/".to_owned(), path: None };
        for name in ["zookeeper", "zookeeper/quota", "/a", "a/", "a//b", "a/..", ".", "a\0"] {
            assert!(at_the_root.service(name).is_err(), "{name:?}");
        }
        assert_eq!(at_the_root.service("my/zookeeper").unwrap(), "/my/zookeeper");
        assert_eq!(at_the_root.instance("größe", "i 1:ü").unwrap(), "/größe/i 1:ü");
    }

    #[test]
    fn layout_of_the_program_is_checked() {
        let path = |name: &str| format!("/env/{name}/instances");
        let layout = Layout { base: "/foo".to_owned(), path: Some(Arc::new(path)) };
        assert_eq!(layout.instance("web", "i1").unwrap(), "/env/web/instances/i1");
        let layout = Layout { base: "/foo".to_owned(), path: Some(Arc::new(|name| format!("{name}/"))) };
        assert!(layout.service("web").is_err());
    }
}
