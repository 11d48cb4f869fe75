//! TLS and SASL of an Apache server, as the crate `zookeeper-client` meets them.
//!
//! These tests need the Debian package `zookeeper`. Without it they fail and say so.

use std::net::TcpListener;
use std::time::Duration;

use curator_test::{ApacheError, ApacheServer, ApacheServerBuilder, ClientAuth, TestAuthority, TestCertificate};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, Connector, CreateMode, Error, SaslOptions, TlsOptions};

/// How long something may take that must happen.
const SOON: Duration = Duration::from_secs(30);

fn started(builder: ApacheServerBuilder) -> ApacheServer {
    builder.start().unwrap_or_else(|error| panic!("{error}"))
}

fn tls(trusted: &TestAuthority, own: Option<&TestCertificate>) -> TlsOptions {
    let options = TlsOptions::new().with_pem_ca(trusted.certificate_pem()).unwrap();
    match own {
        Some(own) => options.with_pem_identity(own.certificate_pem(), own.key_pem()).unwrap(),
        None => options,
    }
}

/// Gives up at the first refusal, and not because a busy machine is slow: it waits 8 seconds, not 2.4.
fn patient() -> Connector {
    Client::connector().with_session_timeout(Duration::from_secs(20)).with_fail_eagerly()
}

async fn connected(connector: Connector, to: &str) -> Result<Client, Error> {
    timeout(SOON, connector.connect(to)).await.expect("an answer")
}

async fn over_tls(server: &ApacheServer, options: TlsOptions) -> Result<Client, Error> {
    let address = format!("tcp+tls://{}", server.secure_connect_string().unwrap());
    connected(patient().with_tls(options), &address).await
}

async fn with_sasl(server: &ApacheServer, user: &'static str, password: &'static str) -> Result<Client, Error> {
    let options = SaslOptions::digest_md5(user, password);
    connected(patient().with_sasl(options), &server.connect_string()).await
}

