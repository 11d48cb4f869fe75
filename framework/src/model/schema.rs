//! Rules for nodes: Curator's `Schema` and `SchemaSet`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use regex::Regex;

use crate::error::{Error, Result};
use crate::model::{Acl, CreateMode, Reading};
use crate::sync::user_code::catch_panic;

/// The rule for one property of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Allowance {
    /// The node may have the property.
    #[default]
    Can,
    /// The node must have the property.
    Must,
    /// The node must not have the property.
    Cannot,
}

impl Allowance {
    fn allows(self, is: bool) -> bool {
        match self {
            Self::Can => true,
            Self::Must => is,
            Self::Cannot => !is,
        }
    }
}

/// The rule for the paths without a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OtherPaths {
    /// They are allowed.
    Allowed,
    /// They are refused.
    Refused,
}

/// Accepts or refuses a node's path, data and access control list: Curator's `SchemaValidator`. A create passes all of
/// them; a change of the data passes an empty list, and a change of the list passes empty data.
pub type SchemaValidator = dyn Fn(&str, &[u8], &[Acl]) -> bool + Send + Sync;

/// The rules for the nodes at a path, or at all paths of a pattern: Curator's `Schema`.
#[derive(Clone)]
#[doc(alias = "SchemaBuilder")]
pub struct Schema {
    name: String,
    place: Place,
    documentation: String,
    metadata: BTreeMap<String, String>,
    validator: Option<Arc<SchemaValidator>>,
    ephemeral: Allowance,
    sequential: Allowance,
    watched: Allowance,
    can_be_deleted: bool,
}

#[derive(Debug, Clone)]
enum Place {
    Path(String),
    Pattern(Regex),
    Anywhere,
}

impl Schema {
    fn at(name: String, place: Place) -> Self {
        Self {
            name,
            place,
            documentation: String::new(),
            metadata: BTreeMap::new(),
            validator: None,
            ephemeral: Allowance::Can,
            sequential: Allowance::Can,
            watched: Allowance::Can,
            can_be_deleted: true,
        }
    }

    /// Creates a schema for one path. It allows everything until a rule is set.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`.
    pub fn for_path(path: impl Into<String>) -> Result<Self> {
        let path = path.into();
        crate::model::path::validate_path(&path)?;
        Ok(Self::at(path.clone(), Place::Path(path)))
    }

    /// Creates a schema for all paths that match a regular expression as a whole.
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig` with the error in the expression.
    pub fn for_pattern(pattern: &str) -> Result<Self> {
        let whole = Regex::new(&format!("^(?:{pattern})$"))
            .map_err(|error| Error::invalid_config("schema's pattern", error.to_string()))?;
        Ok(Self::at(pattern.to_owned(), Place::Pattern(whole)))
    }

    /// Requires ephemeral, sequential, watched children of a recipe's path: Curator's `Schema.builderForRecipe`.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`.
    #[doc(alias = "builderForRecipe")]
    pub fn for_recipe(parent: &str) -> Result<Self> {
        crate::model::path::validate_path(parent)?;
        let schema = Self::for_pattern(&format!("{}/.*", regex::escape(parent)))?;
        Ok(schema.ephemeral(Allowance::Must).sequential(Allowance::Must).watched(Allowance::Must))
    }

    /// Forbids an ephemeral or sequential node at a recipe's path: Curator's `Schema.builderForRecipeParent`.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`.
    #[doc(alias = "builderForRecipeParent")]
    pub fn for_recipe_parent(parent: &str) -> Result<Self> {
        Ok(Self::for_path(parent)?.ephemeral(Allowance::Cannot).sequential(Allowance::Cannot))
    }

    /// Sets the name in the reports of violations. Default: the path or the pattern.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets a description for readers, which is not checked. Default: empty.
    #[must_use]
    pub fn documentation(mut self, documentation: impl Into<String>) -> Self {
        self.documentation = documentation.into();
        self
    }

