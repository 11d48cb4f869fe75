import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Runs a long batch, which makes way for a report that asks. */
public class Batch {
    public static void main(String[] args) throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        Future<Void> reported = thread.submit(() -> report(args[0]));
        CuratorFramework client = connect(args[0]);
        SharedCount records = new SharedCount(client, "/batch/records", 0);
        records.start();
        InterProcessMutex mutex =
            new InterProcessMutex(client, "/batch/lock");
        CountDownLatch asked = new CountDownLatch(1);
        mutex.makeRevocable(lock -> asked.countDown());
        mutex.acquire();
        try {
            do {
                records.setCount(records.getCount() + 1); // one record
            } while (!asked.await(10, TimeUnit.MILLISECONDS));
            System.out.println("the batch was asked to stop");
        } finally {
            mutex.release();
        }
        reported.get();
        thread.shutdown();
        records.close();
        client.close();
    }

    static Void report(String servers) throws Exception {
        CuratorFramework client = connect(servers);
        SharedCount records = new SharedCount(client, "/batch/records", 0);
        CountDownLatch enough = new CountDownLatch(1);
        records.addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader c, int count) {
                if (count >= 5) {
                    enough.countDown();
                }
            }

            @Override
            public void stateChanged(
                CuratorFramework c, ConnectionState state) {}
        });
        records.start();
        enough.await();
        System.out.println("the report asks for the lock");
        InterProcessMutex mutex =
            new InterProcessMutex(client, "/batch/lock");
        for (String holder : mutex.getParticipantNodes()) {
            Revoker.attemptRevoke(client, holder);
        }
        mutex.acquire();
        try {
            System.out.println("the report has the lock");
        } finally {
            mutex.release();
        }
        records.close();
        client.close();
        return null;
    }

    static CuratorFramework connect(String servers) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            servers, new ExponentialBackoffRetry(1000, 3));
        client.start();
        return client;
    }
}
