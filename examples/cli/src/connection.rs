//! The options of the connection, and the client that they describe.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
#[cfg(feature = "tls")]
use curator_framework::TlsFiles;
use curator_framework::{CuratorFramework, ExponentialBackoffRetry, SaslDigest};

use crate::failure::Failure;
use crate::site::RELEASE;
use crate::values::{AccessList, bytes, duration};

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Servers, host:port[,host:port…], optionally followed by /chroot; the variable `ZK_CONNECT` is read too [default:
    /// localhost:2181]
    #[arg(long, global = true, env = "CURATOR_CONNECT")]
    connect: Option<String>,
    /// Credentials, such as digest:user:password, or sasl:user:password for a login by SASL; may be repeated. `ps`
    /// shows them: prefer the variable or --auth-file
    #[arg(long, global = true, value_name = "SCHEME:ID", env = "CURATOR_AUTH", hide_env_values = true)]
    auth: Vec<String>,
    /// A file with credentials, one in a line, beside those of --auth
    #[arg(long, global = true, value_name = "FILE", env = "CURATOR_AUTH_FILE")]
    auth_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    tls: Tls,
    /// The session timeout: the longest time for which a lock outlives its holder [default unit: seconds]
    #[arg(long, global = true, default_value = "30s", value_parser = duration, env = "CURATOR_SESSION_TIMEOUT")]
    session_timeout: Duration,
    /// The longest time to wait for a connection
    #[arg(long, global = true, default_value = "5s", value_parser = duration, env = "CURATOR_CONNECT_TIMEOUT")]
    connect_timeout: Duration,
    /// The longest reply in bytes, with the unit K, M or G; longer ones are left out. A list of children has 4 bytes and
    /// the name for each. A large reply delays the answers that keep a lock
    #[arg(long, global = true, default_value = "4M", value_parser = bytes, env = "CURATOR_MAX_REPLY")]
    max_reply: usize,
}

/// The files of TLS.
#[cfg(feature = "tls")]
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
struct Tls {
    /// Connect by TLS, and trust the server certificates that this authority signed (PEM)
    #[arg(long = "tls-ca", global = true, value_name = "FILE", env = "CURATOR_TLS_CA")]
    ca: Option<PathBuf>,
    /// The certificate of this client, for servers that ask for one (PEM)
    #[arg(long = "tls-cert", global = true, value_name = "FILE", env = "CURATOR_TLS_CERT")]
    cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long = "tls-key", global = true, value_name = "FILE", env = "CURATOR_TLS_KEY")]
    key: Option<PathBuf>,
}

impl Connection {
    /// Returns the servers that an option or a variable names.
    fn given(&self) -> Option<String> {
        let set = |servers: &String| !servers.is_empty();
        self.connect.clone().filter(set).or_else(|| std::env::var("ZK_CONNECT").ok().filter(set))
    }

    /// Returns the connect string of the option or its variable.
    pub(crate) fn connect(&self) -> Option<&str> {
        self.connect.as_deref().filter(|servers| !servers.is_empty())
    }

    /// Returns `true` if neither an option nor a variable names the servers.
    fn is_by_default(&self) -> bool {
        self.given().is_none()
    }

    pub(crate) fn servers(&self) -> String {
        self.given().unwrap_or_else(|| "localhost:2181".to_owned())
    }

    /// Returns the chroot of the connect string, with its slash.
    pub(crate) fn chroot(&self) -> Option<String> {
        let servers = self.servers();
        servers.find('/').map(|slash| servers[slash..].to_owned()).filter(|chroot| chroot.len() > 1)
    }

    /// Returns the scheme and the user of each credential, without secrets.
    pub(crate) fn identities(&self) -> String {
        let user = |(scheme, id): (String, String)| match id.split_once(':') {
            Some((user, _secret)) => format!("{scheme}:{user}"),
            None => scheme,
        };
        let users: Vec<String> = self.credentials().unwrap_or_default().into_iter().map(user).collect();
        if users.is_empty() { "anyone".to_owned() } else { users.join(", ") }
    }

    /// Returns pairs of scheme and credentials. Errors never contain their text.
    fn credentials(&self) -> Result<Vec<(String, String)>, String> {
        let mut pairs = Vec::new();
        for auth in self.auth.iter().filter(|auth| !auth.is_empty()) {
            pairs.push(pair(auth)?);
        }
        let Some(file) = &self.auth_file else { return Ok(pairs) };
        for (index, line) in read(file)?.lines().map(str::trim).enumerate() {
            if !line.is_empty() && !line.starts_with('#') {
                pairs.push(pair(line).map_err(|text| format!("{}, line {}: {text}", file.display(), index + 1))?);
            }
        }
        Ok(pairs)
    }
}

