package org.apache.dubbo.registry.zookeeper;

import com.fasterxml.jackson.annotation.JsonCreator;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.Map;

/** A payload with the name and the JSON of Dubbo's class. */
public class ZookeeperInstance {
    public final String id;
    public final String name;
    public final Map<String, String> metadata;

    @JsonCreator
    public ZookeeperInstance(@JsonProperty("id") String id, @JsonProperty("name") String name,
        @JsonProperty("metadata") Map<String, String> metadata) {
        this.id = id;
        this.name = name;
        this.metadata = metadata;
    }
}
