//! Options, their environment variables, files with secrets, access control lists, TLS and SASL.

use curator_framework::{CuratorFramework, Permission, RetryOneTime};
use curator_test::{ApacheServer, TestAuthority, TestingServer};

use crate::{begin, curator, end, run, signal, stderr, stdout};

const COMMANDS: [&[&str]; 29] = [
    &["holds"],
    &["lock"],
    &["semaphore"],
    &["read"],
    &["write"],
    &["elect"],
    &["join"],
    &["leader"],
    &["members"],
    &["ls"],
    &["status"],
    &["count"],
    &["barrier", "set"],
    &["barrier", "hold"],
    &["barrier", "remove"],
    &["barrier", "wait"],
    &["barrier", "enter"],
    &["barrier", "status"],
    &["latch", "set"],
    &["latch", "down"],
    &["latch", "wait"],
    &["latch", "status"],
    &["queue", "take"],
    &["queue", "work"],
    &["queue", "ls"],
    &["queue", "retry-dead"],
    &["queue", "purge"],
    &["completions"],
    &["man"],
];
/// The options that say what a command does.
const WITHOUT_A_VARIABLE: [&str; 9] =
    ["--help", "--version", "--add", "--set", "--cas", "--id[=<COUNT>]", "--shell", "--force", "--yes"];

#[test]
fn each_option_has_an_environment_variable() {
    for command in COMMANDS {
        let help = stdout(&run("", &[command, &["--help"]].concat()));
        let options: Vec<&str> = help.split("\n  -").chain(help.split("\n      --")).skip(1).collect();
        // A line with `- ` has a value of an option.
        let is_option = |line: &&str| line.trim_start().starts_with('-') && !line.trim_start().starts_with("- ");
        for option in help.lines().filter(is_option) {
            let name = option.split_whitespace().find(|word| word.starts_with("--")).unwrap();
            if !WITHOUT_A_VARIABLE.contains(&name) {
                let variable = format!("[env: CURATOR_{}", name[2..].to_uppercase().replace('-', "_"));
                assert!(help.contains(&variable), "{command:?} {name} {options:?}");
            }
        }
    }
}

