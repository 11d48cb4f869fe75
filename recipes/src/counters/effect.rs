//! The changes of a value, and their effects on the content of a node. Pure.

use crate::content::sealed::Content;

/// A change of the value.
#[derive(Debug, Clone)]
pub(super) enum Change<V> {
    Add(V),
    Subtract(V),
    Set(V),
    CompareAndSet {
        expected: V,
        new: V,
    },
    /// Creates the node, unless it exists.
    Initialize(V),
    /// Sets the value without a condition.
    Force(V),
}

impl<V> Change<V> {
    pub(super) const fn is_forced(&self) -> bool {
        matches!(self, Self::Force(_))
    }

    pub(super) const fn is_sum(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Subtract(_))
    }
}

/// The effect of a change that has been decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect<V> {
    Changed {
        pre: V,
        post: V,
    },
    /// A comparison has found another value.
    Differs(V),
    /// A comparison has not found the node.
    Missing,
    /// The node exists already.
    Exists,
    Overflow {
        value: i64,
        delta: i128,
    },
    NotANumber {
        length: usize,
    },
    VersionsExhausted,
}

/// The content of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored<V> {
    Missing,
    Value(V),
    /// Data without the length of a number.
    Foreign(usize),
}

impl<V: Content> Stored<V> {
    /// Returns the content with this data.
    pub(super) fn of(data: &[u8]) -> Self {
        V::from_data(data).map_or(Self::Foreign(data.len()), Self::Value)
    }

    /// Returns the effect of a change on this content.
    pub(super) fn changed_by(&self, change: &Change<V>) -> Effect<V> {
        let set = |pre: &V, post: &V| Effect::Changed { pre: pre.clone(), post: post.clone() };
        let value = match (self, change) {
            (Self::Missing, Change::CompareAndSet { .. }) => return Effect::Missing,
            (Self::Value(_) | Self::Foreign(_), Change::Initialize(_)) => return Effect::Exists,
            (Self::Foreign(_), Change::Force(new)) => return set(&V::default(), new),
            (&Self::Foreign(length), _) => return Effect::NotANumber { length },
            (Self::Missing, _) => &V::default(),
            (Self::Value(value), _) => value,
        };
        let sum = |sum: Option<V>, delta: i128| match sum {
            Some(sum) => set(value, &sum),
            None => Effect::Overflow { value: value.to_i64(), delta },
        };
        match change {
            Change::Add(delta) => sum(value.plus(delta), delta.to_i64().into()),
            Change::Subtract(delta) => sum(value.minus(delta), -i128::from(delta.to_i64())),
            Change::CompareAndSet { expected, .. } if expected != value => Effect::Differs(value.clone()),
            Change::Set(new) | Change::CompareAndSet { new, .. } | Change::Initialize(new) | Change::Force(new) => {
                set(value, new)
            }
        }
    }
}
