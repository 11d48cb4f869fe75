//! TLS to the servers, by rustls.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::blocking_socket::BlockingSocket;
use super::stream::{ByteStream, Stream};
use crate::sync::report::report;
use crate::sync::user_code::catch_panic;
use crate::zookeeper::ConnectConfig;
use crate::zookeeper::security::{ProviderTurn, TlsOptions, TlsProvider};

/// The TLS side of a session's connections.
pub(super) struct Tls {
    provider: Arc<dyn TlsProvider>,
    turn: ProviderTurn,
    /// The options of the newest attempt, and what they mean. Kept as long as they are equal: it has the tickets by which a
    /// handshake is shorter.
    newest: Mutex<Option<(TlsOptions, TlsConnector)>>,
}

impl Tls {
    /// Returns the TLS side of a session; `None` if its connections have plain text.
    pub(super) fn of(config: &ConnectConfig) -> Option<Self> {
        let provider = config.tls.clone()?;
        Some(Self { provider, turn: Arc::clone(&config.provider_turn), newest: Mutex::default() })
    }

    /// Calls the provider, if no other call runs or the session needs its first options.
    async fn options(&self) -> io::Result<TlsOptions> {
        let turn = Arc::clone(&self.turn);
        let turn = match Arc::clone(&turn).try_lock_owned() {
            Ok(turn) => turn,
            Err(_runs) if self.newest.lock().is_some() => {
                return Err(io::Error::other("a call of the TLS provider has not returned yet"));
            }
            Err(_runs) => turn.lock_owned().await,
        };
        let provider = Arc::clone(&self.provider);
        let call = move || {
            let options = catch_panic("TLS provider", || provider.options()).map_err(io::Error::other)?;
            drop(turn);
            options
        };
        tokio::task::spawn_blocking(call).await.map_err(io::Error::other)?
    }

    /// Asks for the present options.
    async fn connector(&self) -> io::Result<TlsConnector> {
        let options = self.options().await;
        let mut newest = self.newest.lock();
        match (&options, &*newest) {
            (Ok(options), Some((same, connector))) if options == same => return Ok(connector.clone()),
            _ => {}
        }
        let made = options.and_then(|options| {
            let config = config(&options).map_err(io::Error::other)?;
            Ok((options, TlsConnector::from(Arc::new(config))))
        });
        match (made, &*newest) {
            (Ok(made), _) => Ok(newest.insert(made).1.clone()),
            (Err(error), Some((_, connector))) => {
                report(move || tracing::warn!(%error, "the options of TLS cannot be used, so those before are"));
                Ok(connector.clone())
            }
            (Err(error), None) => Err(io::Error::new(error.kind(), format!("TLS: {error}"))),
        }
    }

    /// Does the handshake: the server's certificate must be signed by the authority, be valid now, and carry its name.
    pub(super) async fn connect(&self, stream: TcpStream, server: &str) -> io::Result<Stream> {
        let name = name_of(server).map_err(io::Error::other)?;
        let stream = self.connector().await?.connect(name, stream).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                io::Error::new(error.kind(), format!("the server closed the connection in the TLS handshake: {error}"))
            }
            io::ErrorKind::InvalidData => io::Error::new(error.kind(), format!("TLS: {error}")),
            _ => error,
        })?;
        Ok(Stream::Other(Box::new(stream)))
    }
}

impl ByteStream for TlsStream<TcpStream> {
    fn close_blocking(self: Box<Self>, bytes: &[u8], limit: Duration) -> io::Result<()> {
        let (socket, mut connection) = self.into_inner();
        let mut socket = BlockingSocket::new(socket.into_std()?, limit)?;
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        stream.write_all(bytes)?;
        stream.conn.send_close_notify();
        stream.flush()?;
        socket.end()
    }
}

#[cfg(feature = "tls")]
use rustls::crypto::aws_lc_rs::default_provider;
#[cfg(not(feature = "tls"))]
use rustls::crypto::ring::default_provider;

/// Returns the configuration of rustls for these options.
///
/// # Errors
///
/// A text that says what is wrong with the options.
pub(crate) fn config(options: &TlsOptions) -> Result<ClientConfig, String> {
    // Never the choice of rustls, which panics without a default if a program's crates enable several.
    let provider = CryptoProvider::get_default().map_or_else(|| Arc::new(default_provider()), Arc::clone);
    let certificates = |pem: &str, what: &str| {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        match all {
            Ok(all) if all.is_empty() => Err(format!("the {what} has no certificate in PEM")),
            Ok(all) => Ok(all),
            Err(error) => Err(format!("the {what} cannot be read as PEM: {error}")),
        }
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(&options.authority, "authority")? {
        roots.add(authority).map_err(|error| refused("authority", &error))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
        .build()
        .map_err(|error| format!("the certificates of the authority cannot be used: {error}"))?;
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions
        .map_err(|error| format!("the CryptoProvider of the process cannot be used: {error}"))?
        .with_webpki_verifier(verifier);
    let Some((certificate, key)) = &options.identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate, "client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("the key of the client certificate cannot be read as PEM: {error}"))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| refused("client certificate", &error))
}

/// Returns the text of a certificate that rustls refuses: its own text calls each certificate a peer's.
fn refused(what: &str, error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(reason) => {
            format!("the {what} in PEM is not a valid certificate: {reason:?}")
        }
        other => format!("the {what} cannot be used: {other}"),
    }
}

/// Returns the name that a server's certificate must have.
///
/// # Errors
///
/// A text, if no certificate can have the name.
pub(crate) fn name_of(server: &str) -> Result<ServerName<'static>, String> {
    let host = server.rsplit_once(':').map_or(server, |(host, _port)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned())
        .map_err(|error| format!("{host:?} is not a host name or an address that a certificate can have: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_pem_is_named() {
        assert_eq!(config(&TlsOptions::new("nothing")).unwrap_err(), "the authority has no certificate in PEM");
    }

    #[test]
    fn a_broken_certificate_is_not_called_a_peers() {
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = config(&TlsOptions::new(broken)).unwrap_err();
        assert_eq!(error, "the authority in PEM is not a valid certificate: BadEncoding");
    }

    #[test]
    fn names_and_addresses_of_servers() {
        assert_eq!(name_of("zk1.example:2181").unwrap(), ServerName::try_from("zk1.example").unwrap());
        for address in ["127.0.0.1:2281", "[::1]:2281"] {
            assert!(matches!(name_of(address), Ok(ServerName::IpAddress(_))), "{address}");
        }
        assert!(name_of("a b:1").unwrap_err().contains("that a certificate can have"));
    }
}
