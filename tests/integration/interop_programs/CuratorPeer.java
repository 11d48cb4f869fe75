import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.RetryPolicy;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Does with Curator's recipes what it is told: CuratorPeer SERVERS SESSION_MILLIS. A line of the input is THREAD VERB
 * ARGUMENTS, a line of the output is > THREAD ANSWER. Each thread does one thing at a time. The words are those of
 * tests/interop/peer.rs.
 */
public class CuratorPeer {
    private static final long PATIENCE = 60_000;

    /** What a thread holds: a node (null if Curator does not tell it), and how to give it back. */
    private record Held(String node, AutoCloseable release) {
    }

    private static String server;
    private static int session;
    private static CuratorFramework client;
    /** The paths at which no thread competes any more. */
    private static final Set<String> STOPPED = ConcurrentHashMap.newKeySet();
    private static final Map<String, Object> RECIPES = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        server = args[0];
        session = Integer.parseInt(args[1]);
        client = connect();
        say("main", "ready");
        Map<String, CuratorPeer> threads = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            threads.computeIfAbsent(words[0], CuratorPeer::new).begin(words);
        }
        client.close();
        System.exit(0);
    }

    static CuratorFramework connect() throws Exception {
        return connect(new ExponentialBackoffRetry(100, 5));
    }

    static CuratorFramework connect(RetryPolicy policy) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(server, session, 10_000, policy);
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
        return client;
    }

    private final String name;
    private final ExecutorService thread;
    private final Map<String, Held> held = new HashMap<>();

    private CuratorPeer(String name) {
        this.name = name;
        thread = Executors.newSingleThreadExecutor();
    }

    private void begin(String[] words) {
        thread.submit(() -> {
            try {
                say(name, run(words));
            } catch (Throwable trouble) {
                say(name, "error " + trouble);
            }
        });
    }

    private String run(String[] words) throws Exception {
        switch (words[1]) {
            case "clock":
                return "" + System.nanoTime();
            case "session":
                return "" + client.getZookeeperClient().getZooKeeper().getSessionId();
            case "version": {
                Properties properties = new Properties();
                String file = "/META-INF/maven/org.apache.curator/curator-recipes/pom.properties";
                properties.load(InterProcessMutex.class.getResourceAsStream(file));
                return properties.getProperty("version");
            }
            case "acquire": {
                Held granted = acquire(words[2], words[3], Long.parseLong(words[4]));
                if (granted == null) {
                    return "timeout";
                }
                held.put(words[2] + words[3], granted);
                return "held " + token(granted);
            }
            case "release":
                held.remove(words[2] + words[3]).release().close();
                return "released";
            case "holds":
                return "" + mutex(words[2], words[3]).isAcquiredInThisProcess();
            case "compete": {
                long rest = words.length > 6 ? Long.parseLong(words[6]) : 0;
                compete(words[2].split(","), words[3], Integer.parseInt(words[4]), Long.parseLong(words[5]), rest);
                return "done";
            }
            case "stop":
                STOPPED.add(words[2]);
                return "stopped";
            case "participants":
                return String.join(" ", participants(words[2], words[3]));
            case "revocable":
                return revocable(words[2]);
            case "revoke":
                Revoker.attemptRevoke(client, words[2]);
                return "asked";
            case "count":
                return count(words);
            case "number":
                return CuratorCounts.number(client, words);
            case "barrier":
                return CuratorCounts.barrier(client, words);
            case "double":
                return CuratorCounts.member(client, words);
            case "node":
                return CuratorGroups.node(client, words);
            case "cache":
                return CuratorCaches.cache(words);
            case "queue":
                return CuratorQueues.run(client, words);
            case "json":
                return CuratorServices.json(words);
            case "discovery":
                return CuratorServices.run(client, words);
            case "group":
                return CuratorGroups.group(client, words);
            case "campaign":
                new CuratorElections.Campaign(words, STOPPED).run(words[2].equals("latch"));
                return "done";
            default:
                return CuratorElections.run(client, words);
        }
    }

    private void compete(String[] kinds, String path, int rounds, long hold, long rest) throws Exception {
        for (int round = 0; round < rounds && !STOPPED.contains(path);) {
            String kind = kinds[round % kinds.length];
            say(name, "asked " + System.nanoTime() + " " + kind);
            Held granted = acquire(kind, path, PATIENCE);
            long at = System.nanoTime();
            if (granted == null) {
                say(name, "refused " + at);
                // A client that is refused at once does something else first.
                Thread.sleep(1);
                continue;
            }
            round++;
            say(name, "granted " + at + " " + token(granted));
            Thread.sleep(hold);
            say(name, "releasing " + System.nanoTime());
            granted.release().close();
            say(name, "released " + System.nanoTime());
            Thread.sleep(rest);
        }
    }

    /** Holds a mutex until somebody asks for it. */
    private String revocable(String path) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        InterProcessMutex mutex = mutex("mutex", path);
        mutex.makeRevocable(revoked -> asked.countDown());
        mutex.acquire();
        say(name, "held " + token(new Held(nodeOf(mutex), null)));
        if (!asked.await(PATIENCE, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("nobody asks for the lock");
        }
        mutex.release();
        return "released";
    }

    private String count(String[] words) throws Exception {
        SharedCount count = count(words[3]);
        switch (words[2]) {
            case "get":
                return "" + count.getCount();
            case "set":
                count.setCount(Integer.parseInt(words[4]));
                return "set";
            case "try-set":
                return "" + count.trySetCount(count.getVersionedValue(), Integer.parseInt(words[4]));
            case "increment": {
                int rounds = Integer.parseInt(words[4]);
                while (rounds > 0) {
                    if (count.trySetCount(count.getVersionedValue(), count.getVersionedValue().getValue() + 1)) {
                        rounds--;
                    }
                }
                return "done";
            }
            case "await":
                return becomes(Integer.parseInt(words[4]), count::getCount);
            case "limits": {
                // The semaphore learns of a new limit by its listener, after the count of the same process.
                Field limit = InterProcessSemaphoreV2.class.getDeclaredField("maxLeases");
                limit.setAccessible(true);
                InterProcessSemaphoreV2 semaphore = semaphore(words[3], words[5]);
                return becomes(Integer.parseInt(words[4]), () -> limit.getInt(semaphore));
            }
            default:
                throw new IllegalArgumentException(words[2]);
        }
    }

    private static String becomes(int wanted, Callable<Integer> value) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE);
        while (value.call() != wanted) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("the value is " + value.call());
            }
            Thread.sleep(2);
        }
        return "is " + wanted;
    }

    private static synchronized SharedCount count(String path) throws Exception {
        SharedCount count = (SharedCount) RECIPES.get("count" + path);
        if (count == null) {
            count = new SharedCount(client, path, 0);
            count.start();
            RECIPES.put("count" + path, count);
        }
        return count;
    }

    /** A mutex, or one half of a read-write lock: the same object for the same path. */
    private static InterProcessMutex mutex(String kind, String path) {
        if (kind.equals("mutex")) {
            return (InterProcessMutex)
                RECIPES.computeIfAbsent("mutex" + path, key -> new InterProcessMutex(client, path));
        }
        InterProcessReadWriteLock lock = (InterProcessReadWriteLock)
            RECIPES.computeIfAbsent("read-write" + path, key -> new InterProcessReadWriteLock(client, path));
        return kind.equals("read") ? lock.readLock() : lock.writeLock();
    }

    /** semaphore:LIMIT:LEASES:HOW, where the limit may be the path of a shared count. */
    private static InterProcessSemaphoreV2 semaphore(String limit, String path) throws Exception {
        String key = "semaphore" + limit + path;
        if (limit.startsWith("/")) {
            SharedCount follow = count(limit);
            RECIPES.computeIfAbsent(key, absent -> new InterProcessSemaphoreV2(client, path, follow));
        } else {
            RECIPES.computeIfAbsent(key, absent -> new InterProcessSemaphoreV2(client, path, Integer.parseInt(limit)));
        }
        return (InterProcessSemaphoreV2) RECIPES.get(key);
    }

    private static Held acquire(String kind, String path, long millis) throws Exception {
        String[] parts = kind.split(":");
        switch (parts[0]) {
            case "mutex":
            case "read":
            case "write": {
                InterProcessMutex mutex = mutex(kind, path);
                return mutex.acquire(millis, TimeUnit.MILLISECONDS) ? new Held(nodeOf(mutex), mutex::release) : null;
            }
            case "semaphore": {
                InterProcessSemaphoreV2 semaphore = semaphore(parts[1], path);
                int leases = parts.length > 2 ? Integer.parseInt(parts[2]) : 1;
                String how = parts.length > 3 ? parts[3] : "" + millis;
                Collection<Lease> taken = take(semaphore, leases, how);
                if (taken == null) {
                    return null;
                }
                return new Held(path + "/leases/" + taken.iterator().next().getNodeName(),
                    () -> semaphore.returnAll(taken));
            }
            case "semaphore-mutex": {
                InterProcessSemaphoreMutex mutex = new InterProcessSemaphoreMutex(client, path);
                return mutex.acquire(millis, TimeUnit.MILLISECONDS) ? new Held(null, mutex::release) : null;
            }
            case "multi": {
                InterProcessMultiLock multi =
                    new InterProcessMultiLock(client, List.of(path, path + "-too"));
                return multi.acquire(millis, TimeUnit.MILLISECONDS) ? new Held(null, multi::release) : null;
            }
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** Some leases within so many milliseconds, or at once ("try"), or at some time ("wait"). */
    private static Collection<Lease> take(InterProcessSemaphoreV2 semaphore, int leases, String how) throws Exception {
        if (how.equals("wait")) {
            return leases == 1 ? List.of(semaphore.acquire()) : semaphore.acquire(leases);
        }
        long millis = how.equals("try") ? 0 : Long.parseLong(how);
        if (leases > 1) {
            return semaphore.acquire(leases, millis, TimeUnit.MILLISECONDS);
        }
        Lease lease = semaphore.acquire(millis, TimeUnit.MILLISECONDS);
        return lease == null ? null : List.of(lease);
    }

    private static List<String> participants(String kind, String path) throws Exception {
        String[] parts = kind.split(":");
        Collection<String> nodes = parts[0].equals("semaphore")
            ? semaphore(parts[1], path).getParticipantNodes()
            : mutex(kind, path).getParticipantNodes();
        return new ArrayList<>(nodes);
    }

    /** The node of the calling thread. */
    private static String nodeOf(InterProcessMutex mutex) throws Exception {
        Method lockPath = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        lockPath.setAccessible(true);
        return (String) lockPath.invoke(mutex);
    }

    private static long token(Held held) throws Exception {
        return held.node() == null ? 0 : client.checkExists().forPath(held.node()).getCzxid();
    }

    static synchronized void say(String thread, String answer) {
        System.out.println("> " + thread + " " + answer);
        System.out.flush();
    }
}
