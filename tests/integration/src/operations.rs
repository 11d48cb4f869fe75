//! The asynchronous methods of the locks, all of them.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::kinds::Which;
use crate::lock_stage::{ROOT, Subject};
use curator_framework::CuratorFramework;
use curator_recipes::{
    InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, Lease, LeaseSet, LockError, LockGuard, LockOwner, MultiLockGuard, MutexGuard, ReadGuard,
    ReadLock, Release, RevokeOutcome, Revoker, SemaphoreMutexGuard, SemaphoreOptions, SemaphoreProtocol, WriteGuard,
    WriteLock,
};
use curator_test::SimulatedEnsemble;

pub type Local<T> = Pin<Box<dyn Future<Output = T>>>;
/// The outcome of a call that takes locks.
pub type Guards = Result<Vec<LockGuard>, LockError>;

/// How long an acquire waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Forever,
    Budget,
    Once,
}

impl Patience {
    fn of(method: &str) -> Self {
        match (method.starts_with("try_"), method.contains("timeout")) {
            (true, _) => Self::Once,
            (false, true) => Self::Budget,
            (false, false) => Self::Forever,
        }
    }
}

/// An acquire.
pub struct Taking {
    pub name: &'static str,
    pub subject: Subject,
    pub patience: Patience,
    pub run: Box<dyn Fn(CuratorFramework) -> Local<Guards>>,
}

/// A change of a node that is held, by another client.
type Disturbance = fn(SimulatedEnsemble, CuratorFramework, String) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something that is done while a lock is held.
pub struct Holding {
    pub name: &'static str,
    pub subject: Subject,
    pub promise: Promise,
    /// What it waits for, if it waits.
    pub disturb: Option<Disturbance>,
    pub least_polls: usize,
    pub prepare: Box<dyn Fn(CuratorFramework) -> Local<Held>>,
}

/// What a dropped future leaves of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    Kept,
    Gone,
}

pub struct Held {
    pub guard: Rc<dyn Guard>,
    /// Gives the further guards that it got.
    pub operation: Local<Vec<LockGuard>>,
}

/// The calls to a guard of any kind.
pub trait Guard {
    fn node_path(&self) -> &str;
    fn is_held(&self) -> bool;
    fn release(&self) -> Pin<Box<dyn Future<Output = Result<Release, LockError>> + '_>>;
}

impl<K> Guard for LockGuard<K> {
    fn node_path(&self) -> &str {
        self.node_path()
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    fn release(&self) -> Pin<Box<dyn Future<Output = Result<Release, LockError>> + '_>> {
        Box::pin(self.release())
    }
}

/// What acquires answer.
trait Granted {
    fn guards(self) -> Vec<LockGuard>;
}

macro_rules! granted {
    ($($guard:ty),*) => {$(
        impl Granted for $guard {
            fn guards(self) -> Vec<LockGuard> {
                vec![self.into()]
            }
        }
    )*};
}

granted!(LockGuard, MultiLockGuard, MutexGuard, ReadGuard, WriteGuard, Lease, SemaphoreMutexGuard);

impl<T: Granted> Granted for Option<T> {
    fn guards(self) -> Vec<LockGuard> {
        self.map_or_else(Vec::new, Granted::guards)
    }
}

impl Granted for LeaseSet {
    fn guards(self) -> Vec<LockGuard> {
        self.into_iter().map(Into::into).collect()
    }
}

pub const LONG: Duration = Duration::from_secs(60);

fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client.clone(), Which::Mutex.path(ROOT)).unwrap()
}

fn semaphore_mutex(client: &CuratorFramework) -> InterProcessSemaphoreMutex {
    InterProcessSemaphoreMutex::new(client.clone(), Which::SemaphoreMutex.path(ROOT)).unwrap()
}

fn read_write(client: &CuratorFramework, which: Which) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client.clone(), which.path(ROOT)).unwrap()
}

