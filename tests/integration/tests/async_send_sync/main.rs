//! The `Send`, `Sync` and `Unpin` of each public type, and of the future of each public asynchronous method. A row lists
//! the ones that hold; the others must not. Each type is `'static`.

#![allow(clippy::type_complexity, reason = "futures of generic methods need types for their arguments")]

use std::collections::BTreeSet;
use std::future::Ready;
use std::marker::PhantomData;

/// An expression's type. The inherent methods exist if the trait is implemented; otherwise the methods of [`Absent`]
/// are called.
struct Of<T: ?Sized>(PhantomData<T>);

impl<T: Send + ?Sized> Of<T> {
    const fn send(&self) -> &str {
        "Send"
    }
}

impl<T: Sync + ?Sized> Of<T> {
    const fn sync(&self) -> &str {
        "Sync"
    }
}

impl<T: Unpin + ?Sized> Of<T> {
    const fn unpin(&self) -> &str {
        "Unpin"
    }
}

trait Absent {
    fn send(&self) -> &str {
        ""
    }

    fn sync(&self) -> &str {
        ""
    }

    fn unpin(&self) -> &str {
        ""
    }
}

impl<T: ?Sized> Absent for Of<T> {}

const fn of_type<T: ?Sized + 'static>() -> Of<T> {
    Of(PhantomData)
}

/// The future that a closure, which is never called, returns.
fn of_future<T: Future>(_: impl FnOnce() -> T) -> Of<T> {
    Of(PhantomData)
}

fn argument<T>() -> T {
    unreachable!("the closure is never called")
}

/// A row of the table: its text, the traits that it lists, and those that hold.
struct Row {
    text: String,
    listed: &'static str,
    holds: String,
}

macro_rules! row {
    ($of:expr, $text:expr, $listed:expr) => {{
        let of = $of;
        let holds = [of.send(), of.sync(), of.unpin()].join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        Row { text: $text.replace([' ', '\n'], ""), listed: $listed, holds }
    }};
}

macro_rules! types {
    ($($type:ty: $($mark:ident)*;)+) => {
        vec![$(row!(of_type::<$type>(), stringify!($type), stringify!($($mark)*))),+]
    };
}

macro_rules! futures {
    ($($($name:ident $(<$($generic:ty),*>)?)::+($($argument:ty),*): $($mark:ident)*;)+) => {
        vec![$(row!(
            of_future(|| $($name $(::<$($generic),*>)?)::+($(argument::<$argument>()),*)),
            stringify!($($name $(<$($generic),*>)?)::+($($argument),*)),
            stringify!($($mark)*)
        )),+]
    };
}

mod framework {
    use super::*;
    use curator_framework::*;

