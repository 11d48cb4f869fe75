//! The codec of an instance.

use crate::error::{DecodeError, PayloadError};
use crate::instance::payload::Payload;
use crate::instance::service_instance::ServiceInstance;
use crate::json::{reader, writer};

/// The codec of a node's data: Curator's `InstanceSerializer`. Most programs use the [`JsonInstanceSerializer`].
///
/// The data must contain the whole instance: a registration reads its own data before it
/// [updates](crate::Registration::update) the instance.
pub trait InstanceSerializer<P>: Send + Sync + 'static {
    /// Returns the data of an instance.
    ///
    /// # Errors
    ///
    /// The instance has no data in this format.
    fn serialize(&self, instance: &ServiceInstance<P>) -> Result<Vec<u8>, PayloadError>;

    /// Returns the instance of a node's data.
    ///
    /// # Errors
    ///
    /// `DecodeError`: the data is not an instance's. [`DecodeError::other`] makes one of any error.
    fn deserialize(&self, data: &[u8]) -> Result<ServiceInstance<P>, DecodeError>;
}

/// The JSON of Java's Curator, byte for byte: its `JsonInstanceSerializer`.
///
/// Java's default writes nine fields, so it loses `enabled`: an instance that was disabled is offered again. This codec
/// writes the tenth field, `enabled`, if it is `false`. Curator's releases before that field cannot read such an
/// instance. All other instances have the bytes of Java's default.
///
/// The reader accepts all that Java's accepts: numbers in texts, missing and unknown fields, a byte order mark, text behind
/// the object. It also accepts a payload of any class: the class is a name, and nothing is loaded by it.
///
/// # Examples
///
/// ```
/// use curator_discovery::{InstanceSerializer as _, JsonInstanceSerializer, ServiceInstance};
///
/// let codec = JsonInstanceSerializer::new();
/// let instance = ServiceInstance::builder("web").id("i1").address("10.0.0.7").registration_time_utc(1).build()?;
/// let json = r#"{"name":"web","id":"i1","address":"10.0.0.7","port":null,"sslPort":null,"payload":null,"#;
/// let rest = r#""registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":null}"#;
/// assert_eq!(codec.serialize(&instance)?, format!("{json}{rest}").into_bytes());
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a codec does nothing by itself"]
pub struct JsonInstanceSerializer {
    java_class: Option<String>,
    always_enabled: bool,
}

impl JsonInstanceSerializer {
    /// Returns the codec with Java's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `enabled` always, as Java's serializer does with its compatible mode off.
    #[doc(alias = "compatibleSerializationMode")]
    pub fn with_enabled(mut self) -> Self {
        self.always_enabled = true;
        self
    }

    /// Writes the class of the payload, by which Java reads it: its full name, such as `com.foo.Meta`, or `com.foo.A$B`
    /// for a class within another one. Java reads an object without a class as a map. Not needed for a text, a number, a
    /// `bool`, or a list that Java reads as a list.
    ///
    /// Java's fields have names such as `dataCenter`: put `#[serde(rename_all = "camelCase")]` on the struct.
    pub fn java_class(mut self, class: impl Into<String>) -> Self {
        self.java_class = Some(class.into());
        self
    }
}

impl<P: Payload> InstanceSerializer<P> for JsonInstanceSerializer {
    fn serialize(&self, instance: &ServiceInstance<P>) -> Result<Vec<u8>, PayloadError> {
        let payload = instance.payload.to_json(self.java_class.as_deref())?;
        let writes_enabled = self.always_enabled || !instance.enabled;
        Ok(writer::instance(instance, &payload, writes_enabled)?.into_bytes())
    }

    fn deserialize(&self, data: &[u8]) -> Result<ServiceInstance<P>, DecodeError> {
        let read = reader::instance(data)?;
        let payload = P::from_json(&read.payload).map_err(|error| DecodeError::Payload(error.into()))?;
        Ok(read.with_payload(payload))
    }
}
