import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.zookeeper.CreateMode;

/** Curator's PersistentNode and GroupMember for the benchmark of nodes. The words are those of benches/nodes/main.rs. */
public class CuratorNodes {
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(50);

    private static final Map<String, CuratorFramework> clients = new HashMap<>();
    private static final Map<String, PersistentNode> nodes = new HashMap<>();
    private static final Map<String, GroupMember> members = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        Program.serve(CuratorNodes::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect":
                clients.put(words[1], Program.connected(Program.clientOf(words[2], Integer.parseInt(words[3]))));
                return "connected";
            case "stand": {
                PersistentNode node = new PersistentNode(
                    clients.get(words[1]), CreateMode.EPHEMERAL, false, words[2], bytes(words[1]));
                node.start();
                nodes.put(words[1], node);
                return node.waitForInitialCreate(30, TimeUnit.SECONDS) ? "stands" : "does not stand";
            }
            case "touch":
                clients.get(words[1]).checkExists().forPath("/");
                return "touched";
            case "close":
                nodes.remove(words[1]).close();
                return "closed";
            case "join": {
                GroupMember member = new GroupMember(clients.get(words[1]), words[2], words[3], bytes(words[1]));
                member.start();
                members.put(words[1], member);
                return "joined";
            }
            case "see":
                return see(Integer.parseInt(words[1]));
            case "tell": {
                GroupMember member = members.get(words[1]);
                return member.getCurrentMembers().entrySet().stream()
                    .map(one -> one.getKey() + "=" + new String(one.getValue(), StandardCharsets.UTF_8))
                    .collect(Collectors.joining(","));
            }
            case "leave":
                members.remove(words[1]).close();
                return "left";
            case "end":
                clients.remove(words[1]).close();
                return "ended";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Waits until each member sees so many. */
    private static String see(int count) throws Exception {
        long end = System.nanoTime() + PATIENCE_NANOS;
        for (GroupMember member : members.values()) {
            while (member.getCurrentMembers().size() != count) {
                if (System.nanoTime() > end) {
                    return "sees " + member.getCurrentMembers().size();
                }
                Thread.sleep(1);
            }
        }
        return "seen";
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
