import com.fasterxml.jackson.annotation.JsonCreator;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceInstanceBuilder;
import org.apache.curator.x.discovery.ServiceProvider;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.InstanceSerializer;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;
import org.apache.curator.x.discovery.details.ServiceCacheListener;
import org.springframework.cloud.zookeeper.discovery.ZookeeperInstance;

/** Service discovery with Curator's module, for CuratorPeer. tests/interop/discovery/mod.rs lists the verbs. */
class CuratorServices {
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(30);

    /** A payload of a program's own class. */
    public static class Meta {
        public final String zone;
        public final int weight;

        @JsonCreator
        public Meta(@JsonProperty("zone") String zone, @JsonProperty("weight") int weight) {
            this.zone = zone;
            this.weight = weight;
        }
    }

    private static final InstanceSerializer<Object> DEFAULT = new JsonInstanceSerializer<>(Object.class);
    private static final InstanceSerializer<Object> ENABLED = new JsonInstanceSerializer<>(Object.class, false);
    private static final Map<String, CuratorServices> ALL = new ConcurrentHashMap<>();

    private final ServiceDiscovery<Object> discovery;
    private final Map<String, ServiceCache<Object>> caches = new ConcurrentHashMap<>();
    private final Map<String, ServiceProvider<Object>> providers = new ConcurrentHashMap<>();

    private CuratorServices(CuratorFramework client, String base, String form) throws Exception {
        ServiceDiscoveryBuilder<Object> builder =
            ServiceDiscoveryBuilder.builder(Object.class).client(client).basePath(base);
        // The serializer of the default form is the builder's own default.
        discovery = (form.equals("default") ? builder : builder.serializer(serializer(form))).build();
        discovery.start();
    }

    /** THREAD json FORM VERB ARGUMENT */
    static String json(String[] words) throws Exception {
        InstanceSerializer<Object> serializer = serializer(words[2]);
        switch (words[3]) {
            case "write":
                return text(serializer, instance(words, 4));
            case "read":
                return text(serializer, serializer.deserialize(words[4].getBytes(StandardCharsets.UTF_8)));
            default:
                throw new IllegalArgumentException(words[3]);
        }
    }

    /** THREAD discovery BASE FORM VERB ARGUMENTS */
    static String run(CuratorFramework client, String[] words) throws Exception {
        String key = words[2] + " " + words[3];
        CuratorServices known = ALL.get(key);
        if (known == null) {
            known = new CuratorServices(client, words[2], words[3]);
            ALL.put(key, known);
        }
        if (words[4].equals("close")) {
            ALL.remove(key).discovery.close();
            return "closed";
        }
        return known.run(words);
    }

    private String run(String[] words) throws Exception {
        switch (words[4]) {
            case "register":
                discovery.registerService(instance(words, 5));
                return "registered";
            case "update":
                discovery.updateService(instance(words, 5));
                return "updated";
            case "unregister":
                discovery.unregisterService(instance(words, 5));
                return "unregistered";
            case "names":
                return String.join(",", new TreeSet<>(discovery.queryForNames()));
            case "instances":
                return texts(discovery.queryForInstances(words[5]));
            case "instance": {
                ServiceInstance<Object> found = discovery.queryForInstance(words[5], words[6]);
                return found == null ? "none" : texts(Arrays.asList(found));
            }
            case "follow":
                follow(words[5]);
                return "following";
            case "sees":
                return becomes(rest(words, 6), () -> texts(caches.get(words[5]).getInstances()));
            case "offers":
                return becomes(rest(words, 6), () -> ids(providers.get(words[5])));
            default:
                throw new IllegalArgumentException(words[4]);
        }
    }

