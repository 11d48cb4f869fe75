//! A relay between client and server that asks closures what becomes of each frame.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::scripted::{Port, read_frame};

/// What becomes of a frame, which the closure may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    On,
    /// It does not arrive.
    Swallow,
    /// It does not arrive, and both connections are closed.
    Close,
}

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// A frame on its way, without its length.
pub(crate) struct Passing<'a> {
    /// The number of the connection, from 1.
    pub(crate) connection: usize,
    /// The number of the frame in this direction, from 0: the connect request or its response.
    pub(crate) index: usize,
    pub(crate) way: Way,
    pub(crate) frame: &'a mut Vec<u8>,
}

impl Passing<'_> {
    /// The four bytes at an offset: the xid at 0, the operation of a request at 4, the error of a reply at 12.
    pub(crate) fn int(&self, at: usize) -> i32 {
        self.frame.get(at..at + 4).map_or(0, |bytes| i32::from_be_bytes(bytes.try_into().unwrap()))
    }

    pub(crate) fn set_int(&mut self, at: usize, to: i32) {
        self.frame[at..at + 4].copy_from_slice(&to.to_be_bytes());
    }
}

/// The position of the timeout in a connect request.
pub(crate) const ASKED_TIMEOUT: usize = 12;

/// Starts a relay before a server.
pub(crate) fn relay(server: SocketAddr, decide: impl FnMut(Passing<'_>) -> Pass + Send + 'static) -> Port {
    let decide = Arc::new(Mutex::new(decide));
    Port::open(move |client, connection| {
        let Ok(server) = TcpStream::connect_timeout(&server, Duration::from_secs(5)) else {
            let _closed = client.shutdown(Shutdown::Both);
            return;
        };
        server.set_nodelay(true).unwrap();
        let back = std::thread::spawn({
            let (from, to, decide) = (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&decide));
            move || carry((from, to), connection, Way::ToClient, &*decide)
        });
        carry((client, server), connection, Way::ToServer, &*decide);
        back.join().unwrap();
    })
}

fn carry(
    (mut from, mut to): (TcpStream, TcpStream),
    connection: usize,
    way: Way,
    decide: &Mutex<impl FnMut(Passing<'_>) -> Pass>,
) {
    for index in 0.. {
        let Ok(mut frame) = read_frame(&mut from) else { break };
        let pass = (decide.lock())(Passing { connection, index, way, frame: &mut frame });
        match pass {
            Pass::On => {
                let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
                if to.write_all(&[&length[..], &frame].concat()).is_err() {
                    break;
                }
            }
            Pass::Swallow => {}
            Pass::Close => break,
        }
    }
    // Either may be closed.
    let _closed = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
