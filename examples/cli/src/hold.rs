//! `barrier hold`: a barrier that exists while a command runs.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use curator_framework::{Chain, LossReason};
use curator_recipes::{BarrierError, DistributedBarrier, OwnedBarrier, Release};

use crate::child::{self, Order, Setting, Streams};
use crate::failure::{Failure, LOST};
use crate::grant::Grant;
use crate::output::{tell, tell_conflict};
use crate::signals::Signals;
use crate::site::{RELEASE, Site};

/// The options of `curator barrier hold`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Hold {
    /// The exit status if the barrier is set already
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    #[command(flatten)]
    pub(crate) setting: Setting,
    /// The barrier's path
    pub(crate) path: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

const NOTES: &str = "\
What happens:
  the command ends             the barrier is removed, and the process ends with the command's status
  the barrier is set already   the command does not run; the process ends with status 75 (see -E)
  a signal                     the command gets it
  the barrier is lost          the command gets SIGTERM, and SIGKILL 5 s later; the process ends with status 74

The barrier is lost if its session ends, or if a client removes it. After a silence of three quarters of the session timeout
it counts as lost: the command gets SIGKILL too. The command gets CURATOR_BARRIER_PATH.";

/// The time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Sets the barrier, runs the command, and returns the exit status.
pub(crate) async fn hold(site: &Site, options: &Hold, signals: &mut Signals) -> Result<u8, Failure> {
    let path = &options.path;
    let barrier = DistributedBarrier::new(site.client.clone(), path)?;
    let barrier = match signals.unless_ended(async { Ok(barrier.set_owned().await) }).await? {
        Err(BarrierError::AlreadySet { .. }) => {
            let text = format!("{path} is set already: curator barrier status {path} shows it");
            tell_conflict(options.conflict_exit_code, &text);
            return Ok(options.conflict_exit_code);
        }
        barrier => barrier?,
    };
    let (command, foreground) = (&options.command, options.setting.foreground);
    let order = Order { command, foreground, path, grace: GRACE, revocable: false, streams: Streams::INHERITED };
    let ended = child::run(&barrier, &order, signals).await;
    let removed = tokio::time::timeout(RELEASE, barrier.release()).await;
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Ok(child::cannot_run(&command[0], &error)),
    };
    match removed {
        _ if ended.lost => return Ok(LOST),
        Ok(Ok(Release::Released)) => {}
        Ok(Ok(Release::AlreadyLost(_))) => {
            return Err(Failure(LOST, format!("the barrier {path} was lost before the command ended")));
        }
        Ok(Err(error)) => {
            let barrier = site.left(&format!("the barrier {path}"));
            tell(&format!("{barrier}: it could not be removed: {}", Chain(&error)));
        }
        Err(_too_long) => {
            tell(&format!(
                "{}: the servers did not answer when it was removed",
                site.left(&format!("the barrier {path}"))
            ));
        }
    }
    Ok(child::code(ended.status))
}

impl Grant for OwnedBarrier {
    fn what(&self, path: &str) -> String {
        format!("the barrier {path}")
    }

    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        vec![("CURATOR_BARRIER_PATH", path.to_owned())]
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    async fn lost(&self) -> LossReason {
        self.lost().await
    }
}
