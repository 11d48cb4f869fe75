//! Servers that accept a connection and do not answer.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::{run, stderr};

#[test]
fn limits_of_time_hold_with_a_silent_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = listener.local_addr().unwrap().to_string();
    for arguments in [
        &["--connect-timeout", "1s", "ls", "/jobs"][..],
        &["--connect-timeout", "1s", "status", "/jobs"],
        &["--connect-timeout", "1s", "count", "--add", "1", "/jobs"],
        &["lock", "-w", "1s", "/jobs", "--", "true"],
        &["elect", "-w", "1s", "/jobs", "--", "true"],
        &["join", "-w", "1s", "/jobs", "--", "true"],
        &["queue", "take", "-w", "1s", "/jobs"],
    ] {
        let begin = Instant::now();
        let output = run(&servers, arguments);
        let (elapsed, text) = (begin.elapsed(), stderr(&output));
        assert!(output.status.code() == Some(69) && elapsed < Duration::from_secs(2), "{elapsed:?} {output:?}");
        assert!(text.lines().count() == 1 && text.contains(&servers), "{arguments:?}: {text}");
    }
}
