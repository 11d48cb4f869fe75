//! The label of a lock in spans and metrics.

use std::sync::Arc;

/// The recipe of a lock, and the name that the program gave it.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub(crate) recipe: &'static str,
    pub(crate) name: Option<Arc<str>>,
}

impl Label {
    /// Returns the name, or the recipe of a lock without a name.
    pub(crate) fn as_str(&self) -> &str {
        self.name.as_deref().unwrap_or(self.recipe)
    }
}
