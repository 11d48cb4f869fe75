//! The question before something is deleted.

use std::io::IsTerminal as _;

use crate::each::{Parts, input};
use crate::failure::Failure;
use crate::output::{BEFORE_A_COMMAND, flush, tell};

/// Asks on the terminal.
pub(crate) async fn agrees(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure(2, "the question needs a terminal: use --yes without one".to_owned()));
    }
    tell(&format!("{question} [y/N]"));
    flush(BEFORE_A_COMMAND);
    let answer = input(Parts::Lines)?.recv().await.transpose()?.unwrap_or_default();
    Ok(matches!(answer.trim_ascii(), b"y" | b"Y" | b"yes"))
}
