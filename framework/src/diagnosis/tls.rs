//! A look at a server by TLS, for its reasons.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::sync::oneshot;

use crate::secure::TlsOptions;
use crate::zookeeper::zookeeper_async::handshake::{close_request, connect_request};

/// What is made of the options, or what is wrong with them.
pub(crate) fn config(options: &TlsOptions) -> Result<ClientConfig, String> {
    if CryptoProvider::get_default().is_none() {
        // Without one, a program whose crates ask for several gets a panic. Somebody else may have been first.
        let _other = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let certificates = |pem: &str, what: &str| {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        match all {
            Ok(all) if all.is_empty() => Err(format!("the {what} has no certificate in PEM")),
            Ok(all) => Ok(all),
            Err(error) => Err(format!("the {what}: {error}")),
        }
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(&options.authority, "authority")? {
        roots.add(authority).map_err(|error| format!("the authority: {error}"))?;
    }
    let verifier =
        WebPkiServerVerifier::builder(roots.into()).build().map_err(|error| format!("the authority: {error}"))?;
    let builder = ClientConfig::builder().with_webpki_verifier(verifier);
    let Some((certificate, key)) = &options.identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate, "client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("the client certificate's key: {error}"))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| format!("the client certificate: {error}"))
}

/// The name that a server's certificate must have.
pub(crate) fn name_of(server: &str) -> Result<ServerName<'static>, String> {
    let host = server.rsplit_once(':').map_or(server, |(host, _port)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(|error| format!("{host:?} cannot be in a certificate: {error}"))
}

/// What is wrong with a server, if something is.
pub(super) async fn shake_hands(
    options: &TlsOptions,
    server: &str,
    addresses: Vec<SocketAddr>,
    session_timeout: Duration,
    until: tokio::time::Instant,
) -> Option<String> {
    let (config, name) = match (config(options), name_of(server)) {
        (Ok(config), Ok(name)) => (Arc::new(config), name),
        (Err(reason), _) | (_, Err(reason)) => return Some(reason),
    };
    let until = until.into_std();
    let (answer, answered) = oneshot::channel();
    // It ends by itself in that time, whether anybody waits for it or not. A blocking task would hold up the end of the
    // runtime meanwhile.
    let talking = std::thread::Builder::new().name("tls-diagnosis".to_owned()).spawn(move || {
        let mut found = None;
        for address in addresses {
            match talk(address, &config, &name, session_timeout, until) {
                Ok(()) => {
                    found = None;
                    break;
                }
                Err(error) => found = Some(reason(&error)),
            }
        }
        let _gone = answer.send(found);
    });
    match talking {
        Ok(_thread) => answered.await.unwrap_or_else(|_panicked| Some("the look at it failed".to_owned())),
        Err(error) => Some(error.to_string()),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            format!("the server closed the connection in the TLS handshake, or right after it: {error}")
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in the TLS handshake".to_owned(),
        io::ErrorKind::InvalidData => format!("TLS: {error}"),
        _ => error.to_string(),
    }
}

/// Opens a session and closes it again: a server says only behind the handshake that it does not like our certificate.
fn talk(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    session_timeout: Duration,
    until: Instant,
) -> io::Result<()> {
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    let timer = stream.try_clone()?;
    let renew = || {
        let left = Some(left()?);
        timer.set_read_timeout(left).and_then(|()| timer.set_write_timeout(left))
    };
    renew()?;
    let mut tls = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
    let mut stream = rustls::Stream::new(&mut tls, &mut stream);
    stream.write_all(&connect_request(session_timeout))?;
    let mut length = [0; 4];
    renew()?;
    stream.read_exact(&mut length)?;
    renew()?;
    let mut response = vec![0; (u32::from_be_bytes(length) as usize).min(1024)];
    stream.read_exact(&mut response)?;
    renew()?;
    stream.write_all(&close_request())?;
    renew()?;
    // The end of the stream is the server's word that it has read the close; how it ends does not matter.
    let _read = stream.read(&mut length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pem_is_named() {
        assert_eq!(config(&TlsOptions::new("nothing")).unwrap_err(), "the authority has no certificate in PEM");
    }

    #[test]
    fn names_and_addresses_of_servers() {
        assert_eq!(name_of("zk1.example:2181").unwrap(), ServerName::try_from("zk1.example").unwrap());
        for address in ["127.0.0.1:2281", "[::1]:2281"] {
            assert!(matches!(name_of(address), Ok(ServerName::IpAddress(_))), "{address}");
        }
        assert!(name_of("a b:1").unwrap_err().contains("cannot be in a certificate"));
    }
}
