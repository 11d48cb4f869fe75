//! The errors of service discovery.

use std::error::Error;
use std::sync::Arc;

use curator_framework::PathText;
use curator_recipes::{CacheError, NodeError};

use crate::instance::uri_spec::ParseUriSpecError;

/// The error of a payload's own code, or of a codec's.
pub type PayloadError = Box<dyn Error + Send + Sync>;

/// An error of service discovery.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// An error of a registration's node, such as `TakenBy`: another process has registered the same id.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// An error of a cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// This client has a registration with this name and id. End that one, or give the instance another id.
    #[error("{path} is registered already by this client")]
    AlreadyRegistered {
        /// The path of the instance's node, without the number of a sequential one.
        path: PathText,
    },
    /// The discovery was closed.
    #[error("the discovery of {path} is closed")]
    Closed {
        /// The base path.
        path: PathText,
    },
    /// No address of this host was found: set one with
    /// [`ServiceInstanceBuilder::address`](crate::ServiceInstanceBuilder::address).
    #[error("no address of this host was found for {name:?}: set one with .address(…)")]
    NoAddress {
        /// The name of the service.
        name: String,
    },
    /// The instance cannot be written: the codec or the payload has refused it.
    #[error("the instance {id:?} of {name:?} cannot be written")]
    Encode {
        /// The name of the service.
        name: String,
        /// The id.
        id: String,
        /// The error of the codec.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The data of a node is not an instance's.
    #[error("the instance {node:?} cannot be read")]
    Decode {
        /// The name of the node.
        node: String,
        /// The reason.
        #[source]
        source: DecodeError,
    },
    /// An invalid argument.
    #[error("invalid {argument}: {reason}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// The rule that it breaks.
        reason: String,
    },
}

impl DiscoveryError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Framework(error) => error.is_retryable(),
            Self::Node(error) => error.is_retryable(),
            Self::Cache(error) => error.is_retryable(),
            other => matches!(other, Self::AlreadyRegistered { .. }),
        }
    }

    /// Returns `true` if a write may have been applied although it failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Framework(error) => error.outcome_unknown(),
            Self::Node(error) => error.outcome_unknown(),
            _ => false,
        }
    }
}

/// The reason why the data of a node is not an instance.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The node has no data. It may be the parent of other nodes.
    #[error("the node has no data")]
    Empty,
    /// The data is not a JSON object.
    #[error("the data is not the JSON of an instance")]
    Json(#[source] Arc<serde_json::Error>),
    /// A field has a value that is not one of its type.
    #[error("the field {field} cannot be {json}")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The start of its JSON.
        json: String,
    },
    /// The template of the URI is not one.
    #[error("the field uriSpec is not a template")]
    UriSpec(#[source] ParseUriSpecError),
    /// The payload is not one of the program's type.
    #[error("the payload is not one of this type")]
    Payload(#[source] Arc<dyn Error + Send + Sync>),
    /// The node cannot be read: the server refuses it, or its data is too large or cannot be decompressed.
    #[error("the node cannot be read")]
    Unreadable(#[source] Arc<dyn Error + Send + Sync>),
    /// The code of the payload or of the codec has panicked.
    #[error("{0}")]
    Panicked(String),
    /// An error of the program's own codec.
    #[error("the codec cannot decode the data")]
    Other(#[source] Arc<dyn Error + Send + Sync>),
}

impl DecodeError {
    /// The longest part of a field's JSON that an error shows, in characters.
    const LONGEST: usize = 80;

    /// Returns the error of a codec.
    pub fn other(error: impl Into<PayloadError>) -> Self {
        Self::Other(error.into().into())
    }

    pub(crate) fn json(error: serde_json::Error) -> Self {
        Self::Json(Arc::new(error))
    }

    pub(crate) fn field(field: &'static str, json: &str) -> Self {
        Self::Field { field, json: json.chars().take(Self::LONGEST).collect() }
    }
}
