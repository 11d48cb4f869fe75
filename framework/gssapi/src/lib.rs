#![doc = include_str!("../README.md")]
//!
//! # Where the credentials come from
//!
//! MIT's library takes them from the environment, at each new connection:
//!
//! | variable | content |
//! | --- | --- |
//! | `KRB5_CLIENT_KTNAME` | a keytab: the library gets tickets by itself, and new ones when they expire |
//! | `KRB5CCNAME` | a cache of tickets, which `kinit` or another program renews |
//! | `KRB5_CONFIG` | the configuration, by default `/etc/krb5.conf` |
//!
//! With a keytab and `KRB5CCNAME=MEMORY:` a program needs no `kinit`. An expired ticket matters at the next connection alone:
//! an open connection stays.
//!
//! # The name of the server
//!
//! It is `zookeeper/<host>`, with the host as in the connect string, in the default realm. So the connect string must have
//! the names for which the servers have keys. Java's client looks the address up and takes the name that it finds
//! (`zookeeper.sasl.client.canonicalize.hostname`); this crate does not.
//!
//! # Errors
//!
//! | what is wrong | error of an operation |
//! | --- | --- |
//! | no ticket and no keytab, an expired ticket, a wrong key, an unknown principal of the client | [`AuthFailed`](curator_framework::Error::AuthFailed), at once |
//! | no KDC answers or is found, the KDC does not know the server or its realm | `ConnectionLoss`; the client tries the next server, and again |
//!
//! The cause has the text of the library, such as `Cannot contact any KDC for realm 'EXAMPLE.COM'`.
//!
//! # Differences from Java's client
//!
//! Both sides prove themselves by default: Java's client does not ask the server to. See
//! [`without_mutual_authentication`](Gssapi::without_mutual_authentication).

use std::fmt;

use async_trait::async_trait;
use cross_krb5::{ClientCtx, InitiateFlags, K5Ctx as _, PendingClientCtx, Step};
use curator_framework::{SaslConversation, SaslError, SaslMechanism, SaslServer};
use tokio::sync::oneshot;

/// The bit of the offer for a connection without a security layer, which is the only one that ZooKeeper has.
const NO_LAYER: u8 = 1;
/// The choice of no security layer, ahead of the name to act for.
const CHOICE: [u8; 4] = [NO_LAYER, 0, 0, 0];

/// The library's text ahead of the reason in brackets.
const UNSPECIFIED: &str = "Unspecified GSS failure.  Minor code may provide more information (";

/// A login by Kerberos.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gssapi {
    principal: Option<String>,
    service: String,
    realm: Option<String>,
    server_principal: Option<String>,
    is_mutual: bool,
}

impl Default for Gssapi {
    fn default() -> Self {
        Self::new()
    }
}

impl Gssapi {
    /// Creates a login with the credentials of the environment, as their default principal.
    #[must_use]
    pub fn new() -> Self {
        let service = "zookeeper".to_owned();
        Self { principal: None, service, realm: None, server_principal: None, is_mutual: true }
    }

    /// Sets the principal of the client: `ada@EXAMPLE.COM`. Default: the one of the ticket cache or the keytab.
    #[must_use]
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = Some(principal.into());
        self
    }

    /// Sets the first part of the servers' principals, `zookeeper` by default: Java's `zookeeper.sasl.client.username`.
    #[must_use]
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = service.into();
        self
    }

    /// Sets the realm of the servers, if it is not the default realm: Java's `zookeeper.server.realm`.
    #[must_use]
    pub fn realm(mut self, realm: impl Into<String>) -> Self {
        self.realm = Some(realm.into());
        self
    }

    /// Sets one principal for all servers, on every host: Java's `zookeeper.server.principal`.
    #[must_use]
    pub fn server_principal(mut self, principal: impl Into<String>) -> Self {
        self.server_principal = Some(principal.into());
        self
    }

    /// Does not ask the server to prove that it has its key, as Java's client. A login then takes two round trips, not three.
    #[must_use]
    pub const fn without_mutual_authentication(mut self) -> Self {
        self.is_mutual = false;
        self
    }

    fn principal_of(&self, host: &str) -> String {
        match (&self.server_principal, &self.realm) {
            (Some(principal), _) => principal.clone(),
            (None, Some(realm)) => format!("{}/{host}@{realm}", self.service),
            (None, None) => format!("{}/{host}", self.service),
        }
    }
}

#[async_trait]
impl SaslMechanism for Gssapi {
    fn name(&self) -> &str {
        "GSSAPI"
    }

