//! The URI of an instance.

use crate::instance::service_instance::ServiceInstance;
use crate::instance::uri_spec::{UriSpec, in_uri};

impl UriSpec {
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
        self.with_values(|variable| overrides(variable).or_else(|| value(instance, variable)))
    }
}

impl<P> ServiceInstance<P> {
    /// Returns the URI by the instance's own template; `None` without a template.
    #[must_use]
    #[doc(alias = "buildUriSpec")]
    pub fn uri(&self) -> Option<String> {
        self.uri_spec.as_ref().map(|spec| spec.build(self))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::uri_spec::ParseUriSpecError;

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
