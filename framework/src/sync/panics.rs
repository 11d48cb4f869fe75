//! Calls that may panic, in places that must continue.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls code, and catches its panic.
///
/// # Errors
///
/// The text of the panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(text_of)
}

/// Returns the text of a panic, and drops what was thrown.
pub(crate) fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a text").to_owned();
    // It may be a value of the program, which panics in its drop, and so may be what that throws.
    let _not_dropped = ManuallyDrop::new(catch_unwind(AssertUnwindSafe(|| drop(panic))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Self);
        }
    }

    #[test]
    fn a_panic_ends_with_the_call_whatever_it_throws() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught::<()>(|| std::panic::panic_any(Bomb)), Err("without a text".to_owned()));
    }
}
