//! Throttle.
fn main() {}
