//! `queue`: items that are put and taken, and a command for each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use curator_framework::{CreateMode, CuratorFramework, RetryOneTime};
use curator_test::{TestingServer, unique_root};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::showing::parsed;
use crate::{SHORT, apache, curator, end, signal, stderr, stdout, until};

fn queue(connect: &str, arguments: &[&str]) -> Output {
    let mut command = curator(connect, &[&["queue"], arguments].concat());
    // For `take` and `work`, which wait for an item.
    command.env("CURATOR_TIMEOUT", "20s").env("CURATOR_IDLE", "20s").output().unwrap()
}

/// Runs a command of `queue` that has to succeed, and returns what it prints.
fn queued(connect: &str, arguments: &[&str]) -> String {
    let output = queue(connect, arguments);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{arguments:?}");
    stdout(&output)
}

/// Runs `queue put` with this standard input.
fn put_from(connect: &str, options: &[&str], input: &[u8]) -> Output {
    let mut child = curator(connect, &[&["queue", "put"], options].concat()).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// Starts workers on `/jobs` with a script, which finds the folder in `$FOLDER`.
fn work(connect: &str, folder: &Path, options: &[&str], script: &str) -> Child {
    let start = ["queue", "work", "--retry-delay", "0"];
    let mut command = curator(connect, &[&start, options, &["/jobs", "--", "sh", "-c", script, "sh", "{}"]].concat());
    command.env("FOLDER", folder).spawn().unwrap()
}

/// Works until no item has come for half a second.
fn work_off(connect: &str, options: &[&str], script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    work(connect, folder.path(), &[&["--idle", "500ms"], options].concat(), script).wait_with_output().unwrap()
}

/// The state of `/jobs`, as JSON with names.
fn state(connect: &str) -> Value {
    parsed(&queued(connect, &["ls", "--json", "--names", "/jobs"]))
}

fn counts(server: &TestingServer) -> [usize; 3] {
    ["/jobs", "/jobs-locks", "/jobs-dead"].map(|path| server.children(path).map_or(0, |names| names.len()))
}

#[test]
fn items_are_taken_in_order_and_byte_for_byte() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let binary: Vec<u8> = (0..=255).chain([b'\n', 0, 255]).collect();
    assert_eq!(put_from(&servers, &["/jobs"], &binary).status.code(), Some(0));
    assert_eq!(queued(&servers, &["put", "/jobs", "second"]), "");
    assert_eq!(put_from(&servers, &["--each", "/jobs"], b"third\n\nfourth").status.code(), Some(0));
    assert_eq!(put_from(&servers, &["/jobs"], b"").status.code(), Some(0));
    let output = queue(&servers, &["take", "/jobs"]);
    assert_eq!((output.status.code(), output.stdout), (Some(0), binary));
    assert_eq!(queued(&servers, &["take", "/jobs"]), "second");
    let taken = parsed(&queued(&servers, &["take", "--json", "/jobs"]));
    assert_eq!(
        json!([taken["name"], taken["attempt"], taken["items"]]),
        json!(["queue-0000000002", 1, [{ "data": "third" }]])
    );
    assert_eq!(queued(&servers, &["take", "--timeout", "0", "/jobs"]), "fourth");
    assert_eq!(parsed(&queued(&servers, &["take", "--json", "/jobs"]))["items"], json!([{ "data": "" }]));
    for (options, status) in [(&["--timeout", "0"][..], 75), (&["-w", "300ms", "-E", "9"], 9)] {
        let output = queue(&servers, &[&["take"], options, &["/jobs"]].concat());
        assert_eq!((output.status.code(), stdout(&output)), (Some(status), String::new()));
        assert!(
            stderr(&output).starts_with("curator: no item of /jobs is ready: curator queue ls /jobs"),
            "{output:?}"
        );
    }
    assert_eq!(counts(&server), [0, 0, 0]);
}

#[test]
fn take_waits_for_an_item() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let child = curator(&servers, &["queue", "take", "/jobs"]).spawn().unwrap();
    // Once the queue is empty, it is followed.
    until("a watch", || server.watch_count() > 0);
    queued(&servers, &["put", "/jobs", "late"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "late".to_owned()));
    let child = curator(&servers, &["queue", "take", "/jobs"]).spawn().unwrap();
    until("a watch", || server.watch_count() > 0);
    signal(&child, Signal::TERM);
    assert_eq!(end(child), (Some(143), "curator: ended by TERM\n".to_owned()));
}

