//! The payload of Dubbo.

use std::collections::BTreeMap;

use crate::error::PayloadError;
use crate::instance::payload::Payload;
use crate::instance::zookeeper_instance::{Fields, Rest, written};
use crate::json::typing::typed;

const CLASS: &str = "org.apache.dubbo.registry.zookeeper.ZookeeperInstance";

/// The payload of an application in Dubbo's service discovery: its class `ZookeeperInstance`.
///
/// Dubbo's defaults are the base path `/services` and the id `host:port` of the instance and of the payload. A consumer in
/// Dubbo fails on an instance without a port or with `null` as its payload. Dubbo has no status of its own: each instance
/// is available.
///
/// `null` is read as a payload without an id, a name and metadata. Unknown fields are kept, and written again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DubboPayload {
    /// The id, `host:port`.
    pub id: String,
    /// The name of the application.
    pub name: String,
    /// The metadata, such as `dubbo.endpoints` and `dubbo.metadata.revision`. Some values are JSON texts.
    pub metadata: BTreeMap<String, String>,
    rest: Rest,
}

impl DubboPayload {
    /// Returns a payload without metadata.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), metadata: BTreeMap::new(), rest: Rest::default() }
    }

    /// Adds an entry to the metadata.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

impl Payload for DubboPayload {
    /// Writes Dubbo's class, whichever class is given.
    fn to_json(&self, _java_class: Option<&str>) -> Result<String, PayloadError> {
        Ok(typed(written(&self.id, &self.name, &self.metadata, &self.rest)?, Some(CLASS)))
    }

    fn from_json(json: &str) -> Result<Self, PayloadError> {
        let Fields { id, name, metadata, rest } = Fields::of(json)?;
        Ok(Self { id, name, metadata, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_written_again() {
        let json = concat!(
            r#"{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"h:1","name":"a","#,
            r#""metadata":{"dubbo.endpoints":"[{\"port\":1}]"},"later":[1]}"#
        );
        assert_eq!(DubboPayload::from_json(json).unwrap().to_json(None).unwrap(), json);
    }
}
