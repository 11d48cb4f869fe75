//! Standard streams that are closed, and too few descriptors.

use std::process::{Command, Output, Stdio};

use curator_test::TestingServer;

use crate::{run, stderr, stdout};

/// Runs a line of the shell, in which `$CURATOR` is the program.
pub(crate) fn shell(connect: &str, script: &str) -> Output {
    let mut sh = Command::new("sh");
    sh.args(["-c", script]).env("CURATOR_CONNECT", connect).env("CURATOR", env!("CARGO_BIN_EXE_curator"));
    sh.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn nothing_is_consumed_while_standard_output_is_closed() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(run(&servers, &["queue", "put", "/queue", "one"]).status.code(), Some(0));
    for script in ["queue take /queue", "queue take --json /queue", "count --id /ids"] {
        let output = shell(&servers, &format!("\"$CURATOR\" {script} >&-"));
        let text = "curator: cannot print: standard output is closed, or is /dev/null\n";
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(70), text), "{script}");
    }
    assert_eq!(server.children("/queue").map(|items| items.len()), Some(1));
    assert!(!server.exists("/ids"));
    // It says so, that nothing is to be printed.
    let output = shell(&servers, "\"$CURATOR\" queue take /queue >/dev/null");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert_eq!(server.children("/queue").map(|items| items.len()), Some(0));
}

#[test]
fn too_few_descriptors_are_an_error_of_one_line() {
    let server = TestingServer::start().unwrap();
    for limit in [6, 7, 8, 9] {
        let output = shell(&server.connect_string(), &format!("ulimit -n {limit}; \"$CURATOR\" lock /lock -- echo ok"));
        let text = stderr(&output);
        if output.status.code() == Some(0) {
            assert_eq!((stdout(&output).as_str(), text.as_str()), ("ok\n", ""), "{limit}");
            continue;
        }
        let is_told = text.lines().count() == 1 && text.contains("Too many open files");
        assert!(matches!(output.status.code(), Some(69 | 70)) && is_told, "{limit}: {output:?}");
    }
}
