//! The errors of typed nodes.

use std::error::Error as StdError;
use std::sync::Arc;

use curator_framework::PathText;

use crate::caches::error::CacheError;
use crate::codec::CodecError;

/// An error of a typed node.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it. Where a method lists `Error::NoAuth`,
/// match `ModelError::Framework(Error::NoAuth { .. })`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// An error of the framework: no connection, no permission, no node, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// An error of a cache of typed nodes.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The codec has refused a value. Nothing was sent.
    #[error("the value for {path} cannot be encoded")]
    Encode {
        /// The node's path.
        path: PathText,
        /// The error of the codec.
        #[source]
        cause: Arc<dyn StdError + Send + Sync>,
    },
    /// The codec has refused the data of the node. Another codec wrote it, or it is a parent without data.
    #[error("the data of {path} cannot be decoded")]
    Decode {
        /// The node's path.
        path: PathText,
        /// The error of the codec.
        #[source]
        cause: Arc<dyn StdError + Send + Sync>,
    },
    /// The closure of [`modify`](crate::ModeledNode::modify) has refused the value. Nothing was changed.
    #[error("the change of {path} was refused by its caller")]
    Refused {
        /// The node's path.
        path: PathText,
        /// The error of the closure.
        #[source]
        cause: Arc<dyn StdError + Send + Sync>,
    },
    /// A key that is not the name of a node. Nothing was sent.
    #[error("the key {key:?} is not the name of a node: {reason}")]
    InvalidKey {
        /// The key.
        key: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// An argument that cannot work.
    #[error("invalid {argument}: {reason}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// The rule that it breaks.
        reason: String,
    },
}

impl ModelError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Framework(error) => error.is_retryable(),
            Self::Cache(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// Returns `true` if a write may have been applied although it failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }

    pub(super) fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, reason: reason.into() }
    }

    pub(super) fn encode(path: PathText, cause: CodecError) -> Self {
        Self::Encode { path, cause: cause.into() }
    }

    pub(super) fn decode(path: PathText, cause: CodecError) -> Self {
        Self::Decode { path, cause: cause.into() }
    }

    pub(super) fn refused(path: PathText, cause: CodecError) -> Self {
        Self::Refused { path, cause: cause.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use curator_framework::{Chain, Error};

    use super::*;

    #[test]
    fn a_text_names_the_path_and_leaves_the_cause_to_the_chain() {
        for (error, text) in [
            (ModelError::encode("/a".into(), "no number".into()), "the value for /a cannot be encoded"),
            (ModelError::decode("/a".into(), "no number".into()), "the data of /a cannot be decoded"),
            (ModelError::refused("/a".into(), "no number".into()), "the change of /a was refused by its caller"),
        ] {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.source().unwrap().to_string(), "no number");
            assert_eq!(Chain(&error).to_string(), format!("{text}: no number"));
            assert!(!error.is_retryable() && !error.outcome_unknown());
        }
        let lost = |sent| ModelError::from(Error::ConnectionLoss { request: "x".into(), sent, cause: None });
        assert!(lost(true).is_retryable() && lost(true).outcome_unknown() && !lost(false).outcome_unknown());
    }
}
