//! TLS and SASL: a server's configuration, files and command line for them.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::error::ApacheError;
use crate::{TestAuthority, TestCertificate};

/// The demand for clients' certificates over TLS (ZooKeeper's `ssl.clientAuth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// Refuses a client without a certificate, or with one that the server does not trust. ZooKeeper's default.
    #[default]
    Need,
    /// Admits a client without a certificate. Refuses one with a certificate that the server does not trust.
    Want,
    /// Requests no certificate.
    None,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Security {
    pub(super) authority: Option<TestAuthority>,
    pub(super) certificate: Option<TestCertificate>,
    pub(super) client_auth: Option<ClientAuth>,
    pub(super) sasl_users: Vec<(String, String)>,
    pub(super) requires_sasl: bool,
}

impl Security {
    pub(super) fn check(&self) -> Result<(), ApacheError> {
        if self.authority.is_none() && (self.certificate.is_some() || self.client_auth.is_some()) {
            return Err(ApacheError::InvalidOption("a server certificate or client authentication without TLS"));
        }
        if self.requires_sasl && self.sasl_users.is_empty() {
            return Err(ApacheError::InvalidOption("SASL is required, and there is no user"));
        }
        let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let in_password = |c: char| (c.is_ascii_graphic() || c.is_alphabetic()) && !matches!(c, '"' | '\\' | '$');
        for (user, password) in &self.sasl_users {
            if user.is_empty() || !user.chars().all(in_name) {
                return Err(ApacheError::InvalidOption("a user of SASL is not made of letters, digits, `_`, `-`, `.`"));
            }
            if password.is_empty() || !password.chars().all(in_password) {
                return Err(ApacheError::InvalidOption(
                    "a password of SASL is not made of letters and visible ASCII without quotes, backslashes and dollars",
                ));
            }
        }
        Ok(())
    }

    /// Writes the key stores, and returns the lines of the configuration that name them.
    pub(super) fn write_tls(&self, folder: &Path, address: SocketAddr) -> Result<String, ApacheError> {
        let Some(authority) = &self.authority else { return Ok(String::new()) };
        let own = match &self.certificate {
            Some(certificate) => certificate.clone(),
            None => authority.server_certificate()?,
        };
        let (keys, trusted) = (folder.join("keystore.pem"), folder.join("truststore.pem"));
        fs::write(&keys, format!("{}{}", own.certificate_pem(), own.key_pem()))
            .and_then(|()| fs::write(&trusted, authority.certificate_pem()))
            .map_err(ApacheError::io("write the certificates"))?;
        let client_auth = match self.client_auth.unwrap_or_default() {
            ClientAuth::Need => "need",
            ClientAuth::Want => "want",
            ClientAuth::None => "none",
        };
        Ok(format!(
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             secureClientPortAddress={}\n\
             secureClientPort={}\n\
             ssl.keyStore.location={}\n\
             ssl.keyStore.type=PEM\n\
             ssl.trustStore.location={}\n\
             ssl.trustStore.type=PEM\n\
             ssl.clientAuth={client_auth}\n",
            address.ip(),
            address.port(),
            keys.display(),
            trusted.display(),
        ))
    }

    /// Writes the users, and returns the lines of the configuration and the argument of Java that name them.
    pub(super) fn write_sasl(&self, folder: &Path) -> Result<(String, Option<String>), ApacheError> {
        if self.sasl_users.is_empty() {
            return Ok((String::new(), None));
        }
        let mut jaas = "Server {\n    org.apache.zookeeper.server.auth.DigestLoginModule required".to_owned();
        for (user, password) in &self.sasl_users {
            // Writing to a string cannot fail.
            let _ = write!(jaas, "\n    user_{user}=\"{password}\"");
        }
        jaas.push_str(";\n};\n");
        let file = folder.join("jaas.conf");
        fs::write(&file, jaas).map_err(ApacheError::io("write the users"))?;
        let mut config = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n".to_owned();
        if self.requires_sasl {
            config.push_str("sessionRequireClientSASLAuth=true\n");
        }
        Ok((config, Some(format!("-Djava.security.auth.login.config={}", file.display()))))
    }
}
