import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.zookeeper.CreateMode;

/** Nodes that stand, and groups, with Curator's recipes, for CuratorPeer. The words are those of tests/interop/groups/mod.rs. */
class CuratorGroups {
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(30);

    /** The methods that both kinds of nodes have. */
    private interface Node {
        boolean stands(long millis) throws Exception;

        void write(byte[] data) throws Exception;

        void close() throws Exception;
    }

    private static final Map<String, Node> NODES = new ConcurrentHashMap<>();
    private static final Map<String, GroupMember> MEMBERS = new ConcurrentHashMap<>();

    /** THREAD node PATH VERB ARGUMENTS */
    static String node(CuratorFramework client, String[] words) throws Exception {
        String path = words[2];
        switch (words[3]) {
            case "start":
                NODES.put(path, start(client, path, words[4].split(":"), bytes(words[5])));
                return "started";
            case "stands":
                return "" + NODES.get(path).stands(Long.parseLong(words[4]));
            case "write":
                NODES.get(path).write(bytes(words[4]));
                return "written";
            case "close":
                NODES.remove(path).close();
                return "closed";
            default:
                throw new IllegalArgumentException(words[3]);
        }
    }

    private static Node start(CuratorFramework client, String path, String[] kind, byte[] data) {
        if (kind[0].equals("ttl")) {
            PersistentTtlNode node = new PersistentTtlNode(client, path, Long.parseLong(kind[1]), data);
            node.start();
            return new Node() {
                public boolean stands(long millis) throws Exception {
                    return node.waitForInitialCreate(millis, TimeUnit.MILLISECONDS);
                }

                public void write(byte[] data) throws Exception {
                    node.setData(data);
                }

                public void close() {
                    node.close();
                }
            };
        }
        CreateMode mode = kind[0].equals("persistent") ? CreateMode.PERSISTENT : CreateMode.EPHEMERAL;
        PersistentNode node = new PersistentNode(client, mode, false, path, data);
        node.start();
        return new Node() {
            public boolean stands(long millis) throws Exception {
                return node.waitForInitialCreate(millis, TimeUnit.MILLISECONDS);
            }

            public void write(byte[] data) throws Exception {
                node.setData(data);
            }

            public void close() throws Exception {
                node.close();
            }
        };
    }

    /** THREAD group PATH ID VERB ARGUMENTS */
    static String group(CuratorFramework client, String[] words) throws Exception {
        String path = words[2];
        String id = words[3];
        GroupMember member = MEMBERS.get(path + " " + id);
        switch (words[4]) {
            case "join":
                member = words.length > 5
                    ? new GroupMember(client, path, id, bytes(words[5]))
                    : new GroupMember(client, path, id);
                member.start();
                MEMBERS.put(path + " " + id, member);
                while (client.checkExists().forPath(path + "/" + id) == null) {
                    Thread.sleep(1);
                }
                return "joined";
            case "members":
                return members(member);
            case "sees":
                return sees(member, words[5]);
            case "write":
                member.setThisData(bytes(words[5]));
                return "written";
            case "leave":
                MEMBERS.remove(path + " " + id).close();
                return "left";
            default:
                throw new IllegalArgumentException(words[4]);
        }
    }

    /** ID=DATA,ID=DATA in the order of the ids. */
    private static String members(GroupMember member) {
        return new TreeMap<>(member.getCurrentMembers()).entrySet().stream()
            .map(one -> one.getKey() + "=" + new String(one.getValue(), StandardCharsets.UTF_8))
            .collect(Collectors.joining(","));
    }

    private static String sees(GroupMember member, String wanted) throws Exception {
        long end = System.nanoTime() + PATIENCE_NANOS;
        while (!members(member).equals(wanted)) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("the members are " + members(member));
            }
            Thread.sleep(1);
        }
        return "seen";
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
