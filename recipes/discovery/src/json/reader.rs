//! Reads the fields of an instance as leniently as Java's reader.

use serde::Deserialize as _;
use serde_json::value::RawValue;

use super::typing::{Object, last_of_each};
use crate::error::DecodeError;
use crate::instance::service_instance::{ServiceInstance, ServiceType};
use crate::instance::uri_spec::{UriPart, UriSpec};

/// Java accepts a byte order mark before the object.
const MARK: char = '\u{feff}';

/// Reads an instance with the JSON of its payload. The text may be followed by anything.
pub(super) fn instance(data: &[u8]) -> Result<ServiceInstance<String>, DecodeError> {
    if data.is_empty() {
        return Err(DecodeError::Empty);
    }
    let text = std::str::from_utf8(data).map_err(|error| DecodeError::json(serde::de::Error::custom(error)))?;
    let text = text.strip_prefix(MARK).unwrap_or(text);
    let Object(fields) =
        Object::deserialize(&mut serde_json::Deserializer::from_str(text)).map_err(DecodeError::json)?;
    let mut read = ServiceInstance::empty(String::new(), "null".to_owned());
    // The last one of two fields with the same name counts.
    for (name, value) in fields {
        field(&mut read, name, value)?;
    }
    read.unknown = last_of_each(read.unknown);
    Ok(read)
}

fn field(read: &mut ServiceInstance<String>, name: String, value: &RawValue) -> Result<(), DecodeError> {
    match name.as_str() {
        "name" => read.name = text("name", value)?.unwrap_or_default(),
        "id" => read.id = text("id", value)?.unwrap_or_default(),
        "address" => read.address = text("address", value)?,
        "port" => read.port = int("port", value)?,
        "sslPort" => read.ssl_port = int("sslPort", value)?,
        "payload" => value.get().clone_into(&mut read.payload),
        "registrationTimeUTC" => {
            read.registration_time_utc = long("registrationTimeUTC", value)?.unwrap_or_default();
        }
        "serviceType" => {
            read.service_type = service_type(value)?;
            read.unknown_type = (read.service_type.is_none() && !is_null(value)).then(|| value.get().to_owned());
        }
        "uriSpec" => read.uri_spec = uri_spec(value)?,
        "enabled" => read.enabled = boolean("enabled", value)?,
        _ => read.unknown.push((name, value.get().to_owned())),
    }
    Ok(())
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// The kinds of a scalar.
enum Scalar<'a> {
    Null,
    Text(String),
    /// The number as it is written.
    Number(&'a str),
    Bool(bool),
}

fn scalar<'a>(field: &'static str, value: &'a RawValue) -> Result<Scalar<'a>, DecodeError> {
    let json = value.get();
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).map(Scalar::Text).map_err(DecodeError::json),
        Some(b'-' | b'0'..=b'9') => Ok(Scalar::Number(json)),
        Some(b't') => Ok(Scalar::Bool(true)),
        Some(b'f') => Ok(Scalar::Bool(false)),
        Some(b'n') => Ok(Scalar::Null),
        _ => Err(DecodeError::field(field, value.get())),
    }
}

/// Reads a text. A number and a `bool` count as their texts.
fn text(field: &'static str, value: &RawValue) -> Result<Option<String>, DecodeError> {
    Ok(match scalar(field, value)? {
        Scalar::Null => None,
        Scalar::Text(text) => Some(text),
        Scalar::Number(number) => Some(number.to_owned()),
        Scalar::Bool(value) => Some(value.to_string()),
    })
}

fn int(field: &'static str, value: &RawValue) -> Result<Option<i32>, DecodeError> {
    let long = long(field, value)?;
    long.map(|long| i32::try_from(long).map_err(|_too_large| DecodeError::field(field, value.get()))).transpose()
}

/// Reads a whole number. A fraction is cut off, and a text may contain a whole number.
fn long(field: &'static str, value: &RawValue) -> Result<Option<i64>, DecodeError> {
    let wrong = || DecodeError::field(field, value.get());
    match scalar(field, value)? {
        Scalar::Null => Ok(None),
        Scalar::Bool(_) => Err(wrong()),
        Scalar::Number(number) => whole(number).map(Some).ok_or_else(wrong),
        Scalar::Text(text) => match text.trim() {
            "" | "null" => Ok(None),
            number => number.parse().map(Some).map_err(|_not_a_number| wrong()),
        },
    }
}

/// Returns a JSON number without its fraction, if it fits.
fn whole(number: &str) -> Option<i64> {
    number.parse().ok().or_else(|| {
        let float = number.parse::<f64>().ok()?.trunc();
        // Exact: the bounds are powers of two.
        let fits = number.contains(['.', 'e', 'E'])
            && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
        #[expect(clippy::cast_possible_truncation, reason = "the number was compared with the bounds")]
        fits.then_some(float as i64)
    })
}

/// Reads a `bool`. `null` is `false`, as in Java.
fn boolean(field: &'static str, value: &RawValue) -> Result<bool, DecodeError> {
    match scalar(field, value)? {
        Scalar::Null => Some(false),
        Scalar::Bool(value) => Some(value),
        Scalar::Number(number) => whole(number).map(|number| number != 0),
        Scalar::Text(text) => match text.trim() {
            "true" | "True" | "TRUE" => Some(true),
            "" | "null" | "false" | "False" | "FALSE" => Some(false),
            _ => None,
        },
    }
    .ok_or_else(|| DecodeError::field(field, value.get()))
}

/// Reads a type by its name or Java's ordinal; `None` for `null` and for an unknown name.
fn service_type(value: &RawValue) -> Result<Option<ServiceType>, DecodeError> {
    const FIELD: &str = "serviceType";
    match scalar(FIELD, value)? {
        Scalar::Null => Ok(None),
        Scalar::Text(name) => Ok(ServiceType::ALL.into_iter().find(|known| known.as_str() == name)),
        Scalar::Number(ordinal) => {
            let known = ordinal.parse().ok().and_then(|ordinal: usize| ServiceType::ALL.get(ordinal).copied());
            known.map(Some).ok_or_else(|| DecodeError::field(FIELD, value.get()))
        }
        Scalar::Bool(_) => Err(DecodeError::field(FIELD, value.get())),
    }
}

/// Reads the template of a URI, which may be a text.
fn uri_spec(value: &RawValue) -> Result<Option<UriSpec>, DecodeError> {
    const FIELD: &str = "uriSpec";
    match value.get().as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'{') => {
            let Object(fields) = serde_json::from_str(value.get()).map_err(DecodeError::json)?;
            let Some((_, parts)) = fields.into_iter().rfind(|(name, _)| name == "parts") else {
                return Ok(Some(UriSpec::default()));
            };
            let parts: Option<Vec<Object<'_>>> = serde_json::from_str(parts.get()).map_err(DecodeError::json)?;
            let parts = parts.unwrap_or_default().into_iter().map(uri_part);
            Ok(Some(UriSpec::from_parts(parts.collect::<Result<Vec<_>, _>>()?)))
        }
        _ => {
            let template = text(FIELD, value)?.unwrap_or_default();
            template.parse().map(Some).map_err(DecodeError::UriSpec)
        }
    }
}

fn uri_part(Object(fields): Object<'_>) -> Result<UriPart, DecodeError> {
    let mut part = UriPart::text("");
    for (name, value) in fields {
        match name.as_str() {
            "value" => part.value = text("value", value)?.unwrap_or_default(),
            "variable" => part.variable = boolean("variable", value)?,
            _ => {}
        }
    }
    Ok(part)
}
