//! Java's class in a payload: `{"@class":"…",…}`, or `["…",value]` for all but objects.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::text::to_json;

/// The name of the field with the class.
const CLASS: &str = "@class";
/// Java reads an array only with its class.
const LIST: &str = "java.util.ArrayList";
/// The classes that Java writes without their names.
const BARE: [&str; 4] = ["java.lang.String", "java.lang.Integer", "java.lang.Boolean", "java.lang.Double"];

/// The fields of an object in their order, each with its JSON.
#[derive(Default)]
pub(crate) struct Object<'a>(pub(crate) Vec<(String, &'a RawValue)>);

/// Returns the last one of all fields with the same name, in their order.
pub(crate) fn last_of_each<T>(fields: Vec<(String, T)>) -> Vec<(String, T)> {
    let mut names = HashSet::new();
    let is_last: Vec<_> = fields.iter().rev().map(|(name, _)| names.insert(name.as_str())).collect();
    let is_last = is_last.into_iter().rev();
    drop(names);
    fields.into_iter().zip(is_last).filter_map(|(field, is_last)| is_last.then_some(field)).collect()
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Returns the JSON of a payload with Java's class. An array gets the class of Java's list if none is given.
pub(crate) fn typed(json: String, java_class: Option<&str>) -> String {
    let class = java_class.map(|class| to_json(class).unwrap_or_default());
    match (json.as_bytes().first(), class) {
        (Some(b'{'), Some(class)) => {
            let rest = &json[1..];
            let comma = if rest == "}" { "" } else { "," };
            format!("{{\"{CLASS}\":{class}{comma}{rest}")
        }
        (Some(b'['), class) => format!("[{},{json}]", class.unwrap_or_else(|| format!("\"{LIST}\""))),
        (_, Some(class)) if json != "null" && java_class.is_some_and(|class| !BARE.contains(&class)) => {
            format!("[{class},{json}]")
        }
        _ => json,
    }
}

/// Returns the JSON of a payload without Java's class.
pub(crate) fn untyped(json: &str) -> Cow<'_, str> {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => without_class(json).map_or(Cow::Borrowed(json), Cow::Owned),
        Some(b'[') => wrapped(json).map_or(Cow::Borrowed(json), |(_, value)| Cow::Borrowed(value)),
        _ => Cow::Borrowed(json),
    }
}

/// Returns the class in a payload.
pub(crate) fn class_of(json: &str) -> Option<String> {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => {
            let Object(fields) = serde_json::from_str(json).ok()?;
            let class = fields.into_iter().rfind(|(name, _)| name == CLASS)?;
            serde_json::from_str(class.1.get()).ok()
        }
        Some(b'[') => wrapped(json).map(|(class, _)| class),
        _ => None,
    }
}

/// Returns the JSON of an object without its class; `None` if it has no class.
fn without_class(json: &str) -> Option<String> {
    let Object(fields) = serde_json::from_str(json).ok()?;
    if !fields.iter().any(|(name, _)| name == CLASS) {
        return None;
    }
    let others = fields.into_iter().filter(|(name, _)| name != CLASS);
    let others = others.map(|(name, value)| Some(format!("{}:{}", to_json(&name).ok()?, value.get())));
    Some(format!("{{{}}}", others.collect::<Option<Vec<_>>>()?.join(",")))
}

/// Returns the class and the value of an array that Java has written.
fn wrapped(json: &str) -> Option<(String, &str)> {
    let (class, value): (String, &RawValue) = serde_json::from_str(json).ok()?;
    is_class(&class).then_some((class, value.get()))
}

/// Returns `true` for the full name of a Java class. A bare array of two texts is not taken for one with a class.
fn is_class(name: &str) -> bool {
    let is_identifier = |part: &str| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        part.starts_with(|c: char| !c.is_numeric()) && part.chars().all(is_part)
    };
    name.contains('.') && name.split('.').all(is_identifier)
}