    pub(super) fn types() -> Vec<Row> {
        types! {
        Acl: Send Sync Unpin;
        AddWatchMode: Send Sync Unpin;
        Allowance: Send Sync Unpin;
        AuthInfo: Send Sync Unpin;
        BootClock: Send Sync Unpin;
        BoundedExponentialBackoffRetry: Send Sync Unpin;
        Chain<'static>: Unpin;
        Changes<u8>: Send Sync Unpin;
        ConnectError: Send Sync Unpin;
        ConnectionState: Send Sync Unpin;
        ConnectionStateListenable: Send Sync Unpin;
        CreateBuilder<'static>: Send Sync Unpin;
        CreateMode: Send Sync Unpin;
        CuratorFramework: Send Sync Unpin;
        CuratorFrameworkBuilder: Send Sync Unpin;
        CuratorOp: Send Sync Unpin;
        CuratorTransaction<'static>: Send Sync Unpin;
        CuratorTransactionResult: Send Sync Unpin;
        DefaultAclProvider: Send Sync Unpin;
        DefaultZooKeeperFactory: Send Sync Unpin;
        DeleteBuilder<'static>: Send Sync Unpin;
        EnsembleConfig: Send Sync Unpin;
        EnsureContainers: Send Sync Unpin;
        Error: Send Sync Unpin;
        EventType: Send Sync Unpin;
        ExistsBuilder<'static>: Send Sync Unpin;
        ExponentialBackoffRetry: Send Sync Unpin;
        FixedEnsembleProvider: Send Sync Unpin;
        GetAclBuilder<'static>: Send Sync Unpin;
        GetChildrenBuilder<'static>: Send Sync Unpin;
        GetConfigBuilder<'static>: Send Sync Unpin;
        GetDataBuilder<'static>: Send Sync Unpin;
        GzipCompressionProvider: Send Sync Unpin;
        ListenerId: Send Sync Unpin;
        LossReason: Send Sync Unpin;
        MultiReadBuilder<'static>: Send Sync Unpin;
        Identity: Send Sync Unpin;
        MultiReadResult: Send Sync Unpin;
        OperationType: Send Sync Unpin;
        OtherPaths: Send Sync Unpin;
        PathText: Send Sync Unpin;
        Permission: Send Sync Unpin;
        PersistentEvent: Send Sync Unpin;
        PersistentWatcher: Send Sync Unpin;
        ReconfigBuilder<'static>: Send Sync Unpin;
        RetryAttempt: Send Sync Unpin;
        RetryForever: Send Sync Unpin;
        RetryLoop: Send Sync Unpin;
        RetryNTimes: Send Sync Unpin;
        RetryOneTime: Send Sync Unpin;
        RetryUntilElapsed: Send Sync Unpin;
        SafeNotifyExecutor: Send Sync Unpin;
        SaslDigest: Send Sync Unpin;
        SaslError: Send Sync Unpin;
        SaslServer: Send Sync Unpin;
        Schema: Send Sync Unpin;
        SchemaDescription: Send Sync Unpin;
        SchemaSet: Send Sync Unpin;
        SchemaValidator: Send Sync;
        SeededRandomness: Send Sync Unpin;
        Session: Send Sync Unpin;
        SessionConnectionStateErrorPolicy: Send Sync Unpin;
        SessionEnd: Send Sync Unpin;
        SessionFailMode: Send Sync Unpin;
        SessionFailedRetryPolicy<RetryOneTime>: Send Sync Unpin;
        SessionId: Send Sync Unpin;
        SetAclBuilder<'static>: Send Sync Unpin;
        SetDataBuilder<'static>: Send Sync Unpin;
        StandardConnectionStateErrorPolicy: Send Sync Unpin;
        Stat: Send Sync Unpin;
        ThreadRandomness: Send Sync Unpin;
        TlsFiles: Send Sync Unpin;
        TlsOptions: Send Sync Unpin;
        TokioClock: Send Sync Unpin;
        WakeReason: Send Sync Unpin;
        Watch: Send Sync Unpin;
        WatchKind: Send Sync Unpin;
        Watched<GetDataBuilder<'static>>: Send Sync Unpin;
        WatchedEvent: Send Sync Unpin;
        ZooKeeperAsyncFactory: Send Sync Unpin;
        Zxid: Send Sync Unpin;
        recipe::Budget: Send Sync Unpin;
        recipe::Created: Send Sync Unpin;
        recipe::Found: Send Sync Unpin;
        recipe::KnownNodes: Send Sync Unpin;
        recipe::Listeners<dyn recipe::Resync>: Send Sync Unpin;
        recipe::LossSignal: Send Sync Unpin;
        recipe::NodeSpec<'static>: Send Sync Unpin;
        recipe::Occupant: Send Sync Unpin;
        recipe::OwnedNode: Send Sync Unpin;
        recipe::OwnerDelete: Send Sync Unpin;
        recipe::Parents: Send Sync Unpin;
        recipe::ProtectedId: Send Sync Unpin;
        recipe::Subscription: Send Sync Unpin;
        recipe::SubscriptionEvent: Send Sync Unpin;
        recipe::WatchedData: Send Sync Unpin;
        spi::AddedWatch: Send Unpin;
        spi::Capabilities: Send Sync Unpin;
        spi::Closing: Send Sync Unpin;
        spi::ConnectConfig: Send Sync Unpin;
        spi::Connection: Send Sync Unpin;
        spi::Done: Send Sync Unpin;
        spi::Evidence: Send Sync Unpin;
        spi::HandleEvent: Send Sync Unpin;
        spi::Notification: Send Sync Unpin;
        spi::NotificationCall: Send Sync Unpin;
        spi::Operation: Send Sync Unpin;
        spi::Pacer: Send Sync Unpin;
        spi::Reattached: Send Sync Unpin;
        spi::Read: Send Sync Unpin;
        spi::ReadDone: Send Sync Unpin;
        spi::Reply: Send Sync Unpin;
        spi::ReplyFuture: Send Unpin;
        spi::Request: Send Sync Unpin;
        spi::Response: Send Sync Unpin;
        spi::ServerList: Send Sync Unpin;
        spi::WatchEvents: Send Sync Unpin;
        spi::WatchSender: Send Sync Unpin;
        zk_paths::PathAndNode<'static>: Send Sync Unpin;
        }
    }

