//! Locks of all kinds, held in all the ways in which they can be lost.

use std::fmt;

use curator_checkers::locks::{Rules, Step};
use curator_framework::{CuratorFramework, LossReason};
use curator_recipes::{
    FencingToken, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, LockError, LockGuard, LockOwner, SemaphoreOptions, SemaphoreProtocol,
};
use futures_util::future::join_all;

/// The parts of a multi lock.
const PARTS: [&str; 3] = ["a", "b", "c"];

/// What is held, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub kind: Kind,
    pub form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    SemaphoreMutex,
    /// The one lease of a semaphore.
    Lease(SemaphoreProtocol),
    Write,
    Multi,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Once.
    Plain,
    /// Three times by one owner.
    Reentrant,
    /// Written, and now read.
    Downgraded,
    /// Written, and read beside that.
    ReadBeside,
}

impl Way {
    pub const ALL: [Self; 11] = [
        Self::new(Kind::Mutex, Form::Plain),
        Self::new(Kind::Mutex, Form::Reentrant),
        Self::new(Kind::SemaphoreMutex, Form::Plain),
        Self::new(Kind::Lease(SemaphoreProtocol::Curator), Form::Plain),
        Self::new(Kind::Lease(SemaphoreProtocol::Direct), Form::Plain),
        Self::new(Kind::Write, Form::Plain),
        Self::new(Kind::Write, Form::Reentrant),
        Self::new(Kind::Write, Form::Downgraded),
        Self::new(Kind::Write, Form::ReadBeside),
        Self::new(Kind::Multi, Form::Plain),
        Self::new(Kind::Multi, Form::Reentrant),
    ];

    pub const fn new(kind: Kind, form: Form) -> Self {
        Self { kind, form }
    }

    /// As the next holder takes it: alone.
    pub const fn plain(self) -> Self {
        Self::new(self.kind, Form::Plain)
    }

    pub const fn rules(self, patience: std::time::Duration) -> Rules {
        match self.kind {
            Kind::Mutex | Kind::Multi => Rules::mutex(patience),
            Kind::Write => Rules::read_write(patience),
            Kind::SemaphoreMutex | Kind::Lease(_) => Rules::semaphore(1, patience),
        }
    }

    /// Where its nodes are.
    pub fn parents(self, path: &str) -> Vec<String> {
        match self.kind {
            Kind::Mutex | Kind::Write => vec![path.to_owned()],
            Kind::Multi => PARTS.map(|part| format!("{path}/{part}")).to_vec(),
            Kind::SemaphoreMutex | Kind::Lease(_) => vec![format!("{path}/leases"), format!("{path}/locks")],
        }
    }

    /// Takes it, and tells `note` what the history is to know. After an error behind a grant the lock was lost.
    pub async fn take(
        self,
        client: &CuratorFramework,
        path: &str,
        note: impl Fn(Step) + Send + Sync,
    ) -> Result<Vec<LockGuard>, LockError> {
        let granted = |token: FencingToken| note(Step::Granted(token.czxid().get()));
        let client = client.clone();
        let owner = LockOwner::new();
        match (self.kind, self.form) {
            (Kind::Mutex, Form::Plain) => {
                let guard: LockGuard = InterProcessMutex::new(client, path)?.acquire().await?.into();
                granted(guard.token());
                Ok(vec![guard])
            }
            (Kind::Mutex, _) => {
                let mutex = InterProcessMutex::new(client, path)?;
                let outer = mutex.acquire_as(&owner).await?;
                granted(outer.token());
                let inner = mutex.acquire_as(&owner).await?;
                let further = inner.reenter()?;
                Ok(vec![outer.into(), inner.into(), further.into()])
            }
            (Kind::SemaphoreMutex, _) => {
                let guard: LockGuard = InterProcessSemaphoreMutex::new(client, path)?.acquire().await?.into();
                granted(guard.token());
                Ok(vec![guard])
            }
            (Kind::Lease(protocol), _) => {
                let semaphore =
                    InterProcessSemaphoreV2::with_options(client, path, 1, SemaphoreOptions::new().protocol(protocol))?;
                let guard: LockGuard = semaphore.acquire().await?.into();
                granted(guard.token());
                Ok(vec![guard])
            }
            (Kind::Write, form) => {
                let lock = InterProcessReadWriteLock::new(client, path)?;
                let write = lock.write_lock();
                let writing = write.acquire_as(&owner).await?;
                granted(writing.token());
                match form {
                    Form::Plain => Ok(vec![writing.into()]),
                    Form::Reentrant => {
                        let inner = write.acquire_as(&owner).await?;
                        let further = inner.reenter()?;
                        Ok(vec![writing.into(), inner.into(), further.into()])
                    }
                    Form::ReadBeside => {
                        let reading = lock.read_lock().acquire_as(&owner).await?;
                        let further = reading.reenter()?;
                        Ok(vec![writing.into(), reading.into(), further.into()])
                    }
                    Form::Downgraded => {
                        let reading = writing.downgrade().await?;
                        note(Step::Downgraded(reading.token().czxid().get()));
                        let further = reading.reenter()?;
                        Ok(vec![reading.into(), further.into()])
                    }
                }
            }
            (Kind::Multi, form) => {
                let all = InterProcessMultiLock::new(client, PARTS.map(|part| format!("{path}/{part}")))?;
                LockOwner::scope(async {
                    let mut guards: Vec<LockGuard> = vec![all.acquire().await?.into()];
                    granted(guards[0].token());
                    if form == Form::Reentrant {
                        guards.push(all.acquire().await?.into());
                    }
                    Ok(guards)
                })
                .await
            }
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.form)
    }
}

/// Resolves when all of them are lost, and each part of a multi lock too.
pub async fn all_lost(guards: &[LockGuard]) -> Vec<LossReason> {
    let parts = guards.iter().flat_map(LockGuard::parts);
    join_all(guards.iter().chain(parts).map(LockGuard::lost)).await
}

/// The faults of guards that are all reported as lost.
pub fn not_over(guards: &[LockGuard]) -> Option<String> {
    let parts = guards.iter().flat_map(LockGuard::parts);
    let held = |guard: &&LockGuard| guard.is_held() || !guard.remaining().is_zero();
    guards.iter().chain(parts).find(held).map(|guard| format!("{guard:?} is held for {:?}", guard.remaining()))
}
