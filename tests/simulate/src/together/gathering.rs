//! Clients that meet at barriers.

use std::time::Duration;

use curator_checkers::barriers::{Call, Event, Member};
use curator_framework::CuratorFramework;
use curator_recipes::{
    BarrierError, BarrierMember, DistributedBarrier, DistributedDoubleBarrier, DoubleBarrierOptions,
};
use tokio::time::{Instant, sleep, timeout};

use super::Worker;

const STEPS: u32 = 8;
/// The limit of the time of a call that does not wait for others.
const LIMIT: Duration = Duration::from_secs(90);

/// The barriers of a client.
#[derive(Debug, Clone)]
pub struct Gathering {
    plain: DistributedBarrier,
    /// The path of the double barrier.
    pub path: String,
    pub members: usize,
    /// A smaller number of members that is enough, and the time that they wait for others.
    pub quorum: Option<(usize, Duration)>,
}

impl Gathering {
    /// Creates the barriers of a client.
    pub fn new(client: &CuratorFramework, path: &str, members: usize, quorum: Option<(usize, Duration)>) -> Self {
        let plain = DistributedBarrier::new(client.clone(), format!("{path}/deep/plain")).expect("a valid path");
        Self { plain, path: format!("{path}/deep/double"), members, quorum }
    }

    fn double(&self, client: &CuratorFramework, id: &str) -> DistributedDoubleBarrier {
        let mut options = DoubleBarrierOptions::new().id(id);
        if let Some((least, grace)) = self.quorum {
            options = options.quorum(least, grace);
        }
        let double = DistributedDoubleBarrier::with_options(client.clone(), &*self.path, self.members, options);
        double.expect("valid arguments")
    }
}

impl Worker<Event> {
    /// Enters and leaves until all faults are over, and once more.
    pub async fn gather(mut self, gathering: Gathering) {
        let mut steps = 0;
        while !self.is_calm() || steps < STEPS {
            steps += 1;
            self.pause().await;
            self.lose_a_reply();
            if self.one_of(3) == 0 {
                self.plain(&gathering.plain).await;
            } else {
                self.member(&gathering).await;
            }
        }
        for _ in 0..2 {
            self.meet().await;
            self.all_at_once(&gathering).await;
        }
        self.meet().await;
        self.all_wait(&gathering.plain).await;
    }

    fn brief(&mut self) -> Option<Duration> {
        (self.one_of(5) == 0).then(|| self.time(0..400))
    }

    fn error(&self, error: &BarrierError) {
        self.scribe.judge(error, error.is_retryable());
    }

    /// Starts to enter with a new id.
    fn enters(&self, gathering: &Gathering) -> (Member, DistributedDoubleBarrier) {
        let id = |number| format!("member-{number}");
        let number = self.scribe.begins(|number| Event::Enters(Member(number), id(number)));
        (Member(number), gathering.double(&self.client, &id(number)))
    }

    async fn member(&mut self, gathering: &Gathering) {
        let (member, double) = self.enters(gathering);
        let began = Instant::now();
        let budget = self.time(200..12_000);
        let outcome = match self.one_of(4) {
            0 => timeout(budget, double.enter()).await.map(|entered| entered.map(Some)),
            _ => timeout(LIMIT, double.enter_timeout(budget)).await,
        };
        let entered = match outcome {
            Ok(Ok(Some(entered))) => entered,
            Ok(Ok(None)) => return self.scribe.event(Event::Gone(member)),
            Ok(Err(error)) => {
                self.error(&error);
                return self.scribe.event(Event::Gone(member));
            }
            Err(_) => {
                if began.elapsed() >= LIMIT {
                    self.scribe.wrong(format!("{member:?} enters without an end"));
                }
                return self.scribe.event(Event::Gone(member));
            }
        };
        self.scribe.event(Event::Entered { member, opened: entered.has_opened() });
        if self.one_of(3) == 0 {
            match timeout(LIMIT, entered.round()).await {
                Ok(Ok(round)) => self.scribe.event(Event::Names(member, round.get())),
                Ok(Err(error)) => self.scribe.judge(&error, error.is_retryable() || is_lost(&error)),
                Err(_) => self.scribe.wrong(format!("{member:?} does not learn its round")),
            }
        }
        self.stay(&entered).await;
        self.leave(member, entered).await;
    }

    /// Stays between enter and leave, and may wait for the death of another member in the meantime.
    async fn stay(&mut self, entered: &BarrierMember) {
        let time = self.time(0..3000);
        if self.one_of(3) > 0 {
            return sleep(time).await;
        }
        if let Ok(Err(error)) = timeout(time, entered.member_lost()).await {
            self.scribe.judge(&error, error.is_retryable() || is_lost(&error));
        }
    }

