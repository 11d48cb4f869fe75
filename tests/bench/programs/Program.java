import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** The shared parts of the programs: each answers the lines of its input, and connects clients. */
final class Program {
    interface Answers {
        String to(String[] words) throws Exception;
    }

    static final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));

    private Program() {}

    /** Answers each line of the input until it closes, then ends the process. */
    static void serve(Answers answers) throws Exception {
        say("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                say(answers.to(line.split(" ")));
            } catch (Exception trouble) {
                say("error " + trouble);
            }
        }
        System.exit(0);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static CuratorFramework connect(String servers) throws Exception {
        return connected(clientOf(servers, 60_000));
    }

    /** Begins a client with a session timeout in milliseconds. */
    static CuratorFrameworkFactory.Builder clientOf(String servers, int session) {
        return CuratorFrameworkFactory.builder()
            .connectString(servers)
            .sessionTimeoutMs(session)
            .connectionTimeoutMs(15_000)
            .retryPolicy(new ExponentialBackoffRetry(1000, 3));
    }

    static CuratorFramework connected(CuratorFrameworkFactory.Builder builder) throws Exception {
        CuratorFramework client = builder.build();
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to " + client.getZookeeperClient().getCurrentConnectionString());
        }
        return client;
    }
}
