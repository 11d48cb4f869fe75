//! A fault of the first client at a moment of its call.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::simulated_stage::{ONE, SESSION, soon};
use curator_test::SimulatedEnsemble;
use tokio::time::sleep;

/// The number of kinds of faults.
pub(crate) const FAULTS: u64 = 6;

/// Lets the call run for `seed / FAULTS` milliseconds. Then a fault of the kind `seed % FAULTS` happens.
pub(crate) async fn fault(ensemble: &SimulatedEnsemble, one: &CuratorFramework, seed: u64) {
    let session = soon(one.session()).await.unwrap();
    sleep(Duration::from_millis(seed / FAULTS)).await;
    match seed % FAULTS {
        0 => ensemble.drop_reply(ONE),
        1 => ensemble.reset(ONE),
        2 => ensemble.stale_reads(ONE),
        // The next try is in the next session.
        3 => {
            ensemble.drop_reply(ONE);
            sleep(Duration::from_millis(seed / FAULTS % 20)).await;
            ensemble.kill_session(session.id().unwrap().get());
        }
        4 => ensemble.kill_session(session.id().unwrap().get()),
        _ => {
            ensemble.partition(ONE);
            sleep(SESSION * 2).await;
            ensemble.reset(ONE);
            ensemble.repair(ONE);
        }
    }
}
