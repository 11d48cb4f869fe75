//! Calls of code that the program supplies: its panic ends neither a session nor a task of the framework.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

use crate::sync::panics::{caught, text_of};
use crate::sync::report::report;

/// Calls code that the program supplies, and catches its panic: recipes call closures of their options in this way.
/// `code` names it in the error event, and in the returned text.
///
/// # Errors
///
/// The text of the panic, such as "the filter has panicked: index out of bounds". The caller fails the object or the
/// request to which the code belongs.
pub fn catch_panic<T>(code: &str, call: impl FnOnce() -> T) -> Result<T, String> {
    caught(call).map_err(|panic| logged(code, panic))
}

/// Awaits code that the program supplies, and catches its panic.
pub(crate) async fn catch_panic_of<F: Future>(code: &str, call: impl FnOnce() -> F) -> Result<F::Output, String> {
    let called = async { call().await };
    AssertUnwindSafe(called).catch_unwind().await.map_err(|panic| logged(code, text_of(panic)))
}

/// Logs a panic, and returns a text that names the code.
fn logged(code: &str, panic: String) -> String {
    let code = code.to_owned();
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
