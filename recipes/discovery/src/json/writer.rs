//! Writes the fields of an instance in Java's order.

use super::text::to_json;
use crate::instance::service_instance::ServiceInstance;
use crate::instance::uri_spec::{UriPart, UriSpec};

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
    let part = |part: &UriPart| Ok(format!("{{\"value\":{},\"variable\":{}}}", to_json(&part.value)?, part.variable));
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
