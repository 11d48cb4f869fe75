//! Functions on the paths of nodes and the names of children: Curator's `ZKPaths` and `PathUtils`.
//!
//! They work on text and send no request. The results equal Curator 5's; each difference is noted.

pub use crate::model::path::{make_path, make_path_from, node_from_path, parent_of, validate_path};

use crate::error::{Error, Result};

/// The number of digits that a server appends to the name of a sequential node.
const SUFFIX_LENGTH: usize = 10;

/// The two ends of a path: Curator's `ZKPaths.PathAndNode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathAndNode<'a> {
    /// The path of the parent.
    pub path: &'a str,
    /// The name of the node, empty for the root.
    pub node: &'a str,
}

/// Returns the parent's path and the node's name: Curator's `ZKPaths.getPathAndNode`. The root gives itself and an
/// empty name.
///
/// # Errors
///
/// `Error::InvalidPath`: ZooKeeper does not allow this path.
pub fn path_and_node(path: &str) -> Result<PathAndNode<'_>> {
    validate_path(path)?;
    Ok(PathAndNode { path: parent_of(path), node: node_from_path(path) })
}

/// Returns the elements of a path, none for the root: Curator's `ZKPaths.split`.
///
/// # Errors
///
/// `Error::InvalidPath`: ZooKeeper does not allow this path.
pub fn split(path: &str) -> Result<Vec<&str>> {
    validate_path(path)?;
    Ok(path.split('/').filter(|element| !element.is_empty()).collect())
}

/// Returns the last ten characters, the number of a sequential node: Curator's `ZKPaths.extractSequentialSuffix`. It
/// returns a shorter text whole, and does not check for digits.
#[must_use]
pub fn extract_sequential_suffix(path: &str) -> &str {
    path.char_indices().rev().nth(SUFFIX_LENGTH - 1).map_or(path, |(start, _)| &path[start..])
}

/// Returns the children in the order of their whole names: Curator's `ZKPaths.getSortedChildren`.
///
/// That is the order of their numbers only among nodes of the same name without protection.
#[must_use]
pub fn sorted_children(mut children: Vec<String>) -> Vec<String> {
    children.sort_unstable();
    children
}

/// Checks a namespace: `a`, `a/b` and the empty one are valid, `/a` and `a/` are not.
///
/// # Errors
///
/// `Error::InvalidConfig`, with the namespace and the rule that it breaks.
pub fn validate_namespace(namespace: &str) -> Result<()> {
    if namespace.is_empty() {
        return Ok(());
    }
    match validate_path(&format!("/{namespace}")) {
        Err(Error::InvalidPath { reason, .. }) => {
            let reason = if namespace.starts_with('/') { "it starts with a slash" } else { reason };
            Err(Error::invalid_config("namespace", format!("{namespace:?}: {reason}")))
        }
        valid => valid,
    }
}

/// Returns the server's path for a client's path in a namespace: Curator's `ZKPaths.fixForNamespace`. The empty
/// namespace returns the path unchanged.
///
/// The path of a `sequential` node may end with a slash, to which the server appends the number. In a namespace that
/// slash is lost, as in Curator: `/a/` becomes the node `/ns/a0000000000`.
///
/// # Errors
///
/// `Error::InvalidPath` for the given path; `Error::InvalidConfig` for the namespace.
pub fn fix_for_namespace(namespace: &str, path: &str, sequential: bool) -> Result<String> {
    if sequential {
        // The server appends a number, so that the path need not be valid without it.
        validate_path(&format!("{path}1")).map_err(|error| match error {
            Error::InvalidPath { reason, .. } => Error::InvalidPath { path: path.into(), reason },
            error => error,
        })?;
    } else {
        validate_path(path)?;
    }
    validate_namespace(namespace)?;
    Ok(if namespace.is_empty() { path.to_owned() } else { make_path(namespace, path) })
}

