//! The text of a path: as the caller wrote it in `Display`, with the namespace in `Debug`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A path, or a request with its path, in an error or a guard.
///
/// It is a `str` with the path as the caller wrote it: without the client's namespace and chroot. `Debug` has the path
/// as the server knows it. Both are the same for a client without a namespace and a chroot. A clone shares the text.
///
/// ```
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// use curator_framework::Error;
///
/// let inside = client.using_namespace("team")?;
/// if let Err(Error::NoNode { path }) = inside.get_data().for_path("/settings").await {
///     assert_eq!(path, "/settings");
///     assert_eq!(path.to_string(), "/settings");
///     assert_eq!(format!("{path:?}"), "\"/team/settings\"");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PathText {
    /// The caller's text, then the server's if that is another one.
    both: Arc<str>,
    /// The length of the caller's text.
    split: usize,
}

impl PathText {
    pub(crate) fn new(short: &str, full: &str) -> Self {
        if short == full {
            return Self::from(short);
        }
        let mut both = String::with_capacity(short.len() + full.len());
        both.push_str(short);
        both.push_str(full);
        Self { both: both.into(), split: short.len() }
    }

    /// Returns the text of a path that the server has given, and the caller's part of which is `short`.
    pub(crate) fn of_server(full: &Arc<str>, short: &str) -> Self {
        if short == &**full { Self { both: Arc::clone(full), split: full.len() } } else { Self::new(short, full) }
    }

    /// Returns the text with the path as the caller wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.both[..self.split]
    }

    /// Returns the text with the path as the server knows it.
    #[must_use]
    pub fn full(&self) -> &str {
        if self.split < self.both.len() { &self.both[self.split..] } else { &self.both }
    }

    /// Takes the text for the server's, and shortens the path in it for the caller. A second call changes nothing.
    pub(crate) fn shorten(&mut self, shorten: &impl Fn(&str) -> &str) {
        if self.split < self.both.len() {
            return;
        }
        // In a request the path follows the name.
        let begin = if self.both.starts_with('/') { 0 } else { self.both.find(" /").map_or(self.split, |at| at + 1) };
        let short = shorten(&self.both[begin..]);
        if short.len() < self.split - begin {
            *self = Self::new(&format!("{}{short}", &self.both[..begin]), &self.both);
        }
    }
}

impl From<&str> for PathText {
    fn from(text: &str) -> Self {
        Self { both: text.into(), split: text.len() }
    }
}

impl From<String> for PathText {
    fn from(text: String) -> Self {
        Self { split: text.len(), both: text.into() }
    }
}

impl From<PathText> for String {
    fn from(text: PathText) -> Self {
        text.as_str().to_owned()
    }
}

impl Deref for PathText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for PathText {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.full(), f)
    }
}

impl PartialEq for PathText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for PathText {}

impl Hash for PathText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialEq<str> for PathText {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for PathText {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for PathText {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<PathText> for String {
    fn eq(&self, other: &PathText) -> bool {
        self.as_str() == other.as_str()
    }
}

impl PartialEq<PathText> for &str {
    fn eq(&self, other: &PathText) -> bool {
        *self == other.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortened(text: &str) -> PathText {
        let mut text = PathText::from(text);
        for _ in 0..2 {
            text.shorten(&|path| match path.strip_prefix("/ns") {
                Some("") => "/",
                Some(below) if below.starts_with('/') => below,
                _ => path,
            });
        }
        text
    }

    #[test]
    fn the_path_is_short_in_the_text_and_whole_in_debug() {
        for (full, short) in [
            ("/ns/a", "/a"),
            ("/ns", "/"),
            ("/ns/ns/a", "/ns/a"),
            ("/nsother", "/nsother"),
            ("create /ns/a", "create /a"),
            ("exists /ns", "exists /"),
            ("multi /other", "multi /other"),
            ("the wait for a connection", "the wait for a connection"),
            ("", ""),
        ] {
            let text = shortened(full);
            assert_eq!((text.as_str(), text.full()), (short, full));
            assert_eq!((text.to_string(), format!("{text:?}")), (short.to_owned(), format!("{full:?}")));
            assert_eq!(text, short);
            assert_eq!(short, text);
            assert_eq!(text, short.to_owned());
            assert_eq!(short.to_owned(), text);
            assert_eq!(text, PathText::from(short));
        }
    }

    /// Errors are stored in the futures of waiters.
    #[test]
    fn the_text_is_as_small_as_a_string() {
        assert_eq!(size_of::<PathText>(), size_of::<String>());
    }
}
