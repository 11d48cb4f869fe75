import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;

/**
 * Contends for locks with somebody else: CuratorMixed HOST:PORT ROOT ROUNDS. Does one part for each line that it reads
 * and says when it is done; ends with 0 if all locks kept their promises.
 */
public class CuratorMixed {
    private static final int THREADS = 2;

    private interface Entry {
        AutoCloseable enter(int number, int round) throws Exception;
    }

    private static CuratorFramework client;
    private static String root;
    private static int rounds;

    public static void main(String[] args) throws Exception {
        root = args[1];
        rounds = Integer.parseInt(args[2]);
        client = CuratorFrameworkFactory.newClient(args[0], 30_000, 10_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        check(client.blockUntilConnected(30, TimeUnit.SECONDS), "no connection");
        say("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String part = input.readLine(); part != null; part = input.readLine()) {
            run(part);
            say("done " + part);
        }
        client.close();
        System.exit(0);
    }

    private static void run(String part) throws Exception {
        String path = root + "/" + part;
        switch (part) {
            case "mutex":
                InterProcessMutex mutex = new InterProcessMutex(client, path);
                compete(path, (number, round) -> {
                    check(mutex.acquire(60, TimeUnit.SECONDS), "the mutex is not to be had");
                    return inside(path, "w", 1, mutex::release);
                });
                break;
            case "semaphore-mutex":
                compete(path, (number, round) -> {
                    InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(client, path);
                    check(lock.acquire(60, TimeUnit.SECONDS), "the mutex is not to be had");
                    return inside(path, "w", 1, lock::release);
                });
                break;
            case "semaphore":
                InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 2);
                compete(path, (number, round) -> {
                    Lease lease = semaphore.acquire(60, TimeUnit.SECONDS);
                    check(lease != null, "no lease is to be had");
                    return inside(path, "w", 2, () -> semaphore.returnLease(lease));
                });
                break;
            case "read-write":
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
                compete(path, (number, round) -> {
                    boolean writes = (number + round) % 2 == 0;
                    InterProcessMutex side = writes ? lock.writeLock() : lock.readLock();
                    check(side.acquire(60, TimeUnit.SECONDS), "the lock is not to be had");
                    return inside(path, writes ? "w" : "r", 1, side::release);
                });
                break;
            case "is-revoked":
                CountDownLatch asked = new CountDownLatch(1);
                InterProcessMutex held = new InterProcessMutex(client, path);
                held.makeRevocable(revoked -> asked.countDown());
                held.acquire();
                say("holds");
                check(asked.await(60, TimeUnit.SECONDS), "nobody asks for the lock");
                held.release();
                break;
            case "revokes":
                InterProcessMutex wanted = new InterProcessMutex(client, path);
                Revoker.attemptRevoke(client, wanted.getParticipantNodes().iterator().next());
                check(wanted.acquire(60, TimeUnit.SECONDS), "the lock was not given back");
                wanted.release();
                break;
            default:
                throw new IllegalArgumentException(part);
        }
    }

    /** Writes down who is inside, and looks who else is. */
    private static AutoCloseable inside(String path, String kind, int limit, AutoCloseable release) throws Exception {
        String own = client.create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(path + "-inside/" + kind + "-");
        int readers = 0;
        int writers = 0;
        for (String child : client.getChildren().forPath(path + "-inside")) {
            if (child.startsWith("w")) {
                writers++;
            } else {
                readers++;
            }
        }
        check(writers <= limit && (writers == 0 || readers == 0), path + ": " + writers + " and " + readers + " inside");
        return () -> {
            client.delete().forPath(own);
            release.close();
        };
    }

    private static void compete(String path, Entry entry) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<?>> running = new ArrayList<>();
        for (int number = 0; number < THREADS; number++) {
            int mine = number;
            running.add(threads.submit((Callable<Void>) () -> {
                for (int round = 0; round < rounds; round++) {
                    entry.enter(mine, round).close();
                }
                return null;
            }));
        }
        for (Future<?> one : running) {
            one.get(120, TimeUnit.SECONDS);
        }
        threads.shutdown();
    }

    private static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
