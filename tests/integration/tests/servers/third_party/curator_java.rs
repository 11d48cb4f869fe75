//! Java's Curator.

use std::process::Command;

use curator_test::curator_class_path;

use super::{assert_nothing_left, assert_success, peer, run, server};

const JDK: &str = "openjdk-17-jdk-headless";

#[test]
fn mutex_semaphore_and_read_write_lock_keep_their_promises() {
    let classes = tempfile::tempdir().unwrap();
    let jars = curator_class_path().unwrap();
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
