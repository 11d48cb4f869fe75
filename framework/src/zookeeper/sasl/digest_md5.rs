//! The client's side of SASL `DIGEST-MD5` (RFC 2831), without I/O.

use std::fmt;

use async_trait::async_trait;
use md5::{Digest as _, Md5};

use super::{SaslConversation, SaslError, SaslMechanism, SaslServer};

const SERVICE: &str = "zookeeper/zk-sasl-md5";

/// The user of a login by SASL, mechanism `DIGEST-MD5`. Access control lists name that user with the scheme `sasl`.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslDigest {
    user: String,
    password: String,
}

impl SaslDigest {
    /// Creates the login of a user with a password.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }

    /// Returns the conversation behind the first token, which is empty.
    pub(crate) fn log_in(&self, nonce: String) -> DigestMd5 {
        DigestMd5 { digest: self.clone(), nonce, proof: None }
    }
}

impl fmt::Debug for SaslDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslDigest").field("user", &self.user).finish_non_exhaustive()
    }
}

#[async_trait]
impl SaslMechanism for SaslDigest {
    fn name(&self) -> &'static str {
        "DIGEST-MD5"
    }

    async fn start(&self, server: SaslServer) -> Result<(Vec<u8>, Box<dyn SaslConversation>), SaslError> {
        Ok((Vec::new(), Box::new(self.log_in(format!("{:016x}", server.nonce())))))
    }
}

/// A login: a response to the challenge, and a proof that the server knows the password.
pub(crate) struct DigestMd5 {
    digest: SaslDigest,
    nonce: String,
    /// The proof that the server must send. `None` before the challenge.
    proof: Option<String>,
}

#[async_trait]
impl SaslConversation for DigestMd5 {
    async fn step(&mut self, token: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError> {
        let token = token.ok_or_else(|| "the server has no login by SASL, or none for this user".to_owned());
        token.and_then(|token| self.answer(token)).map_err(SaslError::Protocol)
    }
}

impl DigestMd5 {
    /// Returns the response to the server's token; `None` if the login is complete.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong with the token.
    pub(crate) fn answer(&mut self, token: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let token = std::str::from_utf8(token).map_err(|_| "the server's token is not UTF-8".to_owned())?;
        match &self.proof {
            None => {
                let (answer, proof) = self.response(token)?;
                self.proof = Some(proof);
                Ok(Some(answer))
            }
            Some(proof) if value(token, "rspauth").as_ref() == Some(proof) => Ok(None),
            Some(_) => Err("the server does not know the password".to_owned()),
        }
    }