fn multi(client: &CuratorFramework) -> InterProcessMultiLock {
    let path = Which::Multi.path(ROOT);
    InterProcessMultiLock::new(client.clone(), [format!("{path}/one"), format!("{path}/two")]).unwrap()
}

fn of_one(client: &CuratorFramework, protocol: SemaphoreProtocol) -> InterProcessSemaphoreV2 {
    let which = if protocol == SemaphoreProtocol::Curator { Which::OneLease } else { Which::OneDirectLease };
    let path = which.path(ROOT);
    InterProcessSemaphoreV2::with_options(client.clone(), path, 1, SemaphoreOptions::new().protocol(protocol)).unwrap()
}

/// Acquires: the lock's name, what is contended for, how the lock is made, and its methods.
macro_rules! taking {
    ($list:ident, $lock:ident, $subject:expr, $make:expr, $($method:ident($($argument:expr),*)),*) => {$(
        $list.push(Taking {
            name: concat!(stringify!($lock), "::", stringify!($method)),
            subject: $subject,
            patience: Patience::of(stringify!($method)),
            run: Box::new(move |client| Box::pin(async move {
                let lock = $make(&client);
                $lock::$method(&lock, $($argument),*).await.map(Granted::guards)
            })),
        });
    )*};
}

/// Every way to acquire, with this budget where it takes one.
pub fn taking(budget: Duration) -> Vec<Taking> {
    use SemaphoreProtocol::{Curator, Direct};
    let mut all = Vec::new();
    macro_rules! plain_and_for_owners {
        ($lock:ident, $which:ident, $make:expr) => {
            taking!(
                all,
                $lock,
                Subject::One(Which::$which),
                $make,
                acquire(),
                acquire_timeout(budget),
                try_acquire(),
                acquire_as(&LockOwner::new()),
                acquire_as_timeout(&LockOwner::new(), budget),
                try_acquire_as(&LockOwner::new())
            );
        };
    }
    macro_rules! plain {
        ($lock:ident, $which:ident, $make:expr) => {
            taking!(all, $lock, Subject::One(Which::$which), $make, acquire(), acquire_timeout(budget), try_acquire());
        };
    }
    macro_rules! several {
        ($protocol:expr) => {
            taking!(
                all,
                InterProcessSemaphoreV2,
                Subject::Both($protocol),
                |client| Subject::Both($protocol).of_two(client),
                acquire_many(2),
                acquire_many_timeout(2, budget),
                try_acquire_many(2)
            );
        };
    }
    plain_and_for_owners!(InterProcessMutex, Mutex, mutex);
    plain_and_for_owners!(ReadLock, Read, |client| read_write(client, Which::Read).read_lock());
    plain_and_for_owners!(WriteLock, Write, |client| read_write(client, Which::Write).write_lock());
    plain!(InterProcessSemaphoreMutex, SemaphoreMutex, semaphore_mutex);
    plain!(InterProcessMultiLock, Multi, multi);
    plain!(InterProcessSemaphoreV2, OneLease, |client| of_one(client, Curator));
    plain!(InterProcessSemaphoreV2, OneDirectLease, |client| of_one(client, Direct));
    several!(Curator);
    several!(Direct);
    for which in Which::ALL {
        let subject = Subject::One(which);
        macro_rules! as_object {
            ($($name:ident($($argument:expr),*)),*) => {$(
                all.push(Taking {
                    name: concat!("InterProcessLock::", stringify!($name)),
                    subject,
                    patience: Patience::of(stringify!($name)),
                    run: Box::new(move |client| Box::pin(async move {
                        which.lock(&client, ROOT).$name($($argument),*).await.map(Granted::guards)
                    })),
                });
            )*};
        }
        as_object!(acquire(), acquire_timeout(budget), try_acquire());
        if which.is_reentrant() {
            all.push(Taking {
                name: "LockOwner::scope",
                subject,
                patience: Patience::Forever,
                run: Box::new(move |client| {
                    Box::pin(async move {
                        LockOwner::scope(async {
                            let lock = which.lock(&client, ROOT);
                            let outer = lock.acquire().await?;
                            Ok(vec![outer, lock.acquire().await?])
                        })
                        .await
                    })
                }),
            });
        }
    }
    all
}