    /// Adds a key and a value for readers, which are not checked.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Sets a check of path, data and access control list, called at a create or a change (then with an empty list).
    #[must_use]
    #[doc(alias = "dataValidator")]
    pub fn validator(mut self, validator: impl Fn(&str, &[u8], &[Acl]) -> bool + Send + Sync + 'static) -> Self {
        self.validator = Some(Arc::new(validator));
        self
    }

    /// Sets whether the nodes are ephemeral. Default: [`Allowance::Can`].
    #[must_use]
    pub fn ephemeral(mut self, allowance: Allowance) -> Self {
        self.ephemeral = allowance;
        self
    }

    /// Sets whether the server appends a number to the nodes' names. Default: [`Allowance::Can`].
    #[must_use]
    pub fn sequential(mut self, allowance: Allowance) -> Self {
        self.sequential = allowance;
        self
    }

    /// Sets whether reads of the nodes set a watch. Default: [`Allowance::Can`].
    #[must_use]
    pub fn watched(mut self, allowance: Allowance) -> Self {
        self.watched = allowance;
        self
    }

    /// Sets whether the nodes may be deleted. Default: `true`.
    #[must_use]
    pub fn can_be_deleted(mut self, can: bool) -> Self {
        self.can_be_deleted = can;
        self
    }

    /// Creates a schema from a description, as it is read from a file. `validators` returns the validator of a name.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, or `Error::InvalidConfig` with the cause: the pattern, or an unknown validator.
    pub fn from_description(
        description: SchemaDescription,
        validators: impl Fn(&str) -> Option<Arc<SchemaValidator>>,
    ) -> Result<Self> {
        let validator = match &description.schema_validator {
            None => None,
            Some(name) => match validators(name) {
                None => {
                    let reason = format!("{} wants the validator {name}, which nobody knows", description.name);
                    return Err(Error::invalid_config("schema's validator", reason));
                }
                known => known,
            },
        };
        let path = &description.path;
        let schema = if description.is_regex { Self::for_pattern(path)? } else { Self::for_path(path.clone())? };
        Ok(Self {
            name: description.name,
            documentation: description.documentation,
            metadata: description.metadata,
            validator,
            ephemeral: description.ephemeral,
            sequential: description.sequential,
            watched: description.watched,
            can_be_deleted: description.can_be_deleted,
            ..schema
        })
    }

    fn violation<T>(&self, path: &str, reason: impl Into<String>) -> Result<T> {
        Err(Error::SchemaViolation { path: path.into(), schema: self.name.clone(), reason: reason.into() })
    }

    fn check_content(&self, path: &str, data: &[u8], acl: &[Acl]) -> Result<()> {
        match &self.validator {
            Some(validator) => match catch_panic("validator", || validator(path, data, acl)) {
                Ok(true) => Ok(()),
                Ok(false) => self.violation(path, "the validator refuses it"),
                Err(panic) => self.violation(path, panic),
            },
            None => Ok(()),
        }
    }

    fn check_kind(&self, path: &str, allowance: Allowance, is: bool, kind: &str) -> Result<()> {
        match allowance {
            _ if allowance.allows(is) => Ok(()),
            Allowance::Must => self.violation(path, format!("it must be {kind}")),
            _ => self.violation(path, format!("it cannot be {kind}")),
        }
    }

    fn check_create(&self, path: &str, mode: CreateMode, data: &[u8], acl: &[Acl]) -> Result<()> {
        self.check_kind(path, self.ephemeral, mode.is_ephemeral(), "ephemeral")?;
        self.check_kind(path, self.sequential, mode.is_sequential(), "sequential")?;
        self.check_content(path, data, acl)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("name", &self.name).field("place", &self.place).finish_non_exhaustive()
    }
}