    private void follow(String name) throws Exception {
        ServiceCache<Object> cache = discovery.serviceCacheBuilder().name(name).build();
        cache.addListener(new ServiceCacheListener() {
            @Override
            public void cacheChanged() {
                synchronized (CuratorServices.this) {
                    CuratorServices.this.notifyAll();
                }
            }

            @Override
            public void stateChanged(CuratorFramework of, ConnectionState state) {
            }
        });
        cache.start();
        caches.put(name, cache);
        ServiceProvider<Object> provider = discovery.serviceProviderBuilder().serviceName(name).build();
        provider.start();
        providers.put(name, provider);
    }

    /** Waits until a value is the wanted one, and returns the last value. */
    private synchronized String becomes(String wanted, Callable<String> value) throws Exception {
        long end = System.nanoTime() + PATIENCE_NANOS;
        String now = value.call();
        while (!now.equals(wanted) && System.nanoTime() < end) {
            // The cache of a provider is another one: the listener may be called before it has the change.
            wait(5);
            now = value.call();
        }
        return now;
    }

    private static String ids(ServiceProvider<Object> provider) throws Exception {
        Stream<String> ids = provider.getAllInstances().stream().map(ServiceInstance::getId);
        return ids.sorted().collect(Collectors.joining(" "));
    }

    /** Returns the JSON of each instance, with the field enabled. */
    private static String texts(Collection<ServiceInstance<Object>> instances) throws Exception {
        Collection<String> texts = new TreeSet<>();
        for (ServiceInstance<Object> instance : instances) {
            texts.add(text(ENABLED, instance));
        }
        return String.join(" ", texts);
    }

    private static String text(InstanceSerializer<Object> serializer, ServiceInstance<Object> instance)
        throws Exception {
        return new String(serializer.serialize(instance), StandardCharsets.UTF_8);
    }

    private static InstanceSerializer<Object> serializer(String form) {
        return form.equals("default") ? DEFAULT : ENABLED;
    }

    private static String rest(String[] words, int start) {
        return Stream.of(words).skip(start).collect(Collectors.joining(" "));
    }

    /** FIELD=VALUE for each field that is not the default. */
    private static ServiceInstance<Object> instance(String[] words, int start) throws Exception {
        ServiceInstanceBuilder<Object> builder =
            ServiceInstance.builder().address("10.0.0.7").registrationTimeUTC(1753142400000L);
        for (int at = start; at < words.length; at++) {
            String[] field = words[at].split("=", 2);
            set(builder, field[0], field[1]);
        }
        return builder.build();
    }

    private static void set(ServiceInstanceBuilder<Object> builder, String field, String value) {
        switch (field) {
            case "name" -> builder.name(value);
            case "id" -> builder.id(value);
            case "port" -> builder.port(Integer.parseInt(value));
            case "sslPort" -> builder.sslPort(Integer.parseInt(value));
            case "payload" -> builder.payload(payload(value.split(":", 2)));
            case "type" -> builder.serviceType(ServiceType.valueOf(value));
            case "uri" -> builder.uriSpec(new UriSpec(value));
            case "enabled" -> builder.enabled(Boolean.parseBoolean(value));
            default -> throw new IllegalArgumentException(field);
        }
    }

    /** KIND:VALUE */
    private static Object payload(String[] words) {
        String[] parts = words[1].split(",");
        switch (words[0]) {
            case "text":
                return words[1];
            case "int":
                return Integer.valueOf(words[1]);
            case "long":
                return Long.valueOf(words[1]);
            case "double":
                return Double.valueOf(words[1]);
            case "bool":
                return Boolean.valueOf(words[1]);
            case "list":
                return new ArrayList<>(Arrays.asList(parts));
            case "map": {
                Map<String, Object> map = new LinkedHashMap<>();
                map.put(parts[0], parts[1]);
                return map;
            }
            case "meta":
                return new Meta(parts[0], Integer.parseInt(parts[1]));
            case "spring": {
                Map<String, String> metadata = new LinkedHashMap<>();
                metadata.put("instance_status", parts[2]);
                return new ZookeeperInstance(parts[0], parts[1], metadata);
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
