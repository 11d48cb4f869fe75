//! `service register`: an instance of a service, while a command runs and is healthy.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::net::Ipv6Addr;

use clap::Args;
use curator_cli::text::shown_session;
use curator_discovery::{DiscoveryError, RawPayload, Registration, ServiceDiscovery, ServiceInstance};
use curator_framework::Chain;
use curator_recipes::NodeState;
use tokio::sync::watch;

use super::health::Health;
use super::{Base, discovery};
use crate::child::{Setting, own_id};
use crate::failure::Failure;
use crate::grant::Grant;
use crate::outages::Outages;
use crate::output::tell;
use crate::presence::{Presence, Report, run};
use crate::signals::Signals;
use crate::site::Site;

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Register {
    /// The port at which the instance serves
    #[arg(long, short, env = "CURATOR_SERVICE_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The address at which consumers reach the instance [default: this host's address towards the servers]
    #[arg(long, env = "CURATOR_SERVICE_ADDRESS")]
    address: Option<String>,
    /// The id of the instance, unique in the service [default: host and process id]
    #[arg(long, env = "CURATOR_ID")]
    id: Option<String>,
    /// The payload of the instance, as JSON
    #[arg(long, value_name = "JSON", env = "CURATOR_PAYLOAD")]
    payload: Option<String>,
    #[command(flatten)]
    health: Health,
    #[command(flatten)]
    base: Base,
    #[command(flatten)]
    pub(super) setting: Setting,
    /// The name of the service
    name: String,
    /// The command and its arguments [default: registered until interrupted]
    #[arg(last = true)]
    command: Vec<OsString>,
}

const NOTES: &str = "\
What happens:
  the command ends by itself      the instance is unregistered, and the process ends with the command's status
  a signal without a command      the instance is unregistered, and the process ends with 128 + n
  a signal with a command         the command gets it; the instance is unregistered when the command has ended
  the check fails N times         the instance is unregistered until the check succeeds; the command runs on
  the id is taken by a session    the process waits until that instance has gone; the command runs
  no connection                   the command runs on; the instance is registered until its session ends

With --check or --http the command runs first, and is registered once it is healthy. The process reports registrations,
checks and outages on standard error. The command gets CURATOR_SERVICE_NAME, CURATOR_SERVICE_ID and CURATOR_SERVICE_PORT.

The node is that of Java's ServiceDiscovery. If this program is killed with SIGKILL, Linux kills the command too, and the
instance goes when the session ends. So a restart with the same --id is registered at most a session timeout later.";

/// Runs the command as an instance of the service, and returns the exit status.
pub(super) async fn register(site: &Site, register: &Register, signals: &mut Signals) -> Result<u8, Failure> {
    register.health.validate()?;
    let discovery = discovery(site, &register.base)?;
    let path = discovery.service_path(&register.name)?;
    let payload = match &register.payload {
        Some(json) => RawPayload::from_json(json.as_str())
            .map_err(|error| Failure(2, format!("--payload is not JSON: {}", Chain(&*error))))?,
        None => RawPayload::default(),
    };
    let id = own_id(register.id.as_deref());
    if id.is_empty() {
        return Err(Failure(2, "--id is empty: the node of an instance needs a name".to_owned()));
    }
    let instance = ServiceInstance::builder(&register.name).id(id).port(register.port);
    let instance = match &register.address {
        Some(address) => instance.address(checked(address)?),
        None => instance,
    };
    let instance = instance.payload(payload).build()?;
    let connected = async {
        site.first_session(None).await?;
        site.check_chroot().await
    };
    signals.unless_ended(connected).await?;
    let instance = with_address(instance, &discovery).await?;
    let keeper = Keeper { site, discovery, instance, path: &path, present: RefCell::default() };
    let (healthy, is_healthy) = watch::channel(false);
    let (command, setting) = (&register.command, &register.setting);
    let outcome = tokio::select! {
        biased;
        never = register.health.follow(&healthy) => match never {},
        failed = keeper.keep(is_healthy, Outages::of(&site.client)) => failed.map(|never| match never {}),
        outcome = run(&keeper, command, setting, keeper.path, signals) => outcome,
    };
    site.give_back(&keeper.node(), keeper.discovery.close()).await;
    outcome
}

