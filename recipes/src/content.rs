//! The codec of a node's data: bytes, and numbers in the format of Curator's.

pub(crate) mod sealed {
    use std::fmt;

    /// A value, with its data in Curator's format.
    pub trait Content: Clone + PartialEq + fmt::Debug + Default + Send + Sync + 'static {
        /// The number of bytes, if it is fixed.
        const LENGTH: Option<usize>;

        /// Returns the value of this data, or `None` if the length is wrong. No data is the number 0.
        fn from_data(data: &[u8]) -> Option<Self>;

        /// Returns the value of this data, or `None` if the length is wrong, as it is for a number without data.
        fn from_exact_data(data: &[u8]) -> Option<Self> {
            Self::LENGTH.is_none_or(|length| length == data.len()).then(|| Self::from_data(data))?
        }

        /// Returns the data of this value.
        fn to_data(&self) -> Vec<u8>;

        /// Returns the sum, if it fits.
        fn plus(&self, _delta: &Self) -> Option<Self> {
            None
        }

        /// Returns the difference, if it fits.
        fn minus(&self, _delta: &Self) -> Option<Self> {
            None
        }

        /// Returns the number, for an error.
        fn to_i64(&self) -> i64 {
            0
        }
    }

    /// A number.
    pub trait Number: Content + Copy + Into<i64> {
        /// The number 1.
        const ONE: Self;
    }
}

use sealed::{Content, Number};

/// A number of a counter: `i32` or `i64`. Sealed: the data of a counter's node has Curator's format.
pub trait AtomicNumber: Number {}

impl AtomicNumber for i32 {}
impl AtomicNumber for i64 {}

/// Implements the format of Curator's numbers: big-endian, and no data for 0.
macro_rules! number {
    ($number:ty) => {
        impl Content for $number {
            const LENGTH: Option<usize> = Some(size_of::<Self>());

            fn from_data(data: &[u8]) -> Option<Self> {
                if data.is_empty() { Some(0) } else { data.try_into().ok().map(Self::from_be_bytes) }
            }

            fn to_data(&self) -> Vec<u8> {
                self.to_be_bytes().to_vec()
            }

            fn plus(&self, delta: &Self) -> Option<Self> {
                self.checked_add(*delta)
            }

            fn minus(&self, delta: &Self) -> Option<Self> {
                self.checked_sub(*delta)
            }

            fn to_i64(&self) -> i64 {
                (*self).into()
            }
        }

        impl Number for $number {
            const ONE: Self = 1;
        }
    };
}

number!(i32);
number!(i64);

impl Content for Vec<u8> {
    const LENGTH: Option<usize> = None;

    fn from_data(data: &[u8]) -> Option<Self> {
        Some(data.to_vec())
    }

    fn to_data(&self) -> Vec<u8> {
        self.clone()
    }
}

/// Returns where data of this length may come from. The host's address has from 7 to 39 bytes, and the numbers of other
/// counters have 4 or 8.
pub(crate) const fn default_data(length: usize) -> &'static str {
    match length {
        7 | 9..=39 => "; a create without data writes the client's default data: delete the node, or set a number",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bytes_of_curators() {
        assert_eq!(1_i64.to_data(), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((-2_i32).to_data(), [255, 255, 255, 254]);
        assert_eq!(i64::from_data(&i64::MIN.to_data()), Some(i64::MIN));
        assert_eq!((i32::from_data(&[]), i64::from_data(&[])), (Some(0), Some(0)));
        assert_eq!((i32::from_exact_data(&[]), i32::from_exact_data(&[0, 0, 0, 7])), (None, Some(7)));
        assert_eq!(Vec::from_exact_data(&[]), Some(Vec::new()));
        for length in [1, 3, 5, 7, 8, 9] {
            assert_eq!(i32::from_data(&vec![0; length]), None, "{length}");
            assert_eq!(i64::from_data(&vec![0; length]).is_some(), length == 8, "{length}");
            assert_eq!(i64::from_exact_data(&vec![0; length]).is_some(), length == 8, "{length}");
        }
    }
}
