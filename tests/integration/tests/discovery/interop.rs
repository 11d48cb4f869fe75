//! Java's `ServiceDiscovery` and this crate's with the same services: each finds the instances of the other, and the bytes
//! of the nodes are equal. The program in Java carries out lines:
//!
//! | line | answer |
//! | --- | --- |
//! | `register NAME ID TYPE PAYLOAD` | `registered` |
//! | `update NAME ID TYPE PAYLOAD` | `updated` |
//! | `unregister NAME ID TYPE PAYLOAD` | `unregistered` |
//! | `names` | the names with commas |
//! | `query NAME` | `ID=CLASS:PAYLOAD` of each instance, with commas |
//! | `sees NAME INSTANCES` | `seen` once a `ServiceCache` has these instances |

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use curator_discovery::{RawPayload, ServiceCache, ServiceDiscovery, ServiceInstance, ServiceType};
use curator_integration::env::{Env, in_time};
use curator_integration::on_every_server;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::stage::{registered, text_of};

/// The program in Java. Killed when it is dropped.
struct Java {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// The compiled program. The launcher of single files hides its classes from the reader of payloads.
    _classes: TempDir,
}

impl Java {
    async fn start(env: &Env, base: &str) -> Self {
        let jars = ["curator-x-discovery.jar", "curator-recipes.jar", "slf4j-nop.jar"];
        let jars = jars.map(|jar| format!("/usr/share/java/{jar}")).join(":");
        let discovery = Path::new("/usr/share/java/curator-x-discovery.jar");
        assert!(discovery.exists(), "on Debian and Ubuntu `apt-get install libcurator-discovery-java`");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop_programs/CuratorDiscovery.java");
        let classes = tempfile::tempdir().unwrap();
        let mut compiler = Command::new("javac");
        let compiled =
            compiler.args(["-encoding", "UTF-8", "-cp", &jars, "-d"]).arg(classes.path()).arg(source).output().await;
        let compiled = compiled.expect("javac: on Debian and Ubuntu `apt-get install openjdk-17-jdk-headless`");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let mut command = Command::new("java");
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", "-cp"]);
        command.arg(format!("{}:{jars}", classes.path().display())).arg("CuratorDiscovery");
        command.arg(env.address().to_string()).arg(base);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut java = Self { process, input, output: BufReader::new(output).lines(), _classes: classes };
        assert_eq!(java.answer().await, "ready");
        java
    }

    async fn answer(&mut self) -> String {
        in_time(self.output.next_line()).await.unwrap().expect("Java has ended")
    }

    async fn ask(&mut self, line: &str) -> String {
        in_time(self.input.write_all(format!("{line}\n").as_bytes())).await.unwrap();
        self.answer().await
    }

    async fn end(self) {
        let Self { mut process, input, _classes, .. } = self;
        drop(input);
        assert!(in_time(process.wait()).await.unwrap().success());
    }
}

/// A payload as the word for Java, as this crate writes it, and as Java shows it.
fn payloads() -> [(&'static str, RawPayload, &'static str); 5] {
    let raw = |payload: Result<RawPayload, _>| payload.unwrap();
    let (map, meta) = (BTreeMap::from([("k", "ü")]), BTreeMap::from([("zone", "eu")]));
    [
        ("a\\x1fü\"/\\", raw(RawPayload::encode(&"a\u{1f}ü\"/\\", None)), "String:a\u{1f}ü\"/\\"),
        ("long:5", raw(RawPayload::encode(&5_i64, Some("java.lang.Long"))), "Long:5"),
        ("map:k=ü", raw(RawPayload::encode(&map, Some("java.util.HashMap"))), "HashMap:{k=ü}"),
        ("list:x;y", raw(RawPayload::encode(&["x", "y"], None)), "ArrayList:[x;y]"),
        ("meta:eu", raw(RawPayload::encode(&meta, Some("CuratorDiscovery$Meta"))), "Meta:eu"),
    ]
}