/// Returns the instance with the address that it is to have. It is found before the command starts.
async fn with_address(
    mut instance: ServiceInstance<RawPayload>,
    discovery: &ServiceDiscovery<RawPayload>,
) -> Result<ServiceInstance<RawPayload>, Failure> {
    if instance.address.is_none() {
        let none = || DiscoveryError::NoAddress { name: instance.name.clone() };
        let address = discovery.local_address().await.ok_or_else(none)?;
        if address.is_loopback() {
            tell(&format!("other hosts cannot reach the address {address} of the instance: give --address"));
        }
        instance.address = Some(address.to_string());
    }
    Ok(instance)
}

/// Returns an address, unless no consumer could use it.
fn checked(address: &str) -> Result<&str, Failure> {
    if address.trim().is_empty() {
        return Err(Failure(2, "--address is empty".to_owned()));
    }
    if address.contains(':') && address.parse::<Ipv6Addr>().is_err() {
        return Err(Failure(2, format!("--address {address} has a port: give the port with --port")));
    }
    Ok(address)
}

/// Keeps the instance registered while it is healthy.
struct Keeper<'a> {
    site: &'a Site,
    discovery: ServiceDiscovery<RawPayload>,
    instance: ServiceInstance<RawPayload>,
    /// The path of the service.
    path: &'a str,
    present: RefCell<Option<Registration<RawPayload>>>,
}

impl Keeper<'_> {
    /// Returns the words for the instance's node.
    fn node(&self) -> String {
        format!("the instance {} at {}", self.instance.id, self.path)
    }

    /// Never ends but for an error of the instance: the caller drops it.
    async fn keep(&self, mut healthy: watch::Receiver<bool>, mut outages: Outages) -> Result<Infallible, Failure> {
        let report = Report::new(self);
        loop {
            let states = self.present.borrow().as_ref().map(Registration::watch);
            tokio::select! {
                biased;
                changed = healthy.changed() => {
                    let is_healthy = changed.is_ok() && *healthy.borrow_and_update();
                    self.follow(is_healthy, &report).await?;
                }
                never = report.follow(states, &mut outages) => match never {},
            }
        }
    }

    /// Registers or unregisters the instance.
    async fn follow(&self, is_healthy: bool, report: &Report<'_, Self>) -> Result<(), Failure> {
        let present = self.present.take();
        if !is_healthy {
            if let Some(registration) = present {
                let unregister = async {
                    if let Err(error) = registration.unregister().await {
                        tell(&format!("the instance is not deleted yet: {}", Chain(&error)));
                    }
                };
                self.site.give_back(&self.node(), unregister).await;
                report.tell(format!("{} is not registered", self.instance.id));
            }
            return Ok(());
        }
        let registration = match present {
            Some(registration) => registration,
            None => {
                report.begin();
                self.discovery.announce(self.instance.clone()).await?
            }
        };
        self.present.replace(Some(registration));
        Ok(())
    }
}

impl Grant for Keeper<'_> {
    fn what(&self, _path: &str) -> String {
        "its registration".to_owned()
    }

    fn variables(&self, _path: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CURATOR_SERVICE_NAME", self.instance.name.clone()),
            ("CURATOR_SERVICE_ID", self.instance.id.clone()),
            ("CURATOR_SERVICE_PORT", self.instance.port.map(|port| port.to_string()).unwrap_or_default()),
        ]
    }
}

impl Presence for Keeper<'_> {
    fn state(&self) -> Option<NodeState> {
        self.present.borrow().as_ref().map(Registration::state)
    }

    fn line(&self, state: &NodeState, is_first: bool) -> Option<String> {
        let (path, id) = (self.path, &self.instance.id);
        Some(match state {
            NodeState::Standing(node) => {
                format!(
                    "registered {id} at {path} (session {}, czxid {})",
                    shown_session(node.session),
                    node.czxid.get()
                )
            }
            NodeState::TakenBy { session, .. } => {
                format!("{path} has an instance {id} of session {}: waits until it is deleted", shown_session(*session))
            }
            NodeState::Refused { cause, .. } => format!("registered {id}, as far as is known: {cause}; tries again"),
            NodeState::Failed(error) => format!("{id} is not registered: {}; tries again", Chain(error)),
            NodeState::Creating if !is_first => format!("{id} is not registered at present"),
            _ => return None,
        })
    }

    fn stays(&self) -> String {
        "the instance is registered".to_owned()
    }
}
