//! Ending another client's session.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::wire::{
    ConnectRequest, ConnectResponse, MAX_FRAME, OpCode, Reader, ReplyHeader, RequestHeader, Writer, read_frame,
    session_password,
};

/// How long the whole may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long one connection may take, so that a stuck one does not use up the whole.
const CONNECTION_LIMIT: Duration = Duration::from_secs(2);
/// Lets a client that is coming back settle, before it is thrown out again.
///
/// Apache may forget one of two connections that attach to a session at the same moment. If
/// that is the client's, nothing can throw it out, and its requests are never answered.
const PAUSE: Duration = Duration::from_millis(20);
const CLOSE_XID: i32 = 1;
/// Asked for on attaching: if the close got lost, the session would soon end by itself.
const SESSION_TIMEOUT_MS: i32 = 1000;

/// Ends a session of any client, as if that client had closed it.
///
/// It attaches to the session with its id and its password, which follows from the id
/// ([`session_password`]), and closes it. The server drops the connection of the client
/// meanwhile. The client may attach again in between, so this goes on until the server
/// answers that the session is gone. Its ephemeral nodes are gone then as well.
///
/// It works for every server that makes its passwords as Apache ZooKeeper does, such as
/// [`ApacheServer`](crate::ApacheServer) and [`TestingServer`](crate::TestingServer). A
/// session that the server does not know counts as gone.
///
/// An Apache server with several I/O threads, which is its default, may rarely leave a client
/// that comes back at that very moment with a connection that is never answered. The session is
/// gone all the same, but this client learns it by its own timeout only. The servers of this
/// crate do not.
///
/// It runs on real time, also in a test whose clock is paused.
///
/// # Errors
/// [`TimedOut`](io::ErrorKind::TimedOut) if the session is not gone after 10 seconds, as
/// with a frozen server; the message has the last trouble.
///
/// # Cancel safety
/// If the future is dropped, the work goes on for at most 10 seconds.
///
/// # Panics
/// Outside of a tokio runtime.
///
/// # Examples
/// ```no_run
/// # async fn example(server: &curator_test::ApacheServer, owner: i64) -> std::io::Result<()> {
/// // `owner` is the `ephemeral_owner` of a node of the victim.
/// curator_test::kill_session(server.address(), owner).await?;
/// # Ok(())
/// # }
/// ```
pub async fn kill_session(address: SocketAddr, session_id: i64) -> io::Result<()> {
    // A runtime of its own has a clock of its own. While a blocking task runs, a paused
    // clock does not jump to the next timer.
    tokio::task::spawn_blocking(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(kill_until_gone(address, session_id))
    })
    .await?
}

async fn kill_until_gone(address: SocketAddr, session_id: i64) -> io::Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let limit = deadline.min(Instant::now() + CONNECTION_LIMIT);
        let trouble = match timeout_at(limit, attach_and_close(address, session_id)).await {
            Ok(Ok(Found::Gone)) => return Ok(()),
            // The next round proves it.
            Ok(Ok(Found::Closed)) => continue,
            Ok(Ok(Found::Thrown)) => "its client attaches again and again".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if Instant::now() + PAUSE >= deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("session {session_id:#x} is not gone after {LIMIT:?}: {trouble}"),
            ));
        }
        sleep(PAUSE).await;
    }
}

/// What came of one attempt.
enum Found {
    /// The server does not have the session any more.
    Gone,
    /// The server has answered the close.
    Closed,
    /// The server dropped us first: the client is back. The session may be closed or not.
    Thrown,
}

async fn attach_and_close(address: SocketAddr, session_id: i64) -> io::Result<Found> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // Attaching takes the session from its client, which comes back within a millisecond. So
    // the close goes along and does not wait for an answer.
    stream.write_all(&attach_and_close_frames(session_id)).await?;
    let Some(answer) = read_frame(&mut stream, MAX_FRAME).await? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let answer = ConnectResponse::decode(&mut Reader::new(&answer))?;
    if answer.session_id != session_id || answer.timeout_ms <= 0 {
        return Ok(Found::Gone);
    }
    let mut found = Found::Thrown;
    while let Some(frame) = read_frame(&mut stream, MAX_FRAME).await? {
        if ReplyHeader::decode(&mut Reader::new(&frame))?.xid == CLOSE_XID {
            found = Found::Closed;
        }
    }
    Ok(found)
}

fn attach_and_close_frames(session_id: i64) -> Vec<u8> {
    let mut attach = Writer::new();
    let request = ConnectRequest {
        timeout_ms: SESSION_TIMEOUT_MS,
        session_id,
        password: session_password(session_id).to_vec(),
        ..ConnectRequest::default()
    };
    request.encode(&mut attach);
    let mut close = Writer::new();
    RequestHeader { xid: CLOSE_XID, op: OpCode::CloseSession }.encode(&mut close);
    // A frame is a buffer: its length and its bytes.
    let mut frames = Writer::new();
    frames.buffer(&attach.into_bytes()).buffer(&close.into_bytes());
    frames.into_bytes()
}
