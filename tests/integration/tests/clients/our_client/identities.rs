//! The identities of a connection, with servers that cannot tell them.

use curator_framework::{Error, RetryNTimes};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_test::wire::{ErrorCode, OpCode};

use crate::client::scripted::{Scripted, Then};

/// Servers before 3.7 answer that they do not know the request, and close the connection.
#[tokio::test]
async fn a_server_that_does_not_know_the_request_is_named() {
    let server = Scripted::start(|frame, peer| match frame.op() {
        Some(OpCode::WhoAmI) => {
            peer.reply(frame.xid(), ErrorCode::Unimplemented.code(), |_| {});
            Then::Close
        }
        _ => Then::Usual,
    });
    let options = builder(server.address()).zookeeper_factory(curator_framework::DefaultZooKeeperFactory::new());
    let client = connected(options.retry_policy(RetryNTimes::new(5, std::time::Duration::from_millis(10)))).await;
    let session = client.session().await.unwrap();
    let error = in_time(client.who_am_i()).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { client: "the server", .. }), "{error:?}");
    assert!(error.to_string().contains("3.7"), "{error}");
    eventually("it is connected again", async || session.epoch() == 2 && session.is_connected()).await;
    let asked = server.frames().iter().filter(|frame| frame.op() == Some(OpCode::WhoAmI)).count();
    assert_eq!((asked, session.end_reason()), (1, None));
}