#[test]
fn item_that_cannot_be_printed_stays() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    queued(&servers, &["put", "/jobs", "precious"]);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut command = curator(&servers, &["queue", "take", "/jobs"]);
    let (code, told) = end(command.stdout(Stdio::from(writer)).spawn().unwrap());
    assert_eq!(code, Some(70), "{told}");
    assert!(told.contains("the item stays"), "{told}");
    assert_eq!(queued(&servers, &["take", "/jobs"]), "precious");
}

#[test]
fn kinds_have_their_own_order() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (priority, item) in [("5", "late"), ("-2", "urgent"), ("5", "last")] {
        queued(&servers, &["put", "--priority", priority, "/urgent", item]);
    }
    for item in ["urgent", "late", "last"] {
        assert_eq!(queued(&servers, &["take", "--kind", "priority", "/urgent"]), item);
    }
    queued(&servers, &["put", "--id", "order 7", "/orders", "paid"]);
    let taken = parsed(&queued(&servers, &["take", "--json", "--kind", "id", "/orders"]));
    assert_eq!(json!([taken["id"], taken["items"][0]["data"]]), json!(["order 7", "paid"]));
    queued(&servers, &["put", "--delay", "10h", "/later", "tomorrow"]);
    queued(&servers, &["put", "--delay", "0", "/later", "now"]);
    let taken = parsed(&queued(&servers, &["take", "--json", "--kind", "delay", "/later"]));
    assert_eq!(taken["items"][0]["data"], "now");
    assert!(taken["due"].as_str().unwrap().starts_with("20"), "{taken}");
    assert_eq!(queue(&servers, &["take", "--timeout", "0", "--kind", "delay", "/later"]).status.code(), Some(75));
    // Without the kind its time would be ignored.
    let output = queue(&servers, &["take", "/later"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{output:?}");
    assert!(stderr(&output).contains("/later is not a plain queue"), "{output:?}");
    assert_eq!(server.children("/later").map(|names| names.len()), Some(1));
}

#[test]
fn status_of_the_command_decides() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for item in ["good", "broken", "failing", "busy"] {
        queued(&servers, &["put", "/jobs", item]);
    }
    let script = r#"
        item=$(cat); echo works; echo $CURATOR_ATTEMPT $CURATOR_QUEUE_PATH >>"$FOLDER/$item"
        case $item in good) exit 0;; broken) exit 65;; failing) exit 3;; esac
        [ $CURATOR_ATTEMPT -ge 4 ] || exit 75"#;
    let folder = tempfile::tempdir().unwrap();
    let options = ["--json", "--idle", "500ms", "--max-attempts", "2", "-n", "4"];
    let output = work(&servers, folder.path(), &options, script).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let runs = |item: &str| std::fs::read_to_string(folder.path().join(item)).unwrap();
    assert_eq!((runs("good"), runs("broken")), ("1 /jobs\n".to_owned(), "1 /jobs\n".to_owned()));
    assert_eq!(runs("failing"), "1 /jobs\n2 /jobs\n", "--max-attempts");
    assert_eq!(runs("busy"), "1 /jobs\n2 /jobs\n3 /jobs\n4 /jobs\n", "75 is not limited");
    let mut records: Vec<Value> = stdout(&output).lines().map(parsed).collect();
    records.sort_by_key(|record| json!([record["name"], record["attempt"]]).to_string());
    let seen: Vec<Value> =
        records.iter().map(|record| json!([record["attempt"], record["outcome"], record["status"]])).collect();
    let expected = json!([
        [1, "completed", 0],
        [1, "rejected", 65],
        [1, "given-back", 3],
        [2, "rejected", 3],
        [1, "given-back", 75],
        [2, "given-back", 75],
        [3, "given-back", 75],
        [4, "completed", 0],
    ]);
    assert_eq!(json!(seen), expected);
    assert_eq!(records[0]["path"], "/jobs");
    let told = stderr(&output);
    assert_eq!(told.matches("works\n").count(), 8, "standard output has the records alone: {told}");
    assert!(told.contains("curator: queue-0000000001: rejected after delivery 1 to /jobs-dead (key "), "{told}");
    let letters = state(&servers)["dead_letters"].clone();
    let letters: Vec<Value> = letters.as_array().unwrap().iter().map(|l| json!([l["attempts"], l["reason"]])).collect();
    let mut reasons = letters.clone();
    reasons.sort_by_key(Value::to_string);
    assert_eq!(json!(reasons), json!([[1, "exit status: 65"], [2, "exit status: 3"]]));
    assert_eq!(counts(&server), [0, 0, 2]);
}