    pub(super) fn futures() -> Vec<Row> {
        futures! {
        Changes<u8>::recv(_): Send Sync;
        CreateBuilder::for_path(_, _): Send;
        CreateBuilder::for_path_with_stat(_, _): Send;
        CuratorFramework::add_watch(_, _, _): Send;
        CuratorFramework::block_until_connected(_): Send Sync;
        CuratorFramework::block_until_connected_timeout(_, _): Send Sync;
        CuratorFramework::close(_): Send;
        CuratorFramework::closed(_): Send Sync;
        CuratorFramework::create_containers(_, _): Send;
        CuratorFramework::run(_, Ready<Result<(), Error>>): Send;
        CuratorFramework::session(_): Send Sync;
        CuratorFramework::sync(_, _): Send;
        CuratorFramework::who_am_i(_): Send;
        CuratorFramework::within_one_session(_, _, fn(Session) -> Ready<Result<(), Error>>): Send Sync;
        CuratorTransaction::commit(_): Send;
        DeleteBuilder::for_path(_, _): Send;
        EnsureContainers::ensure(_): Send;
        ExistsBuilder::for_path(_, _): Send;
        GetAclBuilder::for_path(_, _): Send;
        GetChildrenBuilder::for_path(_, _): Send;
        GetConfigBuilder::for_ensemble(_): Send;
        GetDataBuilder::for_path(_, _): Send;
        MultiReadBuilder::send(_): Send;
        PersistentWatcher::recv(_): Send Sync;
        ReconfigBuilder::for_ensemble(_): Send;
        RetryLoop::connected(_, _): Send Sync;
        RetryLoop::done(_, Result<(), Error>, _): Send Sync;
        RetryLoop::failed(_, _): Send Sync;
        RetryLoop::pause_after(_, _): Send Sync;
        RetryLoop::reconnected(_, _): Send Sync;
        RetryLoop::session(_): Send Sync;
        Session::connected(_): Send Sync;
        Session::connection_changed(_, _, _): Send Sync;
        Session::continues(_, Vec<(String, Stat)>): Send;
        Session::create(_, _, _, _, _): Send;
        Session::create_parents(_, _, _): Send;
        Session::create_with_parents(_, _, _, _): Send;
        Session::delete(_, _, _): Send;
        Session::ended(_): Send Sync;
        Session::exists(_, _): Send;
        Session::exists_watched(_, _): Send;
        Session::get_acl(_, _): Send;
        Session::get_children(_, _): Send;
        Session::get_children_watched(_, _): Send;
        Session::get_data(_, _): Send;
        Session::get_data_of_all(_, _): Send;
        Session::get_data_watched(_, _): Send;
        Session::in_one_write(_, Ready<()>): Send Sync Unpin;
        SaslConversation::step(&mut dyn SaslConversation, _): Send Unpin;
        SaslMechanism::start(&dyn SaslMechanism, _): Send Unpin;
        Session::set_acl(_, _, _, _): Send;
        Session::set_data(_, _, _, _): Send;
        Session::subscribe(_, _, _, _): Send;
        Session::sync(_, _): Send;
        Session::joined_transaction(_, _): Send Sync;
        Session::multi_read(_, _): Send;
        Session::who_am_i(_): Send;
        Session::transaction(_, _): Send;
        Session::write_barrier(_): Send;
        SetAclBuilder::for_path(_, _): Send;
        SetDataBuilder::for_path(_, _, Vec<u8>): Send;
        Watched<GetConfigBuilder<'static>>::for_ensemble(_): Send;
        Watched<ExistsBuilder<'static>>::for_path(_, _): Send;
        Watched<GetChildrenBuilder<'static>>::for_path(_, _): Send;
        Watched<GetDataBuilder<'static>>::for_path(_, _): Send;
        recipe::Budget::limit(_, Ready<()>): Send Sync;
        recipe::Budget::over(_): Send Sync;
        recipe::LossSignal::lost(_): Send Sync;
        recipe::LossSignal::verify(_): Send;
        recipe::OwnedNode::adopt(_, _, _, _): Send;
        recipe::OwnedNode::create(_, _): Send;
        recipe::OwnedNode::create_with(_, _, _): Send;
        recipe::OwnedNode::delete(_): Send;
        recipe::OwnedNode::delete_with(_, _): Send;
        recipe::OwnedNode::occupant(_): Send;
        recipe::OwnedNode::replace(_, _, _, _): Send;
        recipe::OwnerDelete::is_done(_): Send Sync;
        recipe::RecipeClient::commit_in(&CuratorFramework, _, _, _): Send;
        recipe::RecipeClient::within(&CuratorFramework, _, Ready<()>): Send Sync;
        recipe::Subscription::recv(_): Send Sync;
        spi::Closing::begun(_): Send;
        spi::Connector::connect(&dyn spi::Connector, _): Send Unpin;
        spi::WatchEvents::recv(_): Send Sync;
        spi::ZooKeeperFactory::connect(&dyn spi::ZooKeeperFactory, _): Send Unpin;
        spi::ZooKeeperHandle::closed(&dyn spi::ZooKeeperHandle): Send Unpin;
        }
    }
}

mod recipes {
    use super::*;
    use curator_recipes::*;

