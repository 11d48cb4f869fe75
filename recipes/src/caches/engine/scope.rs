//! The paths that belong to a cache.

use std::sync::Arc;

/// A predicate of relative paths.
pub(in crate::caches) type PathFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The paths that belong to a cache, relative to its root.
#[derive(Clone, Default)]
pub(in crate::caches) struct Scope {
    /// The greatest number of segments below the root; `None` without a limit.
    pub(in crate::caches) max_depth: Option<usize>,
    /// Returns `false` for paths that do not belong to the cache, nor those below them. Not called with the root.
    pub(in crate::caches) accepts: Option<PathFilter>,
    /// Returns `false` for paths without children in the cache.
    pub(in crate::caches) descends: Option<PathFilter>,
}

impl Scope {
    /// Returns `true` if a path belongs to the cache.
    pub(in crate::caches) fn has(&self, path: &str) -> bool {
        let is_accepted = |path: &str| path.is_empty() || self.accepts.as_ref().is_none_or(|accepts| accepts(path));
        let is_within = self.max_depth.is_none_or(|max| depth(path) <= max);
        let is_plain = self.accepts.is_none() && self.descends.is_none();
        is_within && (is_plain || at_and_above(path).all(|at| is_accepted(at) && (at == path || self.descends(at))))
    }

    /// Returns `true` if the children of a path of the cache belong to it.
    pub(in crate::caches) fn has_children_of(&self, path: &str) -> bool {
        self.max_depth.is_none_or(|max| depth(path) < max) && self.descends(path)
    }

    fn descends(&self, path: &str) -> bool {
        self.descends.as_ref().is_none_or(|descends| descends(path))
    }
}

/// Returns the full path of a path relative to a root.
pub(in crate::caches) fn full_path(root: &str, path: &str) -> String {
    match (root, path) {
        (root, "") => root.to_owned(),
        ("/", path) => path.to_owned(),
        (root, path) => format!("{root}{path}"),
    }
}

/// Returns the number of segments of a relative path.
pub(super) fn depth(path: &str) -> usize {
    path.matches('/').count()
}

/// Returns the paths from the root down to a path.
pub(super) fn at_and_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(index, _)| index).chain([path.len()]).map(|end| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_above_itself_and_below_the_root() {
        assert_eq!(at_and_above("").collect::<Vec<_>>(), [""]);
        assert_eq!(at_and_above("/a/b").collect::<Vec<_>>(), ["", "/a", "/a/b"]);
    }

    #[test]
    fn a_filter_takes_all_below_a_path() {
        let scope = Scope { accepts: Some(Arc::new(|path| !path.ends_with("/out"))), ..Scope::default() };
        let has = ["", "/a", "/out", "/a/out", "/out/a", "/a/out/b"].map(|path| scope.has(path));
        assert_eq!(has, [true, true, false, false, false, false]);
    }

    #[test]
    fn a_selector_keeps_a_node_without_its_children() {
        let scope = Scope { descends: Some(Arc::new(|path| path != "/a")), ..Scope::default() };
        assert!(scope.has("/a") && !scope.has("/a/b") && !scope.has("/a/b/c") && scope.has("/b/c"));
        assert!(!scope.has_children_of("/a") && scope.has_children_of("/b"));
    }

    #[test]
    fn depth_counts_from_the_root() {
        let scope = Scope { max_depth: Some(1), ..Scope::default() };
        assert!(scope.has("") && scope.has("/a") && !scope.has("/a/b"));
        assert!(scope.has_children_of("") && !scope.has_children_of("/a"));
    }
}
