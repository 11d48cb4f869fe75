//! The template of an instance's URI.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// One part of a [`UriSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct UriPart {
    /// The text, or the name of a variable.
    pub value: String,
    /// `true` for a variable.
    pub variable: bool,
}

impl UriPart {
    /// Returns a part of fixed text.
    pub fn text(value: impl Into<String>) -> Self {
        Self { value: value.into(), variable: false }
    }

    /// Returns a part that a variable of this name replaces.
    pub fn variable(name: impl Into<String>) -> Self {
        Self { value: name.into(), variable: true }
    }
}

/// The template of an instance's URI, such as `{scheme}://{address}:{port}`: Curator's `UriSpec`.
///
/// | variable | value |
/// | --- | --- |
/// | `scheme` | `https` if the instance has an `sslPort`, otherwise `http` |
/// | `name`, `id`, `address`, `port` | of the instance |
/// | `ssl-port` | the `sslPort` |
/// | `registration-time-utc` | milliseconds since 1970 |
/// | `service-type` | in lower case, such as `dynamic` |
/// | `[`, `]` | `{`, `}` |
///
/// A variable without a value, or with another name, becomes the empty text. Blanks around a name do not count.
///
/// # Examples
///
/// ```
/// use curator_discovery::{ServiceInstance, UriSpec};
///
/// let template: UriSpec = "{scheme}://{address}:{port}/api".parse()?;
/// let instance = ServiceInstance::builder("web").address("10.0.0.7").port(8080).build()?;
/// assert_eq!(template.build(&instance), "http://10.0.0.7:8080/api");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Differences from Curator
///
/// * An IPv6 address gets brackets, so that the text is a URI.
/// * A template without a value for a variable is not an error. In Curator some of them are.
///
/// As in Curator, `{scheme}://{address}:{port}` of an instance with both ports joins `https` with the plain port.
/// Write `{ssl-port}` for such instances.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct UriSpec {
    parts: Vec<UriPart>,
}

/// The reason why a text is not a [`UriSpec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseUriSpecError {
    /// A variable has no end.
    #[error("a variable is not closed: }} is missing")]
    NotClosed,
    /// A `}` has no variable.
    #[error("}} needs a {{ before it; {{]}} is a }} in the URI")]
    NotOpened,
    /// A variable starts within another one.
    #[error("a variable cannot contain {{; {{[}} is a {{ in the URI")]
    Nested,
}

impl UriSpec {
    /// Returns a template of these parts.
    pub fn from_parts(parts: impl IntoIterator<Item = UriPart>) -> Self {
        Self { parts: parts.into_iter().collect() }
    }

    /// Returns the parts.
    #[must_use]
    pub fn parts(&self) -> &[UriPart] {
        &self.parts
    }

    /// Returns the text with the values of its variables.
    pub(crate) fn with_values(&self, value: impl Fn(&str) -> Option<String>) -> String {
        let part = |part: &UriPart| match part.variable {
            false => part.value.clone(),
            true => value(&part.value).unwrap_or_default(),
        };
        self.parts.iter().map(part).collect()
    }
}

/// Returns an address as it is written in a URI.
pub(crate) fn in_uri(address: &str) -> Cow<'_, str> {
    match address.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{address}]").into(),
        Err(_) => address.into(),
    }
}

impl FromStr for UriSpec {
    type Err = ParseUriSpecError;

    fn from_str(template: &str) -> Result<Self, ParseUriSpecError> {
        let (mut parts, mut rest) = (Vec::new(), template);
        while let Some(at) = rest.find(['{', '}']) {
            let (text, brace) = rest.split_at(at);
            if brace.starts_with('}') {
                return Err(ParseUriSpecError::NotOpened);
            }
            let (name, after) = brace[1..].split_once('}').ok_or(ParseUriSpecError::NotClosed)?;
            if name.contains('{') {
                return Err(ParseUriSpecError::Nested);
            }
            parts.push(UriPart::text(text));
            parts.push(UriPart::variable(name.trim()));
            rest = after;
        }
        parts.push(UriPart::text(rest));
        parts.retain(|part| !part.value.is_empty());
        Ok(Self { parts })
    }
}

/// Shows the template.
impl fmt::Display for UriSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|UriPart { value, variable }| match variable {
            true => write!(f, "{{{value}}}"),
            false => f.write_str(value),
        })
    }
}