#[test]
fn item_comes_on_standard_input_in_a_variable_or_as_an_argument() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let binary = b"a\xff\n b";
    let folder = tempfile::tempdir().unwrap();
    for (way, script) in [
        ("stdin", r#"cat >"$FOLDER/stdin""#),
        ("variable", r#"printf %s "$CURATOR_ITEM" >"$FOLDER/variable""#),
        ("argument", r#"printf %s "$1" >"$FOLDER/argument""#),
    ] {
        assert_eq!(put_from(&servers, &["/jobs"], binary).status.code(), Some(0));
        let child = work(&servers, folder.path(), &["--idle", "300ms", "--input", way], script);
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
        assert_eq!(std::fs::read(folder.path().join(way)).unwrap(), binary, "{way}");
    }
    // More than a pipe holds, for a command that reads nothing.
    assert_eq!(put_from(&servers, &["/jobs"], &vec![b'x'; 500_000]).status.code(), Some(0));
    assert_eq!(work_off(&servers, &[], "exec true").status.code(), Some(0));
    // Neither a variable nor an argument has these.
    for bytes in [&b"a\0b"[..], &vec![b'x'; 500_000]] {
        assert_eq!(put_from(&servers, &["/jobs"], bytes).status.code(), Some(0));
        let output = work_off(&servers, &["--input", "variable"], "true");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(stderr(&output).contains(": rejected after delivery 1 to /jobs-dead (key "), "{output:?}");
    }
    assert_eq!(counts(&server), [0, 0, 2]);
}

#[test]
fn as_many_commands_run_at_once_as_allowed() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let lines: String = (0..6).map(|line| format!("{line}\n")).collect();
    assert_eq!(put_from(&servers, &["--each", "/jobs"], lines.as_bytes()).status.code(), Some(0));
    let folder = tempfile::tempdir().unwrap();
    // Each command waits for another one, and notes how many are there.
    let script = r#"cd "$FOLDER"; item=$(cat); touch in-$item
        until set -- in-* && [ $# -ge 2 ]; do sleep 0.01; done
        echo $# >>most; sleep 0.05; rm in-$item"#;
    let child = work(&servers, folder.path(), &["--idle", "300ms", "--concurrency", "2"], script);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let most = std::fs::read_to_string(folder.path().join("most")).unwrap();
    assert_eq!((most.lines().count(), most.lines().max()), (6, Some("2")), "{most}");
}

#[test]
fn after_a_signal_commands_end_and_no_item_is_taken() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(put_from(&servers, &["--each", "/jobs"], b"first\nsecond\nthird\n").status.code(), Some(0));
    let folder = tempfile::tempdir().unwrap();
    let script = r#"cd "$FOLDER"; exec 2>/dev/null; item=$(cat)
        trap 'touch ended; [ $item = first ]; exit $?' TERM
        touch $item; while :; do sleep 0.01; done"#;
    // With one delivery each, a failure would reject the item.
    let child = work(&servers, folder.path(), &["-n", "2", "--max-attempts", "1"], script);
    until("two commands", || folder.path().join("first").exists() && folder.path().join("second").exists());
    signal(&child, Signal::TERM);
    let (code, told) = end(child);
    assert_eq!(code, Some(143), "{told}");
    assert!(told.contains("curator: queue-0000000001: given-back after delivery 1: exit status: 1\n"), "{told}");
    assert!(folder.path().join("ended").exists() && !folder.path().join("third").exists());
    let names = ["queue-0000000001", "queue-0000000002"].map(|name| json!({ "name": name, "state": "ready" }));
    assert_eq!(state(&servers)["names"], json!(names), "the first one is completed");
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn killed_worker_leaves_its_item_to_the_next_one() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    queued(&servers, &["put", "/jobs", "one"]);
    let folder = tempfile::tempdir().unwrap();
    let script = r#"echo $CURATOR_ATTEMPT >>"$FOLDER/attempts"; [ $CURATOR_ATTEMPT = 2 ] || exec sleep 603"#;
    let mut child = work(&servers, folder.path(), &SHORT[..2], script);
    let attempts = || std::fs::read_to_string(folder.path().join("attempts")).unwrap_or_default();
    until("the command", || attempts() == "1\n");
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    let other = work(&servers, folder.path(), &[], script);
    until("the second delivery", || attempts() == "1\n2\n");
    until("its end", || server.children("/jobs") == Some(Vec::new()));
    signal(&other, Signal::TERM);
    assert_eq!(end(other).0, Some(143));
}

#[tokio::test]
async fn lost_delivery_stops_its_command() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    queued(&servers, &["put", "/jobs", "one"]);
    let folder = tempfile::tempdir().unwrap();
    let script = r#"cd "$FOLDER"; trap 'touch stopped-$CURATOR_ATTEMPT; exit 0' TERM
        touch began-$CURATOR_ATTEMPT; [ $CURATOR_ATTEMPT = 2 ] || while :; do sleep 0.01; done"#;
    let mut child = work(&servers, folder.path(), &["--json"], script);
    let mut records = BufReader::new(child.stdout.take().unwrap()).lines();
    until("the command", || folder.path().join("began-1").exists());
    assert!(server.kill_session(server.sessions()[0]));
    let mut outcome = || parsed(&records.next().unwrap().unwrap())["outcome"].clone();
    assert_eq!(outcome(), "lost", "although the status of the command is 0");
    assert!(folder.path().join("stopped-1").exists());
    assert_eq!(outcome(), "completed", "the item is delivered again, in the next session");
    signal(&child, Signal::TERM);
    let (code, told) = end(child);
    assert_eq!(code, Some(143));
    assert!(told.contains("curator: the item queue-0000000000 of /jobs is lost: the session"), "{told}");
    assert!(told.contains("curator: queue-0000000000: lost after delivery 1: "), "{told}");
}

