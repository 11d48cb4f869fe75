//! The numbers that ZooKeeper gives to sessions and transactions.

use std::fmt;
use std::num::NonZeroI64;

/// The id of a ZooKeeper session. `Display` and `Debug` show it in hexadecimal, as the servers' logs do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(NonZeroI64);

impl SessionId {
    /// Returns the id with this number; `None` for 0, which ZooKeeper gives to no session.
    #[must_use]
    pub const fn new(number: i64) -> Option<Self> {
        match NonZeroI64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number, such as that in a [`Stat`](crate::Stat).
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0.get()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of a transaction of the ensemble. A later transaction has a larger one, until a backup is restored.
/// `Display` and `Debug` show it in hexadecimal, as the servers' logs do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zxid(i64);

impl Zxid {
    /// Returns the transaction with this number, such as that in a [`Stat`](crate::Stat).
    #[must_use]
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_as_servers_log_them() {
        let session = SessionId::new(0x0100_0002_8d3a_0001).unwrap();
        assert_eq!(
            (session.to_string(), format!("{session:?}")),
            ("0x10000028d3a0001".into(), "0x10000028d3a0001".into())
        );
        assert_eq!(SessionId::new(-1).unwrap().to_string(), "0xffffffffffffffff");
        assert_eq!(SessionId::new(0), None);
        assert_eq!(format!("{0} {0:?}", Zxid::new(0x2_0000_0001)), "0x200000001 0x200000001");
    }
}
