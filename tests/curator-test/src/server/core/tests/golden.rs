//! The core answers the recorded requests of Java's client as Apache's server did, byte for byte.

use std::net::Ipv4Addr;

use curator_golden::{Exchange, Frame, STANDALONE};

use super::super::*;
use crate::wire::Stat;

/// Returns the id that the recorded server has given to its first session.
fn first_session(exchanges: &[Exchange]) -> i64 {
    let Some(Frame::FromServer(reply)) = exchanges[0].frames.get(1) else { panic!("a connect response comes first") };
    ConnectResponse::decode(&mut Reader::new(reply)).unwrap().session_id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a stat without its times: they are the recording's times.
fn copy_stat(from: &mut Reader<'_>, to: &mut Writer) {
    let stat = Stat::decode(from).unwrap();
    Stat { ctime: 0, mtime: 0, ..stat }.encode(to);
}

/// Returns the reply without the times of nodes, and with the children of a node in the order of their names.
fn normalised(op: OpCode, reply: &[u8]) -> String {
    let mut from = Reader::new(reply);
    let mut to = Writer::new();
    let header = ReplyHeader::decode(&mut from).unwrap();
    header.encode(&mut to);
    if header.err == 0 && header.xid != XID_EVENT {
        match op {
            OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                to.string(from.string().unwrap());
                copy_stat(&mut from, &mut to);
            }
            OpCode::GetData => {
                to.buffer(from.buffer().unwrap());
                copy_stat(&mut from, &mut to);
            }
            OpCode::Exists | OpCode::SetData | OpCode::SetAcl => copy_stat(&mut from, &mut to),
            OpCode::GetAcl => {
                let acl = from.vector(crate::wire::Acl::decode).unwrap();
                to.vector(&acl, |to, entry| entry.encode(to));
                copy_stat(&mut from, &mut to);
            }
            OpCode::GetChildren => {
                let mut children = from.vector(Reader::string).unwrap();
                children.sort_unstable();
                to.vector(children, |to, child| _ = to.string(child));
            }
            OpCode::Multi => copy_results(&mut from, &mut to),
            _ => {}
        }
    }
    to.raw(from.rest());
    hex(&to.into_bytes())
}

fn copy_results(from: &mut Reader<'_>, to: &mut Writer) {
    loop {
        let (op, is_end, error) = (from.int().unwrap(), from.bool().unwrap(), from.int().unwrap());
        to.int(op).bool(is_end).int(error);
        match OpCode::from_code(op) {
            _ if is_end => return,
            OpCode::Create => _ = to.string(from.string().unwrap()),
            OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                to.string(from.string().unwrap());
                copy_stat(from, to);
            }
            OpCode::SetData => copy_stat(from, to),
            OpCode::Delete | OpCode::Check => {}
            _ => _ = to.int(from.int().unwrap()),
        }
    }
}

#[test]
fn replies_are_those_of_apaches_server() {
    let exchanges = Exchange::all(STANDALONE);
    let mut core = Core::new(Settings {
        tick: Duration::from_secs(2),
        reconfig: false,
        min_session_timeout: Duration::from_secs(2),
        max_session_timeout: Duration::from_secs(20),
        first_session_id: first_session(&exchanges),
        epoch_ms: 1_000_000,
        container_check_interval: Duration::from_secs(60),
        extended_types: true,
        sasl: None,
        requests_touch: true,
    });
    let mut connection = core.open(Ipv4Addr::LOCALHOST.into());
    for Exchange { name, frames, .. } in exchanges {
        let mut is_first = name.starts_with("connect");
        if is_first {
            core.closed(connection);
            connection = core.open(Ipv4Addr::LOCALHOST.into());
        }
        let (mut expected, mut sent) = (Vec::new(), Vec::new());
        let mut op = OpCode::Ping;
        for frame in frames {
            match frame {
                Frame::FromClient(request) => {
                    if !is_first {
                        op = RequestHeader::decode(&mut Reader::new(&request)).unwrap().op;
                    }
                    for output in core.frame(connection, &request, Duration::ZERO) {
                        if let Output::Frame { bytes, .. } = output {
                            sent.push(if is_first { hex(&bytes) } else { normalised(op, &bytes) });
                        }
                    }
                    is_first = false;
                }
                Frame::FromServer(reply) if name.starts_with("connect") => expected.push(hex(&reply)),
                Frame::FromServer(reply) => expected.push(normalised(op, &reply)),
            }
        }
        assert_eq!(sent, expected, "{name}");
    }
}