fn instance(name: &str, id: &str, kind: ServiceType, payload: &RawPayload) -> ServiceInstance<RawPayload> {
    let spec = "{scheme}://{address}:{ssl-port}".parse().unwrap();
    let builder = ServiceInstance::builder(name).id(id).address("10.0.0.7").port(80).ssl_port(443).uri_spec(spec);
    let builder = builder.registration_time_utc(1_753_142_400_000).service_type(kind);
    builder.payload(payload.clone()).build().unwrap()
}

on_every_server! {
    async fn instances_of_both_languages_have_the_same_bytes(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let mut java = Java::start(&env, &base).await;
        let discovery: ServiceDiscovery<RawPayload> = ServiceDiscovery::new(client.clone(), &base).unwrap();
        let mut all = Vec::new();
        for (number, (word, payload, shown)) in payloads().into_iter().enumerate() {
            for kind in [ServiceType::Dynamic, ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential] {
                let name = format!("{kind}-{number}");
                assert_eq!(java.ask(&format!("register {name} java {kind} {word}")).await, "registered");
                let registration = registered(&discovery, instance(&name, "rust", kind, &payload)).await;
                let nodes = client.get_children().for_path(&format!("{base}/{name}")).await.unwrap();
                let of_java = nodes.iter().find(|node| node.starts_with("java")).unwrap();
                let of_java = text_of(&client, &format!("{base}/{name}/{of_java}")).await;
                let of_rust = text_of(&client, &registration.node_path().unwrap()).await;
                assert_eq!(of_rust, of_java.replace("\"id\":\"java\"", "\"id\":\"rust\""), "{word}");
                assert_eq!(java.ask(&format!("query {name}")).await, format!("java={shown},rust={shown}"));
                let found = in_time(discovery.instances(&name)).await.unwrap();
                assert!(found.broken.is_empty(), "{:?}", found.broken);
                assert_eq!(found.found, ["java", "rust"].map(|id| instance(&name, id, kind, &payload)));
                assert_eq!(found.found[0].uri().unwrap(), "https://10.0.0.7:443");
                all.push(registration);
            }
        }
        assert_eq!(java.ask("names").await, in_time(discovery.names()).await.unwrap().join(","));
        java.end().await;
    }

    async fn changes_of_one_language_are_seen_by_the_other(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let mut java = Java::start(&env, &base).await;
        let discovery: ServiceDiscovery<RawPayload> = ServiceDiscovery::new(client.clone(), &base).unwrap();
        let payload = |text: &str| RawPayload::encode(&text, None).unwrap();
        let mine = registered(&discovery, instance("web", "rust", ServiceType::Dynamic, &payload("one"))).await;
        let cache = ServiceCache::new(&discovery, "web").unwrap();
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        assert_eq!(java.ask("register web java DYNAMIC one").await, "registered");
        assert_eq!(java.ask("sees web java=String:one,rust=String:one").await, "seen");
        in_time(mine.update(|instance| instance.payload = payload("two"))).await.unwrap();
        assert_eq!(java.ask("update web java DYNAMIC three").await, "updated");
        assert_eq!(java.ask("sees web java=String:three,rust=String:two").await, "seen");
        in_time(cache.synced()).await.unwrap();
        let seen: Vec<_> = cache.instances().iter().map(|instance| instance.payload.as_json().to_owned()).collect();
        assert_eq!(seen, ["\"three\"", "\"two\""]);
        in_time(mine.set_enabled(false)).await.unwrap();
        assert_eq!(java.ask("sees web java=String:three,rust=String:two:disabled").await, "seen");
        assert_eq!(java.ask("unregister web java DYNAMIC three").await, "unregistered");
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.instances().len(), 1);
        in_time(mine.unregister()).await;
        assert_eq!(java.ask("query web").await, "");
        java.end().await;
    }
}
