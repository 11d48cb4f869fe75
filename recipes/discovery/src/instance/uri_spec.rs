//! The template of an instance's URI.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::instance::service_instance::ServiceInstance;

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

    /// Returns the URI of an instance.
    #[must_use]
    pub fn build<P>(&self, instance: &ServiceInstance<P>) -> String {
        self.build_with(instance, |_| None)
    }

    /// Returns the URI of an instance, with values that take the place of the instance's.
    ///
    /// # Examples
    ///
    /// ```
    /// use curator_discovery::{ServiceInstance, UriSpec};
    ///
    /// let template: UriSpec = "{scheme}://{address}{context}".parse()?;
    /// let instance = ServiceInstance::builder("web").address("10.0.0.7").build()?;
    /// let uri = template.build_with(&instance, |name| (name == "context").then(|| "/shop".to_owned()));
    /// assert_eq!(uri, "http://10.0.0.7/shop");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn build_with<P>(&self, instance: &ServiceInstance<P>, overrides: impl Fn(&str) -> Option<String>) -> String {
        let part = |part: &UriPart| match part.variable {
            false => part.value.clone(),
            true => overrides(&part.value).or_else(|| value(instance, &part.value)).unwrap_or_default(),
        };
        self.parts.iter().map(part).collect()
    }
}

/// Returns the value of a variable.
fn value<P>(instance: &ServiceInstance<P>, variable: &str) -> Option<String> {
    match variable {
        "scheme" => Some(if instance.ssl_port.is_some() { "https" } else { "http" }.to_owned()),
        "name" => Some(instance.name.clone()),
        "id" => Some(instance.id.clone()),
        "address" => instance.address.as_deref().map(|address| in_uri(address).into_owned()),
        "port" => instance.port.map(|port| port.to_string()),
        "ssl-port" => instance.ssl_port.map(|port| port.to_string()),
        "registration-time-utc" => Some(instance.registration_time_utc.to_string()),
        "service-type" => instance.service_type.map(|kind| kind.as_str().to_ascii_lowercase()),
        "[" => Some("{".to_owned()),
        "]" => Some("}".to_owned()),
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(template: &str) -> UriSpec {
        template.parse().unwrap()
    }

    fn instance(ssl_port: Option<u16>) -> ServiceInstance {
        let instance = ServiceInstance::builder("web")
            .id("i1")
            .address("10.0.0.7")
            .port(80)
            .registration_time_utc(1_753_142_400_000);
        match ssl_port {
            Some(port) => instance.ssl_port(port),
            None => instance,
        }
        .build()
        .unwrap()
    }

    /// The table of Java's answers; `|` separates the URI without and with an `sslPort`.
    #[test]
    fn templates_give_the_parts_and_uris_of_java() {
        for (template, parts, plain, ssl) in [
            (
                "{scheme}://{address}:{port}",
                "(scheme,true)(://,false)(address,true)(:,false)(port,true)",
                "http://10.0.0.7:80",
                "https://10.0.0.7:80",
            ),
            ("{ scheme }", "(scheme,true)", "http", "https"),
            ("{}", "", "", ""),
            ("{[}x{]}", "([,true)(x,false)(],true)", "{x}", "{x}"),
            (
                "{ssl-port}|{service-type}|{registration-time-utc}|{name}|{id}|{nope}|{address}",
                "(ssl-port,true)(|,false)(service-type,true)(|,false)(registration-time-utc,true)(|,false)(name,true)\
                 (|,false)(id,true)(|,false)(nope,true)(|,false)(address,true)",
                "|dynamic|1753142400000|web|i1||10.0.0.7",
                "443|dynamic|1753142400000|web|i1||10.0.0.7",
            ),
        ] {
            let spec = spec(template);
            let of_spec: String =
                spec.parts().iter().map(|part| format!("({},{})", part.value, part.variable)).collect();
            assert_eq!(of_spec, parts, "{template}");
            assert_eq!(spec.build(&instance(None)), plain, "{template}");
            assert_eq!(spec.build(&instance(Some(443))), ssl, "{template}");
        }
    }

    #[test]
    fn templates_that_java_refuses_are_refused() {
        for (template, error) in [
            ("a{b", ParseUriSpecError::NotClosed),
            ("a}b", ParseUriSpecError::NotOpened),
            ("{a{b}}", ParseUriSpecError::Nested),
        ] {
            assert_eq!(template.parse::<UriSpec>(), Err(error), "{template}");
        }
        assert_eq!(ParseUriSpecError::NotOpened.to_string(), "} needs a { before it; {]} is a } in the URI");
    }

    #[test]
    fn overrides_take_the_place_of_the_instance() {
        let with = |name: &str| (name == "scheme").then(|| "foo".to_owned());
        assert_eq!(spec("{scheme}{nope}/{port}").build_with(&instance(None), with), "foo/80");
    }

    #[test]
    fn ipv6_address_gets_brackets() {
        let mut instance = instance(None);
        instance.address = Some("fd00::2".to_owned());
        assert_eq!(spec("http://{address}:{port}").build(&instance), "http://[fd00::2]:80");
    }

    #[test]
    fn template_is_shown_as_it_was_given() {
        for template in ["{scheme}://{address}:{port}/a{[}x{]}", "", "text"] {
            assert_eq!(spec(template).to_string(), template);
        }
    }
}
