//! The bytes of an instance: Java and this crate write the same ones, and each reads what the other has written.

use std::collections::BTreeMap;
use std::fmt::Debug;

use curator_discovery::{
    InstanceSerializer, JsonInstanceSerializer, Payload, RawPayload, ServiceInstance, ServiceInstanceBuilder,
    ServiceType, SpringPayload,
};
use curator_integration::env::{Env, Kind};
use serde::{Deserialize, Serialize};

use super::builder;
use crate::peer::{Peer, Thread};

/// The class of the same name in Java's program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Meta {
    zone: String,
    weight: i32,
}

fn text<P: Payload>(codec: &JsonInstanceSerializer, instance: &ServiceInstance<P>) -> String {
    String::from_utf8(codec.serialize(instance).unwrap()).unwrap()
}

/// Compares both forms of an instance that both languages have built from the same fields.
async fn is_the_same<P: Payload + Debug + PartialEq>(
    java: &mut Thread,
    fields: &str,
    ours: ServiceInstanceBuilder<P>,
    class: Option<&str>,
) {
    let (ours, default) = (ours.build().unwrap(), JsonInstanceSerializer::new());
    let default = if let Some(class) = class { default.java_class(class) } else { default };
    let with_enabled = default.clone().with_enabled();
    let [nine, ten] = [
        java.ask(&format!("json default write {fields}")).await,
        java.ask(&format!("json enabled write {fields}")).await,
    ];
    assert_eq!(text(&with_enabled, &ours), ten);
    // Java's default loses `enabled(false)`, and ours writes the tenth field then.
    assert_eq!(text(&default, &ours), if ours.enabled { nine.clone() } else { ten.clone() });
    let read: ServiceInstance<P> = default.deserialize(ten.as_bytes()).unwrap();
    assert_eq!(read, ours);
    let mut read: ServiceInstance<P> = default.deserialize(nine.as_bytes()).unwrap();
    assert!(read.enabled);
    read.enabled = ours.enabled;
    assert_eq!(read, ours);
    let raw: ServiceInstance<RawPayload> = default.deserialize(ten.as_bytes()).unwrap();
    assert_eq!(text(&default.clone().with_enabled(), &raw), ten, "a payload that is not decoded stays as it is");
    for written in [text(&default, &ours), text(&with_enabled, &ours)] {
        assert_eq!(java.ask(&format!("json enabled read {written}")).await, ten);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_instance_has_the_same_bytes() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let mut java_side = java.thread("json");
    let to = &mut java_side;
    let web = || builder("web", "i1");
    is_the_same(to, "name=web id=i1", web(), None).await;
    is_the_same(to, "name=web id=i1", web().payload(None::<String>), None).await;
    is_the_same(to, "name=web id=i1 port=80 sslPort=443 payload=int:5", web().port(80).ssl_port(443).payload(5), None)
        .await;
    let text = "\"\\/\u{8}\t\u{1f}\u{7f}ü\u{2028}\u{1F600}";
    is_the_same(to, &format!("name=web id=i1 payload=text:{text}"), web().payload(text.to_owned()), None).await;
    is_the_same(to, "name=web id=i1 payload=bool:true", web().payload(true), None).await;
    is_the_same(to, "name=web id=i1 payload=double:1.5", web().payload(1.5), None).await;
    is_the_same(to, "name=web id=i1 payload=long:5", web().payload(5_i64), Some("java.lang.Long")).await;
    let list = vec!["x".to_owned(), "y".to_owned()];
    is_the_same(to, "name=web id=i1 payload=list:x,y", web().payload(list), None).await;
    let map = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    is_the_same(to, "name=web id=i1 payload=map:k,v", web().payload(map), Some("java.util.LinkedHashMap")).await;
    let meta = Meta { zone: "a".to_owned(), weight: 3 };
    is_the_same(to, "name=web id=i1 payload=meta:a,3", web().payload(meta), Some("CuratorServices$Meta")).await;
    let spring = web().payload(SpringPayload::new("web-1", "web"));
    is_the_same(to, "name=web id=i1 payload=spring:web-1,web,UP", spring, None).await;
    let spec = "{scheme}://{address}:{port}/a{[}x{]}";
    let disabled = web().port(8080).uri_spec(spec.parse().unwrap()).enabled(false);
    is_the_same(to, &format!("name=web id=i1 port=8080 uri={spec} enabled=false"), disabled, None).await;
    for kind in [ServiceType::Dynamic, ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential] {
        is_the_same(to, &format!("name=web id=i1 type={kind}"), web().service_type(kind), None).await;
    }
    java.end().await;
}
