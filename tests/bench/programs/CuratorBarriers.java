import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;

/** Curator's DistributedDoubleBarrier for the benchmark of barriers. The words are those of benches/barriers/main.rs. */
public class CuratorBarriers {
    private static final List<CuratorFramework> clients = new ArrayList<>();
    private static final List<DistributedDoubleBarrier> members = new ArrayList<>();
    private static final ExecutorService threads = Executors.newCachedThreadPool();

    public static void main(String[] args) throws Exception {
        Program.serve(CuratorBarriers::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect":
                for (int number = Integer.parseInt(words[1]); number > 0; number--) {
                    clients.add(Program.connect(words[2]));
                }
                return "connected";
            case "enter":
                members.clear();
                for (CuratorFramework client : clients) {
                    members.add(new DistributedDoubleBarrier(client, words[1], clients.size()));
                }
                return "entered " + all(DistributedDoubleBarrier::enter, Long.parseLong(words[2]));
            case "leave":
                return "left " + all(DistributedDoubleBarrier::leave, Long.parseLong(words[1]));
            case "end":
                clients.forEach(CuratorFramework::close);
                clients.clear();
                return "ended";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private interface Step {
        void take(DistributedDoubleBarrier member) throws Exception;
    }

    /** Lets all members take a step, each so long behind the one before; returns the time until the last has taken it. */
    private static long all(Step step, long millis) throws Exception {
        CountDownLatch ready = new CountDownLatch(members.size());
        CountDownLatch begin = new CountDownLatch(1);
        List<Future<?>> steps = new ArrayList<>();
        for (int number = 0; number < members.size(); number++) {
            DistributedDoubleBarrier member = members.get(number);
            long pause = number * millis;
            Callable<Void> one = () -> {
                ready.countDown();
                begin.await();
                if (pause > 0) {
                    Thread.sleep(pause);
                }
                step.take(member);
                return null;
            };
            steps.add(threads.submit(one));
        }
        ready.await();
        long began = System.nanoTime();
        begin.countDown();
        for (Future<?> one : steps) {
            one.get();
        }
        return System.nanoTime() - began;
    }
}