/// The description of a schema in a file: an element of the list that Curator's `SchemaSetLoader` reads, with the same
/// names and defaults.
///
/// With the cargo feature `serde` it is `Deserialize`, for JSON, YAML and other formats; an unknown field is an error.
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use std::sync::Arc;
/// use curator_framework::{OtherPaths, Schema, SchemaDescription, SchemaSet, SchemaValidator};
///
/// let json = r#"[{
///     "name": "jobs", "path": "/jobs/.*", "isRegex": true,
///     "ephemeral": "must", "schemaValidator": "short"
/// }]"#;
/// let validators = |name: &str| {
///     (name == "short").then(|| {
///         Arc::new(|_: &str, data: &[u8], _: &[_]| data.len() < 80) as Arc<SchemaValidator>
///     })
/// };
/// let descriptions: Vec<SchemaDescription> = serde_json::from_str(json)?;
/// let schemas = descriptions.into_iter().map(|schema| Schema::from_description(schema, validators));
/// let set = SchemaSet::new(schemas.collect::<Result<Vec<_>, _>>()?, OtherPaths::Allowed);
/// assert_eq!(set.schema_of("/jobs/1")?, "jobs");
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "camelCase", deny_unknown_fields))]
#[doc(alias = "SchemaSetLoader")]
pub struct SchemaDescription {
    /// The name in the reports of violations.
    pub name: String,
    /// A path, or a pattern that paths match as a whole.
    pub path: String,
    /// The kind of `path`: `true` for a pattern. Default: `false`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub is_regex: bool,
    /// The name of the validator. Default: none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub schema_validator: Option<String>,
    /// A description for readers, which is not checked. Default: empty.
    #[cfg_attr(feature = "serde", serde(default))]
    pub documentation: String,
    /// The rule for ephemeral nodes. Default: [`Allowance::Can`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub ephemeral: Allowance,
    /// The rule for nodes with a number that the server appends. Default: [`Allowance::Can`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub sequential: Allowance,
    /// The rule for reads with a watch. Default: [`Allowance::Can`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub watched: Allowance,
    /// The rule for deletes: `true` allows them. Default: `true`.
    #[cfg_attr(feature = "serde", serde(default = "yes"))]
    pub can_be_deleted: bool,
    /// Keys and values for readers, which are not checked. Default: empty.
    #[cfg_attr(feature = "serde", serde(default))]
    pub metadata: BTreeMap<String, String>,
}

#[cfg(feature = "serde")]
fn yes() -> bool {
    true
}

/// The schemas of a client: Curator's `SchemaSet`. A node's schema is the one of its exact path, else the first with a
/// matching pattern, else the default.
///
/// It checks the client's operations and the recipes. Paths are those that the user gives, without the namespace and
/// without the prefix of a protected node.
#[derive(Debug, Clone)]
pub struct SchemaSet {
    schemas: Vec<Schema>,
    default: Option<Schema>,
}

impl SchemaSet {
    /// Creates a set of these schemas, with this rule for paths without a schema.
    #[must_use]
    pub fn new(schemas: impl IntoIterator<Item = Schema>, others: OtherPaths) -> Self {
        let default = (others == OtherPaths::Allowed).then(|| Schema::at("default".to_owned(), Place::Anywhere));
        Self { schemas: schemas.into_iter().collect(), default }
    }

    /// Returns the schema of a path.
    ///
    /// # Errors
    ///
    /// `Error::SchemaViolation`: the path has no schema.
    fn of(&self, path: &str) -> Result<&Schema> {
        let exact = self.schemas.iter().find(|schema| matches!(&schema.place, Place::Path(exact) if exact == path));
        let matching = || {
            self.schemas.iter().find(|schema| matches!(&schema.place, Place::Pattern(regex) if regex.is_match(path)))
        };
        exact.or_else(matching).or(self.default.as_ref()).ok_or_else(|| Error::SchemaViolation {
            path: path.into(),
            schema: "none".to_owned(),
            reason: "no schema is about it".to_owned(),
        })
    }

