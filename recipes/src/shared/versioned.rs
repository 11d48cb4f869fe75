//! A value with its transaction and version.

use curator_framework::Zxid;

/// A value at one moment: Curator's `VersionedValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionedValue<T> {
    zxid: Zxid,
    version: i32,
    value: T,
}

impl<T> VersionedValue<T> {
    /// Creates a value that a node had. To try a change, use
    /// [`SharedValue::versioned_value`](crate::SharedValue::versioned_value).
    #[must_use]
    pub const fn new(zxid: Zxid, version: i32, value: T) -> Self {
        Self { zxid, version, value }
    }

    /// Creates a seed, which no node has had.
    pub(crate) const fn seed(value: T) -> Self {
        Self { zxid: Zxid::new(-1), version: -1, value }
    }

    /// Returns the transaction that set the value, the node's `mzxid`. A newer value has a larger one, unless the
    /// servers have lost data. −1 for a seed
    /// before the first read.
    #[must_use]
    pub const fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Returns the node's version with this value. It starts again at 0 when the node is created again. −1 for a seed
    /// before the first read.
    #[must_use]
    pub const fn version(&self) -> i32 {
        self.version
    }

    /// Returns the value.
    #[must_use]
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// Returns only the value.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }

    pub(crate) fn with<U>(&self, value: U) -> VersionedValue<U> {
        VersionedValue { zxid: self.zxid, version: self.version, value }
    }
}