    async fn leave(&mut self, member: Member, entered: BarrierMember) {
        let time = self.time(0..6000);
        self.lose_a_reply();
        let outcome = match self.one_of(8) {
            0 => {
                self.scribe.event(Event::Gone(member));
                return drop(entered);
            }
            1 => {
                self.scribe.event(Event::Leaves(member));
                timeout(time, entered.leave()).await.map(|left| left.map(Some))
            }
            2 => {
                self.scribe.event(Event::Leaves(member));
                timeout(LIMIT, entered.leave_timeout(time)).await
            }
            _ => {
                self.scribe.event(Event::Leaves(member));
                let left = timeout(LIMIT, entered.leave()).await;
                if left.is_err() {
                    self.scribe.wrong(format!("{member:?} leaves without an end"));
                }
                left.map(|left| left.map(Some))
            }
        };
        match outcome {
            Ok(Ok(Some(departure))) => {
                return self.scribe.event(Event::Left { member, died: departure.died });
            }
            Ok(Err(error)) => self.scribe.judge(&error, error.is_retryable() || is_lost(&error)),
            _ => {}
        }
        self.scribe.event(Event::Gone(member));
    }

    /// Enters with all others, and leaves with them.
    async fn all_at_once(&mut self, gathering: &Gathering) {
        let (member, double) = self.enters(gathering);
        let entered = match double.enter().await {
            Ok(entered) => entered,
            Err(error) => return self.scribe.wrong(format!("{member:?} cannot enter: {error}")),
        };
        self.scribe.event(Event::Entered { member, opened: entered.has_opened() });
        self.meet().await;
        self.scribe.event(Event::Leaves(member));
        match entered.leave().await {
            Ok(departure) => self.scribe.event(Event::Left { member, died: departure.died }),
            Err(error) => self.scribe.wrong(format!("{member:?} cannot leave: {error}")),
        }
        self.meet().await;
        let left = self.ensemble.children("/storm/lock/deep/double");
        if !left.is_empty() {
            self.scribe.wrong(format!("nodes of the barrier are left: {left:?}"));
        }
    }

    async fn plain(&mut self, plain: &DistributedBarrier) {
        let brief = self.brief();
        match self.one_of(6) {
            0 => self.call(plain, plain.set_barrier(), |()| Some(true), brief).await,
            1 | 2 => self.call(plain, plain.remove_barrier(), |()| Some(false), brief).await,
            3 => self.call(plain, plain.is_set(), Some, brief).await,
            4 => {
                let budget = self.time(1..8000);
                self.call(plain, plain.wait_on_barrier_timeout(budget), |passed| Some(passed.is_none()), brief).await;
            }
            _ => {
                let owned = match timeout(brief.unwrap_or(LIMIT), plain.set_owned()).await {
                    Ok(Ok(owned)) => owned,
                    Ok(Err(error)) => return self.error(&error),
                    Err(_) => return,
                };
                self.scribe.note(format_args!("worker {} has set the barrier", self.number));
                let time = self.time(0..4000);
                let lost = timeout(time, owned.lost()).await;
                self.scribe.note(format_args!("worker {} removes the barrier: {lost:?}", self.number));
                self.lose_a_reply();
                if self.one_of(2) == 0 {
                    // One that was lost before may exist until its session ends.
                    self.call(plain, owned.release(), |released| released.is_released().then_some(false), brief).await;
                }
            }
        }
    }

    /// Makes a call, and notes if the barrier was set at its end, as far as its result shows that.
    async fn call<T>(
        &self,
        plain: &DistributedBarrier,
        future: impl Future<Output = Result<T, BarrierError>>,
        is_set: impl FnOnce(T) -> Option<bool>,
        brief: Option<Duration>,
    ) {
        let path = "/storm/lock/deep/plain".to_owned();
        debug_assert!(path.ends_with(plain.path()), "{plain:?}");
        let call = Call(self.scribe.begins(|number| Event::Calls(Call(number), path)));
        match timeout(brief.unwrap_or(LIMIT), future).await {
            Ok(Ok(result)) => {
                if let Some(is_set) = is_set(result) {
                    self.scribe.event(Event::Saw(call, is_set));
                }
            }
            Ok(Err(error)) => self.error(&error),
            Err(_) if brief.is_some() => {}
            Err(_) => self.scribe.wrong(format!("{call:?} does not end")),
        }
    }

    /// Waits with all others for a barrier, and for one of an owner.
    async fn all_wait(&mut self, plain: &DistributedBarrier) {
        self.call(plain, plain.remove_barrier(), |()| Some(false), None).await;
        self.meet().await;
        let owned = match self.number {
            0 => plain.set_owned().await.map_err(|error| self.scribe.judge(&error, false)).ok(),
            _ => None,
        };
        self.meet().await;
        if owned.is_some() {
            sleep(Duration::from_secs(1)).await;
            drop(owned);
        }
        self.call(plain, plain.wait_on_barrier(), |()| Some(false), None).await;
    }
}

const fn is_lost(error: &BarrierError) -> bool {
    matches!(error, BarrierError::Lost { .. })
}