#[test]
fn worker_with_a_missing_command_gives_its_item_back_and_ends() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    queued(&servers, &["put", "/jobs", "one"]);
    for (command, status) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
        let output = queue(&servers, &["work", "/jobs", "--", command]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(stderr(&output).contains(&format!("cannot run {command}")), "{output:?}");
    }
    assert_eq!(counts(&server), [1, 0, 0]);
    let output = queue(&servers, &["work", "/jobs", "printf", "x"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(stderr(&output).contains("curator queue work /jobs -- printf x"), "{output:?}");
}

#[test]
fn worker_of_the_wrong_kind_ends_and_leaves_the_items() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    queued(&servers, &["put", "--delay", "10h", "/jobs", "tomorrow"]);
    let output = queue(&servers, &["work", "/jobs", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(counts(&server), [1, 0, 0]);
}

#[test]
fn dead_letters_are_moved_back_with_a_new_count() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let binary = b"\xff\0\x02odd";
    for item in [&binary[..], b"two"] {
        assert_eq!(put_from(&servers, &["/jobs"], item).status.code(), Some(0));
    }
    let output = work_off(&servers, &["--max-attempts", "1"], "exit 3");
    assert_eq!((output.status.code(), counts(&server)), (Some(0), [0, 0, 2]), "{output:?}");
    let table = queued(&servers, &["ls", "--names", "/jobs"]);
    assert!(table.contains("\ndead     queue-0000000001  key "), "{table}");
    assert!(table.contains(", deliveries: 1, exit status: 3: two\n"), "{table}");
    let output = queue(&servers, &["retry-dead", "/jobs", "queue-0000000009"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let moved = |arguments: &[&str]| queued(&servers, &[&["retry-dead", "/jobs"], arguments].concat());
    assert_eq!(moved(&["queue-0000000001"]), "dead letters moved to /jobs: 1\n");
    assert_eq!(moved(&[]), "dead letters moved to /jobs: 1\n");
    assert_eq!(moved(&[]), "dead letters moved to /jobs: 0\n");
    assert_eq!(counts(&server), [2, 0, 0]);
    let taken = parsed(&queued(&servers, &["take", "--json", "/jobs"]));
    assert_eq!(json!([taken["attempt"], taken["items"][0]["data"]]), json!([1, "two"]));
    assert_eq!(queue(&servers, &["take", "/jobs"]).stdout, binary);
}

#[tokio::test]
async fn purge_leaves_items_in_work_and_foreign_nodes() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let client = CuratorFramework::new_client(&*servers, RetryOneTime::new(std::time::Duration::ZERO)).unwrap();
    client.start().unwrap();
    assert_eq!(put_from(&servers, &["--each", "/jobs"], "item\n".repeat(5).as_bytes()).status.code(), Some(0));
    let folder = tempfile::tempdir().unwrap();
    let child = work(&servers, folder.path(), &[], r#"touch "$FOLDER/began"; exec sleep 604"#);
    until("the command", || folder.path().join("began").exists());
    client.create().for_path("/jobs/notes").await.unwrap();
    // A dead letter, and a node that is not one.
    let dead = client.create().creating_parents_if_needed().with_mode(CreateMode::PersistentSequential);
    dead.with_data("odd").for_path("/jobs-dead/queue-").await.unwrap();
    let state = state(&servers);
    let work = &state["names"][1];
    assert_eq!(json!([state["items"], state["in_work"], state["dead"]]), json!([6, 1, 1]));
    assert_eq!(json!([work["name"], work["state"]]), json!(["queue-0000000000", "work"]));
    assert!(work["session"].as_str().unwrap().starts_with("0x"), "{work}");
    assert_eq!(state["oldest"]["name"], "queue-0000000000");
    assert_eq!(state["names"][0], json!({ "name": "notes", "state": "foreign" }));
    assert_eq!(state["dead_letters"][0]["items"], Value::Null);
    let output = queue(&servers, &["retry-dead", "/jobs"]);
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    let output = queue(&servers, &["purge", "/jobs"]);
    let text = "curator: the question needs a terminal: use --yes without one\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    assert_eq!(queued(&servers, &["purge", "--yes", "/jobs"]), "items deleted from /jobs: 4\n");
    assert_eq!(counts(&server), [2, 1, 1]);
    assert_eq!(
        queued(&servers, &["purge", "-y", "--dead-letters", "/jobs"]),
        "dead letters deleted from /jobs-dead: 1\n"
    );
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    assert_eq!(counts(&server), [2, 0, 0]);
    client.close().await;
}

/// A dead letter has another name than its item.
#[test]
fn dead_letter_has_the_key_of_the_message_about_its_rejection() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    queued(&servers, &["put", "/jobs", "item"]);
    let told = stderr(&work_off(&servers, &["--max-attempts", "1"], "echo $CURATOR_ITEM_KEY >&2; exit 1"));
    let key = told.lines().next().unwrap();
    let text =
        format!("curator: queue-0000000000: rejected after delivery 1 to /jobs-dead (key {key}): exit status: 1");
    assert!(told.lines().any(|line| line == text), "{told}");
    let listed = queued(&servers, &["ls", "--names", "/jobs"]);
    assert!(listed.contains(&format!("  key {key}, deliveries: 1, exit status: 1: item\n")), "{listed}");
    assert_eq!(state(&servers)["dead_letters"][0]["key"], key.parse::<i64>().unwrap());
}

#[test]
fn purge_deletes_single_dead_letters() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(put_from(&servers, &["--each", "/jobs"], "item\n".repeat(3).as_bytes()).status.code(), Some(0));
    assert_eq!(work_off(&servers, &["--max-attempts", "1"], "exit 1").status.code(), Some(0));
    assert_eq!(counts(&server), [0, 0, 3]);
    let names = server.children("/jobs-dead").unwrap();
    let output = queue(&servers, &["purge", "--yes", "/jobs", &names[1]]);
    assert_eq!(output.status.code(), Some(2), "names are those of dead letters: {output:?}");
    let output = queue(&servers, &["purge", "--yes", "--dead-letters", "/jobs", &names[1], "queue-9"]);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(1), "curator: /jobs-dead has no dead letter queue-9\n".into())
    );
    assert_eq!(counts(&server), [0, 0, 3]);
    let text = "dead letters deleted from /jobs-dead: 1\n";
    assert_eq!(queued(&servers, &["purge", "--yes", "--dead-letters", "/jobs", &names[1]]), text);
    let mut left = server.children("/jobs-dead").unwrap();
    left.sort_unstable();
    let mut others = [names[0].clone(), names[2].clone()];
    others.sort_unstable();
    assert_eq!(left, others);
}

