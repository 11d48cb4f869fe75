//! The start, the moves and the end of sessions.

use curator_test::wire::{ConnectRequest, OpCode, session_password};

use crate::request::Request::*;
use crate::request::*;
use crate::side::{TIMEOUT_MS, compare};

#[tokio::test]
async fn timeouts_are_negotiated() {
    compare(async |side| {
        for timeout_ms in [i32::MIN, -1, 0, 1, 1999, 2000, 2001, 12_345, 60_000, 60_001, i32::MAX] {
            side.connect(timeout_ms).await;
        }
        let client = side.connect(5000).await;
        side.attach(client, true).await;
        for read_only in [None, Some(false), Some(true)] {
            side.handshake(&ConnectRequest { timeout_ms: 9000, read_only, ..ConnectRequest::default() }).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_session_goes_on_with_its_password_only() {
    compare(async |side| {
        let first = side.connect(TIMEOUT_MS).await;
        side.call(first, create("/e", 1)).await;
        let second = side.attach(first, true).await;
        side.closed(first).await;
        side.call(second, exists("/e")).await;
        side.call(second, create("/e2", 1)).await;
        let refused = side.attach(second, false).await;
        side.closed(refused).await;
        // It goes although the password is wrong.
        side.closed(second).await;
        let third = side.attach(second, true).await;
        side.call(third, Path(OpCode::GetEphemerals, "")).await;
        side.hang_up(third).await;
        side.call(0, exists("/e")).await;
        for session_id in [1, -1, 0x7700_0000_0000_0001] {
            let password = session_password(session_id).to_vec();
            let unknown = ConnectRequest { session_id, password, timeout_ms: 5000, ..ConnectRequest::default() };
            let refused = side.handshake(&unknown).await;
            side.closed(refused).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_is_over() {
    compare(async |side| {
        let client = side.connect(TIMEOUT_MS).await;
        side.call(client, create("/e1", 1)).await;
        side.call(client, create("/p", 0)).await;
        side.call(client, Raw(OpCode::CloseSession, b"")).await;
        side.closed(client).await;
        side.call(0, Read(OpCode::GetChildren2, "", false)).await;
        let refused = side.attach(client, true).await;
        side.closed(refused).await;
    })
    .await;
}

#[tokio::test]
async fn a_silent_session_expires() {
    compare(async |side| {
        let silent = side.connect(1).await;
        let lost = side.connect(1).await;
        side.call(silent, create("/a", 1)).await;
        side.call(lost, create("/b", 1)).await;
        side.hang_up(lost).await;
        // The one that was heard of last is not the first to go.
        side.call(0, watch_exists("/b")).await;
        side.wait_for_event(0).await;
        side.closed(silent).await;
        side.call(0, exists("/b")).await;
        side.call(0, watch_exists("/a")).await;
        side.call(0, Read(OpCode::GetChildren, "", true)).await;
        let refused = side.attach(silent, true).await;
        side.closed(refused).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_from_the_future_is_hung_up_on() {
    compare(async |side| {
        let request = ConnectRequest { last_zxid_seen: i64::MAX, timeout_ms: 5000, ..ConnectRequest::default() };
        side.handshake(&request).await;
        side.call(0, exists("")).await;
    })
    .await;
}

#[tokio::test]
async fn replies_come_in_the_order_of_the_requests() {
    compare(async |side| {
        let mut requests = vec![create("/q", 0)];
        for _ in 0..30 {
            requests.extend([create("/q/n-", 2), exists("/q"), set("/q", -1), get("/none"), Path(OpCode::Sync, "/q")]);
        }
        requests.push(Raw(OpCode::Ping, b""));
        requests.push(Raw(OpCode::CloseSession, b""));
        let client = side.connect(TIMEOUT_MS).await;
        side.burst(client, requests).await;
        side.closed(client).await;
    })
    .await;
}
