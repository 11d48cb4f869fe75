import java.util.Collections;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Numbers invoices without a gap, in any number of processes. */
public class Invoices {
    static final String LAST = "/invoices/last";
    static final String LOCK = "/invoices/lock";

    public static void main(String[] args) throws Exception {
        CuratorFramework client = connect(args[0]);
        client.create().orSetData().creatingParentsIfNeeded()
            .forPath(LAST, "0".getBytes());
        InterProcessMutex mutex = new InterProcessMutex(client, LOCK);

        ExecutorService clerks = Executors.newFixedThreadPool(3);
        Callable<Void> clerk = () -> writeTwo(client, mutex);
        for (Future<Void> done
                : clerks.invokeAll(Collections.nCopies(3, clerk))) {
            done.get();
        }
        clerks.shutdown();

        CuratorFramework other = connect(args[0]);
        mutex.acquire();
        try {
            boolean second = new InterProcessMutex(other, LOCK)
                .acquire(1, TimeUnit.SECONDS);
            System.out.println("a second holder: " + second);
        } finally {
            mutex.release();
        }
        other.close();
        client.close();
    }

    static Void writeTwo(CuratorFramework client, InterProcessMutex mutex)
            throws Exception {
        for (int i = 0; i < 2; i++) {
            if (!mutex.acquire(10, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the lock is busy");
            }
            try {
                byte[] data = client.getData().forPath(LAST);
                int number = Integer.parseInt(new String(data)) + 1;
                client.setData().forPath(
                    LAST, Integer.toString(number).getBytes());
                System.out.println("invoice " + number);
            } finally {
                mutex.release();
            }
        }
        return null;
    }

    static CuratorFramework connect(String servers) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            servers, new ExponentialBackoffRetry(1000, 3));
        client.start();
        return client;
    }
}
