//! What it costs to wait for a server that says nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use curator_framework::{ConnectionState, Error};
use curator_integration::connection_stage::{Told, comes_to};
use curator_integration::env::{PATIENCE, builder, in_time};
use curator_test::TestingServer;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

const LISTENERS: usize = 100;
const REQUESTS: usize = 1000;
/// Lost after 3 s.
const SESSION: Duration = Duration::from_secs(4);
const WAIT: Duration = Duration::from_secs(5);
/// Of the time of one core.
const MOST: f64 = 0.05;
/// Tells the process of the client where the server is.
const SERVER: &str = "CURATOR_TEST_FROZEN_SERVER";

/// The time that this process has had on the processors.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// The client's process. It says what it does on its standard output, and continues when a line comes in.
async fn client(server: &str) {
    let go_on = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the test is gone");
    };
    let options = builder(server.parse().unwrap()).session_timeout(SESSION).connection_timeout(PATIENCE);
    let client = options.build().unwrap();
    let told: Vec<_> = (0..LISTENERS).map(|_| Told::by(&client)).collect();
    client.start().unwrap();
    in_time(client.block_until_connected()).await.unwrap();
    println!("\nconnected");
    go_on();

    let mut pending = JoinSet::new();
    for number in 0..REQUESTS {
        let client = client.clone();
        pending.spawn(async move {
            match number % 4 {
                0 => client.check_exists().for_path("/").await.map(drop),
                1 => client.get_data().watched().for_path("/").await.map(drop),
                2 => client.create().with_protection().for_path("/node").await.map(drop),
                _ => client.set_data().with_version(7).for_path("/", "x").await.map(drop),
            }
        });
    }
    let (began, used) = (Instant::now(), processor_time());
    comes_to(&client, ConnectionState::Lost).await;
    tokio::time::sleep(WAIT.saturating_sub(began.elapsed())).await;
    let part = (processor_time() - used).as_secs_f64() / began.elapsed().as_secs_f64();
    assert!(pending.try_join_next().is_none(), "nobody has answered");
    assert_eq!(pending.len(), REQUESTS);
    println!("\nwaited: {:.2} % of one core", part * 100.0);
    assert!(part <= MOST, "{:.2} % of one core", part * 100.0);
    go_on();

    // The server is there again.
    let mut refused = 0;
    while let Some(outcome) = in_time(pending.join_next()).await {
        match outcome.unwrap() {
            Ok(()) => {}
            Err(Error::BadVersion { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, REQUESTS / 4);
    let story =
        [ConnectionState::Connected, ConnectionState::Suspended, ConnectionState::Lost, ConnectionState::Reconnected];
    in_time(client.close()).await;
    for told in told {
        assert_eq!(told.all(client.clone()).await, story);
    }
    println!("\nended");
}

/// The process of the client, which ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A client with many listeners and many pending requests, in a process of its own because what it uses is measured.
#[test]
fn a_busy_client_waits_for_a_frozen_server_at_no_cost() {
    if let Ok(server) = std::env::var(SERVER) {
        return tokio::runtime::Runtime::new().unwrap().block_on(client(&server));
    }
    let server =
        TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap();
    let test = concat!(module_path!(), "::a_busy_client_waits_for_a_frozen_server_at_no_cost");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test.split_once("::").unwrap().1, "--nocapture"]);
    command.env(SERVER, server.connect_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut input = process.0.stdin.take().unwrap();
    let mut output = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let mut until = |wanted: &str| {
        let lines = output.by_ref().map(Result::unwrap);
        lines.inspect(|line| println!("client: {line}")).find(|line| line.starts_with(wanted)).expect(wanted)
    };
    until("connected");
    server.freeze();
    input.write_all(b"frozen\n").unwrap();
    until("waited");
    server.thaw();
    input.write_all(b"thawed\n").unwrap();
    until("ended");
    assert!(process.0.wait().unwrap().success());
    // Every protected create was made once, and nothing else is there.
    let nodes = server.children("/").unwrap();
    assert_eq!(nodes.iter().filter(|name| name.starts_with("_c_")).count(), REQUESTS / 4);
    assert_eq!(nodes.len(), REQUESTS / 4 + 1);
}
