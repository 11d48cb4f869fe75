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

/// The limit of the whole call.
const LIMIT: Duration = Duration::from_secs(10);
/// The limit of one connection, so that a stuck one does not use up the whole time.
const CONNECTION_LIMIT: Duration = Duration::from_secs(2);
/// The pause that lets a returning client settle before it is disconnected again.
///
/// Apache may forget one of two connections that attach to a session at the same moment. If it forgets the client's,
/// nothing can disconnect it, and its requests are never answered.
const PAUSE: Duration = Duration::from_millis(20);
const CLOSE_XID: i32 = 1;
/// Requested on attaching: if the close got lost, the session would soon end by itself.
const SESSION_TIMEOUT_MS: i32 = 1000;

/// Ends a session of any client, as if that client had closed it.
///
/// It attaches to the session with its id and its password, which follows from the id ([`session_password`]), and
/// closes it. The server then drops the client's connection. The client may attach again in between, so this repeats
/// until the server replies that the session has ended. Its ephemeral nodes are deleted then.
///
/// It works with every server that makes its passwords like Apache ZooKeeper, such as
/// [`ApacheServer`](crate::ApacheServer) and [`TestingServer`](crate::TestingServer). A session that the server does
/// not know counts as ended.
///
/// An Apache server with several I/O threads, its default, may rarely leave a client that attaches at that very moment
/// with a connection that is never answered. The session has ended anyway, but this client notices it only by its
/// own timeout. The servers of this crate do not do that.
///
/// It runs on real time, even in a test with a paused clock.
///
/// # Errors
/// [`TimedOut`](io::ErrorKind::TimedOut) if the session has not ended after 10 seconds, as with a frozen server. The
/// message has the last failure.
///
/// # Cancel safety
/// If the future is dropped, the work continues for at most 10 seconds.
///
/// # Panics
/// Panics outside of a tokio runtime.
///
/// # Examples
/// ```no_run
/// # async fn example(server: &curator_test::ApacheServer, owner: i64) -> std::io::Result<()> {
/// // `owner` is the `ephemeral_owner` of a node of the victim.
/// curator_test::kill_session(server.address(), owner).await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "KillSession")]
#[doc(alias = "injectSessionExpiration")]
pub async fn kill_session(address: SocketAddr, session_id: i64) -> io::Result<()> {
    // A separate runtime has a separate clock. While a blocking task runs, a paused clock does not jump to the next
    // timer.
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
            // The next attempt proves it.
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

/// The result of one attempt.
enum Found {
    /// The server no longer has the session.
    Gone,
    /// The server has answered the close.
    Closed,
    /// The server dropped this connection first: the client is back. The session may be closed or not.
    Thrown,
}

async fn attach_and_close(address: SocketAddr, session_id: i64) -> io::Result<Found> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // Attaching takes the session from its client, which attaches again within a millisecond. So the close is sent
    // along, without waiting for the reply.
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