#[test]
fn environment_gives_what_the_command_line_leaves_out() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let lock = |options: &[&str], variables: &[(&str, &str)]| {
        let arguments = [&["lock"], options, &["/lock", "--", "true"]].concat();
        curator(&servers, &arguments).envs(variables.iter().copied()).output().unwrap().status.code()
    };
    assert_eq!(lock(&[], &[("CURATOR_TRY", "1"), ("CURATOR_CONFLICT_EXIT_CODE", "9")]), Some(9));
    assert_eq!(lock(&[], &[("CURATOR_TIMEOUT", "100ms")]), Some(75));
    // The command line has precedence, also over a variable of another option.
    assert_eq!(lock(&["-E", "8"], &[("CURATOR_TRY", "true"), ("CURATOR_CONFLICT_EXIT_CODE", "9")]), Some(8));
    assert_eq!(lock(&["--try"], &[("CURATOR_TIMEOUT", "600s")]), Some(75));
    assert_eq!(lock(&["--timeout", "100ms"], &[("CURATOR_TRY", "true")]), Some(75));
    assert_eq!(lock(&["--try", "--timeout", "3s"], &[]), Some(2));
    // A global option may come before the subcommand.
    let output = curator("127.0.0.1:1", &["--connect", &servers, "ls", "/lock"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = curator(&servers, &["ls", "/lock"]).env("CURATOR_JSON", "yes").output().unwrap();
    assert!(stdout(&output).starts_with('{'), "{output:?}");
    signal(&holder, rustix::process::Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[test]
fn help_and_errors_do_not_contain_secrets() {
    for arguments in [&["--help"][..], &["lock", "--help"], &["man", "lock"], &["completions", "bash"], &["lock", "/x"]]
    {
        let output = curator("127.0.0.1:1", arguments).env("CURATOR_AUTH", "digest:me:secret").output().unwrap();
        assert!(!stdout(&output).contains("secret") && !stderr(&output).contains("secret"), "{output:?}");
    }
    for auth in [&["--auth", "digest:me:secret"][..], &["--auth=digest:me:secret"]] {
        let output = run("127.0.0.1:1", &[auth, &["lock", "/x", "make"][..]].concat());
        let text = stderr(&output);
        assert!(text.contains("lock /x -- make") && !text.contains("secret"), "{text}");
    }
}

#[test]
fn credentials_come_from_a_file() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "# a comment\n\ndigest:you:word\ndigest:me:se:cret\n").unwrap();
    let lock = ["--auth-file", name, "lock", "--acl", "creator", "/box/lock", "--", "true"];
    let output = run(&servers, &lock);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    assert_eq!(run(&servers, &["ls", "/box/lock"]).status.code(), Some(77));
    assert_eq!(run(&servers, &["--auth", "digest:me:se:cret", "ls", "/box/lock"]).status.code(), Some(0));
    let with_variable = curator(&servers, &["ls", "/box/lock"]).env("CURATOR_AUTH_FILE", name).output().unwrap();
    assert_eq!(with_variable.status.code(), Some(0));
    // A line that is not one is named by its number, without its text.
    std::fs::write(&file, "digest:me:secret\nsecret\n").unwrap();
    let output = run(&servers, &lock);
    let text = format!("curator: {name}, line 2: credentials are SCHEME:ID, as digest:user:password\n");
    assert_eq!((output.status.code(), stderr(&output)), (Some(2), text));
    let output = run(&servers, &["--auth-file", "/no/such/file", "ls", "/"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("curator: cannot read /no/such/file: No such file"), "{output:?}");
    let output = run(&servers, &["--auth-file", folder.path().to_str().unwrap(), "ls", "/"]);
    assert!(stderr(&output).ends_with(": Is a directory (os error 21)\n"), "{output:?}");
}

#[tokio::test]
async fn lists_of_created_nodes_are_those_of_the_option() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let client = CuratorFramework::builder(&servers)
        .retry_policy(RetryOneTime::new(std::time::Duration::ZERO))
        .authorization("digest", "me:secret")
        .build()
        .unwrap();
    client.start().unwrap();
    let me = "digest:me:";
    for (number, (acl, expected)) in [
        (&[][..], vec![(Permission::ALL, "world:anyone")]),
        (&["--acl", "open"], vec![(Permission::ALL, "world:anyone")]),
        (&["--acl", "creator"], vec![(Permission::ALL, me)]),
        (&["--acl", "read-only"], vec![(Permission::ALL, me), (Permission::READ, "world:anyone")]),
        (
            &["--acl", "auth::crwda,ip:10.0.0.7:cr"],
            vec![(Permission::ALL, me), (Permission::CREATE | Permission::READ, "ip:10.0.0.7")],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/acl-{number}/lock");
        let arguments = [
            &["--auth", "digest:me:secret", "lock"],
            acl,
            &[path.as_str(), "--", "sh", "-c", "echo $CURATOR_NODE; read wait"],
        ]
        .concat();
        let mut child = curator(&servers, &arguments).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut node = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut node).unwrap();
        for path in [&path, node.trim(), path.trim_end_matches("/lock")] {
            let (list, _) = client.get_acl().for_path(path).await.unwrap();
            let list: Vec<_> =
                list.iter().map(|entry| (entry.permissions, format!("{}:{}", entry.scheme, entry.id))).collect();
            assert_eq!(list.len(), expected.len(), "{path} {list:?}");
            for (entry, (permissions, name)) in list.iter().zip(&expected) {
                assert!(entry.0 == *permissions && entry.1.starts_with(name), "{path} {list:?}");
            }
        }
        drop(child.stdin.take());
        assert_eq!(end(child).0, Some(1));
    }
    let output = run(&servers, &["lock", "--acl", "creator", "/new", "--", "true"]);
    let text = "curator: --acl creator and read-only need credentials: give them with --auth-file or CURATOR_AUTH\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    for wrong in ["world:anyone:x", "digest:me:secret:cdrwa", "no-such-scheme:me:cdrwa"] {
        let output = run(&servers, &["lock", "--acl", wrong, "/new", "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    client.close().await;
}

#[test]
fn tls_needs_the_authority_that_signed_the_servers_certificate() {
    let authority = TestAuthority::new().unwrap();
    let server = ApacheServer::builder().tls(&authority).start().unwrap();
    let servers = server.secure_connect_string().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let mine = authority.client_certificate("operator").unwrap();
    let (ca, cert, key) = (
        write("ca.pem", authority.certificate_pem()),
        write("cert.pem", mine.certificate_pem()),
        write("key.pem", mine.key_pem()),
    );
    let tls = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let output = run(&servers, &[&tls[..], &["lock", "/lock", "--", "echo", "secure"]].concat());
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "secure\n"), "{output:?}");
    let variables = [("CURATOR_TLS_CA", &ca), ("CURATOR_TLS_CERT", &cert), ("CURATOR_TLS_KEY", &key)];
    assert_eq!(curator(&servers, &["ls", "/lock"]).envs(variables).output().unwrap().status.code(), Some(0));
    let other = write("other.pem", TestAuthority::new().unwrap().certificate_pem());
    let output = run(&servers, &["--tls-ca", &other, "--connect-timeout", "3s", "ls", "/lock"]);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(stderr(&output).contains("TLS: invalid peer certificate"), "{output:?}");
    for (options, text) in [
        (&["--tls-ca", "/no/such/file"][..], "curator: invalid TLS option: cannot read /no/such/file: No such file"),
        (&["--tls-ca", &key], "curator: invalid TLS"),
    ] {
        let output = run(&servers, &[options, &["ls", "/lock"]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).starts_with(text), "{output:?}");
    }
    // A certificate without its key, or without the authority, is an error of the command line.
    for options in [&["--tls-ca", &ca, "--tls-cert", &cert][..], &["--tls-cert", &cert, "--tls-key", &key]] {
        assert_eq!(run(&servers, &[options, &["ls", "/lock"]].concat()).status.code(), Some(2), "{options:?}");
    }
}

#[test]
fn sasl_is_a_scheme_of_credentials() {
    let server = ApacheServer::builder().digest_sasl("bob", "secret").start().unwrap();
    let servers = server.connect_string();
    let command = ["lock", "--acl", "sasl:bob:cdrwa", "/box/lock", "--", "true"];
    let output = run(&servers, &[&["--auth", "sasl:bob:secret"], &command[..]].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    assert_eq!(run(&servers, &["ls", "/box/lock"]).status.code(), Some(77));
    let output = run(&servers, &["--auth", "sasl:bob:wrong", "--connect-timeout", "3s", "ls", "/box/lock"]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    let output = run(&servers, &["--auth", "sasl:bob", "ls", "/box/lock"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
