//! Logins at Apache ZooKeeper with a KDC on loopback.
//!
//! MIT's library takes its settings from the environment, so each login is a process of its own: this program again, with
//! an argument.

use std::error::Error as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use curator_framework::{
    Acl, Chain, CuratorFramework, CuratorFrameworkBuilder, Error, RetryForever, RetryNTimes, TlsOptions,
};
use curator_gssapi::Gssapi;
use curator_recipes::InterProcessMutex;
use curator_test::{ApacheCluster, ApacheServer, ClientAuth, TestAuthority};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["login", servers, options] => block_on(login(servers, options)),
        ["cluster", folder] => block_on(cluster(Path::new(folder))),
        _ => tests(),
    }
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(work);
}

fn tests() {
    let realm = Realm::start();
    let authority = TestAuthority::new().unwrap();
    let server = ApacheServer::builder().tls(&authority).client_auth(ClientAuth::None);
    let server =
        realm.properties().into_iter().fold(server, |server, (name, value)| server.system_property(name, value));
    let server = server.start().unwrap();
    let plain = server.connect_string().replace("127.0.0.1", "localhost");
    let secure = server.secure_connect_string().unwrap().replace("127.0.0.1", "localhost");
    fs::write(realm.file("authority.pem"), authority.certificate_pem()).unwrap();
    let ada = Credentials::Keytab("ada.keytab");
    let is_ada = "owner sasl:ada@EXAMPLE.COM";
    realm.logs_in(&plain, "", ada, is_ada);
    realm.logs_in(&plain, "one-sided", ada, is_ada);
    realm.logs_in(&secure, &format!("tls={}", realm.file("authority.pem").display()), ada, is_ada);
    // The key in the keytab is an older one of the principal: a wrong password.
    realm.logs_in(&plain, "", Credentials::Keytab("old.keytab"), "AuthFailed: ");
    realm.logs_in(&plain, "", Credentials::None, "AuthFailed: ");
    realm.logs_in(&plain, "principal=eve@NOWHERE.COM", ada, "AuthFailed: ");
    realm.logs_in(
        &plain,
        "realm=NOWHERE.COM",
        ada,
        "Server krbtgt/NOWHERE.COM@EXAMPLE.COM not found in Kerberos database",
    );
    let unknown = "SASL GSSAPI: Server unknown/localhost@EXAMPLE.COM not found in Kerberos database";
    realm.logs_in(&plain, "service=unknown", ada, unknown);
    realm.get_short_ticket();
    realm.logs_in(&plain, "", Credentials::Cache("short.cache"), "expired");
    let away = realm.logs_in(&plain, "away", ada, "Cannot contact any KDC for realm 'EXAMPLE.COM'");
    assert!(away.starts_with("ConnectionLoss: "), "{away}");
    // The addresses of the KDCs come from DNS, which is away.
    let unfound = realm.logs_in(&plain, "unfound", ada, "Cannot find KDC for realm \"EXAMPLE.COM\"");
    assert!(unfound.starts_with("ConnectionLoss: "), "{unfound}");
    drop(server);
    let held = realm.output(&["cluster", realm.folder.path().to_str().unwrap()], ada, "krb5");
    assert!(held.contains("held in 4 connections or more"), "{held}");
    println!("all logins are right");
}