#[test]
fn purge_asks_on_a_terminal() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (answer, code, left) in [("n\n", 1, 1), ("y\n", 0, 0)] {
        assert_eq!(queue(&servers, &["put", "/jobs", "item"]).status.code(), Some(0));
        let mut terminal = crate::foreground::program(&server, "queue purge /jobs");
        crate::foreground::type_in(&mut terminal, answer);
        let output = terminal.wait_with_output().unwrap();
        assert_eq!((output.status.code(), counts(&server)[0]), (Some(code), left), "{output:?}");
        assert!(stdout(&output).contains("items of /jobs: 1. Delete them? [y/N]"), "{output:?}");
        assert_eq!(queue(&servers, &["take", "-w", "0", "/jobs"]).status.code(), Some(if left == 1 { 0 } else { 75 }));
    }
}

#[test]
fn state_of_a_queue_is_printed() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let output = queue(&servers, &["ls", "/jobs"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()));
    assert_eq!(stderr(&output), "curator: no queue /jobs: no client has put an item yet\n");
    queued(&servers, &["put", "/jobs", "one"]);
    let text = queued(&servers, &["ls", "/jobs"]);
    assert!(text.starts_with("/jobs has 1 item, 0 in work, the oldest is "), "{text}");
    assert!(text.ends_with("s old\n/jobs-dead has 0 dead letters\n"), "{text}");
    queued(&servers, &["take", "/jobs"]);
    assert_eq!(queued(&servers, &["ls", "/jobs"]), "/jobs has 0 items, 0 in work\n/jobs-dead has 0 dead letters\n");
    assert_eq!(parsed(&queued(&servers, &["ls", "--json", "/jobs"]))["oldest"], Value::Null);
}

