import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;

/** Curator's DistributedQueue for the benchmark of queues. The words are those of benches/queues/main.rs. */
public class CuratorQueues {
    private static final QueueSerializer<String> TEXTS = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    };

    private static final List<CuratorFramework> clients = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        Program.serve(CuratorQueues::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect":
                for (int number = Integer.parseInt(words[1]); number > 0; number--) {
                    clients.add(Program.connect(words[2]));
                }
                return "connected";
            case "drain":
                return "" + drain(words[1], words[2], Integer.parseInt(words[3]));
            case "end":
                clients.forEach(CuratorFramework::close);
                clients.clear();
                return "ended";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Takes all items with a consumer of each client. Returns the nanoseconds until the last one. */
    private static long drain(String mode, String path, int items) throws Exception {
        CountDownLatch left = new CountDownLatch(items);
        QueueConsumer<String> consumer = new QueueConsumer<>() {
            @Override
            public void consumeMessage(String item) {
                left.countDown();
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {
            }
        };
        List<DistributedQueue<String>> queues = new ArrayList<>();
        long began = System.nanoTime();
        for (CuratorFramework client : clients) {
            QueueBuilder<String> builder = QueueBuilder.builder(client, consumer, TEXTS, path);
            DistributedQueue<String> queue = (mode.equals("plain") ? builder : builder.lockPath(path + "-locks")).buildQueue();
            queue.start();
            queues.add(queue);
        }
        if (!left.await(110, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " items are left");
        }
        long nanos = System.nanoTime() - began;
        // With a lock the last items are deleted after this.
        Thread.sleep(300);
        for (DistributedQueue<String> queue : queues) {
            queue.close();
        }
        return nanos;
    }
}
