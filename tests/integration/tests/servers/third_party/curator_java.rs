//! Java's Curator.

use std::path::Path;
use std::process::Command;

use super::{assert_nothing_left, assert_success, peer, run, server};

const JARS: [&str; 2] = ["/usr/share/java/curator-recipes.jar", "/usr/share/java/slf4j-nop.jar"];
const PACKAGE: &str = "libcurator-recipes-java";
const JDK: &str = "openjdk-17-jdk-headless";

#[test]
fn mutex_semaphore_and_read_write_lock_keep_their_promises() {
    for jar in JARS {
        assert!(Path::new(jar).exists(), "{jar} not found: on Debian and Ubuntu `apt-get install {PACKAGE}`");
    }
    let classes = tempfile::tempdir().unwrap();
    let jars = JARS.join(":");
    let mut compiler = Command::new("javac");
    compiler.args(["-cp", &jars, "-d"]).arg(classes.path()).arg(peer("CuratorRecipes.java"));
    assert_success(&run(&mut compiler, JDK));

    let server = server();
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp"]);
    java.arg(format!("{}:{jars}", classes.path().display())).arg("CuratorRecipes").arg(server.connect_string());
    let output = run(&mut java, JDK);
    assert_success(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mutex\nsemaphore\nread-write lock\n");
    assert_nothing_left(
        &server,
        &["/curator/mutex", "/curator/semaphore/leases", "/curator/semaphore/locks", "/curator/rw"],
    );
}
