import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Runs Curator's recipes with several clients: CuratorRecipes HOST:PORT. Ends with 0 if they keep their promises. */
public class CuratorRecipes {
    private static final int CLIENTS = 3;
    private static final int ROUNDS = 5;

    private interface Worker {
        void work(int number) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int number = 0; number < CLIENTS; number++) {
            CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], 10_000, 5_000, new ExponentialBackoffRetry(100, 5));
            client.start();
            check(client.blockUntilConnected(10, TimeUnit.SECONDS), "no connection");
            clients.add(client);
        }
        mutex(clients);
        System.out.println("mutex");
        semaphore(clients);
        System.out.println("semaphore");
        readWriteLock(clients);
        System.out.println("read-write lock");
        for (CuratorFramework client : clients) {
            client.close();
        }
        System.exit(0);
    }

    private static void mutex(List<CuratorFramework> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger entries = new AtomicInteger();
        compete(number -> {
            InterProcessMutex mutex = new InterProcessMutex(clients.get(number), "/curator/mutex");
            for (int round = 0; round < ROUNDS; round++) {
                check(mutex.acquire(20, TimeUnit.SECONDS), "the mutex is not to be had");
                mutex.acquire();
                check(inside.incrementAndGet() == 1, "two holders of the mutex");
                entries.incrementAndGet();
                Thread.sleep(3);
                inside.decrementAndGet();
                mutex.release();
                mutex.release();
            }
        });
        check(entries.get() == CLIENTS * ROUNDS, "the mutex was given out " + entries + " times");
    }

    private static void semaphore(List<CuratorFramework> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        compete(number -> {
            InterProcessSemaphoreV2 semaphore =
                new InterProcessSemaphoreV2(clients.get(number), "/curator/semaphore", 2);
            for (int round = 0; round < ROUNDS; round++) {
                Lease lease = semaphore.acquire(20, TimeUnit.SECONDS);
                check(lease != null, "no lease is to be had");
                check(inside.incrementAndGet() <= 2, "too many leases");
                Thread.sleep(3);
                inside.decrementAndGet();
                semaphore.returnLease(lease);
            }
        });
    }

    private static void readWriteLock(List<CuratorFramework> clients) throws Exception {
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger writers = new AtomicInteger();
        compete(number -> {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(clients.get(number), "/curator/rw");
            for (int round = 0; round < ROUNDS; round++) {
                boolean writes = (number + round) % 2 == 0;
                InterProcessMutex side = writes ? lock.writeLock() : lock.readLock();
                check(side.acquire(20, TimeUnit.SECONDS), "the lock is not to be had");
                if (writes) {
                    check(writers.incrementAndGet() == 1 && readers.get() == 0, "a writer is not alone");
                } else {
                    readers.incrementAndGet();
                    check(writers.get() == 0, "a reader beside a writer");
                }
                Thread.sleep(3);
                (writes ? writers : readers).decrementAndGet();
                side.release();
            }
        });
    }

    private static void compete(Worker worker) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CLIENTS);
        List<Future<?>> running = new ArrayList<>();
        for (int number = 0; number < CLIENTS; number++) {
            int mine = number;
            running.add(threads.submit((Callable<Void>) () -> {
                worker.work(mine);
                return null;
            }));
        }
        for (Future<?> one : running) {
            one.get(60, TimeUnit.SECONDS);
        }
        threads.shutdown();
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
