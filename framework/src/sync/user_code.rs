//! Calls of code that the program supplies: its panic ends neither a session nor a task of the framework.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt as _;

use crate::sync::report::report;

/// Calls code that the program supplies, and catches its panic: recipes call closures of their options in this way.
/// `code` names it in the error event, and in the returned text.
///
/// # Errors
///
/// The text of the panic, such as "the filter has panicked: index out of bounds". The caller fails the object or the
/// request to which the code belongs.
pub fn catch_panic<T>(code: &str, call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| text_of(code, &*panic))
}

/// Awaits code that the program supplies, and catches its panic.
pub(crate) async fn catch_panic_of<F: Future>(code: &str, call: impl FnOnce() -> F) -> Result<F::Output, String> {
    let called = async { call().await };
    AssertUnwindSafe(called).catch_unwind().await.map_err(|panic| text_of(code, &*panic))
}

/// Logs a panic, and returns its text.
fn text_of(code: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let (code, panic) = (code.to_owned(), text.unwrap_or("without a text").to_owned());
    let text = format!("the {code} has panicked: {panic}");
    report(move || tracing::error!(code, panic, "code of the program has panicked"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_text_names_the_code_and_the_panic() {
        let wrong = |text: &str| Err(format!("the closure has panicked: {text}"));
        assert_eq!(catch_panic("closure", || 7), Ok(7));
        assert_eq!(catch_panic::<()>("closure", || panic!("on purpose")), wrong("on purpose"));
        assert_eq!(catch_panic::<()>("closure", || panic!("number {}", 7)), wrong("number 7"));
        assert_eq!(catch_panic::<()>("closure", || std::panic::panic_any(7)), wrong("without a text"));
        assert_eq!(catch_panic_of("closure", async || 7).await, Ok(7));
        assert_eq!(
            catch_panic_of("closure", async || panic!("on purpose")).await,
            wrong("on purpose").map(|(): ()| ())
        );
    }
}
