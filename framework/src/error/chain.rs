//! An error with its causes, as one text.

use std::error::Error;
use std::fmt;

/// Shows an error and all its causes, with `: ` between them, as `{:#}` does for an error of the crate `anyhow`.
///
/// ```
/// # async fn run(client: curator_framework::CuratorFramework) {
/// use curator_framework::Chain;
///
/// if let Err(error) = client.get_data().for_path("/settings").await {
///     // Such as: no connection in time for getData /settings:
///     // no session could be established: zk1:2181: Connection refused (os error 111)
///     eprintln!("{}", Chain(&error));
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(
    /// The error.
    pub &'a dyn Error,
);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
