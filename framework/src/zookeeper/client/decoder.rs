//! The client's state machine under the bytes of a hostile server, for the project's test of the decoder.

use std::time::Duration;

use curator_wire::{ConnectResponse, Writer};

use super::protocol::{Protocol, Settings};
use crate::model::{AddWatchMode, AuthInfo};
use crate::zookeeper::{DEFAULT_MAX_FRAME, DEFAULT_MAX_REPLY, Request, WatchEvents};

const NOW: Duration = Duration::from_secs(100);

/// The stage of the session when the bytes arrive.
#[derive(Debug, Clone)]
pub enum Stage {
    /// The connect request was written.
    Connecting,
    /// A login by SASL was started.
    LoggingIn,
    /// Credentials and watches were sent.
    Restoring,
    /// These requests were written, with numbers from 1, then a ping and a request for a persistent watch.
    Ready(Vec<Request>),
}

/// A session with one connection.
#[derive(Debug)]
pub struct Decoder {
    protocol: Protocol<()>,
    _events: WatchEvents,
}

impl Decoder {
    /// Brings a session to a stage.
    ///
    /// # Panics
    ///
    /// If the state machine refuses the bytes of a correct server.
    #[must_use]
    pub fn new(stage: Stage) -> Self {
        let (to, events) = WatchEvents::channel();
        let auth = match stage {
            Stage::Restoring => vec![AuthInfo { scheme: "digest".to_owned(), auth: b"user:password".to_vec() }],
            _ => Vec::new(),
        };
        let mut protocol = Protocol::new(Settings {
            session_timeout: Duration::from_secs(6),
            auth,
            sasl: matches!(stage, Stage::LoggingIn),
            read_only: true,
            max_frame: DEFAULT_MAX_FRAME,
            max_reply: DEFAULT_MAX_REPLY,
        });
        protocol.open(NOW);
        let mut decoder = Self { protocol, _events: events };
        decoder.write();
        if matches!(stage, Stage::Connecting) {
            return decoder;
        }
        decoder.attach();
        // Nothing is sent outside of a login.
        decoder.protocol.send_token(b"token", NOW);
        if let Stage::Ready(requests) = stage {
            for request in requests {
                assert!(decoder.protocol.submit(request, 1, (), NOW).is_ok(), "the session is attached");
            }
            assert!(decoder.protocol.ping((), NOW).is_ok(), "the session is attached");
            assert!(
                decoder.protocol.add_watch("/golden", AddWatchMode::PersistentRecursive, None, to, (), NOW).is_ok(),
                "the session is attached"
            );
        }
        decoder.write();
        decoder
    }

    fn attach(&mut self) {
        let mut frame = Writer::new();
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 6000,
            session_id: 0x100,
            password: vec![1; 16],
            read_only: Some(false),
        };
        frame.int(37);
        response.encode(&mut frame);
        assert_eq!(self.feed(&frame.into_bytes()), Ok(41));
    }

    /// Takes all output, as the transport does.
    fn write(&mut self) {
        self.protocol.written(self.protocol.output().len());
    }

    /// Receives bytes, and returns the number of bytes that were taken.
    ///
    /// # Errors
    ///
    /// The description of a violation of the protocol.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let taken = self.protocol.receive(bytes, NOW);
        self.write();
        while self.protocol.next_event().is_some() {}
        taken.map_err(|violation| violation.0)
    }

    /// Loses the connection, and opens the next one.
    pub fn reopen(&mut self) {
        self.protocol.lost(None);
        while self.protocol.next_event().is_some() {}
        self.protocol.open(NOW);
        self.write();
    }
}
