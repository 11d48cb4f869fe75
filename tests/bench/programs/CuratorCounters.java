import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.RetryPolicy;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;

/** Curator's DistributedAtomicLong for the benchmark of counters. The words are those of benches/counters/main.rs. */
public class CuratorCounters {
    /** The policy for the tries of an increment: with or without pauses between them. */
    private static RetryPolicy tries;

    private static final List<CuratorFramework> clients = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        tries = args[0].equals("pauses") ? new ExponentialBackoffRetry(10, 29, 100) : new RetryNTimes(1_000_000, 0);
        Program.serve(CuratorCounters::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect":
                for (int number = Integer.parseInt(words[1]); number > 0; number--) {
                    clients.add(Program.connect(words[2]));
                }
                return "connected";
            case "count": {
                List<DistributedAtomicLong> numbers = clients.stream()
                    .map(client -> new DistributedAtomicLong(client, words[1], tries)).collect(Collectors.toList());
                return increment(numbers, Long.parseLong(words[2]));
            }
            case "share": {
                DistributedAtomicLong number = new DistributedAtomicLong(clients.get(0), words[1], tries);
                List<DistributedAtomicLong> numbers = new ArrayList<>();
                for (int task = Integer.parseInt(words[3]); task > 0; task--) {
                    numbers.add(number);
                }
                return increment(numbers, Long.parseLong(words[2]));
            }
            case "end":
                clients.forEach(CuratorFramework::close);
                clients.clear();
                return "ended";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Increments each number in a thread of its own for so long. */
    private static String increment(List<DistributedAtomicLong> numbers, long millis) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(numbers.size());
        CountDownLatch ready = new CountDownLatch(numbers.size());
        CountDownLatch begin = new CountDownLatch(1);
        List<Future<Long>> runs = new ArrayList<>();
        for (DistributedAtomicLong number : numbers) {
            runs.add(threads.submit(() -> {
                ready.countDown();
                begin.await();
                long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
                long count = 0;
                for (; System.nanoTime() < end; count++) {
                    if (!number.increment().succeeded()) {
                        throw new IllegalStateException("not counted");
                    }
                }
                return count;
            }));
        }
        ready.await();
        long began = System.nanoTime();
        begin.countDown();
        StringBuilder counts = new StringBuilder();
        for (Future<Long> run : runs) {
            counts.append(' ').append(run.get());
        }
        long nanos = System.nanoTime() - began;
        threads.shutdown();
        return nanos + counts.toString();
    }
}
