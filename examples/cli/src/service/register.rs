//! `service register`: an instance of a service, while a command runs and is healthy.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::time::Duration;

use clap::Args;
use curator_cli::text::shown_session;
use curator_discovery::{RawPayload, Registration, ServiceDiscovery, ServiceInstance};
use curator_framework::Chain;
use curator_recipes::NodeState;
use tokio::sync::watch;

use super::health::Health;
use super::{Base, discovery};
use crate::child::{self, Order, Setting, own_id};
use crate::failure::Failure;
use crate::grant::Grant;
use crate::outages::Outages;
use crate::output::tell;
use crate::signals::Signals;
use crate::site::{Site, give_back};

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Register {
    /// The port at which the instance serves
    #[arg(long, short, env = "CURATOR_SERVICE_PORT")]
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
    let instance = ServiceInstance::builder(&register.name).id(own_id(register.id.as_deref())).port(register.port);
    let instance = match &register.address {
        Some(address) => instance.address(address),
        None => instance,
    };
    let instance = instance.payload(payload).build()?;
    let connected = async {
        site.first_session(None).await?;
        site.check_chroot().await
    };
    signals.unless_ended(connected).await?;
    let keeper =
        Keeper { site, discovery, instance, path: &path, present: RefCell::default(), told: RefCell::default() };
    let (healthy, is_healthy) = watch::channel(false);
    let outcome = tokio::select! {
        biased;
        never = register.health.follow(&healthy) => match never {},
        failed = keeper.keep(is_healthy) => failed.map(|never| match never {}),
        outcome = run(&keeper, register, signals) => outcome,
    };
    give_back("instance", keeper.discovery.close()).await;
    outcome
}

/// Runs the command, or waits for a signal.
async fn run(keeper: &Keeper<'_>, register: &Register, signals: &mut Signals) -> Result<u8, Failure> {
    let Some(program) = register.command.first() else { return signals.unless_ended(pending()).await };
    let (command, foreground) = (&register.command, register.setting.foreground);
    let order =
        Order { command, foreground, path: keeper.path, grace: Duration::ZERO, revocable: false, reads_input: true };
    Ok(match child::run(keeper, &order, signals).await {
        Ok(ended) => child::code(ended.status),
        Err(error) => child::cannot_run(program, &error),
    })
}

/// Keeps the instance registered while it is healthy. As the grant of a command, its end stops no command.
struct Keeper<'a> {
    site: &'a Site,
    discovery: ServiceDiscovery<RawPayload>,
    instance: ServiceInstance<RawPayload>,
    /// The path of the service.
    path: &'a str,
    present: RefCell<Option<Registration<RawPayload>>>,
    /// The last line.
    told: RefCell<String>,
}

impl Keeper<'_> {
    /// Never ends but for an error of the instance: the caller drops it.
    async fn keep(&self, mut healthy: watch::Receiver<bool>) -> Result<Infallible, Failure> {
        let mut outages = Outages::of(&self.site.client);
        let mut states = None;
        loop {
            self.tell_state();
            tokio::select! {
                biased;
                changed = healthy.changed() => {
                    let is_healthy = changed.is_ok() && *healthy.borrow_and_update();
                    states = self.follow(is_healthy).await?;
                }
                () = changed(&mut states) => {}
                is_connected = outages.change() => tell(match (is_connected, self.is_standing()) {
                    (true, _) => "the connection is back",
                    (false, true) => "no connection: the instance is registered until its session ends",
                    (false, false) => "no connection",
                }),
            }
        }
    }

    /// Registers or unregisters the instance.
    async fn follow(&self, is_healthy: bool) -> Result<Option<watch::Receiver<NodeState>>, Failure> {
        let present = self.present.take();
        if !is_healthy {
            if let Some(registration) = present {
                let unregister = async {
                    if let Err(error) = registration.unregister().await {
                        tell(&format!("the instance is not deleted yet: {}", Chain(&error)));
                    }
                };
                give_back("instance", unregister).await;
                self.tell_anew(format!("{} is not registered", self.instance.id));
            }
            return Ok(None);
        }
        let registration = match present {
            Some(registration) => registration,
            None => {
                self.told.take();
                self.discovery.announce(self.instance.clone()).await?
            }
        };
        let states = registration.watch();
        self.present.replace(Some(registration));
        Ok(Some(states))
    }

    fn is_standing(&self) -> bool {
        self.present.borrow().as_ref().is_some_and(|registration| registration.state().standing().is_some())
    }

    /// Reports the present state, unless its line was the last one.
    fn tell_state(&self) {
        let Some(state) = self.present.borrow().as_ref().map(Registration::state) else { return };
        let (path, id) = (self.path, &self.instance.id);
        self.tell_anew(match state {
            NodeState::Standing(node) => {
                format!(
                    "registered {id} at {path} (session {}, czxid {})",
                    shown_session(node.session),
                    node.czxid.get()
                )
            }
            NodeState::TakenBy { session, .. } => {
                format!("{path} has an instance {id} of session {}: waits until it goes", shown_session(session))
            }
            NodeState::Refused { cause, .. } => format!("registered {id}, as far as is known: {cause}; tries again"),
            NodeState::Failed(error) => format!("{id} is not registered: {}; tries again", Chain(&error)),
            // The first attempt needs no line.
            NodeState::Creating if !self.told.borrow().is_empty() => format!("{id} is not registered at present"),
            _ => return,
        });
    }

    fn tell_anew(&self, line: String) {
        if *self.told.borrow() != line {
            tell(&line);
            self.told.replace(line);
        }
    }
}

/// Resolves at the next state of a registration, if there is one.
async fn changed(states: &mut Option<watch::Receiver<NodeState>>) {
    let is_open = match states {
        Some(states) => states.changed().await.is_ok(),
        None => false,
    };
    if !is_open {
        pending().await
    }
}

impl Grant for Keeper<'_> {
    fn what(&self) -> &'static str {
        "its registration"
    }

    fn variables(&self, _path: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CURATOR_SERVICE_NAME", self.instance.name.clone()),
            ("CURATOR_SERVICE_ID", self.instance.id.clone()),
            ("CURATOR_SERVICE_PORT", self.instance.port.map(|port| port.to_string()).unwrap_or_default()),
        ]
    }
}
