//! Access lists, and the identities of a connection.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;

use crate::wire::{Acl, ErrorCode};

pub(super) const READ: i32 = 1;
pub(super) const WRITE: i32 = 2;
pub(super) const CREATE: i32 = 4;
pub(super) const DELETE: i32 = 8;
pub(super) const ADMIN: i32 = 16;

/// An identity that a connection has proven.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    scheme: &'static str,
    id: String,
}

/// All identities of one connection. They end with it.
#[derive(Debug, Clone)]
pub(super) struct Identities {
    known: Vec<Identity>,
}

impl Identities {
    /// Creates the identities of a new connection: its address alone.
    pub(super) fn of_peer(address: IpAddr) -> Self {
        Self { known: vec![Identity { scheme: "ip", id: address.to_string() }] }
    }

    /// Adds the identity of valid credentials.
    ///
    /// # Errors
    /// [`ErrorCode::AuthFailed`] for a scheme the server does not know.
    pub(super) fn authenticate(&mut self, scheme: &str, secret: &[u8]) -> Result<(), ErrorCode> {
        match scheme {
            // The address is known already.
            "ip" => Ok(()),
            "digest" => {
                let identity = Identity { scheme: "digest", id: digest_id(secret) };
                if !self.known.contains(&identity) {
                    self.known.push(identity);
                }
                Ok(())
            }
            _ => Err(ErrorCode::AuthFailed),
        }
    }

    /// Returns the schemes, each with the connection's user in it.
    pub(super) fn users(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.known.iter().map(|who| {
            let user = match who.scheme {
                "digest" => who.id.split(':').next().unwrap_or_default(),
                _ => &who.id,
            };
            (who.scheme, user)
        })
    }

    /// Checks that `acl` gives one of the bits in `wanted`.
    ///
    /// # Errors
    /// [`ErrorCode::NoAuth`] if it does not.
    pub(super) fn check(&self, acl: &[Acl], wanted: i32) -> Result<(), ErrorCode> {
        let is_allowed = |entry: &Acl| {
            entry.perms & wanted != 0 && (is_anyone(entry) || self.known.iter().any(|who| who.matches(entry)))
        };
        if acl.iter().any(is_allowed) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    /// Returns the list as it is stored: checked, without duplicates, `auth` replaced by the identities of this
    /// connection.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidAcl`] for an empty list, an unknown scheme, a malformed id,
    /// or `auth` on a connection without credentials.
    pub(super) fn resolve(&self, acl: Vec<Acl>) -> Result<Vec<Acl>, ErrorCode> {
        let mut resolved: Vec<Acl> = Vec::new();
        let mut push = |entry: Acl| {
            if !resolved.contains(&entry) {
                resolved.push(entry);
            }
        };
        for entry in acl {
            if entry.scheme == "auth" {
                let mut authenticated = self.known.iter().filter(|who| who.scheme == "digest").peekable();
                if authenticated.peek().is_none() {
                    return Err(ErrorCode::InvalidAcl);
                }
                for who in authenticated {
                    push(Acl { perms: entry.perms, scheme: who.scheme.to_owned(), id: who.id.clone() });
                }
                continue;
            }
            let is_valid = is_anyone(&entry)
                || match entry.scheme.as_str() {
                    "digest" => entry.id.split(':').count() == 2,
                    "ip" => Network::parse(&entry.id).is_some(),
                    _ => false,
                };
            if !is_valid {
                return Err(ErrorCode::InvalidAcl);
            }
            push(entry);
        }
        if resolved.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(resolved) }
    }
}

impl Identity {
    fn matches(&self, entry: &Acl) -> bool {
        if self.scheme != entry.scheme {
            return false;
        }
        match self.scheme {
            "ip" => match (Network::parse(&entry.id), self.id.parse()) {
                (Some(network), Ok(address)) => network.contains(address),
                _ => false,
            },
            _ => self.id == entry.id,
        }
    }
}

/// Returns the list for a reader of the node that may not administer it.
pub(super) fn without_secrets(acl: &[Acl]) -> Vec<Acl> {
    let mut shown = acl.to_vec();
    for entry in shown.iter_mut().filter(|entry| entry.scheme == "digest") {
        if let Some((user, _)) = entry.id.split_once(':') {
            entry.id = format!("{user}:x");
        }
    }
    shown
}