    pub(super) fn types() -> Vec<Row> {
        types! {
        AtomicChange<i64>: Send Sync Unpin;
        AtomicStats: Send Sync Unpin;
        BarrierError: Send Sync Unpin;
        BarrierMember: Send Sync Unpin;
        CacheError: Send Sync Unpin;
        CacheEvent: Send Sync Unpin;
        CacheSnapshot: Send Sync Unpin;
        CacheState: Send Sync Unpin;
        CachedAtomicInteger: Send Sync Unpin;
        CachedAtomicLong: Send Sync Unpin;
        CachedAtomicNumber<i64>: Send Sync Unpin;
        Change<u8>: Send Sync Unpin;
        ChildData: Send Sync Unpin;
        CloseMode: Send Sync Unpin;
        Compared<i64>: Send Sync Unpin;
        CountDownLatch: Send Sync Unpin;
        CounterError: Send Sync Unpin;
        CounterOptions: Send Sync Unpin;
        CachedModel<u8>: Send Sync Unpin;
        CuratorCache: Send Sync Unpin;
        CuratorCacheListener: Send Sync Unpin;
        CuratorCacheListenerBuilder: Send Sync Unpin;
        CuratorCacheOptions: Send Sync Unpin;
        Delivery<u8>: Send Sync Unpin;
        Departure: Send Sync Unpin;
        DistributedAtomicInteger: Send Sync Unpin;
        DistributedAtomicLong: Send Sync Unpin;
        DistributedAtomicNumber<i64>: Send Sync Unpin;
        DistributedAtomicValue: Send Sync Unpin;
        DistributedBarrier: Send Sync Unpin;
        DistributedDelayQueue<u8>: Send Sync Unpin;
        DistributedDoubleBarrier: Send Sync Unpin;
        DistributedIdQueue<u8>: Send Sync Unpin;
        DistributedPriorityQueue<u8>: Send Sync Unpin;
        DistributedQueue<u8>: Send Sync Unpin;
        DoubleBarrierOptions: Send Sync Unpin;
        FencingToken: Send Sync Unpin;
        ForeignData: Send Sync Unpin;
        Group: Send Sync Unpin;
        GroupMember: Send Sync Unpin;
        GroupMemberOptions: Send Sync Unpin;
        GroupState: Send Sync Unpin;
        GuardedTransaction<'static>: Send Sync Unpin;
        InterProcessMultiLock: Send Sync Unpin;
        InterProcessMutex: Send Sync Unpin;
        InterProcessReadWriteLock: Send Sync Unpin;
        InterProcessSemaphoreMutex: Send Sync Unpin;
        InterProcessSemaphoreV2: Send Sync Unpin;
        LatchParticipant: Send Sync Unpin;
        JsonCodec: Send Sync Unpin;
        Leader: Send Sync Unpin;
        LeaderError: Send Sync Unpin;
        LeaderLatch: Send Sync Unpin;
        LeaderLatchOptions: Send Sync Unpin;
        LeaderObserver: Send Sync Unpin;
        LeaderSelector: Send Sync Unpin;
        LeaderSelectorOptions: Send Sync Unpin;
        LeaderState: Send Sync Unpin;
        Leadership: Send Sync Unpin;
        Lease: Send Sync Unpin;
        LeaseSet: Send Sync Unpin;
        LockError: Send Sync Unpin;
        LockGuard: Send Sync Unpin;
        LockOptions: Send Sync Unpin;
        LockOwner: Send Sync Unpin;
        Lookup: Send Sync Unpin;
        MaxLeases: Send Sync Unpin;
        Member: Send Sync Unpin;
        MemberChange: Send Sync Unpin;
        Members: Send Sync Unpin;
        ModelError: Send Sync Unpin;
        Migration: Send Sync Unpin;
        MigrationError: Send Sync Unpin;
        MigrationManager: Send Sync Unpin;
        MigrationSet: Send Sync Unpin;
        ModelChange<u8>: Send Sync Unpin;
        ModelSpec<u8>: Send Sync Unpin;
        ModelSpecOptions: Send Sync Unpin;
        ModeledCache<u8>: Send Sync Unpin;
        ModeledFramework<u8>: Send Sync Unpin;
        ModeledNode<u8>: Send Sync Unpin;
        MultiLockGuard: Send Sync Unpin;
        MutexGuard: Send Sync Unpin;
        MutexOptions: Send Sync Unpin;
        MutexQueue: Send Sync Unpin;
        NodeCache: Send Sync Unpin;
        NodeChanged: Send Sync Unpin;
        NodeError: Send Sync Unpin;
        NodeState: Send Sync Unpin;
        ObserverState: Send Sync Unpin;
        OwnedBarrier: Send Sync Unpin;
        OwnedItem: Send Sync Unpin;
        Owner: Send Sync Unpin;
        ParseTokenError: Send Sync Unpin;
        Participant: Send Sync Unpin;
        ParticipantKind: Send Sync Unpin;
        Partition: Send Sync Unpin;
        PartitionOptions: Send Sync Unpin;
        PathChildrenCache: Send Sync Unpin;
        PathChildrenCacheEvent: Send Sync Unpin;
        PersistentNode: Send Sync Unpin;
        PersistentNodeOptions: Send Sync Unpin;
        PersistentTtlNode: Send Sync Unpin;
        PersistentTtlNodeOptions: Send Sync Unpin;
        Predicate: Send Sync Unpin;
        PromotedToLock: Send Sync Unpin;
        QueueConsumer<u8>: Send Sync Unpin;
        QueueError: Send Sync Unpin;
        QueueOptions: Send Sync Unpin;
        QueuedItem<u8>: Send Sync Unpin;
        RawCodec: Send Sync Unpin;
        ReadGuard: Send Sync Unpin;
        ReadLock: Send Sync Unpin;
        Release: Send Sync Unpin;
        RevokeOutcome: Send Sync Unpin;
        Revoker: Send Sync Unpin;
        SemaphoreMutexGuard: Send Sync Unpin;
        SemaphoreOptions: Send Sync Unpin;
        SemaphoreProtocol: Send Sync Unpin;
        Share: Send Sync Unpin;
        Shared<i32>: Send Sync Unpin;
        SharedCount: Send Sync Unpin;
        SharedError: Send Sync Unpin;
        SharedValue: Send Sync Unpin;
        SortedChildren: Send Sync Unpin;
        StandardLockInternalsDriver: Send Sync Unpin;
        StandingNode: Send Sync Unpin;
        StartMode: Send Sync Unpin;
        TermEnd: Send Sync Unpin;
        TermOutcome<u8>: Send Sync Unpin;
        TreeCache: Send Sync Unpin;
        TreeCacheBuilder: Send Sync Unpin;
        TreeCacheEvent: Send Sync Unpin;
        SimpleDistributedQueue: Send Sync Unpin;
        UniqueIds: Send Sync Unpin;
        Versioned<u8>: Send Sync Unpin;
        VersionedValue<i32>: Send Sync Unpin;
        WriteGuard: Send Sync Unpin;
        WriteLock: Send Sync Unpin;
        guard_kinds::Any: Send Sync Unpin;
        guard_kinds::Multi: Send Sync Unpin;
        guard_kinds::Mutex: Send Sync Unpin;
        guard_kinds::OneLease: Send Sync Unpin;
        guard_kinds::Read: Send Sync Unpin;
        guard_kinds::SemaphoreMutex: Send Sync Unpin;
        guard_kinds::SeveralLeases: Send Sync Unpin;
        guard_kinds::Write: Send Sync Unpin;
        }
    }

