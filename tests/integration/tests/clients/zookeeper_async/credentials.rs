//! Credentials that a program adds while its client runs.

use curator_framework::{Acl, Error};
use curator_integration::env::{connected, in_time};
use curator_test::{FaultProxy, TestingServer, kill_session};

use super::builder;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_count_from_the_next_session_on() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let owner = connected(builder(server.address()).authorization("digest", "ann:one")).await;
    owner.create().with_acl(Acl::creator_all()).with_data("secret").for_path("/anns").await.unwrap();
    let client = connected(builder(proxy.address())).await;
    let session = client.session().await.unwrap();
    client.add_authorization("digest", "ann:one");
    let refused = async || matches!(in_time(session.get_data("/anns")).await, Err(Error::NoAuth { .. }));
    assert!(refused().await);
    proxy.reset();
    in_time(async {
        while session.epoch() == 1 || !session.is_connected() {
            session.connected().await.unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(refused().await, "a connection of the same session");
    let [_, id] = server.sessions()[..] else { panic!("{:?}", server.sessions()) };
    kill_session(server.address(), id).await.unwrap();
    in_time(session.ended()).await;
    assert_eq!(in_time(client.get_data().for_path("/anns").into_future()).await.unwrap().0, b"secret");
    assert!(client.session().await.unwrap().number() > session.number());
    let unknown = in_time(client.who_am_i()).await;
    assert!(matches!(unknown, Err(Error::Unsupported { .. })), "{unknown:?}");
}