fn is_anyone(entry: &Acl) -> bool {
    entry.scheme == "world" && entry.id == "anyone"
}

/// `user:base64(sha1("user:password"))`
fn digest_id(secret: &[u8]) -> String {
    let text = String::from_utf8_lossy(secret);
    let user = text.split(':').next().unwrap_or_default();
    format!("{user}:{}", STANDARD.encode(Sha1::from(text.as_bytes()).digest().bytes()))
}

/// An address, or `address/bits`.
#[derive(Debug, Clone, Copy)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let all_bits = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all_bits);
        (bits <= all_bits).then_some(Self { address, bits })
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(one), IpAddr::V4(two)) => (one.to_bits() ^ two.to_bits()).leading_zeros() >= self.bits,
            (IpAddr::V6(one), IpAddr::V6(two)) => (one.to_bits() ^ two.to_bits()).leading_zeros() >= self.bits,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
        Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    fn someone() -> Identities {
        Identities::of_peer(IpAddr::from([127, 0, 0, 1]))
    }

    #[test]
    fn digest_is_as_apache_makes_it() {
        // The example of Apache's documentation.
        assert_eq!(digest_id(b"super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }

    #[test]
    fn an_entry_allows_its_bits_to_those_it_names() {
        let mut user = someone();
        user.authenticate("digest", b"user:secret").unwrap();
        let id = digest_id(b"user:secret");
        for (entry, wanted, stranger_may, user_may) in [
            (acl(READ, "world", "anyone"), READ, true, true),
            (acl(READ, "world", "anyone"), WRITE, false, false),
            (acl(READ | ADMIN, "digest", &id), ADMIN, false, true),
            (acl(READ, "digest", &id), READ | ADMIN, false, true),
            (acl(WRITE, "digest", "user:other"), WRITE, false, false),
            (acl(WRITE, "ip", "127.0.0.1"), WRITE, true, true),
            (acl(WRITE, "ip", "127.0.0.0/8"), WRITE, true, true),
            (acl(WRITE, "ip", "126.0.0.0/8"), WRITE, false, false),
            (acl(WRITE, "ip", "0.0.0.0/0"), WRITE, true, true),
            (acl(WRITE, "ip", "127.0.0.2"), WRITE, false, false),
            (acl(WRITE, "ip", "::1"), WRITE, false, false),
        ] {
            let list = [entry];
            assert_eq!(someone().check(&list, wanted).is_ok(), stranger_may, "{list:?}");
            assert_eq!(user.check(&list, wanted).is_ok(), user_may, "{list:?}");
        }
    }

    #[test]
    fn auth_becomes_what_the_connection_is() {
        let mut user = someone();
        assert_eq!(user.resolve(vec![acl(31, "auth", "")]), Err(ErrorCode::InvalidAcl));
        user.authenticate("digest", b"user:secret").unwrap();
        user.authenticate("digest", b"user:secret").unwrap();
        let id = digest_id(b"user:secret");
        let twice = vec![acl(31, "auth", ""), acl(31, "auth", "ignored")];
        assert_eq!(user.resolve(twice), Ok(vec![acl(31, "digest", &id)]));
        assert_eq!(user.authenticate("sasl", b""), Err(ErrorCode::AuthFailed));
    }

    #[test]
    fn malformed_lists_are_refused() {
        for entry in [
            acl(31, "world", "someone"),
            acl(31, "nonsense", "x"),
            acl(31, "digest", "no-colon"),
            acl(31, "digest", "a:b:c"),
            acl(31, "ip", "localhost"),
            acl(31, "ip", "127.0.0.1/33"),
        ] {
            let shown = format!("{entry:?}");
            assert_eq!(someone().resolve(vec![entry]), Err(ErrorCode::InvalidAcl), "{shown}");
        }
        assert_eq!(someone().resolve(Vec::new()), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn secrets_are_hidden() {
        let list = [acl(1, "digest", "user:hash"), acl(1, "world", "anyone")];
        let shown = [acl(1, "digest", "user:x"), acl(1, "world", "anyone")];
        assert_eq!(without_secrets(&list), shown);
    }
}
