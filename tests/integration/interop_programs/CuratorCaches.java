import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.retry.RetryForever;

/** The verbs of caches. The words are those of tests/interop/caches. */
class CuratorCaches {
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(25);
    /** A cache of Curator may never have all nodes. */
    private static final long AGREES_NANOS = TimeUnit.SECONDS.toNanos(5);

    private static final Map<String, Follower> FOLLOWERS = new ConcurrentHashMap<>();

    /** A cache, and the nodes that its events have told, as text by path. */
    private abstract static class Follower {
        final Map<String, String> told = new ConcurrentSkipListMap<>();
        final CountDownLatch initialized = new CountDownLatch(1);

        abstract List<ChildData> nodes();

        void is(ChildData node) {
            told.put(node.getPath(), text(node));
        }
    }

    private static class Whole extends Follower {
        private final CuratorCache cache;

        Whole(CuratorFramework client, String path) {
            cache = CuratorCache.build(client, path);
            cache.listenable().addListener(CuratorCacheListener.builder()
                .forCreates(this::is)
                .forChanges((old, node) -> is(node))
                .forDeletes(node -> told.remove(node.getPath()))
                .forInitialized(initialized::countDown)
                .build());
            cache.start();
        }

        @Override
        List<ChildData> nodes() {
            return cache.stream().collect(Collectors.toList());
        }
    }

    private static class Tree extends Follower {
        private final String path;
        private final TreeCache cache;

        Tree(CuratorFramework client, String path) throws Exception {
            this.path = path;
            cache = new TreeCache(client, path);
            cache.getListenable().addListener((from, event) -> {
                switch (event.getType()) {
                    case NODE_ADDED:
                    case NODE_UPDATED:
                        is(event.getData());
                        break;
                    case NODE_REMOVED:
                        told.remove(event.getData().getPath());
                        break;
                    case INITIALIZED:
                        initialized.countDown();
                        break;
                    default:
                }
            });
            cache.start();
        }

        @Override
        List<ChildData> nodes() {
            List<ChildData> nodes = new ArrayList<>();
            addFrom(path, nodes);
            return nodes;
        }

        /** Its iterator fails beside changes. */
        private void addFrom(String path, List<ChildData> nodes) {
            ChildData node = cache.getCurrentData(path);
            Map<String, ChildData> children = cache.getCurrentChildren(path);
            if (node != null && children != null) {
                nodes.add(node);
                children.keySet().forEach(name -> addFrom(path + "/" + name, nodes));
            }
        }
    }

    /** THREAD cache KIND PATH VERB ARGUMENTS */
    static String cache(String[] words) throws Exception {
        String path = words[3];
        String name = words[2] + " " + path;
        Follower follower = FOLLOWERS.get(name);
        switch (words[4]) {
            case "start":
                // A cache of Curator is deaf for good if the retries of its watch end before the outage.
                CuratorFramework client = CuratorPeer.connect(new RetryForever(100));
                follower = words[2].equals("tree") ? new Tree(client, path) : new Whole(client, path);
                FOLLOWERS.put(name, follower);
                if (!follower.initialized.await(PATIENCE_NANOS, TimeUnit.NANOSECONDS)) {
                    throw new IllegalStateException("not initialized");
                }
                return "started";
            case "agrees":
                return agrees(follower, words[5]);
            case "told":
                return told(follower, words[5]);
            default:
                throw new IllegalArgumentException(words[4]);
        }
    }

    /** Waits until the cache has exactly these nodes; says what it has if that takes too long. */
    private static String agrees(Follower follower, String wanted) throws Exception {
        long end = System.nanoTime() + AGREES_NANOS;
        while (true) {
            Map<String, String> nodes = new TreeMap<>();
            follower.nodes().forEach(node -> nodes.put(node.getPath(), text(node)));
            String has = text(nodes);
            if (has.equals(wanted)) {
                return "agrees";
            }
            if (System.nanoTime() > end) {
                return has;
            }
            Thread.sleep(5);
        }
    }

    /** Waits until the events have told this node; what they have told of all. */
    private static String told(Follower follower, String marker) throws Exception {
        long end = System.nanoTime() + PATIENCE_NANOS;
        while (!follower.told.containsKey(marker)) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException(marker + " was not told");
            }
            Thread.sleep(5);
        }
        return text(follower.told);
    }

    private static String text(Map<String, String> nodes) {
        return nodes.entrySet().stream().map(node -> node.getKey() + "=" + node.getValue())
            .collect(Collectors.joining(";"));
    }

    private static String text(ChildData node) {
        return node.getStat().getCzxid() + "," + node.getStat().getMzxid() + "," + node.getStat().getVersion() + ","
            + new String(node.getData(), StandardCharsets.UTF_8);
    }
}
