//! The process and the machine around the client: the clock, randomness, and the host's address.

pub(crate) mod clock;
pub(crate) mod local_address;
pub(crate) mod randomness;