/// A guard, and what is done with it.
async fn held<K, F>(guard: LockGuard<K>, operation: impl FnOnce(Rc<LockGuard<K>>) -> F) -> Held
where
    K: 'static,
    F: Future<Output = Vec<LockGuard>> + 'static,
{
    // By then it is alone, and its own node is watched.
    tokio::time::sleep(crate::lock_stage::QUIET).await;
    let guard = Rc::new(guard);
    let operation = Box::pin(operation(Rc::clone(&guard)));
    Held { guard, operation }
}

/// Every thing that can be done with what is held.
pub fn holding() -> Vec<Holding> {
    let mut all = Vec::new();
    macro_rules! case {
        ($name:expr, $which:expr, $promise:ident, $least:expr, $disturb:expr, |$client:ident| $take:expr, |$guard:ident| $operation:expr) => {
            all.push(Holding {
                name: $name,
                subject: Subject::One($which),
                promise: Promise::$promise,
                disturb: $disturb,
                least_polls: $least,
                prepare: Box::new(move |$client| {
                    Box::pin(async move {
                        let $client = &$client;
                        let guard = $take;
                        let $client = $client.clone();
                        held(guard, move |$guard| async move {
                            let _keeps = &$client;
                            $operation
                        })
                        .await
                    })
                }),
            });
        };
    }
    for which in Which::ALL {
        case!("LockGuard::release", which, Gone, 1, None, |client| boxed(which, client).await, |guard| {
            assert!(guard.release().await.unwrap().is_released());
            vec![]
        });
        case!("LockGuard::verify", which, Kept, 1, None, |client| boxed(which, client).await, |guard| {
            guard.verify().await.unwrap();
            vec![]
        });
        case!("LockGuard::lost", which, Kept, 1, Some(delete), |client| boxed(which, client).await, |guard| {
            guard.lost().await;
            vec![]
        });
        case!("LockGuard::protect", which, Kept, 2, None, |client| boxed(which, client).await, |guard| {
            guard
                .protect(async {
                    for _ in 0..2 {
                        guard.verify().await.unwrap();
                    }
                })
                .await
                .unwrap();
            vec![]
        });
        let revoked = Some(revoke as Disturbance);
        case!(
            "LockGuard::revocation_requested",
            which,
            Kept,
            1,
            revoked,
            |client| boxed(which, client).await,
            |guard| {
                guard.revocation_requested().await;
                vec![]
            }
        );
        case!("Revoker::attempt_revoke", which, Kept, 1, None, |client| boxed(which, client).await, |guard| {
            assert_eq!(Revoker::attempt_revoke(&client, guard.node_path()).await.unwrap(), RevokeOutcome::Requested);
            vec![]
        });
    }
    case!(
        "GuardedTransaction::commit",
        Which::Mutex,
        Kept,
        1,
        None,
        |client| mutex(client).acquire().await.unwrap(),
        |guard| {
            guard.transaction().check("/").commit().await.unwrap();
            vec![]
        }
    );
    macro_rules! looks {
        ($lock:ident, $which:ident, $make:expr, $($method:ident),*) => {$(
            case!(concat!(stringify!($lock), "::", stringify!($method)), Which::$which, Kept, 1, None,
                |client| boxed(Which::$which, client).await, |guard| {
                    let _keeps = guard;
                    assert!(!$lock::$method(&$make(&client)).await.unwrap().is_empty());
                    vec![]
                });
        )*};
    }
    let curator = SemaphoreProtocol::Curator;
    looks!(InterProcessMutex, Mutex, mutex, participants, participant_nodes);
    looks!(ReadLock, Read, |client| read_write(client, Which::Read).read_lock(), participants, participant_nodes);
    looks!(WriteLock, Write, |client| read_write(client, Which::Write).write_lock(), participants, participant_nodes);
    looks!(InterProcessReadWriteLock, Write, |client| read_write(client, Which::Write), participants);
    looks!(InterProcessSemaphoreV2, OneLease, |client| of_one(client, curator), participants, participant_nodes);
    looks!(InterProcessSemaphoreMutex, SemaphoreMutex, semaphore_mutex, participants);
    case!(
        "LockGuard::release",
        Which::OneLease,
        Gone,
        1,
        None,
        |client| of_one(client, curator).acquire_many(1).await.unwrap(),
        |guard| {
            assert!(guard.release().await.unwrap().is_released());
            vec![]
        }
    );
    case!(
        "LockGuard::release_all",
        Which::OneLease,
        Gone,
        1,
        None,
        |client| of_one(client, curator).acquire().await.unwrap(),
        |guard| {
            assert!(Lease::release_all([&*guard]).await.into_iter().all(|released| released.unwrap().is_released()));
            vec![]
        }
    );
    case!(
        "Lease::data",
        Which::OneLease,
        Kept,
        1,
        None,
        |client| of_one(client, curator).acquire().await.unwrap(),
        |guard| {
            guard.data().await.unwrap();
            vec![]
        }
    );
    case!(
        "Lease::slot",
        Which::OneLease,
        Kept,
        2,
        None,
        |client| of_one(client, curator).acquire().await.unwrap(),
        |guard| {
            assert_eq!(guard.slot().await.unwrap(), 0);
            vec![]
        }
    );
    let write = |client: &CuratorFramework| read_write(client, Which::Write).write_lock();
    case!(
        "WriteGuard::downgrade",
        Which::Write,
        Kept,
        2,
        None,
        |client| write(client).acquire().await.unwrap(),
        |guard| guard.downgrade().await.unwrap().guards()
    );
    case!(
        "WriteGuard::downgrade",
        Which::Write,
        Kept,
        2,
        None,
        |client| write(client).acquire_as(&LockOwner::new()).await.unwrap(),
        |guard| guard.downgrade().await.unwrap().guards()
    );
    // An owner that writes reads too; and what it has it has again at once.
    all.push(beside("ReadLock::acquire_as", 2, |lock, owner| {
        Box::pin(async move { lock.read_lock().acquire_as(&owner).await.unwrap().guards() })
    }));
    all.push(beside("ReadLock::acquire_as_timeout", 2, |lock, owner| {
        Box::pin(async move { lock.read_lock().acquire_as_timeout(&owner, LONG).await.unwrap().guards() })
    }));
    all.push(beside("ReadLock::try_acquire_as", 2, |lock, owner| {
        Box::pin(async move { lock.read_lock().try_acquire_as(&owner).await.unwrap().guards() })
    }));
    all.push(beside("WriteLock::acquire_as", 0, |lock, owner| {
        Box::pin(async move { lock.write_lock().acquire_as(&owner).await.unwrap().guards() })
    }));
    all
}

fn beside(
    name: &'static str,
    least_polls: usize,
    operation: fn(InterProcessReadWriteLock, LockOwner) -> Local<Vec<LockGuard>>,
) -> Holding {
    Holding {
        name,
        subject: Subject::One(Which::Write),
        promise: Promise::Kept,
        disturb: None,
        least_polls,
        prepare: Box::new(move |client| {
            Box::pin(async move {
                let (lock, owner) = (read_write(&client, Which::Write), LockOwner::new());
                let guard = lock.write_lock().acquire_as(&owner).await.unwrap();
                held(guard, move |_| operation(lock, owner)).await
            })
        }),
    }
}

fn delete(
    ensemble: SimulatedEnsemble,
    _client: CuratorFramework,
    path: String,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { ensemble.delete(&path) })
}

fn revoke(
    _ensemble: SimulatedEnsemble,
    client: CuratorFramework,
    path: String,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { Revoker::attempt_revoke(&client, &path).await.map(drop).unwrap() })
}

async fn boxed(which: Which, client: &CuratorFramework) -> LockGuard {
    which.lock(client, ROOT).acquire().await.unwrap()
}
