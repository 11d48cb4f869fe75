//! The trait of all that a node holds for its owner, and fencing tokens.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use curator_framework::{LossReason, Zxid};

/// Something that is held by a node, and can be lost: a lock, a lease, a leadership, an item of a partition, a barrier, a
/// membership. The types that implement it have these methods themselves, so only generic code imports the trait.
///
/// # Examples
///
/// ```
/// use curator_recipes::Held;
/// use tokio_util::sync::CancellationToken;
///
/// /// Returns a token that is cancelled when `held` is lost.
/// fn cancelled_at_loss(held: impl Held + Send + Sync + 'static) -> CancellationToken {
///     let token = CancellationToken::new();
///     let lost = token.clone();
///     tokio::spawn(async move {
///         println!("lost: {}", held.lost().await);
///         lost.cancel();
///     });
///     token
/// }
/// ```
pub trait Held: sealed::Sealed {
    /// The error type that [`verify`](Self::verify) returns.
    type Error: Error + Send + Sync + 'static;

    /// Returns whether it is certainly held now. Local, no request. The first call after the machine has slept is right
    /// too.
    fn is_held(&self) -> bool;

    /// Returns how long it is certainly held if the server sends nothing more; zero if it is not held.
    fn remaining(&self) -> Duration;

    /// Resolves with the reason when it is lost, at once if it is. Never resolves after a release that came first.
    fn lost(&self) -> impl Future<Output = LossReason> + Send;

    /// Asks the leader whether it is held: for the moment before a step that cannot be undone.
    ///
    /// # Errors
    ///
    /// It is lost or was released, or no server has answered.
    fn verify(&self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns the fencing token.
    fn token(&self) -> FencingToken;
}

/// A number that grows with each exclusive grant. Send it to the resource with each write. A resource that refuses a
/// smaller token than one it has seen is safe from a holder that does not know of its loss.
///
/// It is the `czxid` of the node, then the number of the pass within the node. The pass is 0 until one node serves
/// several holders of a process. Tokens are compared in that order, and so are their texts, which have a fixed width.
///
/// ```
/// use curator_framework::Zxid;
/// use curator_recipes::FencingToken;
///
/// let (earlier, later) = (FencingToken::new(Zxid::new(0x1f), 0), FencingToken::new(Zxid::new(0x20), 0));
/// assert!(earlier < later && earlier.to_string() < later.to_string());
/// assert_eq!(later.to_string(), "0000000000000020.0000000000000000");
/// assert_eq!(later.to_string().parse(), Ok(later));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    czxid: Zxid,
    pass: u64,
}

impl FencingToken {
    /// Returns the token of a node and a pass within it.
    #[must_use]
    pub const fn new(czxid: Zxid, pass: u64) -> Self {
        Self { czxid, pass }
    }

    /// Returns the token of a node that one holder has, by its `czxid`.
    pub(crate) const fn of_node(czxid: i64) -> Self {
        Self::new(Zxid::new(czxid), 0)
    }

    /// Returns the token of a later pass within the same node.
    pub(crate) const fn at_pass(self, pass: u64) -> Self {
        Self { pass, ..self }
    }

    /// Returns the transaction that created the node. It is the whole token for a resource that stores one integer, as
    /// long as the pass is 0.
    #[must_use]
    pub const fn czxid(self) -> Zxid {
        self.czxid
    }

    /// Returns the number of the pass within the node, from 0.
    #[must_use]
    pub const fn pass(self) -> u64 {
        self.pass
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:016x}", self.czxid.get(), self.pass)
    }
}

/// A text that is not a [`FencingToken`]'s.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a fencing token: {0:?}; expected two numbers of 16 hexadecimal digits with a dot between them")]
pub struct ParseTokenError(String);

impl std::str::FromStr for FencingToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let number = |text: &str| {
            let is_plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u64::from_str_radix(text, 16).ok().filter(|_| is_plain)
        };
        let parsed = text.split_once('.').and_then(|(czxid, pass)| Some((number(czxid)?, number(pass)?)));
        let (czxid, pass) = parsed.ok_or_else(|| ParseTokenError(text.to_owned()))?;
        Ok(Self::new(Zxid::new(i64::from_be_bytes(czxid.to_be_bytes())), pass))
    }
}

/// Implements [`Held`] by the methods of the same names that a type has itself.
macro_rules! impl_held {
    ($held:ty, $error:ty $(, [$($bounds:tt)*])?) => {
        impl$(<$($bounds)*>)? $crate::held::sealed::Sealed for $held {}

        impl$(<$($bounds)*>)? $crate::held::Held for $held {
            type Error = $error;

            fn is_held(&self) -> bool {
                self.is_held()
            }

            fn remaining(&self) -> std::time::Duration {
                self.remaining()
            }

            fn lost(&self) -> impl Future<Output = curator_framework::LossReason> + Send {
                self.lost()
            }

            fn verify(&self) -> impl Future<Output = Result<(), $error>> + Send {
                self.verify()
            }

            fn token(&self) -> $crate::held::FencingToken {
                self.token()
            }
        }
    };
}

pub(crate) use impl_held;

pub(crate) mod sealed {
    /// Keeps [`Held`](super::Held) to the types of this crate.
    pub trait Sealed {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(czxid: i64, pass: u64) -> FencingToken {
        FencingToken::new(Zxid::new(czxid), pass)
    }

    #[test]
    fn tokens_and_their_texts_have_the_order_of_grants() {
        let ordered = [token(1, 0), token(1, 1), token(1, u64::MAX), token(0x10, 0), token(i64::MAX, 3)];
        assert!(ordered.is_sorted());
        assert!(ordered.map(|token| token.to_string()).is_sorted());
        assert!(ordered.iter().all(|token| token.to_string().parse() == Ok(*token)));
    }

    #[test]
    fn other_texts_are_no_tokens() {
        for text in [
            "",
            "1",
            "1.0",
            "0000000000000001",
            "000000000000001g.0000000000000000",
            "+000000000000001.0000000000000000",
        ] {
            let error = text.parse::<FencingToken>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
