//! Paths of nodes: Curator's `PathUtils` and `ZKPaths`.

use memchr::memrchr;

use crate::error::{Error, Result};

/// Checks a path as a server does with ZooKeeper's `PathUtils.validatePath`.
///
/// # Errors
///
/// `Error::InvalidPath`, with the path and the rule that it breaks: empty, relative, a slash at its end, an empty
/// element, `.` or `..` as an element, or a character that ZooKeeper does not allow.
pub fn validate_path(path: &str) -> Result<()> {
    let invalid = |reason| Err(Error::InvalidPath { path: path.into(), reason });
    let Some(rest) = path.strip_prefix('/') else {
        return invalid(if path.is_empty() { "it is empty" } else { "it does not start with a slash" });
    };
    if rest.is_empty() {
        return Ok(());
    }
    if rest.ends_with('/') {
        return invalid("it ends with a slash");
    }
    for element in rest.split('/') {
        match element {
            "" => return invalid("it has an empty element"),
            "." | ".." => return invalid("it has a relative element"),
            _ => {}
        }
    }
    // UTF-16 units as in Java: above U+FFFF the low surrogate falls in a forbidden range.
    let forbidden = |unit: u16| matches!(unit, 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff);
    if path.encode_utf16().any(forbidden) {
        return invalid("it has a character that ZooKeeper does not allow");
    }
    Ok(())
}

/// Joins a parent and a child with one slash: Curator's `ZKPaths.makePath`. Either may be empty or end in a slash.
///
/// One of two slashes at an end stays, so that an invalid path stays invalid.
#[must_use]
pub fn make_path(parent: &str, child: &str) -> String {
    extend(String::with_capacity(parent.len() + child.len() + 2), parent, [child])
}

/// Joins like [`make_path`], with any number of children: Curator's `ZKPaths.makePath` with more than two arguments.
///
/// (For an empty parent and an empty first child Curator returns `//a`, which is not a path; this returns `/a`.)
#[must_use]
pub fn make_path_from<S: AsRef<str>>(parent: &str, children: impl IntoIterator<Item = S>) -> String {
    extend(String::new(), parent, children)
}

fn extend<S: AsRef<str>>(mut path: String, parent: &str, children: impl IntoIterator<Item = S>) -> String {
    if !parent.is_empty() && !parent.starts_with('/') {
        path.push('/');
    }
    path.push_str(parent.strip_suffix('/').unwrap_or(parent));
    for child in children {
        let child = child.as_ref();
        if child.is_empty() || child == "/" {
            continue;
        }
        let child = child.strip_prefix('/').unwrap_or(child);
        path.push('/');
        path.push_str(child.strip_suffix('/').unwrap_or(child));
    }
    if path.is_empty() {
        path.push('/');
    }
    path
}

/// Returns the last element of a path, empty for the root: Curator's `ZKPaths.getNodeFromPath`.
#[must_use]
#[doc(alias = "idFromPath")]
pub fn node_from_path(path: &str) -> &str {
    memrchr(b'/', path.as_bytes()).map_or(path, |index| &path[index + 1..])
}

/// Returns the path of the parent; the root is its own parent.
#[must_use]
pub fn parent_of(path: &str) -> &str {
    match memrchr(b'/', path.as_bytes()) {
        None | Some(0) => "/",
        Some(index) => &path[..index],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_zookeeper_accepts() {
        for path in ["/", "/a", "/a/b", "/a.b/..c", "/ä", "/ ~", "/\u{a0}\u{d7ff}\u{f900}\u{ffef}"] {
            assert!(validate_path(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn paths_that_it_does_not() {
        for (path, reason) in [
            ("", "it is empty"),
            ("a/b", "it does not start with a slash"),
            ("/a/", "it ends with a slash"),
            ("//", "it ends with a slash"),
            ("/a//b", "it has an empty element"),
            ("/a/./b", "it has a relative element"),
            ("/..", "it has a relative element"),
            ("/a\u{0}", "it has a character that ZooKeeper does not allow"),
            ("/a\u{1}", "it has a character that ZooKeeper does not allow"),
            ("/a\u{1f}", "it has a character that ZooKeeper does not allow"),
            ("/a\u{7f}", "it has a character that ZooKeeper does not allow"),
            ("/a\u{9f}", "it has a character that ZooKeeper does not allow"),
            ("/a\u{f8ff}", "it has a character that ZooKeeper does not allow"),
            ("/a\u{fff0}", "it has a character that ZooKeeper does not allow"),
            ("/a\u{ffff}", "it has a character that ZooKeeper does not allow"),
            ("/\u{1f600}", "it has a character that ZooKeeper does not allow"),
        ] {
            let Err(Error::InvalidPath { path: named, reason: given }) = validate_path(path) else {
                panic!("{path:?} was accepted");
            };
            assert_eq!((named.as_str(), given), (path, reason));
        }
    }

    #[test]
    fn make_path_joins_with_one_slash() {
        for (parent, child, path) in [
            ("/", "/", "/"),
            ("", "/", "/"),
            ("/", "", "/"),
            ("foo", "bar", "/foo/bar"),
            ("/foo", "/bar", "/foo/bar"),
            ("/foo/", "bar/", "/foo/bar"),
            ("foo", "", "/foo"),
            ("/", "foo", "/foo"),
            ("/foo/bar", "baz", "/foo/bar/baz"),
            ("//", "foo", "//foo"),
            ("foo//", "bar", "/foo//bar"),
            ("foo", "//", "/foo/"),
            ("foo", "//bar", "/foo//bar"),
        ] {
            assert_eq!(make_path(parent, child), path, "{parent:?} {child:?}");
        }
    }

    #[test]
    fn the_ends_of_paths() {
        assert_eq!((parent_of("/a/b"), node_from_path("/a/b")), ("/a", "b"));
        assert_eq!((parent_of("/a"), node_from_path("/a")), ("/", "a"));
        assert_eq!((parent_of("/"), node_from_path("/")), ("/", ""));
    }
}
