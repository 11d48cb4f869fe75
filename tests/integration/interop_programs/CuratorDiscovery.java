import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;

/**
 * Registers and finds instances with Curator: CuratorDiscovery SERVER BASE. Carries out one line of the input after the
 * other, and answers each with one line. The words are those of tests/discovery/interop.rs.
 */
public class CuratorDiscovery {
    private static final long PATIENCE_MILLIS = 30_000;

    /** A payload of the program's own class. */
    public static class Meta {
        public String zone;

        @Override
        public String toString() {
            return zone;
        }
    }

    private final ServiceDiscovery<Object> discovery;

    private CuratorDiscovery(ServiceDiscovery<Object> discovery) {
        this.discovery = discovery;
    }

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], 30_000, 10_000, new RetryNTimes(10, 50));
        client.start();
        client.blockUntilConnected();
        ServiceDiscovery<Object> discovery =
                ServiceDiscoveryBuilder.builder(Object.class).client(client).basePath(arguments[1]).build();
        discovery.start();
        CuratorDiscovery program = new CuratorDiscovery(discovery);
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        output.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = program.answer(line.split(" "));
            } catch (Exception error) {
                answer = "error " + error;
            }
            output.println(answer.replace("\n", " "));
        }
        discovery.close();
        client.close();
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "register":
                discovery.registerService(instance(words));
                return "registered";
            case "update":
                discovery.updateService(instance(words));
                return "updated";
            case "unregister":
                discovery.unregisterService(instance(words));
                return "unregistered";
            case "names":
                return String.join(",", new TreeSet<>(discovery.queryForNames()));
            case "query":
                return text(discovery.queryForInstances(words[1]));
            case "sees":
                return sees(words[1], words[2]);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** VERB NAME ID TYPE PAYLOAD */
    private static ServiceInstance<Object> instance(String[] words) throws Exception {
        return ServiceInstance.builder()
                .name(words[1])
                .id(words[2])
                .serviceType(ServiceType.valueOf(words[3]))
                .payload(payload(words[4]))
                .address("10.0.0.7")
                .port(80)
                .sslPort(443)
                .registrationTimeUTC(1753142400000L)
                .uriSpec(new UriSpec("{scheme}://{address}:{ssl-port}"))
                .build();
    }

    /** An object, a number of 64 bits, a map with one entry, a list, or a text; \x1f is a control character. */
    private static Object payload(String word) {
        if (word.startsWith("meta:")) {
            Meta meta = new Meta();
            meta.zone = word.substring(5);
            return meta;
        }
        if (word.startsWith("long:")) {
            return Long.valueOf(word.substring(5));
        }
        if (word.startsWith("map:")) {
            String[] entry = word.substring(4).split("=");
            return new HashMap<>(Collections.singletonMap(entry[0], entry[1]));
        }
        if (word.startsWith("list:")) {
            return new ArrayList<>(Arrays.asList(word.substring(5).split(";")));
        }
        return word.replace("\\x1f", "\u001f");
    }

    /** Returns ID=CLASS:PAYLOAD,ID=CLASS:PAYLOAD in the order of the ids. */
    private static String text(Collection<ServiceInstance<Object>> instances) {
        List<String> all = instances.stream()
                .map(instance -> instance.getId() + "=" + instance.getPayload().getClass().getSimpleName() + ":"
                        + instance.getPayload().toString().replace(", ", ";") + (instance.isEnabled() ? "" : ":disabled"))
                .sorted()
                .collect(Collectors.toList());
        return String.join(",", all);
    }

    private String sees(String name, String wanted) throws Exception {
        try (ServiceCache<Object> cache = discovery.serviceCacheBuilder().name(name).build()) {
            cache.start();
            long end = System.currentTimeMillis() + PATIENCE_MILLIS;
            while (!text(cache.getInstances()).equals(wanted)) {
                if (System.currentTimeMillis() > end) {
                    return "sees " + text(cache.getInstances());
                }
                Thread.sleep(10);
            }
            return "seen";
        }
    }
}
