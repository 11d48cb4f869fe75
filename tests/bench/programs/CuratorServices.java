import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.details.ServiceCacheListener;

/** Curator's service discovery for the benchmark of services. The words are those of benches/services/main.rs. */
public class CuratorServices {
    private static final Map<String, CuratorFramework> clients = new HashMap<>();
    private static final Map<String, ServiceDiscovery<String>> discoveries = new HashMap<>();
    private static final List<ServiceInstance<String>> instances = new ArrayList<>();
    private static final AtomicInteger changes = new AtomicInteger();
    private static ServiceCache<String> cache;

    public static void main(String[] args) throws Exception {
        Program.serve(CuratorServices::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect": {
                CuratorFramework client = Program.connect(words[2]);
                clients.put(words[1], client);
                ServiceDiscovery<String> discovery =
                    ServiceDiscoveryBuilder.builder(String.class).client(client).basePath("/services").build();
                discovery.start();
                discoveries.put(words[1], discovery);
                return "connected";
            }
            case "register":
                for (int number = 0; number < Integer.parseInt(words[2]); number++) {
                    ServiceInstance<String> instance = instance(number, "first");
                    discoveries.get(words[1]).registerService(instance);
                    instances.add(instance);
                }
                return "registered";
            case "watch":
                return "" + watch(discoveries.get(words[1]));
            case "changes":
                return "" + changes.getAndSet(0);
            case "update":
                discoveries.get(words[1]).updateService(instance(0, "second"));
                while (cache.getInstances().stream().noneMatch(one -> one.getPayload().equals("second"))) {
                    Thread.sleep(1);
                }
                return "updated";
            case "end":
                cache.close();
                for (ServiceDiscovery<String> discovery : discoveries.values()) {
                    discovery.close();
                }
                clients.values().forEach(CuratorFramework::close);
                clients.clear();
                discoveries.clear();
                instances.clear();
                return "ended";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static ServiceInstance<String> instance(int number, String payload) throws Exception {
        return ServiceInstance.<String>builder().name("web").id(String.format("instance-%04d", number))
            .address("10.0.0.7").port(8080).payload(payload).build();
    }

    /** Returns the nanoseconds of the load. */
    private static long watch(ServiceDiscovery<String> discovery) throws Exception {
        cache = discovery.serviceCacheBuilder().name("web").build();
        long began = System.nanoTime();
        cache.start();
        long nanos = System.nanoTime() - began;
        if (cache.getInstances().isEmpty()) {
            throw new IllegalStateException("no instances");
        }
        cache.addListener(new ServiceCacheListener() {
            @Override
            public void cacheChanged() {
                changes.incrementAndGet();
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {
            }
        });
        return nanos;
    }
}
