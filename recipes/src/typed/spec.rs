//! The description of typed nodes.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "schema")]
use curator_framework::{Acl, Allowance, Schema};
use curator_framework::{Error, make_path, validate_path};

use crate::codec::Codec;
use crate::typed::error::ModelError;
use crate::typed::options::ModelSpecOptions;

/// The description of nodes with values of a type: Curator's `ModelSpec`. It has the path, the [`Codec`] and the kind
/// of the nodes. It makes no request.
///
/// A part of the path in braces is a parameter, as in `/users/{id}`. [`resolved`](Self::resolved) replaces the first
/// one by a key.
///
/// # Examples
///
/// ```
/// use curator_recipes::{ModelSpec, RawCodec};
///
/// # fn main() -> Result<(), curator_recipes::ModelError> {
/// let orders = ModelSpec::<String>::new("/users/{id}/orders/{order}", RawCodec)?;
/// let of_ada = orders.resolved("ada")?;
/// assert_eq!(of_ada.path(), "/users/ada/orders/{order}");
/// assert_eq!(of_ada.resolved(17)?.path(), "/users/ada/orders/17");
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ZPath")]
#[doc(alias = "ModelSerializer")]
pub struct ModelSpec<T> {
    /// The path before the first parameter.
    pub(super) parent: String,
    /// The first parameter, and the parts after it.
    parameters: Vec<String>,
    pub(super) codec: Arc<dyn Codec<T>>,
    pub(super) options: Arc<ModelSpecOptions>,
}

