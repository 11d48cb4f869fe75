//! A value and where it comes from.

/// A value as it was at one moment: Curator's `VersionedValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionedValue<T> {
    zxid: i64,
    version: i32,
    value: T,
}

impl<T> VersionedValue<T> {
    /// A value that a node had. Values to try a change with come from
    /// [`SharedValue::versioned_value`](crate::SharedValue::versioned_value).
    #[must_use]
    pub const fn new(zxid: i64, version: i32, value: T) -> Self {
        Self { zxid, version, value }
    }

    /// A seed, which no node has had.
    pub(crate) const fn seed(value: T) -> Self {
        Self { zxid: -1, version: -1, value }
    }

    /// The transaction that set the value, the node's `mzxid`: what is newer has a larger one. −1 for a seed before
    /// anything was read.
    #[must_use]
    pub const fn zxid(&self) -> i64 {
        self.zxid
    }

    /// The node's version with this value. It starts again when the node is made again. −1 for a seed before anything
    /// was read.
    #[must_use]
    pub const fn version(&self) -> i32 {
        self.version
    }

    /// The value.
    #[must_use]
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// The value alone.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }

    pub(crate) fn with<U>(&self, value: U) -> VersionedValue<U> {
        VersionedValue { zxid: self.zxid, version: self.version, value }
    }
}
