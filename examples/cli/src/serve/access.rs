//! Decides which requests are answered: the token, its cookie, and the header `Host`.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Uri, header};
use subtle::ConstantTimeEq as _;

/// The name of the cookie that has the token.
pub(crate) const COOKIE: &str = "curator_token";
/// The fewest characters of a token.
const SHORTEST: usize = 16;

/// A secret that a request has to show.
pub(crate) struct Token(String);

impl Token {
    /// Accepts a token that fits into a header, a cookie and an address.
    pub(crate) fn new(text: String) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if text.len() < SHORTEST {
            Err(format!("a token has at least {SHORTEST} characters, for example from `openssl rand -hex 16`"))
        } else if !text.bytes().all(is_plain) {
            Err("a token consists of the characters A-Z a-z 0-9 - . _ ~".to_owned())
        } else {
            Ok(Self(text))
        }
    }

    /// Compares in a time that does not depend on where the texts differ.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// The condition under which a request is answered.
#[derive(Debug)]
pub(crate) enum Access {
    /// It names a loopback address: a page of another origin, which a changed DNS answer directs here, does not.
    Loopback,
    Token(Token),
}

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Host,
    Token,
}

impl Access {
    /// Returns the condition for an address. Every address but a loopback one needs a token.
    pub(crate) fn new(listen: SocketAddr, token: Option<String>) -> Result<Self, String> {
        match token {
            Some(token) => Token::new(token).map(Self::Token),
            None if listen.ip().is_loopback() => Ok(Self::Loopback),
            None => Err(format!("{listen} is not a loopback address: give a --token, or set CURATOR_TOKEN")),
        }
    }

    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        match self {
            Self::Loopback => names_loopback(uri, headers).then_some(()).ok_or(Refusal::Host),
            Self::Token(token) => {
                let has_it = bearer(headers).into_iter().chain(cookies(headers)).any(|shown| token.is(shown));
                has_it.then_some(()).ok_or(Refusal::Token)
            }
        }
    }
}

fn names_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    is_loopback(host) && uri.authority().is_none_or(|authority| is_loopback(authority.as_str()))
}

/// Judges a host with or without a port. The port may be a tunnel's.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(_, port)| is_port(port)).map(|(name, _)| name),
        None => {
            let colon = host.find(':').unwrap_or(host.len());
            is_port(&host[colon..]).then_some(&host[..colon])
        }
    };
    name.is_some_and(|name| {
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn check(access: &Access, uri: &str, pairs: &[(HeaderName, &'static str)]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_static(value));
        }
        access.check(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn only_loopback_addresses_need_no_token() {
        for (listen, token, is_fine) in [
            ("127.0.0.1:0", None, true),
            ("[::1]:80", None, true),
            ("0.0.0.0:80", None, false),
            ("[::]:80", None, false),
            ("192.0.2.1:80", None, false),
            ("0.0.0.0:80", Some(TOKEN), true),
            ("127.0.0.1:0", Some("short"), false),
            ("127.0.0.1:0", Some("with a space in it"), false),
        ] {
            let access = Access::new(listen.parse().unwrap(), token.map(ToOwned::to_owned));
            assert_eq!(access.is_ok(), is_fine, "{listen} {token:?}: {access:?}");
        }
    }

    #[test]
    fn without_a_token_the_host_is_a_loopback_address() {
        for (host, is_fine) in [
            ("localhost", true),
            ("LocalHost:8080", true),
            ("127.0.0.1:9", true),
            ("127.9.9.9", true),
            ("[::1]", true),
            ("[::1]:8080", true),
            ("evil.example", false),
            ("evil.example:8080", false),
            ("localhost.evil.example", false),
            ("localhost:evil", false),
            ("127.0.0.1.evil.example", false),
            ("[::1].evil.example", false),
            ("[::1", false),
            ("localhost@evil.example", false),
            ("", false),
        ] {
            let checked = check(&Access::Loopback, "/", &[(header::HOST, host)]);
            assert_eq!(checked.is_ok(), is_fine, "{host}");
        }
        assert_eq!(check(&Access::Loopback, "/", &[]), Err(Refusal::Host));
        let twice = [(header::HOST, "localhost"), (header::HOST, "evil.example")];
        assert_eq!(check(&Access::Loopback, "/", &twice), Err(Refusal::Host));
        let proxied = check(&Access::Loopback, "http://evil.example/", &[(header::HOST, "localhost")]);
        assert_eq!(proxied, Err(Refusal::Host));
    }

    #[test]
    fn the_token_comes_in_a_header_or_a_cookie() {
        let access = Access::Token(Token::new(TOKEN.to_owned()).unwrap());
        for (name, value, is_fine) in [
            (header::AUTHORIZATION, "Bearer 0123456789abcdef", true),
            (header::AUTHORIZATION, "bearer 0123456789abcdef", true),
            (header::AUTHORIZATION, "Basic 0123456789abcdef", false),
            (header::AUTHORIZATION, "Bearer 0123456789abcdeF", false),
            (header::AUTHORIZATION, "Bearer 0123456789abcdef0", false),
            (header::AUTHORIZATION, "Bearer", false),
            (header::COOKIE, "a=b; curator_token=0123456789abcdef", true),
            (header::COOKIE, "curator_token=wrong", false),
            (header::COOKIE, "curator_token=wrong; curator_token=0123456789abcdef", true),
            (header::COOKIE, "xcurator_token=0123456789abcdef", false),
            (header::HOST, "localhost", false),
        ] {
            assert_eq!(check(&access, "/", &[(name, value)]).is_ok(), is_fine, "{value}");
        }
        assert_eq!(format!("{access:?}"), "Token(Token)");
    }
}
