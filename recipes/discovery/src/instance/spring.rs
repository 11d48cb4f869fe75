//! The payload of spring-cloud-zookeeper.

use std::collections::BTreeMap;

use crate::error::PayloadError;
use crate::instance::payload::Payload;
use crate::instance::zookeeper_instance::{Fields, Rest, written};
use crate::json::typing::typed;

const CLASS: &str = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance";
/// The key of the status in the metadata.
const STATUS: &str = "instance_status";
const UP: &str = "UP";
const OUT_OF_SERVICE: &str = "OUT_OF_SERVICE";

/// The payload of spring-cloud-zookeeper: its class `ZookeeperInstance`.
///
/// Spring's defaults are the base path `/services`, the URI template `{scheme}://{address}:{port}`, and an instance with a
/// port. A consumer in Spring fails on an instance without a port, and on each other class of payload.
///
/// `null` is read as a payload without an id, a name and metadata. Unknown fields are kept, and written again.
///
/// # Examples
///
/// ```
/// use curator_discovery::{Payload as _, ServiceInstance, SpringPayload};
///
/// let payload = SpringPayload::new("application-1", "application");
/// assert!(payload.is_available());
/// let instance = ServiceInstance::builder("application")
///     .port(8080)
///     .uri_spec("{scheme}://{address}:{port}".parse()?)
///     .payload(payload)
///     .build()?;
/// # drop(instance);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SpringPayload {
    /// The id of Spring's context, such as `application-1`.
    pub id: String,
    /// The name of the application.
    pub name: String,
    /// The metadata. Spring writes a status into it.
    pub metadata: BTreeMap<String, String>,
    rest: Rest,
}

impl SpringPayload {
    /// Returns the payload of an application that is up.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        let mut payload = Self { id: id.into(), name: name.into(), metadata: BTreeMap::new(), rest: Rest::default() };
        payload.set_up(true);
        payload
    }

    /// Adds an entry to the metadata.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Returns the status: `UP`, `OUT_OF_SERVICE` or the program's own.
    #[must_use]
    pub fn status(&self) -> Option<&str> {
        self.metadata.get(STATUS).map(String::as_str)
    }

    /// Sets the status to `UP` or `OUT_OF_SERVICE`.
    pub fn set_up(&mut self, is_up: bool) {
        let status = if is_up { UP } else { OUT_OF_SERVICE };
        self.metadata.insert(STATUS.to_owned(), status.to_owned());
    }
}

impl Payload for SpringPayload {
    /// Writes Spring's class, whichever class is given.
    fn to_json(&self, _java_class: Option<&str>) -> Result<String, PayloadError> {
        Ok(typed(written(&self.id, &self.name, &self.metadata, &self.rest)?, Some(CLASS)))
    }

    fn from_json(json: &str) -> Result<Self, PayloadError> {
        let Fields { id, name, metadata, rest } = Fields::of(json)?;
        Ok(Self { id, name, metadata, rest })
    }

    /// Returns `true` if the status is missing, blank or `UP` in any case, as Spring's load balancer does.
    fn is_available(&self) -> bool {
        self.status().is_none_or(|status| status.trim().is_empty() || status.eq_ignore_ascii_case(UP))
    }

    fn set_available(&mut self, is_available: bool) {
        self.set_up(is_available);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_rule_is_that_of_spring() {
        let with = |status: &str| SpringPayload::default().with_metadata(STATUS, status).is_available();
        assert!(SpringPayload::default().is_available());
        assert!(with("") && with("  ") && with("up") && with("UP"));
        assert!(!with("OUT_OF_SERVICE") && !with("DOWN"));
        let mut payload = SpringPayload::new("a-1", "a");
        payload.set_up(false);
        assert_eq!((payload.status(), payload.is_available()), (Some("OUT_OF_SERVICE"), false));
    }

    #[test]
    fn missing_fields_and_null_are_read() {
        assert_eq!(SpringPayload::from_json("null").unwrap(), SpringPayload::default());
        let json = r#"{"@class":"some.Other","id":null,"metadata":{"b":"c"}}"#;
        let read = SpringPayload::from_json(json).unwrap();
        assert_eq!(read, SpringPayload::default().with_metadata("b", "c"));
        assert_eq!(SpringPayload::from_json(r#"{"metadata":null}"#).unwrap(), SpringPayload::default());
        for bad in ["5", "[]", r#"{"metadata":5}"#, r#"{"metadata":{"a":[]}}"#, r#"{"id":{}}"#] {
            assert!(SpringPayload::from_json(bad).is_err(), "{bad}");
        }
    }

    /// A later version of Spring may have written them.
    #[test]
    fn unknown_fields_are_written_again() {
        let json = concat!(
            r#"{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"a-1","name":"a","#,
            r#""metadata":{"instance_status":"UP","none":null},"later":{"x":[1,2.50,"\u00e9"]},"more":null}"#
        );
        let mut read = SpringPayload::from_json(json).unwrap();
        assert_eq!(read.to_json(None).unwrap(), json);
        read.set_up(false);
        assert_eq!(read.to_json(None).unwrap(), json.replace("UP", "OUT_OF_SERVICE"));
        read.metadata.insert("none".to_owned(), "one".to_owned());
        assert!(read.to_json(None).unwrap().contains(r#""none":"one"},"later":"#));
        // The last one of two counts, and scalars are texts, as in Java.
        let twice = r#"{"later":1,"metadata":{"a":"1","a":true},"later":2}"#;
        let read = SpringPayload::from_json(twice).unwrap();
        assert_eq!(read.metadata["a"], "true");
        assert!(read.to_json(None).unwrap().ends_with(r#"{"a":"true"},"later":2}"#));
    }
}
