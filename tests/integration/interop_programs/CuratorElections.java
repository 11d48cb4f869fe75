import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.Socket;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.zookeeper.data.Stat;

/** Elections with Curator's recipes, for CuratorPeer. The words are those of tests/interop/leaders/mod.rs. */
class CuratorElections {
    /** A latch or a selector, with one method for what both tell. */
    private interface Candidate {
        boolean leads() throws Exception;

        String node() throws Exception;

        Participant leader() throws Exception;

        Collection<Participant> participants() throws Exception;

        void close() throws Exception;
    }

    private static final Map<String, Candidate> CANDIDATES = new ConcurrentHashMap<>();

    static String run(CuratorFramework client, String[] words) throws Exception {
        Candidate candidate = CANDIDATES.get(words[2] + " " + words[3]);
        switch (words[1]) {
            case "join":
                CANDIDATES.put(words[3] + " " + words[4], words[2].equals("latch")
                    ? latch(client, words[3], words[4], LeaderLatch.CloseMode.SILENT)
                    : selector(client, words[3], words[4]));
                return "joined";
            case "leads":
                return "" + candidate.leads();
            case "await":
                while (!candidate.leads()) {
                    Thread.sleep(1);
                }
                return "leads";
            case "node":
                return candidate.node();
            case "leader":
                return candidate.leader().getId();
            case "candidates":
                return candidate.participants().stream()
                    .map(one -> one.getId() + (one.isLeader() ? "*" : ""))
                    .collect(Collectors.joining(" "));
            case "leave":
                candidate.close();
                return "left";
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private static Candidate latch(CuratorFramework client, String path, String id, LeaderLatch.CloseMode mode)
        throws Exception {
        LeaderLatch latch = new LeaderLatch(client, path, id, mode);
        latch.start();
        return new Candidate() {
            public boolean leads() {
                return latch.hasLeadership();
            }

            public String node() {
                return latch.getOurPath();
            }

            public Participant leader() throws Exception {
                return latch.getLeader();
            }

            public Collection<Participant> participants() throws Exception {
                return latch.getParticipants();
            }

            public void close() throws Exception {
                latch.close();
            }
        };
    }

    /** A selector that leads until it is closed. */
    private static Candidate selector(CuratorFramework client, String path, String id) {
        CountDownLatch closed = new CountDownLatch(1);
        String[] node = new String[1];
        LeaderSelector[] own = new LeaderSelector[1];
        own[0] = selector(client, path, id, () -> {
            node[0] = nodeOf(own[0]);
            closed.await();
        });
        own[0].start();
        return new Candidate() {
            public boolean leads() {
                return own[0].hasLeadership();
            }

            public String node() {
                return node[0];
            }

            public Participant leader() throws Exception {
                return own[0].getLeader();
            }

            public Collection<Participant> participants() throws Exception {
                return own[0].getParticipants();
            }

            public void close() {
                closed.countDown();
                own[0].close();
            }
        };
    }

    private interface Work {
        void run() throws Exception;
    }

    private static LeaderSelector selector(CuratorFramework client, String path, String id, Work term) {
        LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework same) throws Exception {
                term.run();
            }
        });
        selector.setId(id);
        return selector;
    }

    /** The node of the term that the calling thread runs. */
    private static String nodeOf(LeaderSelector selector) throws Exception {
        Field mutex = LeaderSelector.class.getDeclaredField("mutex");
        mutex.setAccessible(true);
        Method lockPath = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        lockPath.setAccessible(true);
        return (String) lockPath.invoke(mutex.get(selector));
    }

    /** Leads term after term, each of which uses the resource, until the path is stopped. */
    static class Campaign {
        private final String path;
        private final String id;
        private final long hold;
        private final String[] endings;
        private final Set<String> stopped;
        private final BufferedReader answers;
        private final PrintStream resource;
        private CuratorFramework client;

        /** The words: THREAD campaign KIND PATH ID PORT HOLD_MILLIS ENDING,ENDING. */
        Campaign(String[] words, Set<String> stopped) throws Exception {
            path = words[3];
            id = words[4];
            Socket socket = new Socket("127.0.0.1", Integer.parseInt(words[5]));
            socket.setTcpNoDelay(true);
            answers = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            resource = new PrintStream(socket.getOutputStream(), true);
            hold = Long.parseLong(words[6]);
            endings = words[7].split(",");
            this.stopped = stopped;
            client = CuratorPeer.connect();
        }

        void run(boolean isLatch) throws Exception {
            for (int round = 0; !stopped.contains(path); round++) {
                String ending = endings[round % endings.length];
                if (isLatch) {
                    runLatch(ending);
                } else {
                    runSelector(ending);
                }
                if (ending.equals("client")) {
                    client.close();
                    client = CuratorPeer.connect();
                }
            }
            client.close();
        }

        private void runLatch(String ending) throws Exception {
            LeaderLatch.CloseMode mode =
                ending.equals("notify") ? LeaderLatch.CloseMode.NOTIFY_LEADER : LeaderLatch.CloseMode.SILENT;
            LeaderLatch latch = new LeaderLatch(client, path, id, mode);
            latch.start();
            while (!stopped.contains(path) && !latch.await(20, TimeUnit.MILLISECONDS)) {
            }
            if (latch.hasLeadership()) {
                term(latch.getOurPath(), latch::hasLeadership);
            }
            if (!ending.equals("client")) {
                latch.close();
            }
        }

        private void runSelector(String ending) throws Exception {
            Semaphore ended = new Semaphore(0);
            AtomicReference<String> node = new AtomicReference<>();
            LeaderSelector[] own = new LeaderSelector[1];
            own[0] = selector(client, path, id, () -> {
                node.set(nodeOf(own[0]));
                term(node.get(), own[0]::hasLeadership);
                ended.release();
                if (ending.equals("interrupt")) {
                    new CountDownLatch(1).await();
                }
            });
            own[0].start();
            boolean hasLed = false;
            // A term that has begun tells the resource of its end.
            while (!hasLed && (node.get() != null || !stopped.contains(path))) {
                hasLed = ended.tryAcquire(20, TimeUnit.MILLISECONDS);
            }
            if (ending.equals("client")) {
                return;
            }
            if (ending.equals("interrupt")) {
                own[0].interruptLeadership();
            }
            // The interrupt of a close may keep the selector from the deletion of its node.
            while (hasLed && client.checkExists().forPath(node.get()) != null) {
                Thread.sleep(1);
            }
            own[0].close();
        }

        private void term(String node, BooleanSupplier leads) throws Exception {
            Stat stat = client.checkExists().forPath(node);
            use("begin " + id + " " + node + " " + (stat == null ? 0 : stat.getCzxid()));
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(hold);
            try {
                while (System.nanoTime() < end && leads.getAsBoolean()) {
                    Thread.sleep(1);
                }
            } finally {
                // A close interrupts the term.
                use("end");
            }
        }

        private void use(String line) throws Exception {
            resource.println(line);
            if (answers.readLine() == null) {
                throw new IllegalStateException("the resource is gone");
            }
        }
    }
}
