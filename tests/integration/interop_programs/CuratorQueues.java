import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;

/** Curator's queues for CuratorPeer. tests/interop/queues/mod.rs lists the verbs. */
class CuratorQueues {
    private static final QueueSerializer<String> TEXTS = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return text(bytes);
        }
    };

    /** Says each item in the name of a thread, and works on it. */
    private static class Worker implements QueueConsumer<String> {
        private final String thread;
        private final long millis;
        private final Semaphore gate = new Semaphore(0);
        private QueueBase<String> queue;

        /** Works for so many milliseconds, or until the gate is opened if they are negative. */
        private Worker(String thread, long millis) {
            this.thread = thread;
            this.millis = millis;
        }

        @Override
        public void consumeMessage(String item) throws Exception {
            CuratorPeer.say(thread, "got " + item);
            if (millis < 0) {
                gate.acquire();
            } else {
                Thread.sleep(millis);
            }
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {
        }
    }

    private static final Map<String, QueueBase<String>> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, Worker> WORKERS = new ConcurrentHashMap<>();

    /** THREAD queue KIND PATH LOCK VERB ARGUMENTS */
    static String run(CuratorFramework client, String[] words) throws Exception {
        return words[2].equals("simple") ? simple(client, words) : queue(client, words);
    }

    private static String simple(CuratorFramework client, String[] words) throws Exception {
        SimpleDistributedQueue queue = new SimpleDistributedQueue(client, words[3]);
        switch (words[5]) {
            case "put":
                // The last word is missing if it is empty.
                queue.offer(TEXTS.serialize(words.length > 6 ? words[6] : ""));
                return "put";
            case "poll":
                return text(queue.poll());
            case "take":
                return text(queue.poll(Long.parseLong(words[6]), TimeUnit.MILLISECONDS));
            default:
                throw new IllegalArgumentException(words[5]);
        }
    }

    private static String queue(CuratorFramework client, String[] words) throws Exception {
        String argument = words.length > 7 ? words[7] : null;
        switch (words[5]) {
            case "put":
                put(producer(client, words), words[6], argument);
                return "put";
            case "multi":
                putMulti(producer(client, words), items(words[6].split(",")), argument);
                return "put";
            case "puts":
                for (int number = 0; number < Integer.parseInt(argument); number++) {
                    put(producer(client, words), words[6] + number, null);
                }
                return "put";
            case "remove":
                return "" + ((DistributedIdQueue<String>) producer(client, words)).remove(words[6]);
            case "consume": {
                Worker worker = new Worker(words[0], Long.parseLong(words[6]));
                WORKERS.put(words[0], worker);
                worker.queue = start(client, words, worker);
                return "consuming";
            }
            case "open":
                WORKERS.get(words[6]).gate.release();
                return "open";
            case "close":
                WORKERS.remove(words[0]).queue.close();
                return "closed";
            default:
                throw new IllegalArgumentException(words[5]);
        }
    }

    private static QueueBase<String> producer(CuratorFramework client, String[] words) throws Exception {
        String key = String.join(" ", words[2], words[3], words[4]);
        QueueBase<String> known = PRODUCERS.get(key);
        if (known == null) {
            known = start(client, words, null);
            PRODUCERS.put(key, known);
        }
        return known;
    }

    private static QueueBase<String> start(CuratorFramework client, String[] words, Worker worker) throws Exception {
        QueueBuilder<String> builder = QueueBuilder.builder(client, worker, TEXTS, words[3]).putInBackground(false);
        if (!words[4].equals("-")) {
            builder.lockPath(words[4]);
        }
        QueueBase<String> queue = switch (words[2]) {
            case "plain" -> builder.buildQueue();
            case "id" -> builder.buildIdQueue();
            case "priority" -> builder.buildPriorityQueue(0);
            case "delay" -> builder.buildDelayQueue();
            default -> throw new IllegalArgumentException(words[2]);
        };
        queue.start();
        return queue;
    }

    private static void put(QueueBase<String> queue, String item, String argument) throws Exception {
        if (queue instanceof DistributedIdQueue<String> ids) {
            ids.put(item, argument);
        } else if (queue instanceof DistributedPriorityQueue<String> priorities) {
            priorities.put(item, Integer.parseInt(argument));
        } else if (queue instanceof DistributedDelayQueue<String> delays) {
            delays.put(item, Long.parseLong(argument));
        } else {
            ((DistributedQueue<String>) queue).put(item);
        }
    }

    private static void putMulti(QueueBase<String> queue, MultiItem<String> items, String argument) throws Exception {
        if (queue instanceof DistributedPriorityQueue<String> priorities) {
            priorities.putMulti(items, Integer.parseInt(argument));
        } else if (queue instanceof DistributedDelayQueue<String> delays) {
            delays.putMulti(items, Long.parseLong(argument));
        } else {
            ((DistributedQueue<String>) queue).putMulti(items);
        }
    }

    private static MultiItem<String> items(String[] texts) {
        Iterator<String> all = Arrays.asList(texts).iterator();
        return () -> all.hasNext() ? all.next() : null;
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "none" : new String(bytes, StandardCharsets.UTF_8);
    }
}