    pub(super) fn futures() -> Vec<Row> {
        futures! {
        BarrierMember::leave(_): Send;
        BarrierMember::leave_timeout(_, _): Send;
        BarrierMember::lost(_): Send Sync;
        BarrierMember::member_lost(_): Send;
        BarrierMember::round(_): Send;
        BarrierMember::verify(_): Send;
        CachedAtomicNumber<i64>::next(_): Send;
        CountDownLatch::count(_): Send;
        CountDownLatch::count_down(_): Send;
        CountDownLatch::count_down_as(_, _): Send;
        CountDownLatch::participant_lost(_): Send;
        CountDownLatch::participate(_, _): Send;
        CountDownLatch::glance(_): Send;
        CountDownLatch::round(_): Send;
        CountDownLatch::try_set_count(_, _): Send;
        CountDownLatch::wait(_): Send;
        CountDownLatch::wait_timeout(_, _): Send;
        CuratorCache::caught_up(_): Send Sync;
        CuratorCache::close(_): Send Sync;
        CuratorCache::initialized(_): Send Sync;
        CuratorCache::initialized_timeout(_, _): Send Sync;
        CuratorCache::rebuild(_): Send Sync;
        CuratorCache::synced(_): Send;
        DistributedAtomicNumber<i64>::add(_, _): Send;
        DistributedAtomicNumber<i64>::release_marker(_): Send;
        DistributedAtomicNumber<i64>::compare_and_set(_, _, _): Send;
        DistributedAtomicNumber<i64>::decrement(_): Send;
        DistributedAtomicNumber<i64>::force_set(_, _): Send;
        DistributedAtomicNumber<i64>::get(_): Send;
        DistributedAtomicNumber<i64>::increment(_): Send;
        DistributedAtomicNumber<i64>::initialize(_, _): Send;
        DistributedAtomicNumber<i64>::subtract(_, _): Send;
        DistributedAtomicNumber<i64>::try_set(_, _): Send;
        DistributedAtomicValue::release_marker(_): Send;
        DistributedAtomicValue::compare_and_set(_, Vec<u8>, Vec<u8>): Send;
        DistributedAtomicValue::force_set(_, Vec<u8>): Send;
        DistributedAtomicValue::get(_): Send;
        DistributedAtomicValue::initialize(_, Vec<u8>): Send;
        DistributedAtomicValue::try_set(_, Vec<u8>): Send;
        DistributedBarrier::is_set(_): Send;
        DistributedBarrier::remove_barrier(_): Send;
        DistributedBarrier::set_barrier(_): Send;
        DistributedBarrier::set_owned(_): Send;
        DistributedBarrier::wait_on_barrier(_): Send;
        DistributedBarrier::wait_on_barrier_timeout(_, _): Send;
        DistributedDoubleBarrier::enter(_): Send;
        DistributedDoubleBarrier::enter_timeout(_, _): Send;
        DistributedDoubleBarrier::members(_): Send;
        Group::close(_): Send Sync;
        Group::initialized(_): Send Sync;
        Group::initialized_timeout(_, _): Send Sync;
        GroupMember::close(_): Send Sync;
        GroupMember::join(_): Send Sync;
        GroupMember::join_timeout(_, _): Send Sync;
        GroupMember::set_data(_, Vec<u8>): Send Sync;
        GuardedTransaction::commit(GuardedTransaction<'static, LockError>): Send;
        Held::lost(&MutexGuard): Send Sync;
        Held::verify(&MutexGuard): Send;
        InterProcessLock::acquire(&InterProcessMutex): Send Unpin;
        InterProcessLock::acquire_timeout(&InterProcessMutex, _): Send Unpin;
        InterProcessLock::try_acquire(&InterProcessMutex): Send Unpin;
        InterProcessMultiLock::acquire(_): Send;
        InterProcessMultiLock::acquire_timeout(_, _): Send;
        InterProcessMultiLock::try_acquire(_): Send;
        InterProcessMutex::acquire(_): Send;
        InterProcessMutex::acquire_as(_, _): Send;
        InterProcessMutex::acquire_timeout(_, _): Send;
        InterProcessMutex::acquire_as_timeout(_, _, _): Send;
        InterProcessMutex::participant_nodes(_): Send;
        InterProcessMutex::participants(_): Send;
        InterProcessMutex::try_acquire(_): Send;
        InterProcessMutex::try_acquire_as(_, _): Send;
        InterProcessReadWriteLock::participants(_): Send;
        InterProcessSemaphoreMutex::acquire(_): Send;
        InterProcessSemaphoreMutex::acquire_timeout(_, _): Send;
        InterProcessSemaphoreMutex::participants(_): Send;
        InterProcessSemaphoreMutex::try_acquire(_): Send;
        InterProcessSemaphoreV2::acquire(_): Send;
        InterProcessSemaphoreV2::acquire_many(_, _): Send;
        InterProcessSemaphoreV2::acquire_many_timeout(_, _, _): Send;
        InterProcessSemaphoreV2::acquire_timeout(_, _): Send;
        InterProcessSemaphoreV2::participant_nodes(_): Send;
        InterProcessSemaphoreV2::participants(_): Send;
        InterProcessSemaphoreV2::try_acquire(_): Send;
        InterProcessSemaphoreV2::try_acquire_many(_, _): Send;
        LatchParticipant::count_down(_): Send;
        LatchParticipant::lost(_): Send Sync;
        LatchParticipant::verify(_): Send;
        LeaderLatch::close(_): Send Sync;
        LeaderLatch::close_with(_, _): Send Sync;
        LeaderLatch::leader(_): Send;
        LeaderLatch::leading(_): Send Sync;
        LeaderLatch::leading_timeout(_, _): Send Sync;
        LeaderLatch::participants(_): Send;
        LeaderLatch::resign(_): Send Sync;
        LeaderLatch::resign_to_timeout(_, _, _): Send;
        LeaderObserver::close(_): Send Sync;
        LeaderObserver::initialized(_): Send Sync;
        LeaderObserver::initialized_timeout(_, _): Send Sync;
        LeaderSelector::close(_): Send Sync;
        LeaderSelector::leader(_): Send;
        LeaderSelector::participants(_): Send;
        LeaderSelector::run(_, fn(Leadership) -> Ready<Result<(), String>>): Send;
        LeaderSelector::run_once(_, fn(Leadership) -> Ready<()>): Send;
        LeaderSelector::run_until(_, Ready<()>, fn(Leadership) -> Ready<Result<(), String>>): Send;
        Leadership::ended(_): Send Sync;
        Leadership::lost(_): Send Sync;
        Leadership::hold_node(_, String, Vec<u8>): Send;
        Leadership::proclaim(_, Vec<u8>): Send;
        Leadership::protect(_, Ready<()>): Send Sync;
        Leadership::verify(_): Send;
        LockGuard<guard_kinds::OneLease>::data(_): Send;
        LockGuard<guard_kinds::Write>::downgrade(_): Send;
        LockGuard<guard_kinds::Mutex>::lost(_): Send Sync;
        LockGuard<guard_kinds::Mutex>::protect(_, Ready<()>): Send Sync;
        LockGuard<guard_kinds::Mutex>::release(_): Send;
        LockGuard<guard_kinds::Mutex>::release_all(Vec<&'static MutexGuard>): Send;
        LockGuard<guard_kinds::Mutex>::revocation_requested(_): Send Sync;
        LockGuard<guard_kinds::OneLease>::slot(_): Send;
        LockGuard<guard_kinds::Mutex>::verify(_): Send;
        LockOwner::scope(Ready<()>): Send Sync;
        MigrationManager::migrate(_, _): Send;
        MigrationManager::migrate_timeout(_, _, _): Send;
        ModeledCache<u8>::caught_up(_): Send Sync;
        ModeledCache<u8>::close(_): Send Sync;
        ModeledCache<u8>::initialized(_): Send Sync;
        ModeledCache<u8>::initialized_timeout(_, _): Send Sync;
        ModeledCache<u8>::synced(_): Send;
        ModeledFramework<u8>::keys(_): Send;
        ModeledFramework<u8>::read_all(_): Send;
        ModeledNode<u8>::create(_, _): Send;
        ModeledNode<u8>::delete(_): Send;
        ModeledNode<u8>::delete_version(_, _): Send;
        ModeledNode<u8>::exists(_): Send;
        ModeledNode<u8>::modify(_, fn(&mut u8) -> Result<(), CodecError>): Send;
        ModeledNode<u8>::read(_): Send;
        ModeledNode<u8>::read_opt(_): Send;
        ModeledNode<u8>::set(_, _): Send;
        ModeledNode<u8>::update(_, _, _): Send;
        NodeCache::close(_): Send Sync;
        NodeCache::initialized(_): Send Sync;
        NodeCache::initialized_timeout(_, _): Send Sync;
        NodeCache::rebuild(_): Send Sync;
        NodeCache::start_with_initial_build(_): Send Sync;
        NodeCache::synced(_): Send;
        OwnedBarrier::lost(_): Send Sync;
        OwnedBarrier::release(_): Send;
        OwnedBarrier::verify(_): Send;
        OwnedItem::lost(_): Send Sync;
        OwnedItem::revoked(_): Send Sync;
        OwnedItem::verify(_): Send;
        Partition::close(_): Send Sync;
        Partition::run(_, fn(OwnedItem) -> Ready<()>): Send;
        Partition::run_until(_, Ready<()>, fn(OwnedItem) -> Ready<()>): Send;
        PathChildrenCache::close(_): Send Sync;
        PathChildrenCache::initialized(_): Send Sync;
        PathChildrenCache::initialized_timeout(_, _): Send Sync;
        PathChildrenCache::rebuild(_): Send Sync;
        PathChildrenCache::rebuild_node(_, _): Send Sync;
        PathChildrenCache::start_with(_, _): Send;
        PathChildrenCache::synced(_): Send;
        PersistentNode::close(_): Send Sync;
        PersistentNode::close_all(Vec<&'static PersistentNode>): Send Sync;
        PersistentNode::created(_): Send Sync;
        PersistentNode::created_timeout(_, _): Send Sync;
        PersistentNode::delete(_): Send Sync;
        PersistentNode::set_data(_, Vec<u8>): Send Sync;
        PersistentTtlNode::close(_): Send Sync;
        PersistentTtlNode::created(_): Send Sync;
        PersistentTtlNode::created_timeout(_, _): Send Sync;
        PersistentTtlNode::set_data(_, Vec<u8>): Send Sync;
        ReadLock::acquire(_): Send;
        ReadLock::acquire_as(_, _): Send;
        ReadLock::acquire_timeout(_, _): Send;
        ReadLock::acquire_as_timeout(_, _, _): Send;
        ReadLock::participant_nodes(_): Send;
        ReadLock::participants(_): Send;
        ReadLock::try_acquire(_): Send;
        ReadLock::try_acquire_as(_, _): Send;
        Revoker::attempt_revoke(_, _): Send;
        Shared<i32>::close(_): Send Sync;
        Shared<i32>::set_count(_, _): Send;
        Shared<i32>::initialized(_): Send Sync;
        Shared<i32>::initialized_timeout(_, _): Send Sync;
        Shared<i32>::try_set_count(_, _, _): Send;
        Shared<Vec<u8>>::set_value(_, Vec<u8>): Send;
        Shared<Vec<u8>>::try_set_value(_, _, Vec<u8>): Send;
        TreeCache::close(_): Send Sync;
        TreeCache::initialized(_): Send Sync;
        TreeCache::initialized_timeout(_, _): Send Sync;
        TreeCache::rebuild(_): Send Sync;
        TreeCache::synced(_): Send;
        Delivery<u8>::complete(_): Send;
        Delivery<u8>::complete_with(_, _): Send;
        Delivery<u8>::lost(_): Send Sync;
        Delivery<u8>::reject(_, _): Send;
        Delivery<u8>::release(_): Send;
        Delivery<u8>::requeue(_): Send;
        Delivery<u8>::retry(_): Send;
        Delivery<u8>::verify(_): Send;
        DistributedDelayQueue<u8>::dead_letters(_, _): Send;
        DistributedDelayQueue<u8>::is_empty(_): Send;
        DistributedDelayQueue<u8>::len(_): Send;
        DistributedDelayQueue<u8>::peek(_, _): Send;
        DistributedDelayQueue<u8>::put(_, _, _): Send;
        DistributedDelayQueue<u8>::put_all(_, Vec<(&'static u8, std::time::SystemTime)>): Send;
        DistributedDelayQueue<u8>::put_batch(_, Vec<&'static u8>, _): Send;
        DistributedDelayQueue<u8>::put_timeout(_, _, _, _): Send;
        DistributedDelayQueue<u8>::purge(_): Send;
        DistributedDelayQueue<u8>::purge_dead(_): Send;
        DistributedDelayQueue<u8>::retry_dead(_, _): Send;
        DistributedIdQueue<u8>::dead_letters(_, _): Send;
        DistributedIdQueue<u8>::is_empty(_): Send;
        DistributedIdQueue<u8>::len(_): Send;
        DistributedIdQueue<u8>::peek(_, _): Send;
        DistributedIdQueue<u8>::put(_, _, _): Send;
        DistributedIdQueue<u8>::put_all(_, Vec<(&'static u8, &'static str)>): Send;
        DistributedIdQueue<u8>::put_batch(_, Vec<&'static u8>, _): Send;
        DistributedIdQueue<u8>::put_timeout(_, _, _, _): Send;
        DistributedIdQueue<u8>::purge(_): Send;
        DistributedIdQueue<u8>::purge_dead(_): Send;
        DistributedIdQueue<u8>::remove(_, _): Send;
        DistributedIdQueue<u8>::retry_dead(_, _): Send;
        DistributedPriorityQueue<u8>::dead_letters(_, _): Send;
        DistributedPriorityQueue<u8>::is_empty(_): Send;
        DistributedPriorityQueue<u8>::len(_): Send;
        DistributedPriorityQueue<u8>::peek(_, _): Send;
        DistributedPriorityQueue<u8>::put(_, _, _): Send;
        DistributedPriorityQueue<u8>::put_all(_, Vec<(&'static u8, i32)>): Send;
        DistributedPriorityQueue<u8>::put_batch(_, Vec<&'static u8>, _): Send;
        DistributedPriorityQueue<u8>::put_timeout(_, _, _, _): Send;
        DistributedPriorityQueue<u8>::purge(_): Send;
        DistributedPriorityQueue<u8>::purge_dead(_): Send;
        DistributedPriorityQueue<u8>::retry_dead(_, _): Send;
        DistributedQueue<u8>::dead_letters(_, _): Send;
        DistributedQueue<u8>::is_empty(_): Send;
        DistributedQueue<u8>::len(_): Send;
        DistributedQueue<u8>::peek(_, _): Send;
        DistributedQueue<u8>::put(_, _): Send;
        DistributedQueue<u8>::put_all(_, Vec<&'static u8>): Send;
        DistributedQueue<u8>::put_batch(_, Vec<&'static u8>): Send;
        DistributedQueue<u8>::put_timeout(_, _, _): Send;
        DistributedQueue<u8>::purge(_): Send;
        DistributedQueue<u8>::purge_dead(_): Send;
        DistributedQueue<u8>::retry_dead(_, _): Send;
        QueueConsumer<u8>::next(_): Send Sync;
        QueueConsumer<u8>::run(_, _, fn(Delivery<u8>) -> Ready<()>): Send Sync;
        QueueConsumer<u8>::run_until(_, Ready<()>, _, fn(Delivery<u8>) -> Ready<()>): Send Sync;
        SimpleDistributedQueue::offer(_, Vec<u8>): Send;
        SimpleDistributedQueue::peek(_): Send;
        SimpleDistributedQueue::poll(_): Send;
        SimpleDistributedQueue::poll_timeout(_, _): Send;
        SimpleDistributedQueue::take(_): Send;
        UniqueIds::next(_): Send;
        UniqueIds::take(_, _): Send;
        WriteLock::acquire(_): Send;
        WriteLock::acquire_as(_, _): Send;
        WriteLock::acquire_timeout(_, _): Send;
        WriteLock::acquire_as_timeout(_, _, _): Send;
        WriteLock::participant_nodes(_): Send;
        WriteLock::participants(_): Send;
        WriteLock::try_acquire(_): Send;
        WriteLock::try_acquire_as(_, _): Send;
        }
    }
}

mod discovery {
    use super::*;
    use curator_discovery::*;

    pub(super) fn types() -> Vec<Row> {
        types! {
        Candidate<'static, u8>: Send Sync Unpin;
        DecodeError: Send Sync Unpin;
        DiscoveryError: Send Sync Unpin;
        DownInstancePolicy: Send Sync Unpin;
        DubboPayload: Send Sync Unpin;
        InstanceChange<u8>: Send Sync Unpin;
        Instances<u8>: Send Sync Unpin;
        JsonInstanceSerializer: Send Sync Unpin;
        LeastLoaded: Send Sync Unpin;
        NameChange: Send Sync Unpin;
        ParseUriSpecError: Send Sync Unpin;
        Pick<u8>: Send Sync Unpin;
        Random: Send Sync Unpin;
        RawPayload: Send Sync Unpin;
        Registration<u8>: Send Sync Unpin;
        RoundRobin: Send Sync Unpin;
        ServiceCache<u8>: Send Sync Unpin;
        ServiceDiscovery<u8>: Send Sync Unpin;
        ServiceDiscoveryOptions<u8>: Send Sync Unpin;
        ServiceInstance<u8>: Send Sync Unpin;
        ServiceInstanceBuilder<u8>: Send Sync Unpin;
        ServiceNames: Send Sync Unpin;
        ServiceProvider<u8>: Send Sync Unpin;
        ServiceProviderOptions<u8>: Send Sync Unpin;
        ServiceType: Send Sync Unpin;
        SpringPayload: Send Sync Unpin;
        Sticky<RoundRobin>: Send Sync Unpin;
        UriPart: Send Sync Unpin;
        UriSpec: Send Sync Unpin;
        Weighted<u8>: Send Sync Unpin;
        WhenAllDown: Send Sync Unpin;
        }
    }

    pub(super) fn futures() -> Vec<Row> {
        futures! {
        Registration<u8>::close(_): Send Sync;
        Registration<u8>::drain(_, _): Send;
        Registration<u8>::registered(_): Send Sync;
        Registration<u8>::registered_timeout(_, _): Send Sync;
        Registration<u8>::set_enabled(_, _): Send;
        Registration<u8>::unregister(_): Send Sync;
        Registration<u8>::update(_, fn(&mut ServiceInstance<u8>)): Send;
        ServiceCache<u8>::close(_): Send Sync;
        ServiceCache<u8>::initialized(_): Send Sync;
        ServiceCache<u8>::initialized_timeout(_, _): Send Sync;
        ServiceCache<u8>::synced(_): Send;
        ServiceDiscovery<u8>::announce(_, _): Send Sync;
        ServiceDiscovery<u8>::close(_): Send Sync;
        ServiceDiscovery<u8>::instance(_, _, _): Send;
        ServiceDiscovery<u8>::instances(_, _): Send;
        ServiceDiscovery<u8>::local_address(_): Send Sync;
        ServiceDiscovery<u8>::names(_): Send;
        ServiceDiscovery<u8>::register(_, _): Send Sync;
        ServiceDiscovery<u8>::register_timeout(_, _, _): Send Sync;
        ServiceNames::close(_): Send Sync;
        ServiceNames::initialized(_): Send Sync;
        ServiceNames::initialized_timeout(_, _): Send Sync;
        ServiceNames::synced(_): Send;
        ServiceProvider<u8>::wait(_): Send Sync;
        ServiceProvider<u8>::wait_timeout(_, _): Send Sync;
        }
    }
}

mod tower {
    use super::*;
    use curator_tower::*;

    pub(super) fn types() -> Vec<Row> {
        types! {
        ClusterConcurrencyLimit<u8>: Send Sync Unpin;
        ClusterConcurrencyLimitLayer: Send Sync Unpin;
        LayerError: Send Sync Unpin;
        LeaderOnly<u8>: Send Sync Unpin;
        LeaderOnlyLayer: Send Sync Unpin;
        ResponseFuture<u8>: Send Unpin;
        }
    }
}

/// Returns a path without its generics.
fn plain(path: &str) -> String {
    let mut depth = 0;
    path.chars()
        .filter(|&c| {
            depth += i32::from(c == '<');
            let is_kept = depth == 0;
            depth -= i32::from(c == '>');
            is_kept
        })
        .collect()
}

/// Returns the types and the asynchronous methods that the file with the public API lists.
fn listed(api: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut types, mut futures) = (BTreeSet::new(), BTreeSet::new());
    for line in api.lines() {
        let path = |text: &str| plain(text).split(['(', ' ']).next().unwrap_or_default().to_owned();
        if let Some(function) = line.strip_prefix("async fn ") {
            futures.insert(path(function));
        } else if let Some(function) = line.strip_prefix("fn ") {
            let is_async = ["-> impl Future", "-> Pin<Box<dyn Future"].iter().any(|future| function.contains(future));
            futures.extend(is_async.then(|| path(function)));
        } else if let Some((_, of)) = line.split_once(' ').filter(|(kind, _)| ["struct", "enum"].contains(kind)) {
            types.insert(path(of));
        }
    }
    (types, futures)
}

fn check(api: &str, types: &[Row], futures: &[Row]) {
    let wrong = types.iter().chain(futures).filter(|row| row.listed != row.holds);
    let wrong: Vec<_> =
        wrong.map(|row| format!("{}: {}; the table has: {}", row.text, row.holds, row.listed)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let (wanted_types, wanted_futures) = listed(api);
    for (wanted, rows) in [(wanted_types, types), (wanted_futures, futures)] {
        let known: BTreeSet<_> =
            rows.iter().map(|row| plain(&row.text).split('(').next().unwrap_or_default().to_owned()).collect();
        let missing: Vec<_> = wanted.difference(&known).collect();
        assert!(missing.is_empty(), "the table lacks rows for {missing:?}");
    }
}

#[test]
fn framework_has_the_listed_auto_traits() {
    check(include_str!("../../../../framework/api.txt"), &framework::types(), &framework::futures());
}

#[test]
fn recipes_have_the_listed_auto_traits() {
    check(include_str!("../../../../recipes/api.txt"), &recipes::types(), &recipes::futures());
}

#[test]
fn service_discovery_has_the_listed_auto_traits() {
    check(include_str!("../../../../recipes/discovery/api.txt"), &discovery::types(), &discovery::futures());
}

#[test]
fn layers_for_tower_have_the_listed_auto_traits() {
    check(include_str!("../../../../recipes/tower/api.txt"), &tower::types(), &[]);
}
