//! Certificates made at run time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// The names by which clients reach a test's server.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "::1", "localhost"];

/// A certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("failed to make a certificate: {0}")]
pub struct CertificateError(#[from] rcgen::Error);

/// A certificate authority for one test, which issues certificates to servers and clients.
///
/// Nothing is written to disk. Only processes that are given its certificate trust it, and two authorities do not trust
/// each other. Clones are the same authority.
///
/// # Examples
/// ```no_run
/// use curator_test::{ApacheServer, TestAuthority};
///
/// let authority = TestAuthority::new()?;
/// let server = ApacheServer::builder().tls(&authority).start()?;
/// let client = authority.client_certificate("worker")?;
/// println!("connect to {:?} over TLS", server.secure_connect_string());
/// println!("trust {}", authority.certificate_pem());
/// println!("show {} and sign with {}", client.certificate_pem(), client.key_pem());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TestAuthority {
    issuer: Arc<Issuer<'static, KeyPair>>,
    pem: String,
}

impl TestAuthority {
    /// Creates an authority with a key of its own.
    ///
    /// # Errors
    /// [`CertificateError`] if no key can be made.
    pub fn new() -> Result<Self, CertificateError> {
        let mut params = CertificateParams::default();
        // A unique name: a client must find another authority unknown, not its signature wrong.
        params.distinguished_name = named(&format!("authority {:016x}", rand::random::<u64>()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Arc::new(Issuer::new(params, key)), pem })
    }

    /// Returns the authority's own certificate in PEM, which clients and servers can trust.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate to a server with the names `127.0.0.1`, `::1` and `localhost`.
    ///
    /// # Errors
    /// [`CertificateError`] if no key can be made.
    pub fn server_certificate(&self) -> Result<TestCertificate, CertificateError> {
        self.issue(server(LOOPBACK)?)
    }

    /// Issues a certificate to a server with another name or address, so that clients see a wrong name.
    ///
    /// # Errors
    /// [`CertificateError`] for a name that no certificate can have, or if no key can be made.
    pub fn server_certificate_for(&self, name: &str) -> Result<TestCertificate, CertificateError> {
        self.issue(server([name])?)
    }

    /// Issues a certificate like [`server_certificate`](Self::server_certificate) that expired years ago.
    ///
    /// # Errors
    /// [`CertificateError`] if no key can be made.
    pub fn expired_server_certificate(&self) -> Result<TestCertificate, CertificateError> {
        self.issue(expired(server(LOOPBACK)?))
    }

    /// Issues a certificate to a client. ZooKeeper knows it as `x509:CN=<name>`.
    ///
    /// # Errors
    /// [`CertificateError`] if no key can be made.
    pub fn client_certificate(&self, name: &str) -> Result<TestCertificate, CertificateError> {
        self.issue(client(name))
    }

    /// Issues a certificate like [`client_certificate`](Self::client_certificate) that expired years ago.
    ///
    /// # Errors
    /// [`CertificateError`] if no key can be made.
    pub fn expired_client_certificate(&self, name: &str) -> Result<TestCertificate, CertificateError> {
        self.issue(expired(client(name)))
    }

    /// Issues a certificate like [`client_certificate`](Self::client_certificate) that expires after this time, in whole
    /// seconds.
    ///
    /// # Errors
    /// [`CertificateError`] if no key can be made.
    pub fn client_certificate_for(&self, name: &str, time: Duration) -> Result<TestCertificate, CertificateError> {
        let mut params = client(name);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        params.not_after = date_time_ymd(1970, 1, 1) + now + time;
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<TestCertificate, CertificateError> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &*self.issuer)?.pem();
        Ok(TestCertificate { certificate, key: key.serialize_pem() })
    }
}

impl fmt::Debug for TestAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestAuthority").finish_non_exhaustive()
    }
}

/// A certificate that a [`TestAuthority`] has issued, with its private key.
#[derive(Clone)]
pub struct TestCertificate {
    certificate: String,
    key: String,
}

impl TestCertificate {
    /// Returns the certificate in PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Returns the private key in PEM (PKCS #8).
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key
    }
}

impl fmt::Debug for TestCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestCertificate").finish_non_exhaustive()
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn server<const N: usize>(names: [&str; N]) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(names.map(str::to_owned))?;
    params.distinguished_name = named(names[0]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn client(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    params
}