    async fn start(&self, server: SaslServer) -> Result<(Vec<u8>, Box<dyn SaslConversation>), SaslError> {
        let target = self.principal_of(server.host());
        let (principal, is_mutual) = (self.principal.clone(), self.is_mutual);
        let mut flags = InitiateFlags::DISABLE_CONFIDENTIALITY;
        flags.set(InitiateFlags::DISABLE_MUTUAL_AUTH, !is_mutual);
        let (begun, beginning) = oneshot::channel();
        // A thread of its own, for which the end of a runtime does not wait: the library may ask a silent KDC for minutes.
        let begin = move || {
            let context = ClientCtx::new(flags, principal.as_deref(), &target, None);
            let context = context.map(|(pending, token)| (pending, token.to_vec()));
            // Without a receiver the connection is gone.
            let _gone = begun.send(context.map_err(|error| failed(&*error, &target)));
        };
        std::thread::Builder::new()
            .name("curator-gssapi".to_owned())
            .spawn(begin)
            .map_err(|error| SaslError::Unavailable(format!("no thread: {error}")))?;
        let ended = |_| SaslError::Unavailable("the library has panicked".to_owned());
        let (pending, token) = beginning.await.map_err(ended)??;
        let state = if is_mutual { State::Establishing(pending) } else { State::Offered(establish(pending)?) };
        Ok((token, Box::new(Conversation { state, principal: self.principal.clone().unwrap_or_default() })))
    }
}

/// Ends the client's side of a context in which the server does not prove itself.
fn establish(pending: PendingClientCtx) -> Result<ClientCtx, SaslError> {
    match pending.step(&[]).map_err(|error| SaslError::Protocol(error.to_string()))? {
        Step::Finished((context, _)) => Ok(context),
        Step::Continue(_) => Err(SaslError::Protocol("the library asks for a token of the server".to_owned())),
    }
}

struct Conversation {
    state: State,
    /// The name to act for. Servers ignore it.
    principal: String,
}

enum State {
    /// The server must prove itself.
    Establishing(PendingClientCtx),
    /// The server offers security layers.
    Offered(ClientCtx),
    /// The server accepts the choice.
    Chosen,
    Failed,
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("principal", &self.principal).finish_non_exhaustive()
    }
}

#[async_trait]
impl SaslConversation for Conversation {
    async fn step(&mut self, token: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError> {
        match (std::mem::replace(&mut self.state, State::Failed), token) {
            (State::Establishing(pending), Some(token)) => {
                let (state, answer) =
                    match pending.step(token).map_err(|error| SaslError::Protocol(error.to_string()))? {
                        Step::Finished((context, token)) => {
                            (State::Offered(context), token.map(|token| token.to_vec()).unwrap_or_default())
                        }
                        Step::Continue((pending, token)) => (State::Establishing(pending), token.to_vec()),
                    };
                self.state = state;
                Ok(Some(answer))
            }
            (State::Offered(mut context), Some(token)) => {
                let offer = context.unwrap(token).map_err(|error| SaslError::Protocol(error.to_string()))?;
                if offer.first().is_none_or(|layers| layers & NO_LAYER == 0) {
                    return Err(SaslError::Protocol(
                        "the server wants a security layer, which ZooKeeper does not have".to_owned(),
                    ));
                }
                let choice = [&CHOICE[..], self.principal.as_bytes()].concat();
                let choice = context.wrap(false, &choice).map_err(|error| SaslError::Protocol(error.to_string()))?;
                self.state = State::Chosen;
                Ok(Some(choice.to_vec()))
            }
            (State::Chosen, None) => Ok(None),
            (_, None) => {
                Err(SaslError::Protocol("the server has no login by SASL, or none for this client".to_owned()))
            }
            (State::Chosen | State::Failed, Some(_)) => {
                Err(SaslError::Protocol("the server has sent a token too many".to_owned()))
            }
        }
    }
}

/// Returns the error of a login that the library cannot start.
fn failed(error: &(dyn std::error::Error + Send + Sync + 'static), target: &str) -> SaslError {
    let text = error.to_string();
    // The general part says nothing.
    let inner = text.strip_prefix(UNSPECIFIED).and_then(|inner| inner.strip_suffix(')'));
    let text = format!("{}, for a ticket to {target}", inner.unwrap_or(&text));
    if is_of_the_kdc(error) { SaslError::Unavailable(text) } else { SaslError::Credentials(text) }
}

/// Returns whether the error says nothing of the client's credentials: no KDC answers, or it does not know the server.
#[cfg(unix)]
fn is_of_the_kdc(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    /// `KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN`, `KRB5KDC_ERR_SVC_UNAVAILABLE`, `KRB5_REALM_UNKNOWN` (without an address in the
    /// configuration and in DNS), `KRB5_KDC_UNREACH`, `KRB5_REALM_CANT_RESOLVE`.
    const OF_THE_KDC: [i32; 5] = [-1_765_328_377, -1_765_328_355, -1_765_328_230, -1_765_328_228, -1_765_328_164];
    let error = error.downcast_ref::<libgssapi::error::Error>();
    error.is_some_and(|error| OF_THE_KDC.contains(&i32::from_ne_bytes(error.minor.to_ne_bytes())))
}

/// Returns whether the error says nothing of the client's credentials. Windows does not tell.
#[cfg(not(unix))]
fn is_of_the_kdc(_error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_name_is_the_host_of_the_connect_string() {
        let gssapi = Gssapi::new();
        assert_eq!(gssapi.principal_of("zk1.example"), "zookeeper/zk1.example");
        let gssapi = gssapi.service("zk").realm("EXAMPLE.COM");
        assert_eq!(gssapi.principal_of("zk1.example"), "zk/zk1.example@EXAMPLE.COM");
        assert_eq!(gssapi.server_principal("zk/all@EXAMPLE.COM").principal_of("zk1.example"), "zk/all@EXAMPLE.COM");
    }
}
