//! Every public asynchronous method of the recipes, polled this often and dropped, for every "this". All of them are in
//! one table. A row is a method, what is set up for its call, and the call. The scene around it checks what is left.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{OURS, Stage, TURN, play};
use tokio::task::JoinHandle;
use tokio::time::sleep;

mod caches;
mod counters;
mod double_barriers;
mod latches;
mod leaders;
mod locks;
mod nodes;
mod public_methods;
mod queues;
mod shared_values;
mod typed;

/// So that answers of several requests do not come at once.
const LATENCY: Duration = Duration::from_millis(3);
/// More polls than any of them takes.
const MOST_POLLS: usize = 500;

/// A stage on which a call is dropped at a cut.
struct Scene {
    what: String,
    stage: Stage,
    loses_reply: bool,
    cut: Cut,
    completes: bool,
    others: Vec<JoinHandle<()>>,
}

impl Scene {
    /// Polls the call up to the cut. `None` if it is dropped there.
    async fn call<T>(&mut self, call: impl Future<Output = T>) -> Option<T> {
        if self.loses_reply {
            self.stage.ensemble.drop_reply(OURS);
        }
        let outcome = poll_until(call, self.cut).await;
        self.completes = outcome.is_some();
        outcome
    }

    /// Returns `true` if the call is polled at all.
    fn is_called(&self) -> bool {
        self.cut != Cut::Before(0)
    }

    /// Has others do something in their turn.
    fn in_turn(&mut self, does: impl Future<Output = ()> + Send + 'static) {
        self.others.push(tokio::spawn(async move {
            sleep(TURN).await;
            does.await;
        }));
    }

    async fn assert_nothing_of_ours(&self) {
        self.stage.assert_nothing_of_ours(&self.what).await;
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the scene of {}", self.what);
        }
    }
}

/// A call, and what is expected behind its drop.
struct Row {
    method: &'static str,
    what: String,
    /// The call takes this many polls at least.
    least_polls: usize,
    /// And this many if the first reply is lost with the connection. `None` if that changes nothing.
    least_polls_of_lost: Option<usize>,
    /// Plays the scene. Returns `true` if the call completes before the cut.
    play: Box<dyn Fn(String, bool, Cut) -> bool>,
}

impl Row {
    /// The scene sets up, calls, and checks. Then the others come through, and all is as it was before.
    fn new(method: &'static str, scene: impl AsyncFn(&mut Scene) + 'static) -> Self {
        let plays = move |what: String, loses_reply, cut| {
            play(async {
                let stage = Stage::new(LATENCY).await;
                let before = stage.footprint();
                let mut on = Scene { what, stage, loses_reply, cut, completes: false, others: Vec::new() };
                scene(&mut on).await;
                on.stage.assert_as_before(std::mem::take(&mut on.others), &before, &on.what).await;
                on.completes
            })
        };
        Self { method, what: method.to_owned(), least_polls: 1, least_polls_of_lost: None, play: Box::new(plays) }
    }

    fn of(mut self, what: &str) -> Self {
        self.what.push_str(what);
        self
    }

    fn least_polls(mut self, polls: usize) -> Self {
        self.least_polls = polls;
        self
    }

    /// Runs again, with a lost reply.
    fn also_loses_a_reply(mut self, least_polls: usize) -> Self {
        self.least_polls_of_lost = Some(least_polls);
        self
    }

    fn run(&self) {
        self.cut_everywhere(false, self.least_polls);
        if let Some(polls) = self.least_polls_of_lost {
            self.cut_everywhere(true, polls);
        }
    }

    /// Drops the call at every cut, until it completes before the cut.
    fn cut_everywhere(&self, loses_reply: bool, least_polls: usize) {
        let what = format!("{}{}", self.what, if loses_reply { ", a lost reply" } else { "" });
        for polls in 0..MOST_POLLS {
            let cuts = [Cut::Before(polls), Cut::Behind(polls + 1)];
            let completes = cuts.map(|cut| (self.play)(format!("{what}, dropped {cut:?}"), loses_reply, cut));
            if completes[1] {
                assert!(polls >= least_polls, "{what} was done after {polls} polls");
                return;
            }
        }
        panic!("{what} is never done");
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
    dropped_put_or_removal_is_made_once_or_not: queues::puts,
    dropped_call_of_a_consumer_gives_its_items_back: queues::consumers,
    dropped_call_of_a_delivery_ends_it_once_or_not: queues::deliveries,
    dropped_call_of_a_simple_queue_loses_no_item: queues::simple,
    what_is_done_with_a_shared_value_leaves_nothing_but_the_value: shared_values::values,
    what_is_done_with_a_shared_count_leaves_nothing_but_the_count: shared_values::counts,
    dropped_call_of_a_typed_node_is_made_or_not: typed::nodes,
    dropped_call_of_a_cache_of_typed_nodes_leaves_it_running: typed::caches,
    dropped_migration_is_applied_or_not: typed::migrations,
}
