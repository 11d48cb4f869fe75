//! Writes the bytes that Java's Curator writes.

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

use crate::instance::service_instance::ServiceInstance;
use crate::instance::uri_spec::UriSpec;

/// Writes compact JSON with the escapes of Java's writer: control characters have upper-case digits.
struct JavaFormatter;

impl Formatter for JavaFormatter {
    fn write_char_escape<W: ?Sized + io::Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        let short = match escape {
            CharEscape::AsciiControl(byte) => return write!(writer, "\\u{byte:04X}"),
            CharEscape::Quote => b"\\\"",
            CharEscape::ReverseSolidus => b"\\\\",
            CharEscape::Solidus => b"\\/",
            CharEscape::Backspace => b"\\b",
            CharEscape::FormFeed => b"\\f",
            CharEscape::LineFeed => b"\\n",
            CharEscape::CarriageReturn => b"\\r",
            CharEscape::Tab => b"\\t",
        };
        writer.write_all(short)
    }
}

/// Returns the JSON of a value.
pub(crate) fn to_json(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, JavaFormatter))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Returns the JSON of an instance with a payload in JSON. Java's default serializer writes nine fields; `enabled` is the
/// tenth.
pub(super) fn instance<P>(
    instance: &ServiceInstance<P>,
    payload: &str,
    writes_enabled: bool,
) -> Result<String, serde_json::Error> {
    let mut fields = Fields(String::new());
    fields.add("name", &to_json(&instance.name)?)?;
    fields.add("id", &to_json(&instance.id)?)?;
    fields.add("address", &to_json(&instance.address)?)?;
    fields.add("port", &to_json(&instance.port)?)?;
    fields.add("sslPort", &to_json(&instance.ssl_port)?)?;
    fields.add("payload", payload)?;
    fields.add("registrationTimeUTC", &to_json(&instance.registration_time_utc)?)?;
    let service_type = match (instance.service_type, &instance.unknown_type) {
        (Some(known), _) => to_json(known.as_str())?,
        (None, Some(unknown)) => unknown.clone(),
        (None, None) => "null".to_owned(),
    };
    fields.add("serviceType", &service_type)?;
    fields.add("uriSpec", &instance.uri_spec.as_ref().map_or_else(|| Ok("null".to_owned()), uri_spec)?)?;
    if writes_enabled {
        fields.add("enabled", &to_json(&instance.enabled)?)?;
    }
    for (name, json) in &instance.unknown {
        fields.add(name, json)?;
    }
    Ok(format!("{{{}}}", fields.0))
}

fn uri_spec(spec: &UriSpec) -> Result<String, serde_json::Error> {
    let part =
        |part: &crate::UriPart| Ok(format!("{{\"value\":{},\"variable\":{}}}", to_json(&part.value)?, part.variable));
    let parts = spec.parts().iter().map(part).collect::<Result<Vec<_>, serde_json::Error>>()?;
    Ok(format!("{{\"parts\":[{}]}}", parts.join(",")))
}

/// The fields of an object.
struct Fields(String);

impl Fields {
    fn add(&mut self, name: &str, json: &str) -> Result<(), serde_json::Error> {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&to_json(name)?);
        self.0.push(':');
        self.0.push_str(json);
        Ok(())
    }
}
