//! The payload of an instance: the program's own data.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::PayloadError;
use crate::json::text::to_json;
use crate::json::typing::{class_of, typed, untyped};

/// The payload of a [`ServiceInstance`](crate::ServiceInstance), as JSON.
///
/// Each type with serde's `Serialize` and `DeserializeOwned` implements it:
///
/// | payload | JSON, as Java's Curator writes it |
/// | --- | --- |
/// | `()`, and `None` | `null` |
/// | text, a number, a `bool` | the bare value |
/// | a struct or a map | an object, with the [class](crate::JsonInstanceSerializer::java_class) as `@class` |
/// | a `Vec` | `["java.util.ArrayList",[…]]`, or with the class in its place |
/// | with a class such as `java.lang.Long` | `["java.lang.Long",5]` |
///
/// The reader takes the class off. An `Option` reads instances without a payload, `null`, which Java's readers accept for
/// each class. A program that needs the class, or the JSON as it is, uses a [`RawPayload`].
pub trait Payload: Sized + Send + Sync + 'static {
    /// Returns the payload's JSON, with Java's class if one is given.
    ///
    /// # Errors
    ///
    /// The payload has no JSON.
    fn to_json(&self, java_class: Option<&str>) -> Result<String, PayloadError>;

    /// Returns the payload of a JSON text, which may have Java's class.
    ///
    /// # Errors
    ///
    /// The JSON has another type.
    fn from_json(json: &str) -> Result<Self, PayloadError>;

    /// Returns `false` if consumers are to pass over the instance, for example because it is out of service. Default:
    /// `true`.
    fn is_available(&self) -> bool {
        true
    }

    /// Takes the payload out of service, or back into it, if it has a status of its own. Default: no effect.
    fn set_available(&mut self, _is_available: bool) {}
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Payload for T {
    fn to_json(&self, java_class: Option<&str>) -> Result<String, PayloadError> {
        Ok(typed(to_json(self)?, java_class))
    }

    fn from_json(json: &str) -> Result<Self, PayloadError> {
        Ok(serde_json::from_str(&untyped(json))?)
    }
}

/// A payload as its JSON text, with the class that Java has written. It is written again as it was read, byte for byte.
///
/// # Examples
///
/// ```
/// use curator_discovery::RawPayload;
///
/// let payload = RawPayload::from_json(r#"{"@class":"com.foo.Meta","zone":"a"}"#)?;
/// assert_eq!(payload.java_class().as_deref(), Some("com.foo.Meta"));
/// let fields: std::collections::BTreeMap<String, String> = payload.decode()?;
/// assert_eq!(fields["zone"], "a");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawPayload {
    json: String,
}

impl Default for RawPayload {
    /// Returns `null`.
    fn default() -> Self {
        Self { json: "null".to_owned() }
    }
}

impl RawPayload {
    /// Returns the payload of a JSON text. The text is kept as it is.
    ///
    /// # Errors
    ///
    /// The text is not JSON.
    pub fn from_json(json: impl Into<String>) -> Result<Self, PayloadError> {
        let json = RawValue::from_string(json.into())?;
        Ok(Self { json: json.get().to_owned() })
    }

    /// Returns the payload of a value, with Java's class if one is given.
    ///
    /// # Errors
    ///
    /// The value has no JSON.
    pub fn encode(value: &impl Serialize, java_class: Option<&str>) -> Result<Self, PayloadError> {
        Ok(Self { json: typed(to_json(value)?, java_class) })
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.json
    }

    /// Returns the class that Java's Curator has written.
    #[must_use]
    pub fn java_class(&self) -> Option<String> {
        class_of(&self.json)
    }

    /// Returns the value, without Java's class.
    ///
    /// # Errors
    ///
    /// The JSON has another type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        Ok(serde_json::from_str(&untyped(&self.json))?)
    }
}

impl Payload for RawPayload {
    fn to_json(&self, _java_class: Option<&str>) -> Result<String, PayloadError> {
        Ok(self.json.clone())
    }

    fn from_json(json: &str) -> Result<Self, PayloadError> {
        Self::from_json(json)
    }
}

impl fmt::Display for RawPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json)
    }
}
