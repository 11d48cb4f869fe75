//! Locks below nodes with restricted access.

use curator_framework::{Acl, CuratorFramework, Permission, RetryOneTime};
use curator_test::TestingServer;

use crate::{apache, curator, run, stderr, stdout, until};

const RIGHT: &str = "digest:me:secret";
/// Follows an error for want of credentials.
const ADVICE: &str = "; give credentials with --auth-file or CURATOR_AUTH";

/// A server with a node. Its list has an entry for its creator, `RIGHT`, and perhaps one for all.
async fn server_with(path: &str, everybody: Permission) -> TestingServer {
    let server = TestingServer::start().unwrap();
    let retry = RetryOneTime::new(std::time::Duration::ZERO);
    let (scheme, id) = RIGHT.split_once(':').unwrap();
    let client = CuratorFramework::builder(server.connect_string())
        .retry_policy(retry)
        .authorization(scheme, id)
        .build()
        .unwrap();
    client.start().unwrap();
    let mut acl = Acl::creator_all();
    if everybody != Permission::NONE {
        acl.push(Acl::new(everybody, "world", "anyone"));
    }
    client.create().with_acl(acl).for_path(path).await.unwrap();
    client.close().await;
    server
}

#[tokio::test]
async fn client_with_credentials_gets_the_lock() {
    let server = server_with("/private", Permission::NONE).await;
    let servers = server.connect_string();
    let command = ["lock", "/private/lock", "--", "sh", "-c", "echo $CURATOR_NODE"];
    // Other credentials beside them do no harm.
    let output = run(&servers, &[&["--auth", "digest:you:word", "--auth", RIGHT], &command[..]].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    assert!(stdout(&output).starts_with("/private/lock/_c_"), "{output:?}");
    let output = curator(&servers, &command).env("CURATOR_AUTH", RIGHT).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    assert_eq!(server.children("/private/lock"), Some(Vec::new()));
    // The list of the lock's own node is open, and its parent's list is not.
    assert_eq!(run(&servers, &["ls", "/private/lock"]).status.code(), Some(0));
    assert_eq!(run(&servers, &["ls", "/private"]).status.code(), Some(77));
    assert_eq!(run(&servers, &["--auth", RIGHT, "ls", "-r", "/private"]).status.code(), Some(0));
}

#[tokio::test]
async fn client_without_credentials_gets_an_error_and_leaves_no_node() {
    let server = server_with("/private", Permission::NONE).await;
    for credentials in [&[][..], &["--auth", "digest:me:wrong"]] {
        for action in [&["lock"][..], &["semaphore", "-n", "2"], &["read"], &["write"]] {
            for path in ["/private", "/private/lock"] {
                let command = [credentials, action, &[path, "--", "echo", "never"]].concat();
                let output = run(&server.connect_string(), &command);
                assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{command:?}");
                let text = stderr(&output);
                assert!(text.starts_with(&format!("curator: not authorized for {path}")), "{command:?} {text}");
                assert_eq!(text.lines().count(), 1, "{text}");
                assert_eq!(server.children("/private"), Some(Vec::new()));
                until("the session is closed", || server.sessions().is_empty());
            }
        }
    }
    let output = run(&server.connect_string(), &["revoke", "/private"]);
    let text = format!("curator: not authorized for /private{ADVICE}\n");
    assert_eq!((output.status.code(), stderr(&output)), (Some(77), text));
}

/// The node exists before the servers refuse to list the queue for its owner.
#[tokio::test]
async fn client_that_may_only_create_leaves_the_queue() {
    let server = server_with("/box", Permission::CREATE).await;
    let output = run(&server.connect_string(), &["lock", "/box", "--", "echo", "never"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{output:?}");
    assert_eq!(stderr(&output), format!("curator: not authorized for /box{ADVICE}\n"));
    // The node goes with the session, and the end of the session was sent when the command ended.
    until("the session is closed", || server.sessions().is_empty());
    assert_eq!(server.children("/box"), Some(Vec::new()));
}

#[test]
fn credentials_that_the_server_does_not_accept_are_named_as_the_reason() {
    let server = TestingServer::start().unwrap();
    for action in [&["ls", "/lock"][..], &["lock", "/lock", "--", "echo", "never"]] {
        let options = ["--auth", "nonsense:secret", "--connect-timeout", "5s"];
        let output = run(&server.connect_string(), &[&options, action].concat());
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{output:?}");
        let address = server.connect_string();
        let reason = format!("{address}: the server did not accept the credentials of the scheme nonsense");
        let expected = format!("curator: the credentials were refused: no session could be established: {reason}\n");
        assert_eq!(stderr(&output), expected);
    }
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn login_that_the_servers_refuse_has_the_status_of_credentials() {
    let (servers, _server) = apache();
    let options = ["--auth", "sasl:bob:secret", "--connect-timeout", "1s", "ls", "/lock"];
    let output = run(&servers, &options);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{output:?}");
    assert!(stderr(&output).contains("no login by SASL"), "{output:?}");
}
