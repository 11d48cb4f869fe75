//! Guards that are dropped, and guards that are kept after their release. In the simulation, to the millisecond.

use std::time::Duration;

use curator_framework::ConnectionState;
use curator_integration::simulated_stage::{LATENCY, ONE, TWO, client, play, soon, until};
use curator_recipes::InterProcessMutex;
use curator_test::SimulatedEnsemble;
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};

const GUARDS: usize = 1600;
/// The time of four round trips, and the rounding of timers. The window of a session has 512 requests.
const FEW_ROUND_TRIPS: Duration = Duration::from_millis(90);

fn locked(ensemble: &SimulatedEnsemble) -> usize {
    ensemble.children("/dropped").iter().map(|lock| ensemble.children(&format!("/dropped/{lock}")).len()).sum()
}

#[test]
fn dropped_guards_are_deleted_in_a_few_round_trips() {
    for is_connected in [true, false] {
        play(3, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let mutexes: Vec<_> = (0..GUARDS)
                .map(|number| InterProcessMutex::new(one.clone(), format!("/dropped/{number}")).unwrap())
                .collect();
            let guards = soon(try_join_all(mutexes.iter().map(InterProcessMutex::acquire))).await.unwrap();
            assert_eq!(locked(&ensemble), GUARDS);
            let mut states = one.watch_connection_state();
            if !is_connected {
                ensemble.reset(ONE);
                states.wait_for(|state| *state == Some(ConnectionState::Suspended)).await.unwrap();
            }
            drop(guards);
            states.wait_for(|state| state.is_some_and(ConnectionState::is_connected)).await.unwrap();
            let from = Instant::now();
            until("the locks are free", || locked(&ensemble) == 0).await;
            let took = from.elapsed();
            assert!(took <= FEW_ROUND_TRIPS, "connected {is_connected}: {took:?}");
        });
    }
}

#[test]
fn released_guard_that_is_kept_keeps_no_session() {
    play(3, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let mutex = InterProcessMutex::new(one, "/kept").unwrap();
        let guard = mutex.acquire().await.unwrap();
        drop(mutex);
        sleep(LATENCY * 10).await;
        assert!(guard.is_held(), "a held lock keeps its client");
        assert!(guard.release().await.unwrap().is_released());
        until("the session of the released guard ends", || ensemble.sessions().len() == 1).await;
        assert!(guard.release().await.unwrap().is_released() && two.is_connected());
    });
}
