//! Other people's clients, unmodified, on the in-process server.

mod curator_java;
mod kazoo;
mod zookeeper_client;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use curator_test::TestingServer;

/// A program of a language that cargo does not know.
fn peer(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("interop_programs").join(name)
}

fn server() -> TestingServer {
    TestingServer::builder().tick(Duration::from_secs(1)).start().unwrap()
}

/// Runs a program to its end.
fn run(command: &mut Command, package: &str) -> Output {
    let output = command.output();
    output.unwrap_or_else(|error| {
        let program = command.get_program().to_string_lossy();
        panic!("{program}: {error}; on Debian and Ubuntu `apt-get install {package}`")
    })
}

fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The clients have said goodbye and have left nothing but the folders of their recipes.
fn assert_nothing_left(server: &TestingServer, folders: &[&str]) {
    let began = Instant::now();
    while !server.sessions().is_empty() && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.sessions(), [0; 0]);
    assert_eq!(server.watch_count(), 0);
    for folder in folders {
        assert_eq!(server.children(folder).unwrap_or_default(), [""; 0], "{folder}");
    }
}
