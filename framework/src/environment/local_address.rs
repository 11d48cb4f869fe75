//! This host's address.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::watch;

/// The time that the first session waits for the host's address: without a DNS server a lookup takes seconds.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// The address that this host's name resolves to, as text: Java's `InetAddress.getLocalHost().getHostAddress()`,
/// Curator's default data of new nodes. One lookup a process, on a thread of its own.
pub(crate) static LOCAL_ADDRESS: LazyLock<LocalAddress> = LazyLock::new(|| LocalAddress::new(look_up));

/// An address that is resolved once, after the first call of `begin`.
#[derive(Debug)]
pub(crate) struct LocalAddress {
    /// `None` until the lookup has ended; empty if the name does not resolve.
    address: watch::Sender<Option<&'static str>>,
    look_up: fn() -> Option<IpAddr>,
    begun: std::sync::Once,
}

impl LocalAddress {
    pub(crate) fn new(look_up: fn() -> Option<IpAddr>) -> Self {
        Self { address: watch::Sender::new(None), look_up, begun: std::sync::Once::new() }
    }

    /// Starts the lookup, unless an earlier call has started it.
    pub(crate) fn begin(&'static self) {
        self.begun.call_once(|| {
            let look_up = move || {
                let address = (self.look_up)().map(|address| address.to_string()).unwrap_or_default();
                // Leaked: one string a process, which all clients lend to their callers.
                self.address.send_replace(Some(address.leak()));
            };
            let thread = std::thread::Builder::new().name("curator-host-address".to_owned()).spawn(look_up);
            if let Err(error) = thread {
                tracing::debug!(%error, "the host's address is not looked up");
                self.address.send_replace(Some(""));
            }
        });
    }

    /// Returns the address; empty until it is known, and if it cannot be known.
    pub(crate) fn get(&self) -> &'static str {
        self.address.borrow().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn is_known(&self) -> bool {
        self.address.borrow().is_some()
    }

    /// Resolves when the address is known, or [`LONGEST_WAIT`] after this call. The lookup must have been started.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut address = self.address.subscribe();
        let until = tokio::time::Instant::now() + LONGEST_WAIT;
        async move {
            let _known_or_late = tokio::time::timeout_at(until, address.wait_for(Option::is_some)).await;
        }
    }
}

fn look_up() -> Option<IpAddr> {
    let found = (host_name()?, 0).to_socket_addrs().ok()?;
    // Java prefers IPv4.
    found.map(|address| address.ip()).min_by_key(|address| !address.is_ipv4())
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn host_name() -> Option<String> {
    gethostname::gethostname().into_string().ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lookup_that_blocks_delays_nothing_but_the_first_wait() {
        static GATE: LazyLock<(Sender<()>, Mutex<Receiver<()>>)> = LazyLock::new(|| {
            let (open, gate) = channel();
            (open, Mutex::new(gate))
        });
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        static ADDRESS: LazyLock<LocalAddress> = LazyLock::new(|| {
            LocalAddress::new(|| {
                LOOKUPS.fetch_add(1, Ordering::SeqCst);
                GATE.1.lock().recv().ok()?;
                Some(Ipv4Addr::new(10, 0, 0, 7).into())
            })
        });
        ADDRESS.begin();
        ADDRESS.begin();
        assert_eq!(ADDRESS.get(), "");
        let began = tokio::time::Instant::now();
        ADDRESS.wait().await;
        assert_eq!((began.elapsed() >= LONGEST_WAIT, ADDRESS.get()), (true, ""));
        GATE.0.send(()).unwrap();
        let mut known = ADDRESS.address.subscribe();
        known.wait_for(Option::is_some).await.unwrap();
        assert_eq!((ADDRESS.get(), LOOKUPS.load(Ordering::SeqCst)), ("10.0.0.7", 1));
        let began = tokio::time::Instant::now();
        ADDRESS.wait().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn name_that_does_not_resolve_is_no_address() {
        static ADDRESS: LazyLock<LocalAddress> = LazyLock::new(|| LocalAddress::new(|| None));
        ADDRESS.begin();
        ADDRESS.address.subscribe().wait_for(Option::is_some).await.unwrap();
        assert_eq!(ADDRESS.get(), "");
    }
}
