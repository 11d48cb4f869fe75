//! The prefix of a client's paths: the chroot of its connect string, then its namespace.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::path::{parent_of, validate_path};

/// The node above all paths of a client. The ZooKeeper client does not know it: the framework adds it to each request
/// and removes it from each reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Namespace(Option<Arc<Prefix>>);

#[derive(Debug, PartialEq, Eq)]
struct Prefix {
    /// Chroot and namespace, without a slash at the end.
    path: String,
    /// The length of the chroot in it.
    chroot: usize,
}

impl Namespace {
    /// # Errors
    ///
    /// `Error::InvalidPath` for an invalid chroot, `Error::InvalidConfig` for an invalid namespace.
    pub(crate) fn new(chroot: &str, namespace: &str) -> Result<Self> {
        let chroot = if chroot == "/" { "" } else { chroot };
        if !chroot.is_empty() {
            validate_path(chroot)?;
        }
        if namespace.is_empty() {
            let whole = Prefix { path: chroot.to_owned(), chroot: chroot.len() };
            return Ok(Self((!chroot.is_empty()).then(|| Arc::new(whole))));
        }
        let below = format!("/{namespace}");
        if let Err(Error::InvalidPath { reason, .. }) = validate_path(&below) {
            return Err(Error::invalid_config("namespace", format!("{namespace:?}: {reason}")));
        }
        Ok(Self(Some(Arc::new(Prefix { path: format!("{chroot}{below}"), chroot: chroot.len() }))))
    }

    /// Returns the same chroot with another namespace.
    pub(crate) fn with_namespace(&self, namespace: &str) -> Result<Self> {
        Self::new(self.chroot(), namespace)
    }

    pub(crate) fn chroot(&self) -> &str {
        self.0.as_ref().map_or("", |prefix| &prefix.path[..prefix.chroot])
    }

    /// Returns the namespace without slashes at its ends; empty without one.
    pub(crate) fn namespace(&self) -> &str {
        self.0.as_ref().and_then(|prefix| prefix.path.get(prefix.chroot + 1..)).unwrap_or_default()
    }

    /// Returns the server's path of a client's path.
    pub(crate) fn to_server_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(path),
            Some(prefix) if path == "/" => Cow::Owned(prefix.path.clone()),
            Some(prefix) => Cow::Owned(format!("{}{path}", prefix.path)),
        }
    }

    /// Returns the client's path of a server's path; a path outside of the root is returned unchanged.
    pub(crate) fn to_client_path<'a>(&self, path: &'a str) -> &'a str {
        let below = self.0.as_ref().and_then(|prefix| path.strip_prefix(prefix.path.as_str()));
        match below {
            Some("") => "/",
            Some(below) if below.starts_with('/') => below,
            _ => path,
        }
    }

    /// Returns a server's path without the chroot, but with the namespace.
    pub(crate) fn without_chroot<'a>(&self, full: &'a str) -> &'a str {
        match full.get(self.chroot().len()..) {
            Some("") | None => "/",
            Some(below) => below,
        }
    }

    /// Returns `true` for the chroot and the nodes above it, which the client must not create.
    pub(crate) fn is_given(&self, full: &str) -> bool {
        full == "/" || full.len() <= self.chroot().len()
    }

    /// Returns `true` for the namespace's node and the nodes above it.
    pub(crate) fn is_of_namespace(&self, full: &str) -> bool {
        self.0.as_ref().is_some_and(|prefix| full.len() <= prefix.path.len())
    }

    /// Returns the namespace's node, which must exist before any node in the namespace.
    pub(crate) fn namespace_node(&self) -> Option<&str> {
        let prefix = self.0.as_ref()?;
        (prefix.path.len() > prefix.chroot).then_some(prefix.path.as_str())
    }

    /// Returns the server's path of the parent.
    pub(crate) fn full_parent(&self, path: &str) -> String {
        self.to_server_path(parent_of(path)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(chroot: &str, namespace: &str) -> Namespace {
        Namespace::new(chroot, namespace).unwrap()
    }

    #[test]
    fn nothing_stands_before_the_paths_of_most_clients() {
        let none = root("", "");
        assert_eq!(none, Namespace::default());
        assert_eq!((none.to_server_path("/a").as_ref(), none.to_client_path("/a"), none.namespace()), ("/a", "/a", ""));
        assert_eq!(root("/", ""), none);
    }

    #[test]
    fn what_is_added_is_taken_off_again() {
        for (root, full) in
            [(root("", "ns"), "/ns"), (root("/zoo/apps", ""), "/zoo/apps"), (root("/zoo", "ns/inner"), "/zoo/ns/inner")]
        {
            assert_eq!(root.to_server_path("/"), full);
            assert_eq!(root.to_server_path("/a/b"), format!("{full}/a/b"));
            for path in ["/", "/a", "/a/b"] {
                assert_eq!(root.to_client_path(&root.to_server_path(path)), path);
            }
        }
        assert_eq!(root("/zoo", "ns/inner").namespace(), "ns/inner");
        assert_eq!(root("/zoo", "ns").with_namespace("other").unwrap(), root("/zoo", "other"));
        assert_eq!(root("/zoo", "ns").with_namespace("").unwrap(), root("/zoo", ""));
    }

    /// Curator removes `/ns` from `/nsother` too.
    #[test]
    fn a_node_that_only_begins_like_the_namespace_is_not_below_it() {
        assert_eq!(root("", "ns").to_client_path("/nsother/a"), "/nsother/a");
    }

    #[test]
    fn what_may_be_made_is_below_the_chroot() {
        let root = root("/zoo", "ns");
        assert!(root.is_given("/") && root.is_given("/zoo") && !root.is_given("/zoo/ns"));
        assert!(root.is_of_namespace("/zoo/ns") && !root.is_of_namespace("/zoo/ns/a"));
        assert_eq!(root.namespace_node(), Some("/zoo/ns"));
        assert_eq!(root.without_chroot("/zoo/ns/a"), "/ns/a");
        assert_eq!(root.without_chroot("/zoo"), "/");
        assert_eq!(root.full_parent("/a"), "/zoo/ns");
    }

    /// Curator's `TestNamespaceFacade.testInvalid`.
    #[test]
    fn an_invalid_namespace_is_named() {
        let error = Namespace::new("", "/snafu").unwrap_err();
        assert_eq!(error.to_string(), "invalid namespace: \"/snafu\": it has an empty element");
    }
}
