//! Programs that end while they hold a lock: the session ends with the runtime.
//!
//! Each program is a process of its own: this test binary, started again with a role.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, RetryNTimes, TlsOptions};
use curator_integration::env::{connected, eventually, in_time};
use curator_recipes::{InterProcessMutex, LockError, MutexGuard};
use curator_test::{ApacheServer, TestAuthority, TestingServer};
use futures_util::FutureExt as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::{Builder, Runtime};

/// The variable with the server, lock, runtime and ending of a program.
const ROLE: &str = "CURATOR_ENDING_PROGRAM";
/// The variable with the authority, certificate and key of a program with TLS.
const TLS: &str = "CURATOR_ENDING_PROGRAM_TLS";
const PROGRAM: &str = "our_client::program_end::program_with_a_role_holds_a_lock_and_ends";
/// The timeout of a program's session, which no test waits for.
const SESSION: Duration = Duration::from_secs(60);
/// The time for a grant behind a program that closes its session.
const SOON: Duration = Duration::from_secs(5);
/// The longest wait for a close, which no program reaches.
const CLOSE_WAIT: Duration = Duration::from_secs(40);
const RUNS: usize = 40;
const RUNTIMES: [&str; 2] = ["current_thread", "multi_thread"];
/// The endings that drop the runtime.
const ENDINGS: [&str; 5] = ["return", "panic", "task", "static", "closing"];

fn options(server: &str) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(server)
        .zookeeper_factory(DefaultZooKeeperFactory::new())
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(10))
        .max_close_wait(CLOSE_WAIT)
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
}

fn runtime(kind: &str) -> Runtime {
    let mut builder = match kind {
        "current_thread" => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.enable_all().build().unwrap()
}

fn program(server: &str, path: &str, runtime: &str, ending: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([PROGRAM, "--exact", "--nocapture"]).env(ROLE, format!("{server} {path} {runtime} {ending}"));
    command
}

/// Runs a program to its end.
fn run(server: &str, path: &str, runtime: &str, ending: &str, tls: Option<&str>) -> Output {
    let mut command = program(server, path, runtime, ending);
    if let Some(tls) = tls {
        command.env(TLS, tls);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("held\n"), "{runtime}, {ending}: {output:?}");
    output
}

/// Does nothing unless a test below has started it.
#[test]
fn program_with_a_role_holds_a_lock_and_ends() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<_> = role.split(' ').collect();
    let [server, path, kind, ending] = words[..] else { panic!("{role}") };
    let mut options = options(server);
    if let Ok(tls) = std::env::var(TLS) {
        let parts: Vec<_> = tls.split('|').collect();
        let [authority, certificate, key] = parts[..] else { panic!("{tls}") };
        options = options.tls(TlsOptions::new(authority).with_client_certificate(certificate, key));
    }
    let runtime = runtime(kind);
    if ending == "run" {
        let stopped = runtime.block_on(hold_in_run(&options.build().unwrap(), path));
        return println!("{}", stopped.unwrap_err());
    }
    let left = runtime.block_on(hold(options, path, ending));
    drop(runtime);
    if let Some(guard) = left {
        assert!(!guard.is_held());
        assert!(guard.lost().now_or_never().is_some());
    }
}

/// The `main` of a program that a signal ends.
async fn hold_in_run(client: &CuratorFramework, path: &str) -> Result<(), LockError> {
    let work = async {
        let _guard = InterProcessMutex::new(client.clone(), path)?.acquire().await?;
        println!("\nheld");
        std::future::pending().await
    };
    client.run(work).await
}

/// The `main` of a program. Returns a guard that outlives the runtime.
async fn hold(options: CuratorFrameworkBuilder, path: &str, ending: &str) -> Option<MutexGuard> {
    let client = connected(options).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), path).unwrap().acquire()).await.unwrap();
    println!("\nheld");
    match ending {
        // Unlike `panic!` it prints nothing.
        "panic" => std::panic::resume_unwind(Box::new("the end")),
        "static" => return Some(guard),
        "closing" => assert!(client.close().now_or_never().is_none()),
        "exit" => std::process::exit(0),
        "task" => {
            tokio::spawn(async move {
                let _held = guard;
                std::future::pending::<()>().await;
            });
        }
        _ => {}
    }
    None
}

