//! Locks inside locks, and programs that outlive the lock under which they were started.

use curator_test::TestingServer;

use crate::closed::shell;
use crate::{stderr, stdout, until};

#[test]
fn lock_of_an_outer_command_is_refused() {
    let server = TestingServer::start().unwrap();
    let script = "\"$CURATOR\" lock /one -- \"$CURATOR\" lock /two -- \"$CURATOR\" lock -w 5s /one -- echo nested";
    let output = shell(&server.connect_string(), script);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("/one"), "{output:?}");
    assert!(stderr(&output).contains("it would wait for itself"), "{output:?}");
    let script = "\"$CURATOR\" elect --once /one -- \"$CURATOR\" elect --once -w 5s /one -- echo nested";
    let output = shell(&server.connect_string(), script);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("it would wait for itself"), "{output:?}");
}

/// Readers share: a reader waits for the writer around it, but not for a reader.
#[test]
fn reader_inside_its_writer_is_refused_and_inside_a_reader_is_not() {
    let server = TestingServer::start().unwrap();
    let script = "\"$CURATOR\" write /lock -- \"$CURATOR\" read -w 5s /lock -- echo nested";
    let output = shell(&server.connect_string(), script);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("it would wait for itself"), "{output:?}");
    let script = "\"$CURATOR\" read /lock -- \"$CURATOR\" read -w 5s /lock -- echo nested";
    let output = shell(&server.connect_string(), script);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "nested\n"), "{output:?}");
}

/// The variables of a command outlive its lock, as in a daemon that it has started.
#[test]
fn variables_of_a_lock_that_was_released_refuse_nothing() {
    let server = TestingServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("variables");
    let script = format!(
        "\"$CURATOR\" lock /lock -- sh -c 'export -p' >{0} && . {0} && \
                          \"$CURATOR\" lock -n /lock -- echo fine",
        file.display()
    );
    let output = shell(&server.connect_string(), &script);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "fine\n"), "{output:?}");
}

#[test]
fn script_that_locks_its_rest_runs_under_the_lock() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let report = "\"$CURATOR\" holds /lock || exec \"$CURATOR\" lock -n /lock -- sh \"$0\" \"$@\"\n\
                  \"$CURATOR\" status /lock >/dev/null; echo $* $?\n";
    std::fs::write(path("report"), report).unwrap();
    let output = shell(&servers, &format!("sh {} runs", path("report")));
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("runs 3\n", ""));
    // The same with variables of a lock that was released, and under the lock of another command.
    let script = format!(
        "\"$CURATOR\" lock /lock -- sh -c 'export -p' >{0} && . {0} && sh {1} runs",
        path("old"),
        path("report")
    );
    let output = shell(&servers, &script);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("runs 3\n", ""));
    let script = format!("\"$CURATOR\" lock /lock -- \"$CURATOR\" lock /other -- sh {} runs", path("report"));
    let output = shell(&servers, &script);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("runs 3\n", ""));
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn holds_has_a_status_for_scripts() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let status = |servers: &str, script: &str| shell(servers, script).status.code();
    assert_eq!(status(&servers, "\"$CURATOR\" holds /lock"), Some(1));
    assert_eq!(status(&servers, "\"$CURATOR\" lock /other -- \"$CURATOR\" holds /lock"), Some(1));
    for command in ["lock", "read", "write", "semaphore", "elect"] {
        let script = format!("\"$CURATOR\" {command} /{command} -- \"$CURATOR\" holds /{command}");
        assert_eq!(status(&servers, &script), Some(0), "{command}");
    }
    assert_eq!(status(&servers, "\"$CURATOR\" holds lock"), Some(2));
    let script = "\"$CURATOR\" lock /lock -- \"$CURATOR\" --connect 127.0.0.1:1 --connect-timeout 300ms holds /lock";
    assert_eq!(status(&servers, script), Some(69));
}
