//! What the program `curator` is made of, for programs that show locks themselves.

pub mod contenders;