    /// Returns the name of the path's schema.
    ///
    /// # Errors
    ///
    /// `Error::SchemaViolation`: the path has no schema.
    pub fn schema_of(&self, path: &str) -> Result<&str> {
        Ok(&self.of(path)?.name)
    }

    pub(crate) fn check_create(&self, path: &str, mode: CreateMode, data: &[u8], acl: &[Acl]) -> Result<()> {
        self.of(path)?.check_create(path, mode, data, acl)
    }

    pub(crate) fn check_delete(&self, path: &str) -> Result<()> {
        let schema = self.of(path)?;
        if schema.can_be_deleted { Ok(()) } else { schema.violation(path, "it cannot be deleted") }
    }

    pub(crate) fn check_change(&self, path: &str, data: &[u8]) -> Result<()> {
        self.of(path)?.check_content(path, data, &[])
    }

    pub(crate) fn check_acl(&self, path: &str, acl: &[Acl]) -> Result<()> {
        self.of(path)?.check_content(path, &[], acl)
    }

    pub(crate) fn check_read(&self, path: &str, reading: Reading) -> Result<()> {
        let schema = self.of(path)?;
        schema.check_kind(path, schema.watched, reading == Reading::Watched, "watched")
    }
}

/// Allows everything: Curator's default.
impl Default for SchemaSet {
    fn default() -> Self {
        Self::new([], OtherPaths::Allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(result: Result<()>) -> String {
        match result {
            Err(Error::SchemaViolation { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Curator's `TestSchema.testOrdering`.
    #[test]
    fn the_exact_path_counts_then_the_first_pattern() {
        let set = SchemaSet::new(
            [
                Schema::for_pattern("/a.*").unwrap().named("broad"),
                Schema::for_pattern("/ab.*").unwrap().named("narrow but later"),
                Schema::for_path("/abc").unwrap().named("exact"),
            ],
            OtherPaths::Refused,
        );
        assert_eq!(set.schema_of("/abc").unwrap(), "exact");
        assert_eq!(set.schema_of("/abd").unwrap(), "broad");
        assert_eq!(
            set.schema_of("/x/abd").unwrap_err().to_string(),
            "/x/abd violates schema none: no schema is about it"
        );
        assert_eq!(SchemaSet::default().schema_of("/x").unwrap(), "default");
    }

    /// Curator's `TestSchema.testBasics` and `testSchemaValidator`.
    #[test]
    fn what_a_schema_does_not_allow_is_named() {
        let schema = Schema::for_path("/test")
            .unwrap()
            .ephemeral(Allowance::Must)
            .sequential(Allowance::Cannot)
            .watched(Allowance::Cannot)
            .can_be_deleted(false)
            .validator(|_, data, _| !data.is_empty());
        let set = SchemaSet::new([schema], OtherPaths::Refused);
        let create = |mode, data: &[u8]| set.check_create("/test", mode, data, &[]);
        assert_eq!(reason(create(CreateMode::Persistent, b"x")), "it must be ephemeral");
        assert_eq!(reason(create(CreateMode::EphemeralSequential, b"x")), "it cannot be sequential");
        assert_eq!(reason(create(CreateMode::Ephemeral, b"")), "the validator refuses it");
        create(CreateMode::Ephemeral, b"x").unwrap();
        assert_eq!(reason(set.check_delete("/test")), "it cannot be deleted");
        assert_eq!(reason(set.check_read("/test", Reading::Watched)), "it cannot be watched");
        set.check_read("/test", Reading::Plain).unwrap();
        assert_eq!(reason(set.check_change("/test", b"")), "the validator refuses it");
        set.check_change("/test", b"x").unwrap();
    }

    #[test]
    fn a_recipes_schema_is_about_its_children() {
        let set = SchemaSet::new(
            [Schema::for_recipe("/locks/a+b").unwrap(), Schema::for_recipe_parent("/locks/a+b").unwrap()],
            OtherPaths::Refused,
        );
        set.check_create("/locks/a+b/lock-", CreateMode::EphemeralSequential, b"", &[]).unwrap();
        assert!(set.check_create("/locks/a+b/lock-", CreateMode::Persistent, b"", &[]).is_err());
        set.check_create("/locks/a+b", CreateMode::Persistent, b"", &[]).unwrap();
        assert!(set.check_create("/locks/aab/lock-", CreateMode::EphemeralSequential, b"", &[]).is_err());
    }

    fn described(can_be_deleted: bool) -> SchemaDescription {
        SchemaDescription {
            name: "numbered".to_owned(),
            path: "/a/b[0-9]".to_owned(),
            is_regex: true,
            schema_validator: Some("full".to_owned()),
            documentation: "what is numbered".to_owned(),
            ephemeral: Allowance::Must,
            sequential: Allowance::Cannot,
            watched: Allowance::Can,
            can_be_deleted,
            metadata: BTreeMap::from([("owner".to_owned(), "us".to_owned())]),
        }
    }

    fn full(name: &str) -> Option<Arc<SchemaValidator>> {
        (name == "full").then(|| Arc::new(|_: &str, data: &[u8], _: &[Acl]| !data.is_empty()) as Arc<SchemaValidator>)
    }

    #[test]
    fn a_schema_is_as_it_is_described() {
        let schema = Schema::from_description(described(false), full).unwrap();
        assert_eq!((schema.documentation.as_str(), schema.metadata["owner"].as_str()), ("what is numbered", "us"));
        let set = SchemaSet::new([schema], OtherPaths::Refused);
        assert_eq!(set.schema_of("/a/b7").unwrap(), "numbered");
        assert_eq!(reason(set.check_create("/a/b7", CreateMode::Persistent, b"x", &[])), "it must be ephemeral");
        assert_eq!(reason(set.check_create("/a/b7", CreateMode::Ephemeral, b"", &[])), "the validator refuses it");
        set.check_create("/a/b7", CreateMode::Ephemeral, b"x", &[]).unwrap();
        assert_eq!(reason(set.check_delete("/a/b7")), "it cannot be deleted");
        let error = Schema::from_description(described(true), |_| None).unwrap_err().to_string();
        assert_eq!(error, "invalid schema's validator: numbered wants the validator full, which nobody knows");
    }

    /// Curator's `TestSchema.testYaml`.
    #[cfg(feature = "serde")]
    #[test]
    fn schemas_are_read_from_a_file() {
        let yaml = "
- name: numbered
  path: '/a/b[0-9]'
  isRegex: true
  schemaValidator: full
  documentation: what is numbered
  ephemeral: must
  sequential: cannot
  canBeDeleted: true
  metadata: { owner: us }
- { name: plain, path: /a/plain }
";
        let schemas: Vec<SchemaDescription> = serde_norway::from_str(yaml).unwrap();
        assert_eq!(schemas[0], described(true));
        let plain = &schemas[1];
        assert_eq!((plain.is_regex, plain.can_be_deleted, plain.ephemeral), (false, true, Allowance::Can));
        let schemas = schemas.into_iter().map(|schema| Schema::from_description(schema, full).unwrap());
        let set = SchemaSet::new(schemas, OtherPaths::Refused);
        assert_eq!(set.schema_of("/a/plain").unwrap(), "plain");
        set.check_delete("/a/b7").unwrap();
        let error = serde_norway::from_str::<Vec<SchemaDescription>>("[{ name: a, path: /a, kind: b }]").unwrap_err();
        assert!(error.to_string().contains("unknown field `kind`"), "{error}");
        let error = serde_json::from_str::<SchemaDescription>(r#"{ "name": "nowhere" }"#).unwrap_err();
        assert!(error.to_string().contains("missing field `path`"), "{error}");
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        let error = Schema::for_pattern("/a(").unwrap_err().to_string();
        assert!(error.starts_with("invalid schema's pattern: "), "{error}");
    }
}
