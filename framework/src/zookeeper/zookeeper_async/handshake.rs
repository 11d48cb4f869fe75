//! A handshake with the ensemble before the client crate connects: it finds a server that replies, and the session
//! timeout that this server grants.
//!
//! The client crate hides the negotiated timeout, abandons a server that replies slowly, and does not limit the time
//! of its connects. So the handshake opens a session and closes it at once (two quorum writes a connect).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use curator_wire::{ConnectRequest, ConnectResponse, OpCode, Reader, RequestHeader, Writer};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::environment::randomness::{Randomness, shuffle};
use crate::error::ConnectError;
use crate::zookeeper::MIN_SESSION_TIMEOUT;

/// A connect response has 36 or 37 bytes; a much longer frame is not one.
const MAX_RESPONSE: usize = 1024;
/// The time limit of the other lookups after the first name is resolved.
const OTHER_NAMES: Duration = Duration::from_millis(500);

/// The result of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandshakeResult {
    /// The addresses of all servers. The server that replied comes first.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The session timeout that this server granted.
    pub(crate) negotiated: Duration,
}

/// Tries one server after the other, in random order, until one replies.
pub(crate) async fn probe_ensemble(
    servers: &[String],
    session_timeout: Duration,
    budget: Duration,
    randomness: &dyn Randomness,
) -> Result<HandshakeResult, ConnectError> {
    let end = Instant::now() + budget;
    let mut failures = Vec::new();
    let mut addresses = resolve(servers, budget, &mut failures).await;
    shuffle(&mut addresses, randomness);
    for (tried, (server, address)) in addresses.iter().enumerate() {
        // The time left is shared evenly among the addresses still to be tried.
        let left = end.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let negotiated = match timeout(share, probe_server(*address, session_timeout)).await {
            Ok(Ok(negotiated)) => negotiated,
            Ok(Err(error)) => {
                failures.push(((*server).clone(), error.to_string()));
                continue;
            }
            Err(_elapsed) => {
                failures.push(((*server).clone(), format!("no answer within {share:.1?}")));
                continue;
            }
        };
        if negotiated < MIN_SESSION_TIMEOUT {
            let reason = format!("it grants a session timeout of {negotiated:?}, less than {MIN_SESSION_TIMEOUT:?}");
            return Err(ConnectError::new(address.to_string(), reason));
        }
        let mut addresses: Vec<SocketAddr> = addresses.iter().map(|(_, address)| *address).collect();
        addresses.swap(0, tried);
        return Ok(HandshakeResult { addresses, negotiated });
    }
    Err(ConnectError::from_failures(failures))
}

/// Looks up all names concurrently. When one is resolved, the others have [`OTHER_NAMES`] left.
async fn resolve<'a>(
    servers: &'a [String],
    budget: Duration,
    failures: &mut Vec<(String, String)>,
) -> Vec<(&'a String, SocketAddr)> {
    let mut looking: FuturesUnordered<_> = servers
        .iter()
        .map(|server| async move { (server, tokio::net::lookup_host(server.as_str()).await.map(Vec::from_iter)) })
        .collect();
    let mut resolved = Vec::new();
    let mut unknown: Vec<&String> = servers.iter().collect();
    let mut until = Instant::now() + budget / 2;
    while let Ok(Some((server, found))) = timeout_at(until, looking.next()).await {
        unknown.retain(|other| *other != server);
        match found {
            Ok(found) => {
                resolved.extend(found.into_iter().map(|address| (server, address)));
                until = until.min(Instant::now() + OTHER_NAMES);
            }
            Err(error) => failures.push((server.clone(), format!("name not resolved: {error}"))),
        }
    }
    failures.extend(unknown.into_iter().map(|server| (server.clone(), "name not resolved in time".to_owned())));
    // Sorted, so that only the given randomness decides the order.
    resolved.sort();
    resolved
}

/// Opens a session, closes it, and returns the timeout that the server granted.
pub(crate) async fn probe_server(address: SocketAddr, session_timeout: Duration) -> io::Result<Duration> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let timeout_ms = i32::try_from(session_timeout.as_millis()).unwrap_or(i32::MAX);
    let new_session =
        ConnectRequest { timeout_ms, password: vec![0; 16], read_only: Some(false), ..ConnectRequest::default() };
    stream.write_all(&framed(|to| new_session.encode(to))).await?;

    let mut length = [0; 4];
    stream.read_exact(&mut length).await.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "the server closed the connection without an answer (it may expect TLS, have no quorum yet, or have too many connections from this address)",
        ),
        _ => error,
    })?;
    let length = u32::from_be_bytes(length) as usize;
    if !(36..=MAX_RESPONSE).contains(&length) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not speak ZooKeeper's protocol"));
    }
    let mut response = vec![0; length];
    stream.read_exact(&mut response).await?;
    let granted = ConnectResponse::decode(&mut Reader::new(&response))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
        .timeout_ms;
    if granted <= 0 {
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the server refused a new session"));
    }

    stream.write_all(&framed(|to| RequestHeader { xid: 1, op: OpCode::CloseSession }.encode(to))).await?;
    // The end of the stream shows that the server has read the close.
    let mut rest = Vec::new();
    stream.take(MAX_RESPONSE as u64).read_to_end(&mut rest).await?;
    Ok(Duration::from_millis(u64::from(granted.unsigned_abs())))
}

fn framed(body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut to = Writer::new();
    body(&mut to);
    let mut frame = Writer::new();
    frame.buffer(&to.into_bytes());
    frame.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::randomness::ThreadRandomness;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_server_that_speaks_something_else_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ignored = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").await;
            let mut rest = Vec::new();
            let _ignored = stream.read_to_end(&mut rest).await;
        });
        let error = probe_ensemble(
            std::slice::from_ref(&address),
            Duration::from_secs(4),
            Duration::from_secs(5),
            &ThreadRandomness,
        )
        .await
        .unwrap_err();
        assert_eq!(error.failures(), [(address, "it does not speak ZooKeeper's protocol".to_owned())]);
        server.await.unwrap();
    }

    #[tokio::test]
    async fn every_server_is_named_with_its_reason() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refused = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let servers = [silent.local_addr().unwrap().to_string(), refused.local_addr().unwrap().to_string()];
        drop(refused);
        let error = probe_ensemble(&servers, Duration::from_secs(4), Duration::from_millis(300), &ThreadRandomness)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("{}: no answer within", servers[0])), "{text}");
        assert!(text.contains(&format!("{}: Connection refused", servers[1])), "{text}");
    }
}
