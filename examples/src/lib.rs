//! What the examples share, so that each of them shows its subject alone: the option `--connect`, a server where it is
//! not given, Ctrl-C, and how an example ends.

pub mod chart;

use std::error::Error;
use std::fmt::Display;
use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
use curator_test::{FaultProxy, TestingServer};
use tokio::net::TcpStream;

/// How an example ends.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The options that all examples have.
#[derive(Debug, Clone, clap::Args)]
pub struct Servers {
    /// Servers to use, host:port[,host:port…]; without it a server is started inside of this program
    #[arg(long)]
    connect: Option<String>,
}

/// An ensemble to try things on, and the clients that an example has made of it.
#[derive(Debug)]
pub struct Ensemble {
    connect_string: String,
    clients: Mutex<Vec<CuratorFramework>>,
    /// Networks that misbehave; they outlive the example, so that its clients can be closed.
    networks: Mutex<Vec<Arc<FaultProxy>>>,
    /// Kept to the end, if there is one.
    server: Option<TestingServer>,
}

impl Ensemble {
    /// Where it is.
    #[must_use]
    pub fn connect_string(&self) -> &str {
        &self.connect_string
    }

    /// Whether it was started by this program.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        self.server.is_some()
    }

    /// A client with a session of its own, as another process would have.
    ///
    /// # Errors
    ///
    /// As [`first_word`].
    pub async fn client(&self) -> Outcome<CuratorFramework> {
        self.client_at(&self.connect_string, Duration::from_secs(10)).await
    }

    /// A client behind a network that misbehaves on command. Its session is short, so that its end is soon seen.
    ///
    /// # Errors
    ///
    /// As [`client`](Self::client).
    pub async fn client_behind_a_proxy(&self) -> Outcome<(CuratorFramework, Arc<FaultProxy>)> {
        let servers = self.connect_string.split('/').next().unwrap_or_default();
        let address = first_to_listen(servers).await?;
        let proxy = Arc::new(FaultProxy::start(address)?);
        if let Ok(mut networks) = self.networks.lock() {
            networks.push(Arc::clone(&proxy));
        }
        let chroot = &self.connect_string[servers.len()..];
        let connect_string = format!("{}{chroot}", proxy.connect_string());
        Ok((self.client_at(&connect_string, Duration::from_secs(4)).await?, proxy))
    }

    async fn client_at(&self, connect_string: &str, session_timeout: Duration) -> Outcome<CuratorFramework> {
        self.connected(started(connect_string, session_timeout)?).await
    }

    /// Waits for the first word of a client that was started, and closes it when the example ends.
    ///
    /// # Errors
    ///
    /// As [`first_word`].
    pub async fn connected(&self, client: CuratorFramework) -> Outcome<CuratorFramework> {
        if let Ok(mut clients) = self.clients.lock() {
            clients.push(client.clone());
        }
        first_word(&client).await?;
        Ok(client)
    }
}

/// The address of the first server that listens.
async fn first_to_listen(servers: &str) -> Outcome<SocketAddr> {
    let mut failures = Vec::new();
    for server in servers.split(',') {
        let server = if server.contains(':') { server.to_owned() } else { format!("{server}:2181") };
        let stream = tokio::time::timeout(Duration::from_secs(2), TcpStream::connect(&server)).await;
        match stream.unwrap_or_else(|_too_long| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => return Ok(stream.peer_addr()?),
            Err(error) => failures.push(format!("{server}: {error}")),
        }
    }
    Err(format!("no server can be reached: {}", failures.join("; ")).into())
}

/// A client that connects in the background.
///
/// # Errors
///
/// The connect string cannot be parsed.
pub fn started(connect_string: &str, session_timeout: Duration) -> Outcome<CuratorFramework> {
    let client = CuratorFramework::builder(connect_string)
        .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 5)?)
        .session_timeout(session_timeout)
        .connection_timeout(Duration::from_secs(5))
        .build()?;
    client.start()?;
    Ok(client)
}

/// The first word with the servers, so that a wrong address is reported before anything else.
///
/// # Errors
///
/// As soon as the client has failed to reach any of them: at once if no server listens, and after five seconds if
/// none answers, since such a server may only be slow.
pub async fn first_word(client: &CuratorFramework) -> Outcome {
    let failed = async {
        loop {
            match client.connect_error() {
                Some(cause) => return cause.to_string(),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::select! {
        biased;
        session = client.session() => {
            session?;
            Ok(())
        }
        cause = failed => Err(cause.into()),
    }
}

/// Runs an example until it is done or interrupted. Then its guards are dropped with it, and all clients are closed,
/// so that nothing is left behind. The exit status is 2 after an error and 130 after Ctrl-C.
pub async fn run<E, F>(servers: Servers, example: E) -> ExitCode
where
    E: FnOnce(Arc<Ensemble>) -> F,
    F: Future<Output = Outcome>,
{
    let server = match &servers.connect {
        Some(_) => None,
        None => match TestingServer::start() {
            Ok(server) => Some(server),
            Err(error) => return failed(&error),
        },
    };
    let own = server.as_ref().map(TestingServer::connect_string);
    let connect_string = servers.connect.or(own).unwrap_or_default();
    let ensemble =
        Arc::new(Ensemble { connect_string, clients: Default::default(), networks: Default::default(), server });
    let outcome = tokio::select! {
        outcome = example(Arc::clone(&ensemble)) => Some(outcome),
        _ = tokio::signal::ctrl_c() => None,
    };
    let clients = ensemble.clients.lock().map(|mut clients| std::mem::take(&mut *clients)).unwrap_or_default();
    if let Ok(networks) = ensemble.networks.lock() {
        for network in networks.iter() {
            network.repair();
            network.accept();
        }
    }
    let mut closing = tokio::task::JoinSet::new();
    for client in clients {
        closing.spawn(async move { client.close().await });
    }
    closing.join_all().await;
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => failed(&*error),
        None => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    eprintln!("error: {}", curator_framework::Chain(error));
    ExitCode::from(2)
}

/// Waits until something is so, for what has no event of its own.
///
/// # Errors
///
/// The error of the question.
pub async fn until<F: Future<Output = Outcome<bool>>>(mut question: impl FnMut() -> F) -> Outcome {
    while !question().await? {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Prints a line; the reader may have closed the pipe.
pub fn say(line: impl Display) {
    let _gone = writeln!(std::io::stdout(), "{line}");
}
