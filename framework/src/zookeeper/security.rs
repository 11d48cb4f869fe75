//! Secure connections: TLS, and a login by SASL.

use std::fmt;

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

/// The user of a login by SASL, mechanism `DIGEST-MD5`. Access control lists name that user with the scheme `sasl`.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslDigest {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl SaslDigest {
    /// Creates the login of a user with a password.
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
