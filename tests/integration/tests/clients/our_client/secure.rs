//! Locks over TLS and with a login by SASL.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use curator_framework::{
    Acl, Chain, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, Error, FixedEnsembleProvider,
    Permission, RetryNTimes, SaslDigest, TlsFiles, TlsOptions,
};
use curator_integration::env::{connected, eventually, in_time, reconnected};
use curator_recipes::InterProcessMutex;
use curator_test::{ApacheServer, ApacheServerBuilder, ClientAuth, FaultProxy, TestAuthority, TestCertificate};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(8);

fn started(builder: ApacheServerBuilder) -> ApacheServer {
    tokio::task::block_in_place(|| builder.start().unwrap_or_else(|error| panic!("{error}")))
}

fn options(servers: impl Into<String>) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(servers)
        .zookeeper_factory(DefaultZooKeeperFactory::new())
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

/// The reason that an operation gives for a missing connection, within the time for that.
async fn refusal(builder: CuratorFrameworkBuilder) -> String {
    let client = builder.build().unwrap();
    client.start().unwrap();
    let start = Instant::now();
    let error = client.check_exists().for_path("/").await.unwrap_err();
    assert!(start.elapsed() < CONNECTION_TIMEOUT + Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(matches!(error, Error::ConnectionLoss { sent: false, .. } | Error::AuthFailed { .. }), "{error}");
    client.close().await;
    Chain(&error).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_over_tls_with_a_client_certificate() {
    let authority = TestAuthority::new().unwrap();
    let server = started(ApacheServer::builder().tls(&authority));
    let own = authority.client_certificate("worker").unwrap();
    let address = server.secure_connect_string().unwrap();
    let secure = || {
        let retry = RetryNTimes::new(200, Duration::from_millis(50));
        options(&address).tls(tls(&authority, Some(&own))).retry_policy(retry)
    };
    let (one, other) = (connected(secure()).await, connected(secure()).await);
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
    assert!(held.release().await.unwrap().is_released());
    let next = in_time(waiter).await.unwrap().unwrap();
    next.transaction().set_data("/mine", "changed").commit().await.unwrap();
    let plain = connected(options(server.connect_string())).await;
    assert!(matches!(plain.get_data().for_path("/mine").await, Err(Error::NoAuth { .. })));
    // The same session, on a connection that is made again.
    let session = one.session().await.unwrap();
    tokio::task::block_in_place(|| server.restart().unwrap());
    in_time(session.connected()).await.unwrap();
    assert!(next.is_held());
    assert!(in_time(next.release()).await.unwrap().is_released());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_certificate_or_a_port_is_told_within_the_connection_timeout() {
    let (authority, foreign) = (TestAuthority::new().unwrap(), TestAuthority::new().unwrap());
    let own = authority.client_certificate("worker").unwrap();
    let server = started(ApacheServer::builder().tls(&authority));
    let address = server.secure_connect_string().unwrap();
    let plain = server.connect_string();
    let secure = |authority, own| options(&address).tls(tls(authority, own));
    let strange = foreign.client_certificate("worker").unwrap();
    let old = authority.expired_client_certificate("worker").unwrap();
    // The client, and the text of the error; each of them waits as long as it takes to be connected.
    let mut all = vec![
        ("a server of a foreign authority", secure(&foreign, Some(&own)), &address, "UnknownIssuer"),
        ("no certificate of the client", secure(&authority, None), &address, "TLS"),
        ("a foreign one", secure(&authority, Some(&strange)), &address, "TLS"),
        ("an expired one", secure(&authority, Some(&old)), &address, "TLS"),
        ("plain text on the port for TLS", options(&address), &address, "it may expect TLS"),
        ("TLS on the port for plain text", options(&plain).tls(tls(&authority, Some(&own))), &plain, "TLS"),
    ];
    let expired = authority.expired_server_certificate().unwrap();
    let expired = started(ApacheServer::builder().tls(&authority).server_certificate(&expired));
    let elsewhere = authority.server_certificate_for("elsewhere.example").unwrap();
    let elsewhere = started(ApacheServer::builder().tls(&authority).server_certificate(&elsewhere));
    let others = [&expired, &elsewhere].map(|server| server.secure_connect_string().unwrap());
    for (address, words) in others.iter().zip(["expired", "not valid for name"]) {
        all.push(("a wrong server", options(address).tls(tls(&authority, Some(&own))), address, words));
    }
    let all = all.into_iter().map(|(who, builder, address, words)| async move {
        let error = refusal(builder).await;
        assert!(error.contains(&format!("{address}: ")) && error.contains(words), "{who}: {error}");
    });
    futures_util::future::join_all(all).await;
}

/// The files of a certificate, as a program mounts them.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, authorities: &str, certificate: &str, key: &str) {
        for (name, text) in [("ca.crt", authorities), ("tls.crt", certificate), ("tls.key", key)] {
            std::fs::write(self.path(name), text).unwrap();
        }
    }

    fn provider(&self) -> TlsFiles {
        TlsFiles::new(self.path("ca.crt")).with_client_certificate(self.path("tls.crt"), self.path("tls.key"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_files_outlives_its_certificate() {
    let authority = TestAuthority::new().unwrap();
    let server = started(ApacheServer::builder().tls(&authority));
    let address = server.secure_connect_string().unwrap();
    let proxy = FaultProxy::start(address.parse().unwrap()).unwrap();
    let short = authority.client_certificate_for("worker", Duration::from_secs(3)).unwrap();
    let files = Files::new();
    files.write(authority.certificate_pem(), short.certificate_pem(), short.key_pem());
    let client = connected(options(proxy.connect_string()).tls(files.provider())).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), "/renewed").unwrap().acquire()).await.unwrap();
    let session = client.session().await.unwrap();
    eventually("the certificate expires", async || {
        let late = options(&address).tls(tls(&authority, Some(&short))).build().unwrap();
        late.start().unwrap();
        let refused = late.check_exists().for_path("/").await.is_err();
        late.close().await;
        refused
    })
    .await;
    let renewed = authority.client_certificate("worker").unwrap();
    files.write(authority.certificate_pem(), renewed.certificate_pem(), renewed.key_pem());
    reconnected(&proxy, &session).await;
    assert_eq!((session.epoch(), guard.is_held()), (2, true));
    // The files are replaced one by one: what was read before is used until they fit.
    let next = authority.client_certificate("worker").unwrap();
    files.write(authority.certificate_pem(), next.certificate_pem(), renewed.key_pem());
    reconnected(&proxy, &session).await;
    assert_eq!((session.epoch(), guard.is_held()), (3, true));
    assert!(in_time(guard.release()).await.unwrap().is_released());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_files_follows_a_renewed_authority() {
    let (old, new) = (TestAuthority::new().unwrap(), TestAuthority::new().unwrap());
    let [first, second] = [&old, &new].map(|authority| {
        let address = started(ApacheServer::builder().tls(authority).client_auth(ClientAuth::None));
        (address.secure_connect_string().unwrap(), address)
    });
    let files = Files::new();
    let own = old.client_certificate("worker").unwrap();
    files.write(old.certificate_pem(), own.certificate_pem(), own.key_pem());
    let servers = FixedEnsembleProvider::new(first.0.clone());
    let retry = RetryNTimes::new(200, Duration::from_millis(50));
    let builder = options("").ensemble_provider(servers.clone()).tls(files.provider()).retry_policy(retry);
    let client = connected(builder).await;
    files.write(&format!("{}{}", old.certificate_pem(), new.certificate_pem()), own.certificate_pem(), own.key_pem());
    servers.set_connect_string(&second.0);
    tokio::task::block_in_place(|| drop(first));
    // The second server does not know the session.
    in_time(client.create().for_path("/there").into_future()).await.unwrap();
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_by_sasl_owns_its_nodes_and_a_wrong_one_is_told() {
    let authority = TestAuthority::new().unwrap();
    let builder = ApacheServer::builder().tls(&authority).client_auth(ClientAuth::None);
    let server = started(
        builder.digest_sasl("bob", "secret").digest_sasl("eve", "secret").digest_sasl("ann", "wörd").require_sasl(),
    );
    let (plain, secure) = (server.connect_string(), server.secure_connect_string().unwrap());
    let login = |user: &str, password: &str| SaslDigest::new(user, password);
    let bob = connected(options(&plain).sasl(login("bob", "secret"))).await;
    // Its password is hashed in ISO-8859-1, as Java does.
    connected(options(&plain).sasl(login("ann", "wörd"))).await.close().await;
    let eve = connected(options(&secure).tls(tls(&authority, None)).sasl(login("eve", "secret"))).await;
    let acl = vec![Acl::new(Permission::ALL, "sasl", "bob")];
    bob.create().with_acl(acl).for_path("/bobs").await.unwrap();
    assert!(matches!(eve.get_data().for_path("/bobs").await, Err(Error::NoAuth { .. })));
    let guard = in_time(InterProcessMutex::new(bob.clone(), "/lock").unwrap().acquire()).await.unwrap();
    // On every connection again.
    let session = bob.session().await.unwrap();
    tokio::task::block_in_place(|| server.restart().unwrap());
    in_time(async {
        while session.get_data("/bobs").await.is_err() {
            session.connected().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(session.epoch(), 2);
    assert!(in_time(guard.release()).await.unwrap().is_released());
    let error = refusal(options(&plain).sasl(login("bob", "wrong"))).await;
    // The server closes the connection after its reply, which is lost with the connection now and then.
    let is_named = ["did not accept the credentials", "without an answer"].iter().any(|words| error.contains(words));
    assert!(error.contains(&plain) && is_named, "{error}");
    // A session without a login ends at its first request.
    let without = connected(options(&plain)).await;
    let refused = without.check_exists().for_path("/").await.unwrap_err();
    let is_named = refused.to_string().contains("SessionClosedRequireSaslAuth (-124)");
    assert!(is_named || matches!(refused, Error::ConnectionLoss { .. }), "{refused}");
    without.close().await;
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
        (
            tls(&authority, None).with_client_certificate(own.certificate_pem(), "nothing"),
            "the key of the client certificate",
        ),
    ] {
        let error = options("localhost:1").tls(wrong).build().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { option: "TLS option", .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let files = TlsFiles::new("/no/such/file");
    let error = options("localhost:1").tls(files).build().unwrap_err();
    assert!(error.to_string().contains("cannot read /no/such/file: No such file"), "{error}");
    let error = options("a..b:1").tls(tls(&authority, None)).build().unwrap_err();
    assert!(error.to_string().contains("that a certificate can have"), "{error}");
}
