//! The reports of the caches of a service.

use std::sync::Arc;

use curator_recipes::{CachedModel, ModelChange, ModelError};

use crate::error::DecodeError;
use crate::instance::service_instance::ServiceInstance;

/// An instance of a service at one moment.
pub(crate) type Known<P> = CachedModel<ServiceInstance<P>>;

/// A change of a service's instances. `node` is the name of the instance's node, and unique in the service: the id, with a
/// number behind it for a [`DynamicSequential`](crate::ServiceType::DynamicSequential) instance.
///
/// The changes replay to the instances: a reader that has applied each change up to one has the instances that the cache
/// had after it.
#[derive(Debug)]
#[non_exhaustive]
pub enum InstanceChange<P> {
    /// An instance was registered, or can be read again after [`Broken`](Self::Broken).
    Added {
        /// The name of the node.
        node: Arc<str>,
        /// The instance.
        instance: Arc<ServiceInstance<P>>,
    },
    /// The data of an instance has changed. States between the two may be skipped. If its node was replaced by one with
    /// other data, as after a new session of its announcer, this is the only change. With the same data none follows.
    Updated {
        /// The name of the node.
        node: Arc<str>,
        /// The last instance that was reported.
        old: Arc<ServiceInstance<P>>,
        /// The present instance.
        new: Arc<ServiceInstance<P>>,
    },
    /// An instance has ended, or its newest data cannot be read.
    Removed {
        /// The name of the node.
        node: Arc<str>,
        /// The last instance that was reported.
        instance: Arc<ServiceInstance<P>>,
    },
    /// A node exists, and is not an instance, or cannot be read. If it was an instance before, [`Removed`](Self::Removed)
    /// precedes this change. The deletion of such a node causes none.
    Broken {
        /// The name of the node.
        node: Arc<str>,
        /// The reason.
        error: DecodeError,
    },
}

impl<P> Clone for InstanceChange<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { node, instance } => Self::Added { node: Arc::clone(node), instance: Arc::clone(instance) },
            Self::Updated { node, old, new } => {
                Self::Updated { node: Arc::clone(node), old: Arc::clone(old), new: Arc::clone(new) }
            }
            Self::Removed { node, instance } => {
                Self::Removed { node: Arc::clone(node), instance: Arc::clone(instance) }
            }
            Self::Broken { node, error } => Self::Broken { node: Arc::clone(node), error: error.clone() },
        }
    }
}

impl<P> InstanceChange<P> {
    /// Returns a change of the cache; `None` for one that says nothing of an instance.
    pub(super) fn of(change: ModelChange<ServiceInstance<P>>) -> Option<Self> {
        Some(match change {
            ModelChange::Added(Known { key: node, value: instance, .. }) => Self::Added { node, instance },
            ModelChange::Updated { old, new } => Self::Updated { node: new.key, old: old.value, new: new.value },
            ModelChange::Removed(Known { key: node, value: instance, .. }) => Self::Removed { node, instance },
            ModelChange::Broken { key, error } => Self::Broken { node: key, error: of_node(error) },
            _ => return None,
        })
    }
}

/// Returns the reason why a node is not an instance.
pub(super) fn of_node(error: ModelError) -> DecodeError {
    match error {
        ModelError::Decode { cause, .. } => cause.downcast_ref().cloned().unwrap_or(DecodeError::Other(cause)),
        ModelError::Cache(error) => DecodeError::Unreadable(Arc::new(error)),
        other => DecodeError::Unreadable(Arc::new(other)),
    }
}
