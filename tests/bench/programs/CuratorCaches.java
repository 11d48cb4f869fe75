import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;

/** Curator's CuratorCache for the benchmark of caches. The words are those of benches/caches/main.rs. */
public class CuratorCaches {
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(20);

    private static final List<CuratorFramework> clients = new ArrayList<>();
    private static final List<CuratorCache> caches = new ArrayList<>();
    /** The path, the version and the time of each change that was told. */
    private static final List<Object[]> told = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        Program.serve(CuratorCaches::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect":
                for (int number = Integer.parseInt(words[1]); number > 0; number--) {
                    clients.add(Program.connect(words[2]));
                }
                return "connected";
            case "load":
                return load(words[1], Integer.parseInt(words[2]));
            case "heap":
                return "" + heap();
            case "shows":
                for (CuratorCache cache : caches) {
                    until(() -> cache.get(words[1])
                        .filter(node -> Arrays.equals(node.getData(), bytes(words[2]))).isPresent());
                }
                return "shown";
            case "record":
                caches.get(0).listenable().addListener(CuratorCacheListener.builder()
                    .forChanges(CuratorCaches::changed).build());
                return "recording";
            case "recorded":
                return recorded(Integer.parseInt(words[1]), Integer.parseInt(words[2]), words[3]);
            case "close":
                caches.forEach(CuratorCache::close);
                caches.clear();
                return "closed";
            case "end":
                clients.forEach(CuratorFramework::close);
                clients.clear();
                return "ended";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Starts a cache in each client, and waits until all have so many nodes. */
    private static String load(String path, int nodes) throws Exception {
        CountDownLatch initialized = new CountDownLatch(clients.size());
        long began = System.nanoTime();
        for (CuratorFramework client : clients) {
            CuratorCache cache = CuratorCache.build(client, path);
            cache.listenable().addListener(
                CuratorCacheListener.builder().forInitialized(initialized::countDown).build());
            cache.start();
            caches.add(cache);
        }
        try {
            for (CuratorCache cache : caches) {
                until(() -> cache.size() == nodes);
            }
        } catch (IllegalStateException late) {
            return "stuck " + caches.stream().mapToInt(CuratorCache::size).min().getAsInt();
        }
        if (!initialized.await(PATIENCE_NANOS, TimeUnit.NANOSECONDS)) {
            return "never initialized";
        }
        return (System.nanoTime() - began) + " initialized";
    }

    private static void changed(ChildData before, ChildData after) {
        Object[] one = {after.getPath(), after.getStat().getVersion(), System.nanoTime()};
        synchronized (told) {
            told.add(one);
            told.notifyAll();
        }
    }

    /** Waits until so many nodes were told with this version, and writes all that was told to a file. */
    private static String recorded(int nodes, int version, String file) throws Exception {
        long end = System.nanoTime() + PATIENCE_NANOS;
        synchronized (told) {
            int looked = 0;
            int complete = 0;
            while (complete < nodes) {
                for (; looked < told.size(); looked++) {
                    complete += (int) told.get(looked)[1] == version ? 1 : 0;
                }
                if (complete < nodes) {
                    if (System.nanoTime() > end) {
                        return "only " + complete;
                    }
                    told.wait(100);
                }
            }
            try (PrintWriter output = new PrintWriter(file)) {
                for (Object[] one : told) {
                    output.println(one[0] + " " + one[1] + " " + one[2]);
                }
            }
            told.clear();
        }
        return "recorded";
    }

    private static long heap() throws Exception {
        for (int round = 0; round < 3; round++) {
            System.gc();
            Thread.sleep(50);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private interface Condition {
        boolean isTrue();
    }

    private static void until(Condition condition) throws Exception {
        long end = System.nanoTime() + PATIENCE_NANOS;
        while (!condition.isTrue()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("not in time");
            }
            Thread.sleep(1);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
