//! The crate logs the password of each session, at the level *info* of its own target.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use curator_framework::CreateMode;
use curator_integration::env::{connected, reports_are_made};
use curator_test::TestingServer;
use curator_test::wire::session_password;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

use super::builder;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects and returns the log, and the session's password as the crate writes it.
async fn log_of_a_connect(filter: Targets) -> (String, String) {
    let log = Log::default();
    let writer = log.clone();
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    // This runtime has one thread, so the crate's tasks log here too.
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(filter).with(layer));
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let node = client.create().with_mode(CreateMode::Ephemeral).for_path_with_stat("/own").await.unwrap();
    client.close().await;
    reports_are_made();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    (text, format!("{:?}", session_password(node.1.ephemeral_owner)))
}

#[tokio::test]
async fn password_is_logged_at_info_and_not_with_the_documented_filter() {
    let info = Targets::new().with_default(LevelFilter::INFO);
    let (text, password) = log_of_a_connect(info.clone()).await;
    let line = text.lines().find(|line| line.contains(&password)).expect("the crate logs the password");
    assert!(line.contains(" INFO zookeeper_async::"), "{line}");

    let (text, password) = log_of_a_connect(info.with_target("zookeeper_async", LevelFilter::WARN)).await;
    assert!(text.contains("session established") && !text.contains(&password), "{text}");
}
