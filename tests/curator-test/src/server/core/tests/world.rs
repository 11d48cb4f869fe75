//! A core, its clock and the messages to its clients.

use super::super::*;
use crate::wire::{Acl, Stat};

pub(super) const OPEN: &[(i32, &str, &str)] = &[(31, "world", "anyone")];

/// A message to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Got {
    Event(EventKind, String),
    /// The error of a reply, and its body.
    Reply(i32, Vec<u8>),
    Closed,
}

pub(super) fn event(kind: EventKind, path: &str) -> Got {
    Got::Event(kind, path.to_owned())
}

/// A core and its clock.
pub(super) struct World {
    pub(super) core: Core,
    pub(super) now: Duration,
    pub(super) got: BTreeMap<ConnectionId, Vec<Got>>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with_extended_types(false)
    }

    pub(super) fn with_extended_types(extended_types: bool) -> Self {
        let core = Core::new(Settings {
            tick: Duration::from_secs(2),
            reconfig: false,
            min_session_timeout: Duration::from_secs(4),
            max_session_timeout: Duration::from_secs(40),
            first_session_id: 0x100,
            epoch_ms: 1_000_000,
            container_check_interval: Duration::from_secs(60),
            extended_types,
            sasl: None,
            requests_touch: true,
        });
        Self { core, now: Duration::ZERO, got: BTreeMap::new() }
    }

    pub(super) fn sleep(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let outputs = self.core.tick(self.now);
        self.deliver(outputs);
    }

    pub(super) fn deliver(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Close(to) => self.got.entry(to).or_default().push(Got::Closed),
                Output::Frame { to, bytes } => {
                    let mut reader = Reader::new(&bytes);
                    let header = ReplyHeader::decode(&mut reader).unwrap();
                    let got = if header.xid == XID_EVENT {
                        assert_eq!((header.zxid, header.err), (-1, 0));
                        let event = WatchEvent::decode(&mut reader).unwrap();
                        assert_eq!(event.state, 3);
                        let kind = match event.kind {
                            1 => EventKind::NodeCreated,
                            2 => EventKind::NodeDeleted,
                            3 => EventKind::NodeDataChanged,
                            4 => EventKind::NodeChildrenChanged,
                            other => panic!("event {other}"),
                        };
                        Got::Event(kind, event.path)
                    } else {
                        Got::Reply(header.err, reader.rest().to_vec())
                    };
                    self.got.entry(to).or_default().push(got);
                }
            }
        }
    }

    /// Sends a connect request. Returns the response, and whether the connection was closed.
    pub(super) fn handshake(&mut self, request: &ConnectRequest) -> (ConnectionId, Option<ConnectResponse>, bool) {
        let connection = self.core.open(IpAddr::from([127, 0, 0, 1]));
        let mut frame = Writer::new();
        request.encode(&mut frame);
        let outputs = self.core.frame(connection, &frame.into_bytes(), self.now);
        let (mut response, mut closed) = (None, false);
        for output in outputs {
            match output {
                Output::Frame { to, bytes } if to == connection => {
                    response = Some(ConnectResponse::decode(&mut Reader::new(&bytes)).unwrap());
                }
                Output::Close(to) if to == connection => closed = true,
                other => self.deliver(vec![other]),
            }
        }
        (connection, response, closed)
    }

    pub(super) fn client(&mut self) -> Client {
        let request = ConnectRequest { timeout_ms: 10_000, ..ConnectRequest::default() };
        let (connection, response, closed) = self.handshake(&request);
        assert!(!closed);
        Client { connection, session: response.unwrap().session_id }
    }

    pub(super) fn send(&mut self, client: Client, op: OpCode, body: Writer) {
        let mut frame = Writer::new();
        RequestHeader { xid: 1, op }.encode(&mut frame);
        frame.raw(&body.into_bytes());
        let outputs = self.core.frame(client.connection, &frame.into_bytes(), self.now);
        self.deliver(outputs);
    }

    /// Takes all messages to the client since the last call.
    pub(super) fn got(&mut self, client: Client) -> Vec<Got> {
        self.got.remove(&client.connection).unwrap_or_default()
    }

    /// Sends a request and expects a reply and nothing else.
    pub(super) fn call(&mut self, client: Client, op: OpCode, body: Writer) -> (i32, Vec<u8>) {
        self.send(client, op, body);
        match self.got(client).as_slice() {
            [Got::Reply(err, body)] => (*err, body.clone()),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn error(&mut self, client: Client, op: OpCode, body: Writer) -> ErrorCode {
        ErrorCode::from_code(self.call(client, op, body).0).unwrap()
    }

    pub(super) fn create(&mut self, client: Client, path: &str, flags: i32) -> ErrorCode {
        self.error(client, OpCode::Create, create(path, OPEN, flags))
    }

    pub(super) fn stat(&mut self, client: Client, path: &str) -> Option<Stat> {
        let (err, body) = self.call(client, OpCode::Exists, path_watch(path, false));
        (err == 0).then(|| Stat::decode(&mut Reader::new(&body)).unwrap())
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub(super) connection: ConnectionId,
    pub(super) session: i64,
}

pub(super) fn create(path: &str, acl: &[(i32, &str, &str)], flags: i32) -> Writer {
    let mut body = Writer::new();
    body.string(path).buffer(b"data");
    write_acl(&mut body, acl);
    body.int(flags);
    body
}

pub(super) fn write_acl(body: &mut Writer, acl: &[(i32, &str, &str)]) {
    body.vector(acl, |body, (perms, scheme, id)| {
        let (scheme, id) = ((*scheme).to_owned(), (*id).to_owned());
        Acl { perms: *perms, scheme, id }.encode(body);
    });
}

pub(super) fn path_watch(path: &str, watch: bool) -> Writer {
    let mut body = Writer::new();
    body.string(path).bool(watch);
    body
}

pub(super) fn delete(path: &str, version: i32) -> Writer {
    let mut body = Writer::new();
    body.string(path).int(version);
    body
}

pub(super) fn set_data(path: &str, version: i32) -> Writer {
    let mut body = Writer::new();
    body.string(path).buffer(b"new").int(version);
    body
}

pub(super) fn auth(scheme: &str, secret: &[u8]) -> Writer {
    let mut body = Writer::new();
    body.int(0).string(scheme).buffer(secret);
    body
}
