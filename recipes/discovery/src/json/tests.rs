//! The codec against the output of Java's Curator 5.4: `java_writes.txt` and `java_reads.txt`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    DecodeError, DubboPayload, InstanceSerializer as _, JsonInstanceSerializer, Payload, RawPayload, ServiceInstance,
    ServiceInstanceBuilder, ServiceType, SpringPayload,
};

const READS: &str = include_str!("java_reads.txt");
const WRITES: &str = include_str!("java_writes.txt");

/// The texts that Java refuses, and this reader accepts.
const ACCEPTED: [(&str, &str); 6] = [
    (r#""serviceType":"FOO""#, "a type of a later version is kept as its text"),
    (r#""serviceType":"dynamic""#, "a type of a later version is kept as its text"),
    (r#""payload":["a"]"#, "an array needs no class"),
    ("no.such.Clazz", "no class is loaded"),
    ("javax.swing.JEditorPane", "no class is loaded"),
    (r#""parts":null"#, "Java fails at the first use of the template"),
];

fn read<P: Payload>(json: &str) -> Result<ServiceInstance<P>, DecodeError> {
    JsonInstanceSerializer::new().deserialize(json.as_bytes())
}

/// Returns an instance as the program that wrote `java_reads.txt` shows it, without the payload.
fn shown(instance: &ServiceInstance<RawPayload>) -> String {
    fn or_null<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "null".to_owned(), |value| value.to_string())
    }
    format!(
        "name={} id={} addr={} port={} ssl={} t={} type={} uri={} en={}",
        instance.name,
        instance.id,
        or_null(instance.address.as_ref()),
        or_null(instance.port),
        or_null(instance.ssl_port),
        instance.registration_time_utc,
        or_null(instance.service_type),
        or_null(instance.uri()),
        instance.enabled
    )
}

/// Takes the payload out of a line, and reads a missing name as an empty one.
fn without_payload(shown: &str) -> String {
    let (before, rest) = shown.split_once(" payload=").unwrap();
    let (_, after) = rest.split_once(" t=").unwrap();
    format!("{before} t={after}").replace("name=null", "name=").replace("id=null", "id=")
}

#[test]
fn reader_accepts_and_refuses_what_java_does() {
    let mut cases = 0;
    for line in READS.lines() {
        let (outcome, line) = line.split_at(4);
        let (json, java) = line.rsplit_once(" -> ").unwrap();
        let read = read::<RawPayload>(json);
        match (outcome.trim(), read) {
            ("OK", Ok(instance)) => assert_eq!(shown(&instance), without_payload(java), "{json}"),
            ("ERR", Err(_)) => {}
            ("ERR", Ok(_)) if ACCEPTED.iter().any(|(part, _)| json.contains(part)) => {}
            (_, read) => panic!("{json}: Java says {java}, and this reader {read:?}"),
        }
        cases += 1;
    }
    assert_eq!(cases, 49);
}

#[test]
fn payloads_are_those_that_java_reads() {
    for (json, payload) in [
        (r#""s""#, r#""s""#),
        ("5000000000", "5000000000"),
        (r#"{"a":1}"#, r#"{"a":1}"#),
        (r#"["java.util.ArrayList",["a"]]"#, r#"["a"]"#),
        (r#"{"@class":"java.util.HashMap","a":1}"#, r#"{"a":1}"#),
        (r#"{"a":1,"@class":"java.util.HashMap"}"#, r#"{"a":1}"#),
        (r#"["java.lang.Long",5]"#, "5"),
        (r#"["a","b"]"#, r#"["a","b"]"#),
        (r#"["a.b",1,2]"#, r#"["a.b",1,2]"#),
        (r#"["1.5","b"]"#, r#"["1.5","b"]"#),
    ] {
        let text = format!(r#"{{"name":"n","payload":{json}}}"#);
        let value: serde_json::Value = read(&text).unwrap().payload;
        assert_eq!(value, serde_json::from_str::<serde_json::Value>(payload).unwrap(), "{json}");
        let raw: RawPayload = read(&text).unwrap().payload;
        assert_eq!(raw.as_json(), json);
        assert_eq!(raw.decode::<serde_json::Value>().unwrap(), value);
    }
}

/// Curator's `TestJsonInstanceSerializer.testWrongPayloadType`, `testNoPayload` and `testNoEnabledState`.
#[test]
fn payload_of_another_type_is_an_error_of_its_instance() {
    let wrong = read::<String>(r#"{"name":"n","payload":5}"#);
    assert!(matches!(wrong, Err(DecodeError::Payload(_))), "{wrong:?}");
    assert!(matches!(read::<()>(r#"{"payload":{"a":1}}"#), Err(DecodeError::Payload(_))));
    assert_eq!(read::<Option<String>>(r#"{"payload":null}"#).unwrap().payload, None);
    assert_eq!(read::<Option<String>>("{}").unwrap().payload, None);
    read::<()>("{}").unwrap();
    assert!(read::<()>(r#"{"name":"n"}"#).unwrap().enabled);
}

#[test]
fn errors_name_the_field() {
    let error = read::<()>(r#"{"port":99999999999}"#).unwrap_err();
    assert_eq!(error.to_string(), "the field port cannot be 99999999999");
    assert!(matches!(read::<()>(""), Err(DecodeError::Empty)));
    assert!(matches!(read::<()>("[]"), Err(DecodeError::Json(_))));
    assert!(matches!(read::<()>("{\"name\":"), Err(DecodeError::Json(_))));
    let not_text = InstanceSerializerOf::deserialize(b"{\"name\":\"\xff\"}");
    assert!(matches!(not_text, Err(DecodeError::Json(_))), "{not_text:?}");
    let template = read::<()>(r#"{"uriSpec":"a{b"}"#).unwrap_err();
    assert!(matches!(template, DecodeError::UriSpec(_)), "{template:?}");
}

struct InstanceSerializerOf;

impl InstanceSerializerOf {
    fn deserialize(data: &[u8]) -> Result<ServiceInstance<()>, DecodeError> {
        JsonInstanceSerializer::new().deserialize(data)
    }
}

#[test]
fn numbers_are_read_as_java_reads_them() {
    let port = |json: &str| read::<()>(&format!("{{\"port\":{json}}}")).map(|instance| instance.port).ok();
    for (json, expected) in [
        ("80.9", Some(Some(80))),
        ("-80.9", Some(Some(-80))),
        ("8e1", Some(Some(80))),
        ("2147483647", Some(Some(i32::MAX))),
        ("2147483648", None),
        ("1e30", None),
        ("\" 80 \"", Some(Some(80))),
        ("\"80.9\"", None),
        ("\"x\"", None),
        ("[80]", None),
    ] {
        assert_eq!(port(json), expected, "{json}");
    }
    let time =
        |json: &str| read::<()>(&format!("{{\"registrationTimeUTC\":{json}}}")).map(|i| i.registration_time_utc).ok();
    assert_eq!(time("9223372036854775807"), Some(i64::MAX));
    assert_eq!(time("9223372036854775808"), None);
    assert_eq!(time("9.3e18"), None);
    for (ordinal, known) in ServiceType::ALL.into_iter().enumerate() {
        let read = read::<()>(&format!("{{\"serviceType\":{ordinal}}}")).unwrap();
        assert_eq!(read.service_type, Some(known));
    }
    assert!(read::<()>("{\"serviceType\":4}").is_err());
}

#[test]
fn unknown_fields_are_written_again() {
    let json = r#"{"weight":{"a" : 1},"name":"n","id":"i","address":null,"port":null,"sslPort":null,"payload":null,"registrationTimeUTC":1,"serviceType":"FUTURE","uriSpec":null,"enabled":false,"tags":["x"],"weight":2}"#;
    let mut instance: ServiceInstance = read(json).unwrap();
    assert_eq!(instance.service_type, None);
    instance.port = Some(80);
    let written = String::from_utf8(JsonInstanceSerializer::new().serialize(&instance).unwrap()).unwrap();
    let expected = r#"{"name":"n","id":"i","address":null,"port":80,"sslPort":null,"payload":null,"registrationTimeUTC":1,"serviceType":"FUTURE","uriSpec":null,"enabled":false,"tags":["x"],"weight":2}"#;
    assert_eq!(written, expected);
    assert_eq!(read::<()>(&written).unwrap(), instance);
}

/// The class with which the Java program filled the case `pojo`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pay {
    a: i32,
    b: String,
    l: Vec<String>,
}

/// The bytes of Java's default mode, and of its mode with `enabled`.
struct Java<'a> {
    case: &'a str,
    compatible: &'a str,
    with_enabled: &'a str,
}

impl<'a> Java<'a> {
    fn of(case: &'a str) -> Self {
        let line = |mode: &str| {
            let start = format!("{case} [{mode}] ");
            WRITES.lines().find_map(|line| line.strip_prefix(start.as_str())).unwrap()
        };
        Self { case, compatible: line("compat"), with_enabled: line("new") }
    }

    /// Compares the bytes of an instance, and reads them again.
    fn is<P: Payload + Clone + PartialEq + std::fmt::Debug>(
        self,
        builder: ServiceInstanceBuilder<P>,
        codec: JsonInstanceSerializer,
    ) {
        let instance = builder.build().unwrap();
        let text = |codec: &JsonInstanceSerializer| String::from_utf8(codec.serialize(&instance).unwrap()).unwrap();
        if instance.enabled {
            assert_eq!(text(&codec), self.compatible, "{}", self.case);
        }
        assert_eq!(text(&codec.clone().with_enabled()), self.with_enabled, "{}", self.case);
        assert_eq!(read::<P>(self.with_enabled).unwrap(), instance, "{}", self.case);
        let raw = read::<RawPayload>(self.with_enabled).unwrap();
        assert_eq!(codec.with_enabled().serialize(&raw).unwrap(), self.with_enabled.as_bytes(), "{}", self.case);
    }
}

fn builder(name: &str, id: &str) -> ServiceInstanceBuilder {
    ServiceInstance::builder(name).id(id).address("10.0.0.7").registration_time_utc(1_753_142_400_000)
}

fn web() -> ServiceInstanceBuilder {
    builder("web", "i1")
}

#[test]
fn scalars_have_the_bytes_of_java() {
    let plain = JsonInstanceSerializer::new();
    Java::of("string").is(web().port(8080).payload("hello".to_owned()), plain.clone());
    Java::of("null").is(web(), plain.clone());
    Java::of("null").is(web().payload(None::<i32>), plain.clone());
    Java::of("int").is(web().port(80).ssl_port(443).payload(5), plain.clone());
    Java::of("int").is(web().port(80).ssl_port(443).payload(5), plain.clone().java_class("java.lang.Integer"));
    Java::of("bool").is(web().payload(true), plain.clone());
    Java::of("long").is(web().payload(5_i64), plain.clone().java_class("java.lang.Long"));
    Java::of("double").is(web().payload(1.5), plain.clone());
    let name = "wéb/\"x";
    let text = web().payload("ü\u{2028}\n".to_owned());
    let mut instance = text.build().unwrap();
    name.clone_into(&mut instance.name);
    let written = String::from_utf8(plain.serialize(&instance).unwrap()).unwrap();
    assert_eq!(written, Java::of("unicode").compatible);
}

#[test]
fn objects_and_lists_have_the_bytes_of_java() {
    let class = |name: &str| JsonInstanceSerializer::new().java_class(name);
    let pay = Pay { a: 1, b: "x".to_owned(), l: vec!["q".to_owned()] };
    Java::of("pojo").is(web().payload(pay), class("D$Pay"));
    let map = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    Java::of("map").is(web().payload(map), class("java.util.LinkedHashMap"));
    let map = BTreeMap::from([("k".to_owned(), 1)]);
    Java::of("hashmap").is(web().payload(map), class("java.util.HashMap"));
    let list = vec!["x".to_owned(), "y".to_owned()];
    Java::of("list").is(web().payload(list), JsonInstanceSerializer::new());
    let empty = RawPayload::encode(&BTreeMap::<String, i32>::new(), Some("a.B")).unwrap();
    assert_eq!((empty.as_json(), empty.java_class().as_deref()), (r#"{"@class":"a.B"}"#, Some("a.B")));
}

#[test]
fn template_has_the_bytes_of_java() {
    let spec = "{scheme}://{address}:{port}/a{[}x{]}".parse().unwrap();
    let builder = web().port(8080).service_type(ServiceType::Static).uri_spec(spec).enabled(false);
    Java::of("uri").is(builder.payload(None::<i32>), JsonInstanceSerializer::new());
}

/// Java's default mode loses `enabled`.
#[test]
fn disabled_instance_is_written_as_disabled() {
    let codec = JsonInstanceSerializer::new();
    let text = |enabled| String::from_utf8(codec.serialize(&web().enabled(enabled).build().unwrap()).unwrap()).unwrap();
    assert_eq!(text(true), Java::of("null").compatible);
    assert_eq!(text(false), Java::of("null").with_enabled.replace("true", "false"));
    assert!(!read::<()>(&text(false)).unwrap().enabled);
}

#[test]
fn payloads_of_spring_and_dubbo_have_their_bytes() {
    let codec = JsonInstanceSerializer::new;
    let spring = builder("application", "6b3a2c56-7d1e-4a34-9f7d-0b0d2d6a9c11").port(8080);
    let spring = spring.uri_spec("{scheme}://{address}:{port}".parse().unwrap());
    Java::of("spring").is(spring.payload(SpringPayload::new("application-1", "application")), codec());
    let id = "10.0.0.7:20880";
    let parameters =
        r#"{"connections":"1","version":"1.0.0","dubbo":"2.0.2","side":"provider","port":"20880","protocol":"dubbo"}"#;
    let payload = DubboPayload::new(id, "demo-provider")
        .with_metadata("dubbo.metadata-service.url-params", parameters)
        .with_metadata("dubbo.endpoints", r#"[{"port":20880,"protocol":"dubbo"}]"#)
        .with_metadata("dubbo.metadata.revision", "4e3c2a1b0f9d8e7c6b5a493827161504")
        .with_metadata("dubbo.metadata.storage-type", "local")
        .with_metadata("timestamp", "1753142400000");
    Java::of("dubbo").is(builder("demo-provider", id).port(20880).payload(payload), codec());
}

#[test]
fn characters_have_the_escapes_of_java() {
    let text = "\u{8}\t\n\u{c}\r\u{1f}\u{7f}\"\\/ü\u{FFFF}\u{1F600}\u{10000}x".to_owned();
    let json = text.to_json(None).unwrap();
    assert_eq!(json, "\"\\b\\t\\n\\f\\r\\u001F\u{7f}\\\"\\\\/ü\u{FFFF}\\uD83D\\uDE00\\uD800\\uDC00x\"");
    assert_eq!(String::from_json(&json).unwrap(), text);
}

/// A writer to the tree must not hold up its consumers.
#[test]
fn many_unknown_fields_and_long_payloads_are_read_in_linear_time() {
    const FIELDS: usize = 100_000;
    let fields: Vec<_> = (0..FIELDS).map(|number| format!(r#""f{number}":{number}"#)).collect();
    let json = format!(r#"{{"id":"i1",{},"f0":"last"}}"#, fields.join(","));
    let instance: ServiceInstance<()> = read(&json).unwrap();
    assert_eq!(instance.unknown.len(), FIELDS);
    assert_eq!(instance.unknown.last(), Some(&("f0".to_owned(), "\"last\"".to_owned())));
    let again = JsonInstanceSerializer::new().serialize(&instance).unwrap();
    assert!(read::<()>(std::str::from_utf8(&again).unwrap()).unwrap() == instance);
    let spring = SpringPayload::from_json(&json).unwrap();
    assert!(SpringPayload::from_json(&spring.to_json(None).unwrap()).unwrap() == spring);
    let nulls: Vec<_> = (0..FIELDS).map(|number| format!(r#""k{number}":null"#)).collect();
    let nulls = format!(r#"{{"metadata":{{{}}}}}"#, nulls.join(","));
    let dubbo = DubboPayload::from_json(&nulls).unwrap();
    assert!(DubboPayload::from_json(&dubbo.to_json(None).unwrap()).unwrap() == dubbo);
    let payload = "ü\"".repeat(1 << 19);
    let long = web().payload(payload.clone()).build().unwrap();
    let data = JsonInstanceSerializer::new().serialize(&long).unwrap();
    assert_eq!(read::<String>(std::str::from_utf8(&data).unwrap()).unwrap().payload, payload);
}

/// Each byte of an instance is replaced, and each part of it cut off.
#[test]
fn corrupt_data_is_an_error_or_an_instance() {
    let codec = JsonInstanceSerializer::new();
    let payload = SpringPayload::new("a-1", "a").with_metadata("k", "ü");
    let builder = web().uri_spec("{scheme}://{address}:{port}".parse().unwrap()).payload(payload);
    let data = codec.serialize(&builder.build().unwrap()).unwrap();
    let mut read = 0;
    for at in 0..data.len() {
        for byte in [0, b'"', b'\\', b'{', b'}', b'[', b',', b'9', 0xFF] {
            let mut corrupt = data.clone();
            corrupt[at] = byte;
            let decoded: Result<ServiceInstance<SpringPayload>, _> = codec.deserialize(&corrupt);
            if let Ok(instance) = decoded {
                // Its URI, its JSON and its text exist.
                drop(instance.uri());
                codec.serialize(&instance).unwrap();
                read += 1;
            }
        }
        assert!(
            <JsonInstanceSerializer as crate::InstanceSerializer<SpringPayload>>::deserialize(&codec, &data[..at])
                .is_err()
        );
    }
    assert!(read > 0);
    for deep in ["[".repeat(100_000), "{\"a\":".repeat(100_000), format!("{{\"payload\":{}", "[".repeat(100_000))] {
        assert!(super::reader::instance(deep.as_bytes()).is_err());
    }
}
