import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/**
 * Does the workloads of the benchmark of peers. For each line WORKLOAD SERVER PATH MILLIS SIZE it says how many cycles
 * it did, in how many nanoseconds; for a hand-off, in how many nanoseconds each one came.
 */
public class CuratorBench {
    private static final int LEASES = 4;

    private interface Cycle {
        void run(int round) throws Exception;
    }

    private interface Contender {
        Cycle on(CuratorFramework client);
    }

    public static void main(String[] args) throws Exception {
        Program.serve(words -> run(words[0], words[1], words[2], Long.parseLong(words[3]), Integer.parseInt(words[4])));
    }

    private static String run(String workload, String server, String path, long millis, int size) throws Exception {
        switch (workload) {
            case "mutex":
                return compete(server, millis, size, client -> {
                    InterProcessMutex mutex = new InterProcessMutex(client, path);
                    return round -> {
                        mutex.acquire();
                        mutex.release();
                    };
                });
            case "semaphore":
                return compete(server, millis, size, client -> {
                    InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, LEASES);
                    return round -> {
                        Lease lease = semaphore.acquire();
                        semaphore.returnLease(lease);
                    };
                });
            case "read-write":
                return compete(server, millis, size, client -> {
                    InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
                    return round -> {
                        InterProcessMutex side = round % 10 == 0 ? lock.writeLock() : lock.readLock();
                        side.acquire();
                        side.release();
                    };
                });
            case "threads":
                return threads(server, path, millis, size);
            case "join":
                return join(server, path, size);
            case "drain":
                return drain(server, path, size);
            case "hand-off":
                return handOff(server, path, size);
            default:
                throw new IllegalArgumentException(workload);
        }
    }

    /** Every contender has a session. */
    private static String compete(String server, long millis, int size, Contender contender) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        List<Callable<Long>> tasks = new ArrayList<>();
        long[] begin = new long[1];
        for (int number = 0; number < size; number++) {
            CuratorFramework client = Program.connect(server);
            clients.add(client);
            Cycle cycle = contender.on(client);
            int first = number;
            tasks.add(() -> {
                long cycles = 0;
                while (System.nanoTime() - begin[0] < millis * 1_000_000) {
                    cycle.run(first + (int) cycles);
                    cycles++;
                }
                return cycles;
            });
        }
        ExecutorService threads = Executors.newFixedThreadPool(size);
        begin[0] = System.nanoTime();
        long cycles = 0;
        for (Future<Long> done : threads.invokeAll(tasks)) {
            cycles += done.get();
        }
        long nanos = System.nanoTime() - begin[0];
        threads.shutdown();
        for (CuratorFramework client : clients) {
            client.close();
        }
        return cycles + " " + nanos;
    }

    /** As many waiters as there are to be, all in one session, have their turn. */
    private static String drain(String server, String path, int size) throws Exception {
        CuratorFramework client = Program.connect(server);
        InterProcessMutex first = new InterProcessMutex(client, path);
        first.acquire();
        ExecutorService threads = Executors.newFixedThreadPool(size);
        List<Future<?>> turns = new ArrayList<>();
        for (int number = 0; number < size; number++) {
            InterProcessMutex mutex = new InterProcessMutex(client, path);
            turns.add(threads.submit(() -> {
                mutex.acquire();
                mutex.release();
                return null;
            }));
        }
        while (first.getParticipantNodes().size() <= size) {
            Thread.sleep(20);
        }
        Thread.sleep(300);
        Program.say("queued");
        Program.input.readLine();
        long begin = System.nanoTime();
        first.release();
        for (Future<?> turn : turns) {
            turn.get();
        }
        long nanos = System.nanoTime() - begin;
        threads.shutdown();
        client.close();
        return size + " " + nanos;
    }

    /** The threads of one client take turns. */
    private static String threads(String server, String path, long millis, int size) throws Exception {
        CuratorFramework client = Program.connect(server);
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        List<Callable<Long>> tasks = new ArrayList<>();
        long begin = System.nanoTime();
        for (int number = 0; number < size; number++) {
            tasks.add(() -> {
                long cycles = 0;
                while (System.nanoTime() - begin < millis * 1_000_000) {
                    mutex.acquire();
                    mutex.release();
                    cycles++;
                }
                return cycles;
            });
        }
        ExecutorService threads = Executors.newFixedThreadPool(size);
        long cycles = 0;
        for (Future<Long> done : threads.invokeAll(tasks)) {
            cycles += done.get();
        }
        long nanos = System.nanoTime() - begin;
        threads.shutdown();
        client.close();
        return cycles + " " + nanos;
    }

    /** Many threads of one client queue behind the first. */
    private static String join(String server, String path, int size) throws Exception {
        CuratorFramework client = Program.connect(server);
        InterProcessMutex first = new InterProcessMutex(client, path);
        first.acquire();
        ExecutorService threads = Executors.newFixedThreadPool(size);
        long begin = System.nanoTime();
        for (int number = 0; number < size; number++) {
            InterProcessMutex mutex = new InterProcessMutex(client, path);
            threads.submit(() -> {
                mutex.acquire();
                mutex.release();
                return null;
            });
        }
        while (client.checkExists().forPath(path).getNumChildren() <= size) {
            Thread.sleep(5);
        }
        long nanos = System.nanoTime() - begin;
        threads.shutdownNow();
        client.close();
        return size + " " + nanos;
    }

    /** From the release of one session to the grant of the other's. */
    private static String handOff(String server, String path, int rounds) throws Exception {
        CuratorFramework[] clients = {Program.connect(server), Program.connect(server)};
        InterProcessMutex[] mutexes = {new InterProcessMutex(clients[0], path), new InterProcessMutex(clients[1], path)};
        ExecutorService[] threads = {Executors.newSingleThreadExecutor(), Executors.newSingleThreadExecutor()};
        StringBuilder times = new StringBuilder();
        threads[0].submit(() -> {
            mutexes[0].acquire();
            return null;
        }).get();
        for (int round = 0; round < rounds; round++) {
            InterProcessMutex holder = mutexes[round % 2];
            InterProcessMutex waiter = mutexes[(round + 1) % 2];
            Future<Long> granted = threads[(round + 1) % 2].submit(() -> {
                waiter.acquire();
                return System.nanoTime();
            });
            while (holder.getParticipantNodes().size() < 2) {
                Thread.sleep(5);
            }
            Thread.sleep(50);
            Future<Long> released = threads[round % 2].submit(() -> {
                long begin = System.nanoTime();
                holder.release();
                return begin;
            });
            times.append(granted.get() - released.get()).append(' ');
        }
        threads[rounds % 2].submit(() -> {
            mutexes[rounds % 2].release();
            return null;
        }).get();
        for (int number = 0; number < 2; number++) {
            threads[number].shutdown();
            clients[number].close();
        }
        return times.toString().trim();
    }
}