/// Runs the programs one by one. After each, another client is granted the lock soon.
async fn each_hands_on(client: &CuratorFramework, server: &str, runs: usize, tls: Option<String>) {
    let mut late = Vec::new();
    let mut longest = Duration::ZERO;
    for number in 0..runs {
        let kind = RUNTIMES[number % RUNTIMES.len()];
        let ending = ENDINGS[number / RUNTIMES.len() % ENDINGS.len()];
        let path = format!("/ending-{number}");
        let (server, tls, of_program) = (server.to_owned(), tls.clone(), path.clone());
        tokio::task::spawn_blocking(move || run(&server, &of_program, kind, ending, tls.as_deref())).await.unwrap();
        let ended = Instant::now();
        let granted = InterProcessMutex::new(client.clone(), path).unwrap().acquire_timeout(SOON).await.unwrap();
        longest = longest.max(ended.elapsed());
        if granted.is_none() {
            late.push(format!("{kind}, {ending}"));
        }
    }
    println!("{runs} programs, the longest wait for the lock: {longest:.1?}");
    assert!(late.is_empty(), "{} of {runs} programs kept their locks: {late:?}", late.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_program_that_ends_is_granted_to_the_next_contender() {
    let server = TestingServer::start().unwrap();
    let client = connected(options(&server.connect_string())).await;
    each_hands_on(&client, &server.connect_string(), RUNS, None).await;
    client.close().await;
    eventually("all sessions are closed", async || server.sessions().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_program_that_ends_is_granted_to_the_next_contender_on_apache() {
    let authority = TestAuthority::new().unwrap();
    let server = tokio::task::block_in_place(|| {
        let builder = ApacheServer::builder().session_timeouts(Duration::from_secs(2), SESSION).tls(&authority);
        builder.start().unwrap_or_else(|error| panic!("{error}"))
    });
    let client = connected(options(&server.connect_string())).await;
    each_hands_on(&client, &server.connect_string(), 10, None).await;
    let own = authority.client_certificate("worker").unwrap();
    let tls = [authority.certificate_pem(), own.certificate_pem(), own.key_pem()].join("|");
    each_hands_on(&client, &server.secure_connect_string().unwrap(), 10, Some(tls)).await;
    client.close().await;
}

/// `process::exit` drops nothing: the documentation says so.
#[test]
fn program_that_exits_without_dropping_its_runtime_leaves_its_session() {
    let server = TestingServer::start().unwrap();
    for (number, kind) in RUNTIMES.iter().enumerate() {
        run(&server.connect_string(), &format!("/exit-{number}"), kind, "exit", None);
        assert_eq!(server.sessions().len(), number + 1, "{kind}");
    }
}

/// Starts a program, and signals it when it holds the lock. Returns its last output.
fn signalled(server: &TestingServer, kind: &str, signals: &[Signal], frozen: bool) -> String {
    let mut command = program(&server.connect_string(), "/signalled", kind, "run");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "held\n" {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the program ended before it held the lock");
    }
    if frozen {
        server.freeze();
    }
    for signal in signals {
        kill_process(pid, *signal).unwrap();
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    rest
}

#[test]
fn signal_drops_the_work_of_run_and_closes_its_client() {
    let server = TestingServer::start().unwrap();
    for kind in RUNTIMES {
        for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
            let said = signalled(&server, kind, &[signal], false);
            assert!(said.contains(&format!("stopped by {name}\n")), "{kind}: {said}");
            assert_eq!(server.sessions(), [0; 0], "{kind}, {name}");
        }
    }
}

#[test]
fn second_signal_ends_the_wait_for_the_close() {
    let server = TestingServer::start().unwrap();
    let began = Instant::now();
    signalled(&server, "multi_thread", &[Signal::INT, Signal::TERM], true);
    assert!(began.elapsed() < CLOSE_WAIT, "{:?}", began.elapsed());
    assert_eq!(server.sessions().len(), 1);
    // The end of the runtime has left the request to the socket.
    server.thaw();
    while !server.sessions().is_empty() {
        assert!(began.elapsed() < CLOSE_WAIT, "the session is closed");
        std::thread::sleep(Duration::from_millis(10));
    }
}