/// The credentials in the environment of a login.
#[derive(Debug, Clone, Copy)]
enum Credentials {
    None,
    Keytab(&'static str),
    Cache(&'static str),
}

/// A realm with a KDC.
struct Realm {
    folder: tempfile::TempDir,
    kdc: Option<Child>,
}

impl Drop for Realm {
    fn drop(&mut self) {
        if let Some(mut kdc) = self.kdc.take() {
            kdc.kill().unwrap();
            kdc.wait().unwrap();
        }
    }
}

impl Realm {
    fn start() -> Self {
        let mut realm = Self { folder: tempfile::tempdir().unwrap(), kdc: None };
        let folder = realm.folder.path().display().to_string();
        let [port, closed] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
        let realms = |port| format!("[realms]\n EXAMPLE.COM = {{\n  kdc = 127.0.0.1:{port}\n }}\n");
        for (name, realms) in [("krb5", realms(port)), ("away", realms(closed)), ("unfound", String::new())] {
            let text = format!(
                "[libdefaults]\n default_realm = EXAMPLE.COM\n dns_lookup_realm = false\n dns_lookup_kdc = false\n rdns = false\n \
                 dns_canonicalize_hostname = false\n udp_preference_limit = 1\n{realms}"
            );
            fs::write(realm.file(&format!("{name}.conf")), text).unwrap();
        }
        let kdc = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n EXAMPLE.COM = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n  \
             acl_file = {folder}/acl\n  supported_enctypes = aes256-cts:normal aes128-cts:normal\n }}\n"
        );
        fs::write(realm.file("kdc.conf"), kdc).unwrap();
        let jaas = format!(
            "Server {{ com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"{folder}/zk.keytab\" \
             storeKey=true useTicketCache=false principal=\"zookeeper/localhost@EXAMPLE.COM\"; }};\n"
        );
        fs::write(realm.file("jaas.conf"), jaas).unwrap();
        realm.runs("kdb5_util", &["create", "-s", "-r", "EXAMPLE.COM", "-P", "master"]);
        let keytab = |name: &str| realm.file(name).display().to_string();
        for query in [
            "addprinc -randkey zookeeper/localhost".to_owned(),
            "addprinc -randkey ada".to_owned(),
            "addprinc -randkey bob".to_owned(),
            format!("ktadd -k {} zookeeper/localhost", keytab("zk.keytab")),
            format!("ktadd -k {} ada", keytab("ada.keytab")),
            format!("ktadd -k {} bob", keytab("old.keytab")),
            "cpw -randkey bob".to_owned(),
        ] {
            realm.runs("kadmin.local", &["-r", "EXAMPLE.COM", "-q", &query]);
        }
        realm.kdc =
            Some(realm.command("krb5kdc").arg("-n").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        realm.until("the KDC listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        realm
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let sbin = Path::new("/usr/sbin").join(program);
        let mut command = Command::new(if sbin.exists() { sbin.as_os_str() } else { program.as_ref() });
        command.env("KRB5_CONFIG", self.file("krb5.conf")).env("KRB5_KDC_PROFILE", self.file("kdc.conf"));
        command
    }

    fn runs(&self, program: &str, arguments: &[&str]) {
        let output =
            self.command(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    }

    fn until(&self, what: &str, mut is_true: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_true() {
            assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The properties of a server's Java.
    fn properties(&self) -> Vec<(&'static str, String)> {
        properties(self.folder.path())
    }

    /// Gets a ticket, and waits until it has expired.
    fn get_short_ticket(&self) {
        let (keytab, cache) = (self.file("ada.keytab"), self.file("short.cache"));
        let [keytab, cache] = [keytab, cache].map(|file| file.display().to_string());
        self.runs("kinit", &["-l", "2s", "-k", "-t", &keytab, "-c", &cache, "ada"]);
        let is_valid = || self.command("klist").args(["-s", "-c", &cache]).status().unwrap().success();
        self.until("the ticket expires", || !is_valid());
    }

    fn logs_in(&self, servers: &str, options: &str, credentials: Credentials, expected: &str) -> String {
        let configuration = if ["away", "unfound"].contains(&options) { options } else { "krb5" };
        let output = self.output(&["login", servers, options], credentials, configuration);
        println!("{options:10} {credentials:?}: {output}");
        assert!(output.contains(expected), "{expected}: {output}");
        output
    }

    /// Runs this program again, and returns what it prints.
    fn output(&self, arguments: &[&str], credentials: Credentials, configuration: &str) -> String {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(arguments).env("KRB5_CONFIG", self.file(&format!("{configuration}.conf")));
        let (keytab, cache) = match credentials {
            Credentials::None => (self.file("no.keytab"), "MEMORY:".to_owned()),
            Credentials::Keytab(name) => (self.file(name), "MEMORY:".to_owned()),
            Credentials::Cache(name) => (self.file("no.keytab"), format!("FILE:{}", self.file(name).display())),
        };
        command.env("KRB5_CLIENT_KTNAME", keytab).env("KRB5CCNAME", cache);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

fn properties(folder: &Path) -> Vec<(&'static str, String)> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        ("java.security.auth.login.config", file("jaas.conf")),
        ("java.security.krb5.conf", file("krb5.conf")),
        ("zookeeper.authProvider.1", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider".to_owned()),
    ]
}

fn options(servers: &str) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(servers)
        .session_timeout(Duration::from_secs(20))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
}

/// Logs in, and prints the owner of a new node, or the error.
async fn login(servers: &str, text: &str) {
    let (mut builder, mut gssapi) = (options(servers), Gssapi::new());
    match text.split_once('=') {
        Some(("tls", file)) => builder = builder.tls(TlsOptions::new(fs::read_to_string(file).unwrap())),
        Some(("principal", principal)) => gssapi = gssapi.principal(principal),
        Some(("realm", realm)) => gssapi = gssapi.realm(realm),
        Some(("service", service)) => gssapi = gssapi.service(service),
        _ if text == "one-sided" => gssapi = gssapi.without_mutual_authentication(),
        _ => {}
    }
    let client = builder.sasl(gssapi).build().unwrap();
    client.start().unwrap();
    let mine = client.create().with_acl(Acl::creator_all()).for_path("/mine").await;
    match mine {
        Ok(_) => {
            let (acl, _) = client.get_acl().for_path("/mine").await.unwrap();
            println!("owner {}:{}", acl[0].scheme, acl[0].id);
            client.delete().for_path("/mine").await.unwrap();
        }
        Err(error @ Error::AuthFailed { .. }) => println!("AuthFailed: {}", Chain(&error)),
        Err(error @ Error::ConnectionLoss { .. }) => println!("ConnectionLoss: {}", Chain(&error)),
        Err(error) => println!("{error:?} {:?}", error.source()),
    }
    client.close().await;
}

/// Holds a lock while each server of a cluster restarts, and prints the number of the session's connections.
async fn cluster(folder: &Path) {
    let builder = properties(folder)
        .into_iter()
        .fold(ApacheCluster::builder(), |builder, (name, value)| builder.system_property(name, value));
    let cluster = tokio::task::block_in_place(|| builder.tick(Duration::from_millis(500)).start().unwrap());
    let retry = RetryForever::new(Duration::from_millis(50)).unwrap();
    let servers = cluster.connect_string().replace("127.0.0.1", "localhost");
    let client = options(&servers).retry_policy(retry).sasl(Gssapi::new()).build().unwrap();
    client.start().unwrap();
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    let session = client.session().await.unwrap();
    let node = client.create().with_acl(Acl::creator_all()).for_path("/mine").await.unwrap();
    let mut connections = session.epoch();
    while connections < 4 {
        for index in 0..3 {
            tokio::task::block_in_place(|| {
                cluster.restart(index).unwrap();
                cluster.wait_until_serving().unwrap();
            });
            // Only the user of the login may write it.
            client.set_data().for_path(&node, format!("{index}")).await.unwrap();
            assert!(guard.is_held(), "server {index}");
        }
        connections = session.epoch();
    }
    assert!(guard.release().await.unwrap().is_released());
    client.close().await;
    println!("held in 4 connections or more");
}