#[test]
fn bad_arguments_are_refused_before_a_write() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let wrong: [(&[&str], &str); 8] = [
        (&["put", "--priority", "1", "--id", "x", "/jobs", "item"], "cannot be used with"),
        (&["put", "--id", "", "/jobs", "item"], "invalid id"),
        (&["put", "jobs", "item"], "jobs"),
        (&["put", "/", "item"], "it cannot be the root"),
        (&["put", "--each", "/jobs", "item"], "cannot be used with"),
        (&["take", "--locks", "/jobs/locks", "/jobs"], "invalid lock_path"),
        (&["work", "--concurrency", "0", "/jobs", "--", "true"], "it must be at least 1"),
        (&["work", "--max-attempts", "0", "/jobs", "--", "true"], "0 is not in 1.."),
    ];
    for (arguments, text) in wrong {
        let output = queue(&servers, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains(text), "{arguments:?}: {output:?}");
    }
    assert_eq!(server.children("/jobs"), None);
}

#[test]
fn commands_of_a_queue_end_without_a_server() {
    for arguments in [
        &["put", "/jobs", "item"][..],
        &["take", "/jobs"],
        &["take", "--timeout", "10m", "/jobs"],
        &["ls", "/jobs"],
        &["retry-dead", "/jobs"],
        &["purge", "--yes", "/jobs"],
        &["work", "/jobs", "--", "true"],
    ] {
        let options = ["queue", arguments[0], "--connect-timeout", "300ms"];
        let child = curator("127.0.0.1:1", &[&options, &arguments[1..]].concat()).spawn().unwrap();
        let (code, told) = end(child);
        assert_eq!(code, Some(69), "{arguments:?}: {told}");
    }
}

#[test]
fn queues_work_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-cli-queue");
    assert_eq!(put_from(&servers, &["--each", &path], b"one\ntwo\n").status.code(), Some(0));
    let output = queue(&servers, &["work", "--idle", "300ms", "--max-attempts", "1", &path, "--", "grep", "one"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "one\n".to_owned()), "{output:?}");
    assert_eq!(queued(&servers, &["retry-dead", &path]), format!("dead letters moved to {path}: 1\n"));
    assert_eq!(queued(&servers, &["purge", "--yes", &path]), format!("items deleted from {path}: 1\n"));
}
