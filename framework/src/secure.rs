//! How a connection is made secure: TLS, and a login by SASL.

use std::fmt;

/// TLS to the servers: whom to trust, and who we are. The server's certificate must be signed by the authority, be valid
/// now, and carry the name or address by which the connect string names the server; none of that can be turned off.
///
/// Curator takes all of it from system properties of ZooKeeper's client (`zookeeper.client.secure`,
/// `zookeeper.ssl.trustStore.location` …).
#[derive(Clone, PartialEq, Eq)]
pub struct TlsOptions {
    pub(crate) authority: String,
    pub(crate) identity: Option<(String, String)>,
}

impl TlsOptions {
    /// Trusts the certificates that are signed by this authority (or several of them), in PEM.
    #[must_use]
    pub fn new(authority: impl Into<String>) -> Self {
        Self { authority: authority.into(), identity: None }
    }

    /// Shows this certificate to servers that ask for one: the chain and its key, in PEM.
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

/// Who logs in by SASL, with the mechanism `DIGEST-MD5`. Nodes are given to that user with the scheme `sasl`.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslDigest {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl SaslDigest {
    /// A user with a password.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for SaslDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslDigest").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_keys_nor_passwords_are_printed() {
        let tls = TlsOptions::new("authority").with_client_certificate("certificate", "secret");
        let sasl = SaslDigest::new("user", "secret");
        assert!(!format!("{tls:?} {sasl:?}").contains("secret"));
    }
}
