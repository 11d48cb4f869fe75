//! Bad input gets an error that names it; nothing panics and nothing hangs.

use std::time::{Duration, Instant};

use curator_framework::{Chain, CuratorFramework, Error, RetryNTimes};
use curator_integration::clients::with_client;
use curator_integration::env::{builder, connected, in_time};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, LockError};
use curator_test::TestingServer;

fn never() -> RetryNTimes {
    RetryNTimes::new(0, Duration::ZERO)
}

#[tokio::test]
async fn no_server_at_the_address_is_told_within_the_connection_timeout() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (first, second) = (taken.local_addr().unwrap(), "127.0.0.1:1");
    drop(taken);
    let client = with_client(CuratorFramework::builder(format!("{first},{second}")))
        .connection_timeout(Duration::from_secs(2))
        .retry_policy(never())
        .build()
        .unwrap();
    client.start().unwrap();
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let start = Instant::now();
    let errors = [
        Chain(&client.get_data().for_path("/a").await.unwrap_err()).to_string(),
        Chain(&mutex.acquire().await.unwrap_err()).to_string(),
        Chain(&mutex.try_acquire().await.unwrap_err()).to_string(),
    ];
    assert!(start.elapsed() < Duration::from_secs(3 * 2 + 1), "{:?}", start.elapsed());
    for error in errors {
        for server in [first.to_string(), second.to_owned()] {
            assert!(error.contains(&format!("{server}: Connection refused")), "{error}");
        }
    }
    client.close().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_told_within_the_connection_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let client = with_client(CuratorFramework::builder(address.to_string()))
        .connection_timeout(Duration::from_secs(1))
        .retry_policy(never())
        .build()
        .unwrap();
    client.start().unwrap();
    let start = Instant::now();
    let error = client.get_data().for_path("/a").await.unwrap_err();
    assert!(start.elapsed() < Duration::from_millis(1900), "{:?}", start.elapsed());
    assert!(Chain(&error).to_string().contains(&format!("{address}: no answer within")), "{error:?}");
    client.close().await;
}

#[tokio::test]
async fn options_that_cannot_work_are_named() {
    for (client, text) in [
        (CuratorFramework::builder("").retry_policy(never()), "invalid connect string: it is empty"),
        (
            CuratorFramework::builder("a:b:c").retry_policy(never()),
            "invalid connect string: \"a:b:c\" has no valid port",
        ),
        (CuratorFramework::builder("a:1"), "invalid retry policy: none was given"),
        (
            CuratorFramework::builder("a:1").retry_policy(never()).session_timeout(Duration::from_millis(1999)),
            "invalid session timeout: 1.999s is under 2s",
        ),
        (
            CuratorFramework::builder("a:1").retry_policy(never()).session_timeout(Duration::from_secs(1 << 40)),
            "invalid session timeout: 1099511627776s is above 2147483647 ms",
        ),
        (
            CuratorFramework::builder("a:1").retry_policy(never()).connection_timeout(Duration::ZERO),
            "invalid connection timeout: it is zero",
        ),
    ] {
        assert_eq!(client.build().unwrap_err().to_string(), text);
    }
}

#[tokio::test]
async fn a_negotiated_timeout_that_is_too_short_is_told() {
    let server = TestingServer::builder()
        .session_timeouts(Duration::from_millis(500), Duration::from_millis(1500))
        .start()
        .unwrap();
    let client = builder(server.address()).connection_timeout(Duration::from_secs(1)).retry_policy(never());
    let client = client.build().unwrap();
    client.start().unwrap();
    let error = Chain(&client.get_data().for_path("/a").await.unwrap_err()).to_string();
    assert!(error.contains("it grants a session timeout of 1.5s, less than 2s"), "{error}");
    client.close().await;
}

#[tokio::test]
async fn paths_that_cannot_work_are_named() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    for (path, reason) in [
        ("", "it is empty"),
        ("lock", "it does not start with a slash"),
        ("/lock/", "it ends with a slash"),
        ("/a//lock", "it has an empty element"),
    ] {
        let text = format!("invalid path {path:?}: {reason}");
        assert_eq!(InterProcessMutex::new(client.clone(), path).unwrap_err().to_string(), text);
        assert_eq!(InterProcessSemaphoreV2::new(client.clone(), path, 1).unwrap_err().to_string(), text);
        assert_eq!(client.create().for_path(path).await.unwrap_err().to_string(), text);
        assert_eq!(client.get_children().for_path(path).await.unwrap_err().to_string(), text);
    }
    let text = "invalid lock path: the root cannot be a lock";
    assert_eq!(InterProcessMutex::new(client.clone(), "/").unwrap_err().to_string(), text);
    assert_eq!(InterProcessSemaphoreV2::new(client.clone(), "/", 1).unwrap_err().to_string(), text);
    let error = InterProcessSemaphoreV2::new(client.clone(), "/semaphore", 0).unwrap_err();
    assert_eq!(error.to_string(), "invalid number of leases: it is zero, so none could ever be granted");
    client.close().await;
}

#[tokio::test]
async fn a_client_that_is_not_started_or_closed_says_so() {
    let server = TestingServer::start().unwrap();
    let client = builder(server.address()).build().unwrap();
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), "/semaphore", 1).unwrap();
    assert!(matches!(in_time(mutex.acquire()).await, Err(LockError::Framework(Error::NotStarted))));
    assert!(matches!(in_time(semaphore.try_acquire()).await, Err(LockError::Framework(Error::NotStarted))));
    assert!(matches!(in_time(client.create().for_path("/a")).await, Err(Error::NotStarted)));
    assert!(matches!(in_time(client.block_until_connected()).await, Err(Error::NotStarted)));

    client.start().unwrap();
    assert!(matches!(client.start(), Err(Error::AlreadyStarted)));
    let guard = in_time(mutex.acquire()).await.unwrap();
    client.close().await;
    client.close().await;
    assert!(!guard.is_held());
    assert!(matches!(client.start(), Err(Error::Closed)));
    for outcome in [
        in_time(mutex.acquire()).await.map(Some),
        in_time(mutex.try_acquire()).await,
        in_time(mutex.acquire_timeout(Duration::from_secs(60))).await,
    ] {
        assert!(matches!(outcome, Err(LockError::Framework(Error::Closed))), "{outcome:?}");
    }
    assert!(matches!(in_time(semaphore.acquire()).await, Err(LockError::Framework(Error::Closed))));
    assert!(matches!(in_time(client.get_data().for_path("/a")).await, Err(Error::Closed)));
}

#[test]
fn starting_without_a_runtime_is_an_error() {
    let client = CuratorFramework::new_client("127.0.0.1:1", never()).unwrap();
    assert!(matches!(client.start(), Err(Error::NoRuntime)));
}

#[test]
fn a_guard_dropped_outside_of_a_runtime_does_not_panic() {
    let server = TestingServer::start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(async {
        let client = connected(builder(server.address())).await;
        InterProcessMutex::new(client, "/lock").unwrap().acquire().await.unwrap()
    });
    drop(runtime);
    drop(guard);
}
