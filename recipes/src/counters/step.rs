//! The actions of the engine, and the ends of those that fail.

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// The node has this version.
    Version(i32),
    /// The node does not exist.
    Missing,
    /// The node exists.
    Exists,
}

impl Condition {
    /// Returns the version after the write, if the condition determines it.
    pub(super) const fn version_after(self) -> Option<i32> {
        match self {
            Self::Version(version) => Some(version.wrapping_add(1)),
            Self::Missing => Some(0),
            Self::Exists => None,
        }
    }
}

/// A write of the node's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) data: Vec<u8>,
    pub(super) condition: Condition,
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No change is left.
    Idle,
    Read,
    /// Create the missing node with the number 0. A marker can only prove a change of a node that exists.
    CreateZero,
    /// The write in flight, the same until it is settled.
    Write(Write),
}

/// The reason why a condition did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The node has another version, or exists already.
    Changed,
    /// The node does not exist.
    Missing,
    /// The write was not sent, or the operation on the marker was refused. It may rest on the state of an earlier node.
    Outdated,
}

/// The changes that a failed step ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// Those that were queued before this mark: no server was reached.
    Before(u64),
    /// Those that need a read, up to the first forced one.
    Reading,
    /// The sums up to the first forced one: the missing node cannot be created as 0.
    Sums,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_determines_the_version_after_the_write() {
        assert_eq!(Condition::Version(7).version_after(), Some(8));
        assert_eq!(Condition::Version(i32::MAX).version_after(), Some(i32::MIN));
        assert_eq!((Condition::Missing.version_after(), Condition::Exists.version_after()), (Some(0), None));
    }
}