    /// Returns the response to a challenge, and the proof that the server must send.
    fn response(&self, challenge: &str) -> Result<(Vec<u8>, String), String> {
        let wanted = |name: &str| value(challenge, name).ok_or_else(|| format!("the challenge has no {name}"));
        let server_nonce = wanted("nonce")?;
        let realm = value(challenge, "realm").unwrap_or_default();
        if value(challenge, "qop").is_some_and(|offered| !offered.split(',').any(|qop| qop.trim() == "auth")) {
            return Err("the server does not offer the quality of protection \"auth\"".to_owned());
        }
        let Self { digest: SaslDigest { user, password }, nonce, .. } = self;
        let secret = Md5::digest([encoded(user), encoded(&realm), encoded(password)].join(&b':'));
        let session = hex(&[&secret[..], format!(":{server_nonce}:{nonce}").as_bytes()].concat());
        let proof = |method: &str| {
            let action = hex(format!("{method}:{SERVICE}").as_bytes());
            hex(format!("{session}:{server_nonce}:00000001:{nonce}:auth:{action}").as_bytes())
        };
        let answer = format!(
            "charset=utf-8,username={},realm={},nonce={},nc=00000001,cnonce={},digest-uri={},maxbuf=65536,response={},qop=auth",
            quoted(user),
            quoted(&realm),
            quoted(&server_nonce),
            quoted(nonce),
            quoted(SERVICE),
            proof("AUTHENTICATE"),
        );
        Ok((answer.into_bytes(), proof("")))
    }
}

/// Encodes a part of the secret in ISO-8859-1 if that is possible, else in UTF-8, as RFC 2831 and Java do.
fn encoded(part: &str) -> Vec<u8> {
    let latin: Option<_> = part.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    latin.unwrap_or_else(|| part.as_bytes().to_vec())
}

fn hex(of: &[u8]) -> String {
    Md5::digest(of).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the value of a directive in `name=value,name="value",…`.
fn value(directives: &str, name: &str) -> Option<String> {
    let mut rest = directives;
    loop {
        let (key, behind) = rest.split_once('=')?;
        let (value, next) = match behind.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = behind.find(',').unwrap_or(behind.len());
                (behind[..end].trim().to_owned(), &behind[end..])
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = next.trim_start_matches([',', ' ']);
    }
}

/// Returns the text up to the closing quote, and the rest behind it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &[u8] =
        b"realm=\"zk-sasl-md5\",nonce=\"OA6MG9tEQGm2hh\",charset=utf-8,algorithm=md5-sess,qop=\"auth,auth-int\"";

    fn login() -> DigestMd5 {
        SaslDigest::new("curator", "secret").log_in("0123456789abcdef".to_owned())
    }

    #[test]
    fn directives_are_found_in_any_order() {
        let text = r#"a="x,y=\"z\"",nonce="n", qop=auth ,last=1"#;
        assert_eq!(value(text, "a").as_deref(), Some("x,y=\"z\""));
        assert_eq!(value(text, "QOP").as_deref(), Some("auth"));
        assert_eq!(value(text, "last").as_deref(), Some("1"));
        assert_eq!(value(text, "none"), None);
    }

    /// Computed by Python from the formulas of RFC 2831.
    #[test]
    fn the_answer_is_the_one_of_the_standard() {
        let mut login = login();
        let answer = String::from_utf8(login.answer(CHALLENGE).unwrap().unwrap()).unwrap();
        assert_eq!(value(&answer, "response").as_deref(), Some(RESPONSE));
        assert_eq!(value(&answer, "username").as_deref(), Some("curator"));
        assert_eq!(login.answer(format!("rspauth={RSPAUTH}").as_bytes()), Ok(None));
    }

    /// Computed by Python from the formulas of RFC 2831.
    #[test]
    fn each_part_of_the_secret_has_its_own_encoding() {
        for (user, realm, password, response, rspauth) in [
            ("jürgen", "zk-sasl-md5", "wörd", "0801d1e6e08f1db364ed3915878dc0d7", "0b2acaa66802048449ac7bcd89089e21"),
            ("curator", "zk-sasl-md5", "€uro", "5c0cce56e7f721243c64ded6c88ee660", "ffa4683abbd0e5ad9ce649b7e48b063f"),
            ("jürgen", "zk-sasl-md5", "密码", "512bc8aaa567716ebda205551175c369", "800d707a23d08998bee8222091052027"),
            ("łukasz", "zürich", "wörd", "3fe22db2631cae12e28401fa5618cc03", "44a5a8b5adc8383a5e772ce91bcb7384"),
        ] {
            let mut login = SaslDigest::new(user, password).log_in("0123456789abcdef".to_owned());
            let challenge = format!("realm=\"{realm}\",nonce=\"OA6MG9tEQGm2hh\",charset=utf-8,qop=\"auth\"");
            let answer = String::from_utf8(login.answer(challenge.as_bytes()).unwrap().unwrap()).unwrap();
            assert_eq!(value(&answer, "response").as_deref(), Some(response), "{user}, {realm}, {password}");
            assert_eq!(value(&answer, "username").as_deref(), Some(user));
            assert_eq!(login.answer(format!("rspauth={rspauth}").as_bytes()), Ok(None));
        }
    }

    #[test]
    fn a_server_that_cannot_prove_itself_is_refused() {
        let mut login = login();
        login.answer(CHALLENGE).unwrap();
        assert_eq!(login.answer(b"rspauth=0").unwrap_err(), "the server does not know the password");
    }

    #[test]
    fn a_bad_challenge_is_named() {
        for (challenge, reason) in [
            (&b"realm=\"r\""[..], "the challenge has no nonce"),
            (b"nonce=\"n\",qop=\"auth-conf\"", "the server does not offer the quality of protection \"auth\""),
            (b"nonce=\"unclosed", "the challenge has no nonce"),
            (b"\xff", "the server's token is not UTF-8"),
        ] {
            assert_eq!(login().answer(challenge).unwrap_err(), reason);
        }
    }

    const RESPONSE: &str = "ad5fd19db92ab3bcdda3db825b88dae4";
    const RSPAUTH: &str = "4e0ef10b620a45814a4a0d87cd2c8396";
}
