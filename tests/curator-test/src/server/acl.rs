//! Access lists, and the identities of a connection.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;

use super::core::Failure;
use crate::wire::{Acl, DecodeError, ErrorCode, Reader};

pub(super) const READ: i32 = 1;
pub(super) const WRITE: i32 = 2;
pub(super) const CREATE: i32 = 4;
pub(super) const DELETE: i32 = 8;
pub(super) const ADMIN: i32 = 16;

/// An entry of an access list, as requested. Some clients write each empty string as null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requested {
    perms: i32,
    scheme: Option<String>,
    id: Option<String>,
}

impl Requested {
    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (perms, scheme, id) = (body.int()?, body.optional_string()?, body.optional_string()?);
        Ok(Self { perms, scheme: scheme.map(str::to_owned), id: id.map(str::to_owned) })
    }

    /// Returns whether Apache can compare this entry with an earlier one: it fails on a null.
    fn can_be_compared(&self, other: &Self) -> bool {
        self.perms != other.perms || self.scheme.is_some() && (self.scheme != other.scheme || self.id.is_some())
    }
}

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

    /// Adds the identity of valid credentials. Null is not the empty text.
    ///
    /// # Errors
    /// [`ErrorCode::AuthFailed`] for a scheme the server does not know, and for a digest of null.
    pub(super) fn authenticate(&mut self, scheme: Option<&str>, secret: Option<&[u8]>) -> Result<(), ErrorCode> {
        match (scheme, secret) {
            // The address is known already.
            (Some("ip"), _) => Ok(()),
            (Some("digest"), Some(secret)) => {
                let identity = Identity { scheme: "digest", id: digest_id(secret) };
                if !self.known.contains(&identity) {
                    self.known.push(identity);
                }
                Ok(())
            }
            _ => Err(ErrorCode::AuthFailed),
        }
    }

    /// Adds the identity of a login by SASL.
    pub(super) fn logged_in(&mut self, user: Option<String>) {
        self.known.extend(user.map(|id| Identity { scheme: "sasl", id }));
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

    /// Returns the list as it is stored: checked, without duplicates, then `auth` replaced by the identities of this
    /// connection.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidAcl`] for an empty list, an unknown scheme, a malformed id,
    /// or `auth` on a connection without credentials. [`Failure::Unreadable`] for a null id of another scheme,
    /// and for a null that Apache would compare.
    pub(super) fn resolve(&self, acl: Vec<Requested>) -> Result<Vec<Acl>, Failure> {
        let mut unique: Vec<Requested> = Vec::new();
        for entry in acl {
            if !unique.iter().all(|other| entry.can_be_compared(other)) {
                return Err(Failure::Unreadable);
            }
            if !unique.contains(&entry) {
                unique.push(entry);
            }
        }
        let mut resolved = Vec::new();
        for Requested { perms, scheme, id } in unique {
            let entries = match scheme.as_deref() {
                Some("auth") => self.authenticated(perms),
                Some(scheme @ ("world" | "digest" | "ip")) => {
                    let entry = Acl { perms, scheme: scheme.to_owned(), id: id.ok_or(Failure::Unreadable)? };
                    is_valid(&entry).then_some(entry).into_iter().collect()
                }
                _ => Vec::new(),
            };
            if entries.is_empty() {
                return Err(ErrorCode::InvalidAcl.into());
            }
            resolved.extend(entries);
        }
        if resolved.is_empty() { Err(ErrorCode::InvalidAcl.into()) } else { Ok(resolved) }
    }

    /// Returns an entry for each identity that has proven itself by credentials.
    fn authenticated(&self, perms: i32) -> Vec<Acl> {
        let proven = self.known.iter().filter(|who| who.scheme != "ip");
        proven.map(|who| Acl { perms, scheme: who.scheme.to_owned(), id: who.id.clone() }).collect()
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

fn is_valid(entry: &Acl) -> bool {
    match entry.scheme.as_str() {
        // As Java splits: empty parts at the end do not count.
        "digest" => entry.id.trim_end_matches(':').split(':').count() == 2,
        "ip" => Network::parse(&entry.id).is_some(),
        _ => is_anyone(entry),
    }
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

/// An address, or `address/bits`. Apache knows IPv4 only.
#[derive(Debug, Clone, Copy)]
struct Network {
    address: Ipv4Addr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        // Java's numbers have a sign and zeroes in front.
        let number = |text: &str, max: i32| text.parse().ok().filter(|number: &i32| (0..=max).contains(number));
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, number(bits, 32)?),
            None => (text, 32),
        };
        let mut octets = Vec::new();
        for part in address.split('.') {
            octets.push(u8::try_from(number(part, 255)?).ok()?);
        }
        let octets: [u8; 4] = octets.try_into().ok()?;
        Some(Self { address: octets.into(), bits: bits.unsigned_abs() })
    }

    const fn contains(&self, other: Ipv4Addr) -> bool {
        (self.address.to_bits() ^ other.to_bits()).leading_zeros() >= self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
        Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    fn requested(perms: i32, scheme: &str, id: &str) -> Requested {
        Requested { perms, scheme: Some(scheme.to_owned()), id: Some(id.to_owned()) }
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
        user.authenticate(Some("digest"), Some(b"user:secret")).unwrap();
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
            (acl(WRITE, "ip", "127.0.0.1/-1"), WRITE, false, false),
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
        assert_eq!(user.resolve(vec![requested(31, "auth", "")]), Err(ErrorCode::InvalidAcl.into()));
        user.authenticate(Some("digest"), Some(b"user:secret")).unwrap();
        user.authenticate(Some("digest"), Some(b"user:secret")).unwrap();
        let id = digest_id(b"user:secret");
        let null = Requested { perms: 31, scheme: Some("auth".to_owned()), id: None };
        let one = acl(31, "digest", &id);
        let twice = vec![requested(31, "auth", ""), requested(31, "auth", "")];
        assert_eq!(user.resolve(twice), Ok(vec![one.clone()]));
        let differing = vec![null.clone(), requested(31, "auth", "ignored")];
        assert_eq!(user.resolve(differing), Ok(vec![one.clone(), one]));
        assert_eq!(user.resolve(vec![null.clone(), null]), Err(Failure::Unreadable));
        for (scheme, secret) in [(Some("sasl"), Some(&b""[..])), (Some("digest"), None), (None, Some(b"user:secret"))] {
            assert_eq!(user.authenticate(scheme, secret), Err(ErrorCode::AuthFailed));
        }
    }

    #[test]
    fn malformed_lists_are_refused() {
        for entry in [
            requested(31, "world", "someone"),
            requested(31, "nonsense", "x"),
            requested(31, "digest", "no-colon"),
            requested(31, "digest", "a:b:c"),
            requested(31, "ip", "localhost"),
            requested(31, "ip", "127.0.0.1/33"),
            requested(31, "ip", "::1"),
            Requested { perms: 31, scheme: None, id: None },
            Requested { perms: 31, scheme: Some("nonsense".to_owned()), id: None },
        ] {
            let shown = format!("{entry:?}");
            assert_eq!(someone().resolve(vec![entry]), Err(ErrorCode::InvalidAcl.into()), "{shown}");
        }
        assert_eq!(someone().resolve(Vec::new()), Err(ErrorCode::InvalidAcl.into()));
        for scheme in ["world", "digest", "ip"] {
            let null = Requested { perms: 31, scheme: Some(scheme.to_owned()), id: None };
            assert_eq!(someone().resolve(vec![null]), Err(Failure::Unreadable), "{scheme}");
        }
    }

    #[test]
    fn secrets_are_hidden() {
        let list = [acl(1, "digest", "user:hash"), acl(1, "world", "anyone")];
        let shown = [acl(1, "digest", "user:x"), acl(1, "world", "anyone")];
        assert_eq!(without_secrets(&list), shown);
    }
}
