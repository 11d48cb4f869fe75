//! The options that objects of one batch have in common: the node shows them.

use std::time::Duration;

use curator_framework::Acl;
use curator_framework::recipe::RecipeClient as _;

use crate::engine::internals::LockInternals;

#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// As the server knows it.
    path: Box<str>,
    /// A transaction of a guard has it.
    namespace: Box<str>,
    lock_name: &'static str,
    extra_lock_patterns: Vec<String>,
    linger: Duration,
    data: Option<Vec<u8>>,
    acl: Option<Vec<Acl>>,
    /// The limit of leases.
    limit: usize,
}

impl Key {
    pub(super) fn of(internals: &LockInternals) -> Self {
        let (spec, options) = (&internals.spec, &internals.options);
        Self {
            path: internals.client.path_text(&internals.base_path).full().into(),
            namespace: internals.client.namespace().into(),
            lock_name: spec.lock_name,
            extra_lock_patterns: spec.extra_lock_patterns.clone(),
            linger: options.linger,
            data: options.data.clone(),
            acl: options.acl.clone(),
            limit: spec.limit.get(),
        }
    }
}
