//! Calls of code that the program supplies: its panic ends neither a session nor a task of the framework.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::sync::panics::caught;
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

/// Awaits code that the program supplies, and catches its panic: also one in the drop of a future that has not ended.
pub(crate) async fn catch_panic_of<F: Future>(code: &str, call: impl FnOnce() -> F) -> Result<F::Output, String> {
    Called { code, future: Some(Box::pin(async { call().await })) }.await
}

/// A call of [`catch_panic_of`].
struct Called<'a, F> {
    code: &'a str,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Called<'_, F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        match caught(|| future.as_mut().poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(logged(self.code, panic))),
        }
    }
}

impl<F> Drop for Called<'_, F> {
    fn drop(&mut self) {
        let future = self.future.take();
        // The panic is logged, and nothing waits for the code any more.
        let _panicked = catch_panic(self.code, || drop(future));
    }
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

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[tokio::test]
    async fn a_future_may_panic_when_it_is_dropped() {
        let called = catch_panic_of("closure", async || {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        });
        let dropped = tokio::time::timeout(std::time::Duration::ZERO, called).await;
        assert!(dropped.is_err(), "and the test goes on");
    }

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
