//! Locks over TLS and with a login by SASL.

use std::time::{Duration, Instant};

use curator_framework::{
    Acl, CuratorFramework, CuratorFrameworkBuilder, Error, Permission, RetryNTimes, SaslDigest, TlsOptions,
    ZookeeperClientFactory,
};
use curator_recipes::InterProcessMutex;
use curator_test::{ApacheServer, ApacheServerBuilder, ClientAuth, TestAuthority, TestCertificate};

use crate::env::{connected, in_time};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(8);

fn started(builder: ApacheServerBuilder) -> ApacheServer {
    tokio::task::block_in_place(|| builder.start().unwrap_or_else(|error| panic!("{error}")))
}

fn options(servers: impl Into<String>) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(servers)
        .zookeeper_factory(ZookeeperClientFactory)
        .session_timeout(Duration::from_secs(20))
        .connection_timeout(CONNECTION_TIMEOUT)
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
}

fn tls(authority: &TestAuthority, own: Option<&TestCertificate>) -> TlsOptions {
    let options = TlsOptions::new(authority.certificate_pem());
    match own {
        Some(own) => options.with_client_certificate(own.certificate_pem(), own.key_pem()),
        None => options,
    }
}

/// What an operation says about why there is no connection, within the time for that.
async fn refusal(builder: CuratorFrameworkBuilder) -> String {
    let client = builder.build().unwrap();
    client.start().unwrap();
    let start = Instant::now();
    let error = client.check_exists().for_path("/").await.unwrap_err();
    assert!(start.elapsed() < CONNECTION_TIMEOUT + Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(matches!(error, Error::ConnectionLoss { sent: false, .. }), "{error}");
    client.close().await;
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_over_tls_with_a_client_certificate() {
    let authority = TestAuthority::new().unwrap();
    let server = started(ApacheServer::builder().tls(&authority));
    let own = authority.client_certificate("worker").unwrap();
    let address = server.secure_connect_string().unwrap();
    let (one, other) = (
        connected(options(&address).tls(tls(&authority, Some(&own)))).await,
        connected(options(&address).tls(tls(&authority, Some(&own)))).await,
    );
    let locks = [&one, &other].map(|client| InterProcessMutex::new(client.clone(), "/lock").unwrap());
    let held = in_time(locks[0].acquire()).await.unwrap();
    assert!(in_time(locks[1].try_acquire()).await.unwrap().is_none());
    let waiter = {
        let lock = locks[1].clone();
        tokio::spawn(async move { lock.acquire().await })
    };
    // For this certificate only.
    let acl = vec![Acl::new(Permission::ALL, "x509", "CN=worker")];
    held.transaction().operation(curator_framework::CuratorOp::create("/mine").with_acl(acl)).commit().await.unwrap();
    held.release().await.unwrap();
    let next = in_time(waiter).await.unwrap().unwrap();
    next.transaction().set_data("/mine", "changed").commit().await.unwrap();
    let plain = connected(options(server.connect_string())).await;
    assert!(matches!(plain.get_data().for_path("/mine").await, Err(Error::NoAuth { .. })));
    // The same session, on a connection that is made anew.
    let session = one.session().await.unwrap();
    tokio::task::block_in_place(|| server.restart().unwrap());
    in_time(one.create().for_path("/after")).await.map_or_else(|error| assert!(error.is_retryable(), "{error}"), drop);
    in_time(session.connected()).await.unwrap();
    assert!(next.is_held());
    in_time(next.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_certificate_or_a_port_is_told_within_the_connection_timeout() {
    let (authority, foreign) = (TestAuthority::new().unwrap(), TestAuthority::new().unwrap());
    let own = authority.client_certificate("worker").unwrap();
    let server = started(ApacheServer::builder().tls(&authority));
    let address = server.secure_connect_string().unwrap();
    let secure = |tls| options(&address).tls(tls);
    // What the client does not like.
    let error = refusal(secure(tls(&foreign, Some(&own)))).await;
    assert!(error.contains(&address) && error.contains("UnknownIssuer"), "{error}");
    // What the server does not like.
    for (who, certificate) in [
        ("none", None),
        ("a foreign one", Some(foreign.client_certificate("worker").unwrap())),
        ("an expired one", Some(authority.expired_client_certificate("worker").unwrap())),
    ] {
        let error = refusal(secure(tls(&authority, certificate.as_ref()))).await;
        assert!(error.contains(&address) && error.contains("TLS"), "{who}: {error}");
    }
    // Plain text on the port for TLS, and the other way round.
    let error = refusal(options(&address)).await;
    assert!(error.contains(&format!("{address}: ")) && !error.contains("TLS"), "{error}");
    let plain = server.connect_string();
    let error = refusal(options(&plain).tls(tls(&authority, Some(&own)))).await;
    assert!(error.contains(&plain) && error.contains("TLS"), "{error}");
    drop(server);
    for (certificate, words) in [
        (authority.expired_server_certificate().unwrap(), "expired"),
        (authority.server_certificate_for("elsewhere.example").unwrap(), "not valid for name"),
    ] {
        let server = started(ApacheServer::builder().tls(&authority).server_certificate(&certificate));
        let address = server.secure_connect_string().unwrap();
        let error = refusal(options(&address).tls(tls(&authority, Some(&own)))).await;
        assert!(error.contains(&address) && error.contains(words), "{words}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_by_sasl_owns_its_nodes_and_a_wrong_one_is_told() {
    let authority = TestAuthority::new().unwrap();
    let builder = ApacheServer::builder().tls(&authority).client_auth(ClientAuth::None);
    let server = started(builder.digest_sasl("bob", "secret").digest_sasl("eve", "secret").require_sasl());
    let (plain, secure) = (server.connect_string(), server.secure_connect_string().unwrap());
    let login = |user: &str, password: &str| SaslDigest::new(user, password);
    let bob = connected(options(&plain).sasl(login("bob", "secret"))).await;
    let eve = connected(options(&secure).tls(tls(&authority, None)).sasl(login("eve", "secret"))).await;
    let acl = vec![Acl::new(Permission::ALL, "sasl", "bob")];
    bob.create().with_acl(acl).for_path("/bobs").await.unwrap();
    assert!(matches!(eve.get_data().for_path("/bobs").await, Err(Error::NoAuth { .. })));
    let guard = in_time(InterProcessMutex::new(bob.clone(), "/lock").unwrap().acquire()).await.unwrap();
    // On every connection anew.
    let session = bob.session().await.unwrap();
    tokio::task::block_in_place(|| server.restart().unwrap());
    in_time(async {
        while session.get_data("/bobs").await.is_err() {
            session.connected().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(session.reconnects(), 1);
    in_time(guard.release()).await.unwrap();
    for wrong in [options(&plain).sasl(login("bob", "wrong")), options(&plain)] {
        let error = refusal(wrong).await;
        assert!(error.contains(&plain) && error.contains("authentication failed"), "{error}");
    }
}

#[test]
fn what_cannot_be_a_certificate_is_named_when_the_client_is_built() {
    let authority = TestAuthority::new().unwrap();
    let own = authority.client_certificate("worker").unwrap();
    for (wrong, words) in [
        (TlsOptions::new("nothing"), "the authority has no certificate"),
        (
            tls(&authority, None).with_client_certificate("nothing", own.key_pem()),
            "client certificate has no certificate",
        ),
        (tls(&authority, None).with_client_certificate(own.certificate_pem(), "nothing"), "certificate's key"),
    ] {
        let error = options("localhost:1").tls(wrong).build().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { option: "TLS option", .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = options("a..b:1").tls(tls(&authority, None)).build().unwrap_err();
    assert!(error.to_string().contains("cannot be in a certificate"), "{error}");
}