async fn writes(client: &Client, path: &str) -> Result<(), Error> {
    client.create(path, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.map(drop)
}

/// The names that the server has for the client, without its address.
async fn names(client: &Client) -> Vec<String> {
    let users = client.list_auth_users().await.unwrap();
    users.iter().filter(|user| user.scheme() != "ip").map(|user| format!("{}:{}", user.scheme(), user.user())).collect()
}

#[tokio::test]
async fn client_with_a_certificate_connects_over_tls() {
    let authority = TestAuthority::new().unwrap();
    let server = started(ApacheServer::builder().tls(&authority));
    assert_ne!(server.secure_address().unwrap(), server.address());
    let certificate = authority.client_certificate("worker").unwrap();
    for n in 0..2 {
        let client = over_tls(&server, tls(&authority, Some(&certificate))).await.unwrap();
        writes(&client, &format!("/node-{n}")).await.unwrap();
        assert_eq!(names(&client).await, ["x509:CN=worker"]);
        // On the same port again.
        server.restart().unwrap();
    }
    let plain = connected(patient(), &server.connect_string()).await.unwrap();
    writes(&plain, "/plain").await.unwrap();
}

#[tokio::test]
async fn clients_without_a_trusted_certificate_are_refused() {
    let authority = TestAuthority::new().unwrap();
    let foreign = TestAuthority::new().unwrap();
    let server = started(ApacheServer::builder().tls(&authority));
    for (who, certificate) in [
        ("no certificate", None),
        ("a foreign authority's", Some(foreign.client_certificate("worker").unwrap())),
        ("an expired one", Some(authority.expired_client_certificate("worker").unwrap())),
        ("a server's", Some(authority.server_certificate().unwrap())),
    ] {
        let refused = over_tls(&server, tls(&authority, certificate.as_ref())).await;
        assert!(refused.is_err(), "{who}");
    }
    let plain = connected(patient(), &server.secure_connect_string().unwrap()).await;
    assert!(plain.is_err(), "plain text on the port for TLS");
}

#[tokio::test]
async fn client_refuses_a_server_that_it_does_not_trust() {
    let authority = TestAuthority::new().unwrap();
    let foreign = TestAuthority::new().unwrap();
    let own = authority.client_certificate("worker").unwrap();
    let builder = || ApacheServer::builder().tls(&authority);
    for (which, certificate) in [
        ("an expired one", authority.expired_server_certificate().unwrap()),
        ("another server's", authority.server_certificate_for("elsewhere.example").unwrap()),
        ("a foreign authority's", foreign.server_certificate().unwrap()),
    ] {
        let server = started(builder().server_certificate(&certificate));
        let refused = over_tls(&server, tls(&authority, Some(&own))).await;
        assert!(refused.is_err(), "{which}");
        if which == "a foreign authority's" {
            // The authority that the client trusts was the only fault.
            over_tls(&server, tls(&foreign, Some(&own))).await.unwrap();
        }
    }
}

#[tokio::test]
async fn taken_port_is_named() {
    let server = started(ApacheServer::builder().tls(&TestAuthority::new().unwrap()));
    for address in [server.address(), server.secure_address().unwrap()] {
        server.stop().unwrap();
        let taken = TcpListener::bind(address).unwrap();
        let error = server.restart().unwrap_err();
        assert!(matches!(error, ApacheError::PortTaken { .. }), "{error}");
        drop(taken);
        server.restart().unwrap();
    }
}

#[tokio::test]
async fn client_certificates_are_needed_wanted_or_not_asked_for() {
    let authority = TestAuthority::new().unwrap();
    let stranger = TestAuthority::new().unwrap().client_certificate("stranger").unwrap();
    let own = authority.client_certificate("worker").unwrap();
    for (client_auth, none, foreign, name) in [
        (ClientAuth::Need, false, false, Some("x509:CN=worker")),
        (ClientAuth::Want, true, false, Some("x509:CN=worker")),
        (ClientAuth::None, true, true, None),
    ] {
        let server = started(ApacheServer::builder().tls(&authority).client_auth(client_auth));
        let client = over_tls(&server, tls(&authority, Some(&own))).await.unwrap();
        assert_eq!(names(&client).await.first().map(String::as_str), name, "{client_auth:?}");
        assert_eq!(over_tls(&server, tls(&authority, None)).await.is_ok(), none, "{client_auth:?}, no certificate");
        let other = over_tls(&server, tls(&authority, Some(&stranger))).await;
        assert_eq!(other.is_ok(), foreign, "{client_auth:?}, a foreign certificate");
    }
}

#[tokio::test]
async fn users_authenticate_with_digest_sasl() {
    let server = started(ApacheServer::builder().digest_sasl("bob", "s3cret;").digest_sasl("a.b-c_1", "{'x'}"));
    for (user, password) in [("bob", "s3cret;"), ("a.b-c_1", "{'x'}")] {
        let client = with_sasl(&server, user, password).await.unwrap();
        assert_eq!(names(&client).await, [format!("sasl:{user}")]);
        writes(&client, "/node").await.unwrap();
    }
    for (user, password) in [("bob", "wrong"), ("nobody", "secret")] {
        assert!(with_sasl(&server, user, password).await.is_err(), "{user}");
    }
    let anybody = connected(patient(), &server.connect_string()).await.unwrap();
    writes(&anybody, "/node-of-anybody").await.unwrap();
}

#[tokio::test]
async fn server_can_require_sasl() {
    let server = started(ApacheServer::builder().digest_sasl("bob", "secret").require_sasl());
    writes(&with_sasl(&server, "bob", "secret").await.unwrap(), "/node").await.unwrap();
    // The client makes a request of its own before it counts as connected.
    let refused = connected(patient(), &server.connect_string()).await.unwrap_err();
    assert_eq!(refused, Error::AuthFailed);
}

#[tokio::test]
async fn sasl_goes_over_tls_too() {
    let authority = TestAuthority::new().unwrap();
    let builder = ApacheServer::builder().tls(&authority).client_auth(ClientAuth::None);
    let server = started(builder.digest_sasl("bob", "secret").require_sasl());
    let address = format!("tcp+tls://{}", server.secure_connect_string().unwrap());
    let connector = || patient().with_tls(tls(&authority, None));
    let known = connected(connector().with_sasl(SaslOptions::digest_md5("bob", "secret")), &address).await.unwrap();
    writes(&known, "/node").await.unwrap();
    assert_eq!(connected(connector(), &address).await.unwrap_err(), Error::AuthFailed);
}

#[test]
fn impossible_options_are_refused() {
    let certificate = TestAuthority::new().unwrap().server_certificate().unwrap();
    for builder in [
        ApacheServer::builder().server_certificate(&certificate),
        ApacheServer::builder().client_auth(ClientAuth::Need),
        ApacheServer::builder().require_sasl(),
        ApacheServer::builder().digest_sasl("", "secret"),
        ApacheServer::builder().digest_sasl("two words", "secret"),
        ApacheServer::builder().digest_sasl("bob", ""),
        ApacheServer::builder().digest_sasl("bob", "with\"quote"),
        ApacheServer::builder().digest_sasl("bob", "${user.home}"),
    ] {
        assert!(matches!(builder.start(), Err(ApacheError::InvalidOption(_))));
    }
    assert!(TestAuthority::new().unwrap().server_certificate_for("Zürich").is_err());
}

#[test]
fn missing_jar_of_tls_is_named() {
    let authority = TestAuthority::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("zookeeper.jar"), "").unwrap();
    let error = ApacheServer::builder().tls(&authority).jars(folder.path()).start().unwrap_err();
    assert!(matches!(error, ApacheError::NotInstalled { .. }), "{error}");
    assert!(error.to_string().contains("netty-codec.jar"), "{error}");
}
