//! Secure connections by TLS.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// TLS to the servers: the trusted authority and the client's certificate. The authority must have signed the server's
/// certificate, which must be valid now and have the server's name or address in the connect string. No check can be
/// turned off.
///
/// Curator takes all of it from system properties of ZooKeeper's client (`zookeeper.client.secure`,
/// `zookeeper.ssl.trustStore.location` …).
#[derive(Clone, PartialEq, Eq)]
pub struct TlsOptions {
    pub(crate) authority: String,
    pub(crate) identity: Option<(String, String)>,
}

impl TlsOptions {
    /// Trusts the certificates that this authority (or several of them) signed, in PEM.
    #[must_use]
    pub fn new(authority: impl Into<String>) -> Self {
        Self { authority: authority.into(), identity: None }
    }

    /// Sends this certificate to servers that request one: the chain and its key, in PEM.
    #[must_use]
    pub fn with_client_certificate(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions").field("client_certificate", &self.identity.is_some()).finish_non_exhaustive()
    }
}

/// Supplies the options of TLS for each new connection, so that a client outlives its certificate.
///
/// [`TlsOptions`] supplies itself, and [`TlsFiles`] what is in files.
///
/// A provider must not own a clone of its client, which it would keep open.
pub trait TlsProvider: Send + Sync + fmt::Debug + 'static {
    /// Returns the options for the next connection. An open connection keeps its own.
    ///
    /// [`CuratorFrameworkBuilder::build`](crate::CuratorFrameworkBuilder::build) calls it once. Each attempt to connect
    /// calls it on a thread for blocking work, and the time counts as the attempt's. It must not block without end: the end
    /// of a runtime waits for it.
    ///
    /// The attempts of a client call it one after the other. While a call runs, another attempt uses the options of the
    /// session's attempt before. The first attempt of a session waits for its turn.
    ///
    /// # Errors
    ///
    /// An [`io::Error`] that says what is wrong. The client logs it, and uses the options of the session's attempt before. A
    /// session that does not exist yet has none, so its attempt fails, even if an earlier session had options. Options that
    /// cannot be used are an error too.
    fn options(&self) -> io::Result<TlsOptions>;
}

/// The turn to call a client's provider, so that a call that blocks occupies one thread, not one for each attempt.
#[cfg(any(feature = "tls", feature = "tls-ring"))]
pub(crate) type ProviderTurn = std::sync::Arc<tokio::sync::Mutex<()>>;

impl TlsProvider for TlsOptions {
    fn options(&self) -> io::Result<TlsOptions> {
        Ok(self.clone())
    }
}

/// TLS by PEM files that are read at each attempt to connect. [`build`](crate::CuratorFrameworkBuilder::build) reads them
/// too, and fails without them.
///
/// A renewed certificate counts from the next connection on, and so does a renewed authority. It fits files that
/// cert-manager mounts into a pod from a `Secret`: `ca.crt`, `tls.crt` and `tls.key`. While files are replaced, a
/// certificate may be read beside another one's key: the client then uses what it has read before.
///
/// An authority that is renewed needs both in the file for a while, the old one and the new one. Servers that are not
/// restarted yet have certificates of the old one.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use curator_framework::{CuratorFramework, ExponentialBackoffRetry, TlsFiles};
///
/// let files = TlsFiles::new("/etc/tls/ca.crt").with_client_certificate("/etc/tls/tls.crt", "/etc/tls/tls.key");
/// let client = CuratorFramework::builder("zk1.example:2281")
///     .tls(files)
///     .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 3)?)
///     .build()?;
/// # Ok::<(), curator_framework::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    authority: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Trusts the certificates that the authorities in this file signed.
    #[must_use]
    pub fn new(authority: impl Into<PathBuf>) -> Self {
        Self { authority: authority.into(), identity: None }
    }

    /// Sends the certificate in these files to servers that request one: the chain and its key.
    #[must_use]
    pub fn with_client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }
}

impl TlsProvider for TlsFiles {
    fn options(&self) -> io::Result<TlsOptions> {
        let read = |file: &Path| {
            let unread =
                |error: io::Error| io::Error::new(error.kind(), format!("cannot read {}: {error}", file.display()));
            fs::read_to_string(file).map_err(unread)
        };
        let options = TlsOptions::new(read(&self.authority)?);
        match &self.identity {
            Some((certificate, key)) => Ok(options.with_client_certificate(read(certificate)?, read(key)?)),
            None => Ok(options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zookeeper::sasl::SaslDigest;

    #[test]
    fn neither_keys_nor_passwords_are_printed() {
        let tls = TlsOptions::new("authority").with_client_certificate("certificate", "secret");
        let sasl = SaslDigest::new("user", "secret");
        assert!(!format!("{tls:?} {sasl:?}").contains("secret"));
    }
}
