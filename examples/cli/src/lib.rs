//! Parts of the program `curator`, for other programs that show locks.

pub mod contenders;
pub mod fields;
pub mod kinds;
pub mod queues;
pub mod text;