fn pair(auth: &str) -> Result<(String, String), String> {
    match auth.split_once(':') {
        Some((scheme, id)) if !scheme.is_empty() => Ok((scheme.to_owned(), id.to_owned())),
        _ => Err("credentials are SCHEME:ID, as digest:user:password".to_owned()),
    }
}

/// Reads a file that an option names.
fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Connects to the servers, for a command that creates nodes with this access control list.
pub(crate) fn connect(connection: &Connection, acl: Option<&AccessList>) -> Result<CuratorFramework, Failure> {
    let wrong = |text| Failure(2, text);
    let retry = ExponentialBackoffRetry::new(Duration::from_millis(100), 3)?;
    let mut builder = CuratorFramework::builder(connection.servers())
        .retry_policy(retry)
        .session_timeout(connection.session_timeout)
        .connection_timeout(connection.connect_timeout)
        .max_close_wait(RELEASE * 2)
        .max_reply(connection.max_reply);
    let credentials = connection.credentials().map_err(wrong)?;
    #[cfg(feature = "tls")]
    let has_certificate = connection.tls.cert.is_some();
    #[cfg(not(feature = "tls"))]
    let has_certificate = false;
    let is_known = has_certificate || !credentials.is_empty();
    for (scheme, id) in credentials {
        builder = match (scheme.as_str(), id.split_once(':')) {
            ("sasl", Some((user, password))) => builder.sasl(SaslDigest::new(user, password)),
            ("digest", None) => return Err(wrong("credentials for digest are digest:user:password".to_owned())),
            ("sasl", None) => return Err(wrong("credentials for SASL are sasl:user:password".to_owned())),
            _ => builder.authorization(scheme, id),
        };
    }
    #[cfg(feature = "tls")]
    if let Some(options) = tls(&connection.tls).map_err(wrong)? {
        builder = builder.tls(options);
    }
    if let Some(acl) = acl {
        if acl.names_the_creator() && !is_known {
            let text = "--acl creator and read-only need credentials: give them with --auth-file or CURATOR_AUTH";
            return Err(wrong(text.to_owned()));
        }
        builder = builder.acl_provider(acl.0.clone());
    }
    let client = builder.build()?;
    client.start()?;
    Ok(client)
}

/// Returns the files for TLS, if an authority is given.
#[cfg(feature = "tls")]
fn tls(files: &Tls) -> Result<Option<TlsFiles>, String> {
    let Some(authority) = &files.ca else {
        let alone = files.cert.is_some() || files.key.is_some();
        return if alone { Err("--tls-cert and --tls-key need --tls-ca".to_owned()) } else { Ok(None) };
    };
    let options = TlsFiles::new(authority);
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => Ok(Some(options.with_client_certificate(cert, key))),
        (None, None) => Ok(Some(options)),
        _ => Err("--tls-cert and --tls-key need each other".to_owned()),
    }
}

/// Adds what to do to a failure.
pub(crate) fn advised(Failure(code, mut text): Failure, connection: &Connection) -> Failure {
    match code {
        69 if connection.is_by_default() => text += "; neither --connect nor CURATOR_CONNECT is set",
        77 if connection.credentials().is_ok_and(|all| all.is_empty()) => {
            text += "; give credentials with --auth-file or CURATOR_AUTH";
        }
        77 if connection.credentials().is_ok_and(|all| all.iter().any(|(scheme, _)| scheme == "digest")) => {
            let identities = connection.identities();
            text += &format!("; the credentials are {identities}, and servers do not check the password of a digest");
        }
        _ => {}
    }
    Failure(code, text)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::options::{Options, Parsed};

    #[test]
    fn chroot_is_what_follows_the_servers() {
        let chroot = |servers: &str| {
            let Parsed::Options(options) =
                Options::from_arguments(&["curator", "--connect", servers, "ls", "/"].map(OsString::from))
            else {
                return None;
            };
            options.connection.chroot()
        };
        assert_eq!(chroot("a:1,b:2/prod/x"), Some("/prod/x".to_owned()));
        assert_eq!((chroot("a:1"), chroot("a:1/")), (None, None));
    }
}
