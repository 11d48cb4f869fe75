//! The JSON of the classes `ZookeeperInstance` of Spring and Dubbo.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use crate::error::PayloadError;
use crate::json::text::to_json;
use crate::json::typing::{Object, last_of_each, untyped};

/// The JSON that a payload has no field for. It is written again as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Rest {
    /// Unknown fields, each with its JSON.
    fields: Vec<(String, String)>,
    /// The keys of the metadata without a value.
    nulls: BTreeSet<String>,
}

/// The fields of the JSON. Java writes `null` for a missing one.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) rest: Rest,
}

impl Fields {
    /// Returns the fields of a payload, which may be `null`.
    pub(super) fn of(json: &str) -> Result<Self, PayloadError> {
        let (mut read, json) = (Self::default(), untyped(json));
        let Some(Object(fields)) = serde_json::from_str::<Option<Object<'_>>>(&json)? else {
            return Ok(read);
        };
        for (field, value) in fields {
            match field.as_str() {
                "id" => read.id = text(value)?.unwrap_or_default(),
                "name" => read.name = text(value)?.unwrap_or_default(),
                "metadata" => (read.metadata, read.rest.nulls) = metadata(value)?,
                _ => read.rest.fields.push((field, value.get().to_owned())),
            }
        }
        read.rest.fields = last_of_each(read.rest.fields);
        Ok(read)
    }
}

/// Returns the JSON of a payload without its class.
pub(super) fn written(
    id: &str,
    name: &str,
    metadata: &BTreeMap<String, String>,
    rest: &Rest,
) -> Result<String, serde_json::Error> {
    let nulls = rest.nulls.iter().filter(|key| !metadata.contains_key(*key)).map(|key| (key, None));
    let metadata: BTreeMap<_, _> = metadata.iter().map(|(key, value)| (key, Some(value))).chain(nulls).collect();
    let own = [("id", to_json(&id)?), ("name", to_json(&name)?), ("metadata", to_json(&metadata)?)];
    let rest = rest.fields.iter().map(|(field, json)| (field.as_str(), json.clone()));
    let fields = own.into_iter().chain(rest);
    let fields: Vec<_> = fields
        .map(|(field, json)| Ok(format!("{}:{json}", to_json(field)?)))
        .collect::<Result<_, serde_json::Error>>()?;
    Ok(format!("{{{}}}", fields.join(",")))
}

/// Reads a text. A number and a `bool` count as their texts, as in Java.
fn text(value: &RawValue) -> Result<Option<String>, PayloadError> {
    let json = value.get();
    Ok(match json.as_bytes().first() {
        Some(b'-' | b'0'..=b'9' | b't' | b'f') => Some(json.to_owned()),
        _ => serde_json::from_str(json)?,
    })
}

/// Reads the metadata, and its keys without a value.
fn metadata(value: &RawValue) -> Result<(BTreeMap<String, String>, BTreeSet<String>), PayloadError> {
    let Object(entries) = serde_json::from_str::<Option<Object<'_>>>(value.get())?.unwrap_or_default();
    let (mut values, mut nulls) = (BTreeMap::new(), BTreeSet::new());
    for (key, value) in last_of_each(entries) {
        match text(value)? {
            Some(value) => drop(values.insert(key, value)),
            None => _ = nulls.insert(key),
        }
    }
    Ok((values, nulls))
}