/// Returns the client's path for a server's path in a namespace: Curator's `unfixForNamespace`. Other paths are
/// returned unchanged.
///
/// `/nsx/a` is outside of `ns`. (Curator's does not check the slash and returns `x/a`.)
#[must_use]
pub fn unfix_for_namespace<'a>(namespace: &str, path: &'a str) -> &'a str {
    if namespace.is_empty() {
        return path;
    }
    match path.strip_prefix('/').and_then(|path| path.strip_prefix(namespace)) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// Curator's `TestZKPaths.testMakePath`; what is `null` there is empty here.
    #[test]
    fn make_path_joins_any_number_of_parts() {
        let none: [&str; 0] = [];
        assert_eq!(make_path_from("", none), "/");
        assert_eq!(make_path_from("foo/", none), "/foo");
        for (parent, child, path) in [
            ("", "", "/"),
            ("", "/", "/"),
            ("/", "", "/"),
            ("/", "/", "/"),
            ("foo", "", "/foo"),
            ("foo", "/", "/foo"),
            ("/foo", "", "/foo"),
            ("/foo", "/", "/foo"),
            ("", "bar", "/bar"),
            ("/", "bar", "/bar"),
            ("", "/bar", "/bar"),
            ("/", "/bar", "/bar"),
            ("foo", "bar", "/foo/bar"),
            ("/foo", "bar", "/foo/bar"),
            ("foo", "/bar", "/foo/bar"),
            ("/foo", "/bar", "/foo/bar"),
            ("/foo", "bar/", "/foo/bar"),
            ("/foo/", "/bar/", "/foo/bar"),
        ] {
            assert_eq!(make_path(parent, child), path, "{parent:?} {child:?}");
            assert_eq!(make_path_from(parent, [child]), path, "{parent:?} {child:?}");
        }
        for (parent, children, path) in [
            ("foo", ["bar", "baz", ""], "/foo/bar/baz"),
            ("foo", ["bar", "baz", "qux"], "/foo/bar/baz/qux"),
            ("/foo", ["/bar", "/baz", "/"], "/foo/bar/baz"),
            ("/foo/", ["/bar/", "/baz/", ""], "/foo/bar/baz"),
            ("foo", ["", "", ""], "/foo"),
            ("foo", ["bar", "", ""], "/foo/bar"),
            ("foo", ["", "baz", ""], "/foo/baz"),
            ("", ["", "baz", ""], "/baz"),
        ] {
            assert_eq!(make_path_from(parent, children), path, "{parent:?} {children:?}");
        }
    }

    /// Curator's `TestZKPaths.testSplit`.
    #[test]
    fn split_gives_the_elements() {
        assert_eq!(split("/").unwrap(), [""; 0]);
        assert_eq!(split("/test").unwrap(), ["test"]);
        assert_eq!(split("/test/one").unwrap(), ["test", "one"]);
        assert_eq!(split("/test/one/two").unwrap(), ["test", "one", "two"]);
        assert!(matches!(split("/test//one"), Err(Error::InvalidPath { .. })));
    }

    #[test]
    fn path_and_node_are_the_two_ends() {
        for (given, path, node) in [("/", "/", ""), ("/a", "/", "a"), ("/a/b/c", "/a/b", "c")] {
            assert_eq!(path_and_node(given).unwrap(), PathAndNode { path, node });
        }
        assert!(matches!(path_and_node("a"), Err(Error::InvalidPath { .. })));
    }

    #[test]
    fn the_suffix_is_ten_characters() {
        for (path, suffix) in [
            ("", ""),
            ("/short", "/short"),
            ("0123456789", "0123456789"),
            ("/a/lock-0000000012", "0000000012"),
            ("/a/lock--2147483648", "2147483648"),
            ("üüüüüüüüüüü", "üüüüüüüüüü"),
        ] {
            assert_eq!(extract_sequential_suffix(path), suffix);
        }
    }

    #[test]
    fn children_are_sorted_by_their_whole_names() {
        assert_eq!(sorted_children(strings(&["b-1", "a-2", "b-0", "B"])), strings(&["B", "a-2", "b-0", "b-1"]));
    }

    /// The pure part of Curator's `TestNamespaceFacade.testInvalid`.
    #[test]
    fn a_namespace_has_no_slash_at_its_ends() {
        for namespace in ["", "a", "a/b"] {
            assert!(validate_namespace(namespace).is_ok(), "{namespace:?}");
        }
        for (namespace, reason) in [
            ("/snafu", "\"/snafu\": it starts with a slash"),
            ("/", "\"/\": it starts with a slash"),
            ("a/", "\"a/\": it ends with a slash"),
            ("a//b", "\"a//b\": it has an empty element"),
            ("..", "\"..\": it has a relative element"),
        ] {
            let error = validate_namespace(namespace).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid namespace: {reason}"));
        }
    }

    #[test]
    fn fix_and_unfix_are_each_others_opposite() {
        for (namespace, path, fixed) in [
            ("ns", "/", "/ns"),
            ("ns", "/a", "/ns/a"),
            ("ns", "/ns", "/ns/ns"),
            ("n/s", "/a/b", "/n/s/a/b"),
            ("", "/", "/"),
            ("", "/a", "/a"),
        ] {
            assert_eq!(fix_for_namespace(namespace, path, false).unwrap(), fixed);
            assert_eq!(unfix_for_namespace(namespace, fixed), path);
        }
    }

    #[test]
    fn only_a_sequential_path_may_end_with_a_slash() {
        let Err(Error::InvalidPath { path, .. }) = fix_for_namespace("ns", "/a/", false) else { panic!("accepted") };
        assert_eq!(path, "/a/");
        let Err(Error::InvalidPath { path, .. }) = fix_for_namespace("ns", "/a//", true) else { panic!("accepted") };
        assert_eq!(path, "/a//");
        assert_eq!(fix_for_namespace("ns", "/a/", true).unwrap(), "/ns/a");
        assert_eq!(fix_for_namespace("", "/a/", true).unwrap(), "/a/");
        assert!(matches!(fix_for_namespace("/ns", "/a", false), Err(Error::InvalidConfig { .. })));
    }

    /// With Curator's `TestNamespaceFacade.testUnfixForEmptyNamespace`.
    #[test]
    fn a_path_outside_of_the_namespace_is_left_alone() {
        for (namespace, path) in [("ns", "/nsx/a"), ("ns", "/other"), ("ns", "/"), ("ns", "ns/a"), ("", "/foo/bar")] {
            assert_eq!(unfix_for_namespace(namespace, path), path);
        }
    }
}
