import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.state.SessionConnectionStateErrorPolicy;
import org.apache.curator.framework.state.StandardConnectionStateErrorPolicy;

/** Candidates of Curator's LeaderLatch for the benchmark of leaders. The words are those of benches/leaders/main.rs. */
public class CuratorLeaders {
    /** A pause between two looks at all candidates. */
    private static final long LOOK_NANOS = 200_000;

    /** A candidate with a client of its own. The thread that looks owns the mutable fields. */
    private static class Candidate {
        final CuratorFramework client;
        final LeaderLatch latch;
        boolean leads;
        long seen;

        Candidate(CuratorFramework client, LeaderLatch latch) {
            this.client = client;
            this.latch = latch;
        }
    }

    private static final Map<String, Candidate> candidates = new HashMap<>();
    private static final List<CuratorFramework> clients = new ArrayList<>();
    private static final List<Future<?>> terms = new ArrayList<>();
    private static CountDownLatch go;

    public static void main(String[] args) throws Exception {
        Thread looks = new Thread(CuratorLeaders::look);
        looks.setDaemon(true);
        looks.start();
        Program.serve(CuratorLeaders::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "join": {
                CuratorFramework client = connect(words[3], Integer.parseInt(words[4]), words[2].equals("session"));
                LeaderLatch latch = new LeaderLatch(client, words[5], words[1]);
                latch.start();
                synchronized (candidates) {
                    candidates.put(words[1], new Candidate(client, latch));
                }
                return "joined " + words[1];
            }
            case "leave": {
                Candidate candidate;
                synchronized (candidates) {
                    candidate = candidates.remove(words[1]);
                    if (candidate.leads) {
                        Program.say("down " + words[1] + " " + candidate.seen);
                    }
                }
                candidate.latch.close();
                candidate.client.close();
                return "left " + words[1];
            }
            case "queue":
                return queue(Integer.parseInt(words[1]), Integer.parseInt(words[2]), words[3], words[4]);
            case "drain":
                return drain();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Looks at all candidates over and over. */
    private static void look() {
        while (true) {
            synchronized (candidates) {
                candidates.forEach((name, candidate) -> {
                    long before = System.nanoTime();
                    boolean leads = candidate.latch.hasLeadership();
                    long after = System.nanoTime();
                    if (leads && !candidate.leads) {
                        Program.say("up " + name + " " + before);
                    }
                    if (!leads && candidate.leads) {
                        Program.say("down " + name + " " + candidate.seen);
                    }
                    candidate.leads = leads;
                    // A process that was stopped within the look had read the flag before.
                    candidate.seen = !leads ? candidate.seen : after - before > 50_000_000 ? before : after;
                });
            }
            LockSupport.parkNanos(LOOK_NANOS);
        }
    }

    private static CuratorFramework connect(String servers, int session, boolean sessionPolicy) throws Exception {
        return Program.connected(Program.clientOf(servers, session).connectionStateErrorPolicy(
            sessionPolicy ? new SessionConnectionStateErrorPolicy() : new StandardConnectionStateErrorPolicy()));
    }

    /** Queues candidates in so many sessions, one behind the other. Each will lead once, and close its latch. */
    private static String queue(int size, int sessions, String servers, String path) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(size);
        CountDownLatch begin = new CountDownLatch(1);
        for (int number = 0; number < sessions; number++) {
            clients.add(connect(servers, 60_000, false));
        }
        for (int number = 0; number < size; number++) {
            LeaderLatch latch = new LeaderLatch(clients.get(number % sessions), path, "candidate-" + number);
            latch.start();
            while (latch.getParticipants().size() <= number) {
                Thread.sleep(1);
            }
            terms.add(threads.submit(() -> {
                latch.await();
                begin.await();
                latch.close();
                return null;
            }));
        }
        threads.shutdown();
        go = begin;
        return "queued";
    }

    /** Lets the candidates have their terms. */
    private static String drain() throws Exception {
        long begin = System.nanoTime();
        go.countDown();
        for (Future<?> term : terms) {
            term.get();
        }
        long nanos = System.nanoTime() - begin;
        for (CuratorFramework client : clients) {
            client.close();
        }
        clients.clear();
        terms.clear();
        return "drained " + nanos;
    }
}
