//! Every public asynchronous method of the recipes, polled this often and dropped, for every "this". All of them are in
//! one table. A row is a method with the scene around its call: the scene sets up, calls, and checks what is left.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use curator_integration::cuts::Cut;

mod caches;
mod counters;
mod double_barriers;
mod latches;
mod leaders;
mod locks;
mod nodes;
mod public_methods;
mod shared_values;

/// So that answers of several requests do not come at once.
const LATENCY: Duration = Duration::from_millis(3);
/// More polls than any of them takes.
const MOST_POLLS: usize = 500;

/// Plays a call up to the cut, and checks what is left. Returns `true` if the call completes before the cut.
type Scene = Box<dyn Fn(Cut, &str) -> bool>;

/// A call, and what is expected behind its drop.
struct Row {
    method: &'static str,
    what: String,
    /// The call takes this many polls at least.
    least_polls: usize,
    scene: Scene,
}

impl Row {
    fn new(method: &'static str, what: &str, least_polls: usize, scene: impl Fn(Cut, &str) -> bool + 'static) -> Self {
        Self { method, what: format!("{method}{what}"), least_polls, scene: Box::new(scene) }
    }

    /// Two rows: all replies arrive, or one is lost with the connection.
    fn with_replies(
        method: &'static str,
        [all, lost]: [usize; 2],
        scene: impl Fn(bool, Cut, &str) -> bool + Clone + 'static,
    ) -> [Self; 2] {
        let with_lost = scene.clone();
        [
            Self::new(method, "", all, move |cut, what| scene(false, cut, what)),
            Self::new(method, ", a lost reply", lost, move |cut, what| with_lost(true, cut, what)),
        ]
    }

    /// Drops the call at every cut, until it completes before the cut.
    fn run(&self) {
        for polls in 0..MOST_POLLS {
            let mut completes = false;
            for cut in [Cut::Before(polls), Cut::Behind(polls + 1)] {
                completes = (self.scene)(cut, &format!("{}, dropped {cut:?}", self.what));
            }
            if completes {
                assert!(polls >= self.least_polls, "{} was done after {polls} polls", self.what);
                return;
            }
        }
        panic!("{} is never done", self.what);
    }
}

/// One test for each group of rows, so that groups run side by side.
macro_rules! table {
    ($($test:ident: $rows:path),* $(,)?) => {
        fn table() -> Vec<Row> {
            [$($rows()),*].into_iter().flatten().collect()
        }

        $(
            #[test]
            fn $test() {
                $rows().iter().for_each(Row::run);
            }
        )*
    };
}

table! {
    an_acquire_of_one_lock_leaves_nothing: locks::one_lock,
    an_acquire_of_one_lease_leaves_nothing: locks::one_lease,
    an_acquire_of_several_leaves_nothing: locks::several,
    what_is_done_with_a_lock_that_is_held_leaves_it_as_promised: locks::held,
    an_owner_that_drops_one_of_two_acquires_gets_the_other: locks::two_of_one_owner,
    dropped_call_of_a_cache_leaves_it_running_and_after_the_close_nothing: caches::caches,
    dropped_call_of_an_older_cache_leaves_it_running_and_after_the_close_nothing: caches::older_caches,
    dropped_call_of_a_counter_counts_at_most_once_and_the_others_go_on: counters::numbers,
    dropped_call_of_an_atomic_value_sets_it_at_most_once: counters::values,
    dropped_call_loses_ids_and_repeats_none: counters::ids,
    dropped_enter_leaves_no_node_and_no_watch: double_barriers::entering,
    dropped_call_of_a_member_leaves_the_barrier_to_the_other: double_barriers::inside,
    dropped_call_of_a_barrier_leaves_no_owned_node_and_no_watch: latches::barriers,
    dropped_call_of_a_latch_counts_once_at_most_and_leaves_no_watch: latches::latches,
    dropped_call_of_a_leader_latch_leaves_one_leader_and_after_the_closes_nothing: leaders::latches,
    dropped_call_of_a_selector_leaves_nothing_after_its_close: leaders::selectors,
    dropped_call_of_an_observer_leaves_nothing_after_its_close: leaders::observers,
    dropped_call_of_a_node_leaves_it_standing_and_after_the_close_nothing: nodes::nodes,
    dropped_call_of_a_node_with_a_time_to_live_leaves_nothing_after_the_close: nodes::ttl_nodes,
    dropped_call_of_a_member_or_a_group_leaves_both_and_after_the_closes_nothing: nodes::groups,
    dropped_call_of_a_partition_leaves_nothing_after_its_close: nodes::partitions,
    what_is_done_with_a_shared_value_leaves_nothing_but_the_value: shared_values::rows,
}
