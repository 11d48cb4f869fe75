//! Calls that a tracing subscriber makes while it gets an event.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use curator_integration::env::reports_are_made;
use curator_integration::in_process::simulated;
use curator_recipes::{LeaderSelector, TermOutcome};
use curator_test::{ClientId, SimulatedEnsemble};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

#[derive(Default)]
struct Call {
    made: AtomicUsize,
    call: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct AtLoss(Arc<Call>);

struct IsLoss(bool);

impl Visit for IsLoss {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 |= field.name() == "message" && format!("{value:?}") == "lock lost";
    }
}

impl<S: Subscriber> Layer<S> for AtLoss {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut is_loss = IsLoss(false);
        event.record(&mut is_loss);
        if let (true, Some(call)) = (is_loss.0, self.0.call.get()) {
            call();
            self.0.made.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The clock shows the loss to the caller first, which logs it.
#[test]
fn a_subscriber_may_ask_the_selector_whose_loss_it_is_told() {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let call = Arc::new(Call::default());
        let layers = tracing_subscriber::registry().with(AtLoss(Arc::clone(&call)));
        let _listening = tracing::subscriber::set_default(layers);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(3));
            let selector = LeaderSelector::new(simulated(&ensemble, 0).await, "/election").unwrap();
            let asked = selector.clone();
            assert!(call.call.set(Box::new(move || assert!(!asked.has_leadership()))).is_ok());
            let outcome = selector.run_once(async |_| {
                ensemble.skip_clock(ClientId(0), Duration::from_secs(100));
                assert!(!selector.has_leadership());
            });
            assert!(matches!(outcome.await.unwrap(), TermOutcome::Lost(_)));
        });
        reports_are_made();
        done.send(call.made.load(Ordering::SeqCst)).unwrap();
    });
    let made = is_done.recv_timeout(Duration::from_secs(30));
    assert_eq!(made, Ok(1), "a call at an event waits for ever");
    thread.join().unwrap();
}