impl<T> ModelSpec<T> {
    /// Describes persistent nodes at a path, with the client's defaults for the access control list and compression.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(path: impl Into<String>, codec: impl Codec<T>) -> Result<Self, ModelError> {
        Self::with_options(path, codec, ModelSpecOptions::new())
    }

    /// Describes nodes at a path, with these options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `ModelError::InvalidArgument`: the mode is sequential. The server would choose the name of each node.
    pub fn with_options(
        path: impl Into<String>,
        codec: impl Codec<T>,
        options: ModelSpecOptions,
    ) -> Result<Self, ModelError> {
        let path = path.into();
        validate_path(&path)?;
        if options.mode.is_sequential() {
            return Err(ModelError::invalid("mode", "it is sequential, so a key would not be the name of its node"));
        }
        let parameters = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let spec = Self { parent: "/".to_owned(), parameters, codec: Arc::new(codec), options: Arc::new(options) };
        Ok(spec.up_to_a_parameter())
    }

    /// Moves the names before the first parameter to the parent.
    fn up_to_a_parameter(mut self) -> Self {
        let names = self.parameters.iter().position(|part| is_parameter(part)).unwrap_or(self.parameters.len());
        for name in self.parameters.drain(..names) {
            self.parent = make_path(&self.parent, &name);
        }
        self
    }

    /// Returns the path, with the parameters that are left in braces.
    #[must_use]
    #[doc(alias = "fullPath")]
    pub fn path(&self) -> String {
        self.parameters.iter().fold(self.parent.clone(), |path, part| make_path(&path, part))
    }

    /// Returns the description with a key in place of the first parameter. Braces in a key are part of the name.
    ///
    /// # Errors
    ///
    /// * `ModelError::InvalidKey`: the key is not one name of a node: empty, `.`, `..`, with a slash, or with a
    ///   character
    ///   that ZooKeeper does not allow.
    /// * `ModelError::InvalidArgument`: no parameter is left.
    pub fn resolved(&self, key: impl fmt::Display) -> Result<Self, ModelError> {
        let key = key.to_string();
        check_key(&key)?;
        let mut spec = self.clone();
        if spec.parameters.is_empty() {
            return Err(ModelError::invalid("key", format!("the path {} has no parameter for {key:?}", self.parent)));
        }
        spec.parameters.remove(0);
        spec.parent = make_path(&self.parent, &key);
        Ok(spec.up_to_a_parameter())
    }

    /// Returns `true` if no parameter is left, so that the path is the path of one node.
    #[must_use]
    pub fn is_resolved(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Returns the rules of these nodes, for a client's [`SchemaSet`](curator_framework::SchemaSet): Curator's `schema()`.
    /// Each program with that client can only write data that the codec reads, to nodes of the description's mode. A
    /// parameter that is left matches one name.
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig`: the path is too long for a pattern.
    #[cfg(feature = "schema")]
    #[cfg_attr(docsrs, doc(cfg(feature = "schema")))]
    pub fn schema(&self) -> Result<Schema, ModelError>
    where
        T: 'static,
    {
        let part = |part: &String| if is_parameter(part) { "[^/]+".to_owned() } else { escaped(part) };
        let parts = self.parameters.iter().fold(escaped(&self.parent), |path, next| make_path(&path, &part(next)));
        let schema = if self.is_resolved() { Schema::for_path(self.path())? } else { Schema::for_pattern(&parts)? };
        let ephemeral = if self.options.mode.is_ephemeral() { Allowance::Must } else { Allowance::Cannot };
        let codec = Arc::clone(&self.codec);
        let reads = move |_: &str, data: &[u8], _: &[Acl]| codec.decode(data).is_ok();
        Ok(schema.named(self.path()).ephemeral(ephemeral).sequential(Allowance::Cannot).validator(reads))
    }

    /// Returns `true` if the last part of the path is the only parameter.
    pub(super) fn is_directory(&self) -> bool {
        self.parameters.len() == 1
    }
}

/// Returns `true` if a part of a path is a parameter.
fn is_parameter(part: &str) -> bool {
    part.starts_with('{') && part.ends_with('}')
}

/// Returns the regular expression that matches this text.
#[cfg(feature = "schema")]
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, character| {
        // Behind a backslash these two have a meaning.
        if character.is_ascii_punctuation() && !matches!(character, '<' | '>' | '/') {
            escaped.push('\\');
        }
        escaped.push(character);
        escaped
    })
}

/// Checks that a key is one name of a node.
fn check_key(key: &str) -> Result<(), ModelError> {
    let invalid = |reason| Err(ModelError::InvalidKey { key: key.to_owned(), reason });
    if key.is_empty() {
        return invalid("it is empty");
    }
    if key.contains('/') {
        return invalid("it has a slash");
    }
    match validate_path(&format!("/{key}")) {
        Err(Error::InvalidPath { reason, .. }) => invalid(reason),
        checked => Ok(checked?),
    }
}

impl<T> Clone for ModelSpec<T> {
    fn clone(&self) -> Self {
        Self {
            parent: self.parent.clone(),
            parameters: self.parameters.clone(),
            codec: Arc::clone(&self.codec),
            options: Arc::clone(&self.options),
        }
    }
}

impl<T> fmt::Debug for ModelSpec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelSpec").field("path", &self.path()).field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use curator_framework::CreateMode;

    use super::*;
    use crate::codec::RawCodec;

    fn spec(path: &str) -> Result<ModelSpec<String>, ModelError> {
        ModelSpec::new(path, RawCodec)
    }

    /// Curator's `TestZPath.testParsing`, `testResolvedPath`, `testPartialResolution` and `testCustomIds`.
    #[test]
    fn keys_replace_the_parameters_from_left_to_right() {
        let two = spec("/one/{first}/two/{second}").unwrap();
        assert!(!two.is_resolved() && !two.is_directory());
        assert_eq!(two.path(), "/one/{first}/two/{second}");
        let one = two.resolved("p1").unwrap();
        assert!(!one.is_resolved() && one.is_directory());
        assert_eq!((one.path().as_str(), one.parent.as_str()), ("/one/p1/two/{second}", "/one/p1/two"));
        let none = one.resolved(2).unwrap();
        assert!(none.is_resolved());
        assert_eq!(none.path(), "/one/p1/two/2");
        assert_eq!(two.path(), "/one/{first}/two/{second}", "it stays as it was");
        for (path, resolved) in [("/{}", "/k"), ("/{id}", "/k"), ("/{id}/a", "/k/a"), ("/a{/{id}", "/a{/k")] {
            let spec = spec(path).unwrap();
            assert_eq!((spec.path().as_str(), spec.resolved("k").unwrap().path().as_str()), (path, resolved));
        }
        assert_eq!(spec("/").unwrap().path(), "/");
    }

    #[test]
    fn a_key_in_braces_is_a_name() {
        let spec = spec("/a/{id}/b").unwrap().resolved("{id}").unwrap();
        assert!(spec.is_resolved());
        assert_eq!(spec.path(), "/a/{id}/b");
    }

    #[test]
    fn a_key_that_is_not_one_name_is_refused() {
        let spec = spec("/users/{id}").unwrap();
        for (key, rule) in [
            ("", "it is empty"),
            ("/", "it has a slash"),
            ("a/b", "it has a slash"),
            ("/a", "it has a slash"),
            ("a/", "it has a slash"),
            (".", "it has a relative element"),
            ("..", "it has a relative element"),
            ("a\u{0}", "it has a character that ZooKeeper does not allow"),
            ("a\n", "it has a character that ZooKeeper does not allow"),
        ] {
            let Err(ModelError::InvalidKey { key: named, reason }) = spec.resolved(key) else {
                panic!("{key:?} was accepted");
            };
            assert_eq!((named.as_str(), reason), (key, rule));
        }
        for key in ["...", "a b", "ä", "{id}", "a.b"] {
            assert_eq!(spec.resolved(key).unwrap().path(), format!("/users/{key}"));
        }
    }

    /// Curator's `TestZPath.testUnresolvedPath`, the other way round: surplus keys.
    #[test]
    fn a_surplus_key_is_refused() {
        let error = spec("/users").unwrap().resolved("ada").unwrap_err();
        assert_eq!(error.to_string(), "invalid key: the path /users has no parameter for \"ada\"");
    }

    #[test]
    fn paths_and_modes_that_cannot_work_are_refused() {
        for path in ["", "a", "/a/", "/a//b", "/{id}/..", "/\u{1}"] {
            let refused = spec(path);
            assert!(matches!(refused, Err(ModelError::Framework(Error::InvalidPath { .. }))), "{path:?}: {refused:?}");
        }
        let hour = Duration::from_secs(3600);
        for (mode, is_allowed) in [
            (CreateMode::Persistent, true),
            (CreateMode::Ephemeral, true),
            (CreateMode::Container, true),
            (CreateMode::PersistentWithTtl(hour), true),
            (CreateMode::PersistentSequential, false),
            (CreateMode::EphemeralSequential, false),
            (CreateMode::PersistentSequentialWithTtl(hour), false),
        ] {
            let spec = ModelSpec::<String>::with_options("/a", RawCodec, ModelSpecOptions::new().mode(mode));
            assert_eq!(spec.is_ok(), is_allowed, "{mode:?}");
        }
    }
}
