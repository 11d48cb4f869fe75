//! `service`: Curator's service discovery. Registers a command as an instance of a service, and shows the instances.

mod change;
mod health;
mod register;
mod show;

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use curator_discovery::{DiscoveryError, RawPayload, ServiceDiscovery};
use curator_framework::Chain;

use self::register::Register;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::site::Site;
use crate::values::{AccessList, duration};

/// The commands of `curator service`.
#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// Registers an instance of a service while a command runs and is healthy, or until interrupted
    #[command(override_usage = "curator service register [OPTIONS] <NAME> [-- <COMMAND>...]")]
    Register(Register),
    /// Lists the services, or the instances of one
    Ls(Ls),
    /// Prints a line when an instance comes, changes or goes, until interrupted; first one for each instance
    Watch(Watch),
    /// Lets consumers use an instance again
    #[command(after_help = OF_THE_OWNER)]
    Enable(Change),
    /// Has consumers pass over an instance
    #[command(after_help = OF_THE_OWNER)]
    Disable(Change),
    /// Disables an instance, and waits while its requests end: then the process can be stopped
    #[command(after_help = OF_THE_OWNER)]
    Drain(Drain),
}

const OF_THE_OWNER: &str = "\
This writes the instance's node, which another process owns. If that process updates the instance, or gets a new session,
its own data counts again.

Exit status:
    0  done
    1  no such instance
    2, 69, 70, 77  an error, as in `curator --help`";

/// The place of the services.
#[derive(Debug, Args)]
pub(crate) struct Base {
    /// The path above the services
    #[arg(long, default_value = "/services", env = "CURATOR_SERVICES")]
    pub(crate) base: String,
}

/// The options of `service ls`.
#[derive(Debug, Args)]
#[command(after_help = LS_NOTES)]
pub(crate) struct Ls {
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    #[command(flatten)]
    base: Base,
    /// The service [default: list the names of all services]
    name: Option<String>,
}

const LS_NOTES: &str = "\
Exit status:
    0  there are services, or instances
    1  there is none
    2, 69, 70, 77  an error, as in `curator --help`

A node that is not an instance is listed too, with the reason.";

/// The options of `service watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Print each change as a line of JSON
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    #[command(flatten)]
    base: Base,
    /// The service
    name: String,
}

/// The options of `service enable` and `service disable`.
#[derive(Debug, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    base: Base,
    /// The service
    name: String,
    /// The id of the instance, as `curator service ls` prints it
    id: String,
}

/// The options of `service drain`.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The time in which requests end
    #[arg(long, default_value = "10s", value_parser = duration, env = "CURATOR_DRAIN")]
    time: Duration,
    #[command(flatten)]
    change: Change,
}

impl Service {
    /// Returns the access control list of the nodes that the command creates.
    pub(crate) const fn acl(&self) -> Option<&AccessList> {
        match self {
            Self::Register(register) => Some(&register.setting.access.acl),
            _ => None,
        }
    }
}

/// Runs the command, and returns the exit status.
pub(crate) async fn service(site: &Site, service: &Service, signals: &mut Signals) -> Result<u8, Failure> {
    match service {
        Service::Register(register) => register::register(site, register, signals).await,
        Service::Ls(ls) => signals.unless_ended(show::list(site, ls)).await,
        Service::Watch(watch) => signals.unless_ended(show::watch(site, watch)).await,
        Service::Enable(change) => signals.unless_ended(change::set_enabled(site, change, true)).await,
        Service::Disable(change) => signals.unless_ended(change::set_enabled(site, change, false)).await,
        Service::Drain(drain) => {
            let drained = async {
                let code = change::set_enabled(site, &drain.change, false).await?;
                // No request ends at an instance that does not exist.
                if code == 0 {
                    tokio::time::sleep(drain.time).await;
                }
                Ok(code)
            };
            signals.unless_ended(drained).await
        }
    }
}

fn discovery(site: &Site, base: &Base) -> Result<ServiceDiscovery<RawPayload>, Failure> {
    Ok(ServiceDiscovery::new(site.client.clone(), &base.base)?)
}

impl From<DiscoveryError> for Failure {
    fn from(error: DiscoveryError) -> Self {
        match error {
            DiscoveryError::Framework(error) => error.into(),
            DiscoveryError::Node(error) => error.into(),
            error @ (DiscoveryError::InvalidArgument { .. } | DiscoveryError::NoAddress { .. }) => {
                Self(2, Chain(&error).to_string())
            }
            error => Self(70, Chain(&error).to_string()),
        }
    }
}
