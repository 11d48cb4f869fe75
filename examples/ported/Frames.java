import java.util.Collection;
import java.util.Collections;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;

/** Renders frames, at most two at once in all processes together. */
public class Frames {
    static final AtomicInteger working = new AtomicInteger();
    static final AtomicInteger most = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            args[0], new RetryNTimes(5, 500));
        client.start();
        InterProcessSemaphoreV2 slots =
            new InterProcessSemaphoreV2(client, "/frames/slots", 2);

        ExecutorService threads = Executors.newFixedThreadPool(6);
        Callable<Void> frame = () -> render(slots);
        int done = 0;
        for (Future<Void> rendered
                : threads.invokeAll(Collections.nCopies(6, frame))) {
            rendered.get();
            done++;
        }
        threads.shutdown();
        System.out.println(done + " frames rendered");
        System.out.println("more than two at once: " + (most.get() > 2));

        Collection<Lease> both = slots.acquire(2, 5, TimeUnit.SECONDS);
        System.out.println("leases taken together: " + both.size());
        Lease third = slots.acquire(1, TimeUnit.SECONDS);
        System.out.println("a third lease: " + (third != null));
        slots.returnAll(both);
        client.close();
    }

    static Void render(InterProcessSemaphoreV2 slots) throws Exception {
        Lease lease = slots.acquire();
        try {
            most.accumulateAndGet(working.incrementAndGet(), Math::max);
            Thread.sleep(50); // the work
            working.decrementAndGet();
        } finally {
            slots.returnLease(lease);
        }
        return null;
    }
}
