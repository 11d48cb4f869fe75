import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicValue;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.retry.RetryNTimes;

/** Counters and barriers with Curator's recipes, for CuratorPeer. The words are those of tests/interop/counts/mod.rs. */
class CuratorCounts {
    private static final RetryNTimes TRIES = new RetryNTimes(100_000, 1);

    private static final Map<String, DistributedDoubleBarrier> MEMBERS = new ConcurrentHashMap<>();

    /** THREAD number PATH KIND VERB ARGUMENTS */
    static String number(CuratorFramework client, String[] words) throws Exception {
        String path = words[2];
        switch (words[3]) {
            case "long":
                return ofLong(new DistributedAtomicLong(client, path, TRIES), words);
            case "integer": {
                DistributedAtomicInteger number = new DistributedAtomicInteger(client, path, TRIES);
                if (words[4].equals("get")) {
                    return "" + number.get().postValue();
                }
                for (int round = 0; round < Integer.parseInt(words[6]); round++) {
                    counted(number.add(Integer.parseInt(words[5])));
                }
                return "added";
            }
            case "promoted": {
                PromotedToLock lock = PromotedToLock.builder()
                    .lockPath(words[7]).timeout(30, TimeUnit.SECONDS).retryPolicy(TRIES).build();
                // Each change that is refused once continues under the lock.
                RetryNTimes once = new RetryNTimes(0, 0);
                DistributedAtomicLong number = new DistributedAtomicLong(client, path, once, lock);
                long promoted = 0;
                for (int round = 0; round < Integer.parseInt(words[6]); round++) {
                    AtomicValue<Long> value = number.add(Long.parseLong(words[5]));
                    counted(value);
                    promoted += value.getStats().getPromotedLockTries() > 0 ? 1 : 0;
                }
                return "promoted " + promoted;
            }
            case "value":
                return value(new DistributedAtomicValue(client, path, TRIES), words);
            case "cached": {
                DistributedAtomicLong number = new DistributedAtomicLong(client, path, TRIES);
                CachedAtomicLong numbers = new CachedAtomicLong(number, Integer.parseInt(words[5]));
                StringBuilder taken = new StringBuilder();
                for (int round = 0; round < Integer.parseInt(words[6]); round++) {
                    AtomicValue<Long> next = numbers.next();
                    counted(next);
                    taken.append(round == 0 ? "" : ",").append(next.postValue());
                }
                return taken.toString();
            }
            default:
                throw new IllegalArgumentException(words[3]);
        }
    }

    private static String ofLong(DistributedAtomicLong number, String[] words) throws Exception {
        switch (words[4]) {
            case "get":
                return "" + number.get().postValue();
            case "add":
                for (int round = 0; round < Integer.parseInt(words[6]); round++) {
                    counted(number.add(Long.parseLong(words[5])));
                }
                return "added";
            case "set":
                counted(number.trySet(Long.parseLong(words[5])));
                return "set";
            case "compare":
                return "" + number.compareAndSet(Long.parseLong(words[5]), Long.parseLong(words[6])).succeeded();
            case "initialize":
                return "" + number.initialize(Long.parseLong(words[5]));
            default:
                throw new IllegalArgumentException(words[4]);
        }
    }

    private static String value(DistributedAtomicValue value, String[] words) throws Exception {
        switch (words[4]) {
            case "get":
                return new String(value.get().postValue(), StandardCharsets.UTF_8);
            case "set": {
                AtomicValue<byte[]> set = value.trySet(bytes(words[5]));
                counted(set);
                return new String(set.preValue(), StandardCharsets.UTF_8);
            }
            case "compare":
                return "" + value.compareAndSet(bytes(words[5]), bytes(words[6])).succeeded();
            default:
                throw new IllegalArgumentException(words[4]);
        }
    }

    private static void counted(AtomicValue<?> value) {
        if (!value.succeeded()) {
            throw new IllegalStateException("not counted");
        }
    }

    /** THREAD barrier PATH VERB [MILLIS] */
    static String barrier(CuratorFramework client, String[] words) throws Exception {
        DistributedBarrier barrier = new DistributedBarrier(client, words[2]);
        switch (words[3]) {
            case "set":
                barrier.setBarrier();
                return "set";
            case "remove":
                barrier.removeBarrier();
                return "removed";
            case "wait":
                return "" + barrier.waitOnBarrier(Long.parseLong(words[4]), TimeUnit.MILLISECONDS);
            default:
                throw new IllegalArgumentException(words[3]);
        }
    }

    /** THREAD double PATH VERB [SIZE]; each thread is one member. */
    static String member(CuratorFramework client, String[] words) throws Exception {
        String key = words[0] + " " + words[2];
        switch (words[3]) {
            case "enter": {
                DistributedDoubleBarrier member =
                    new DistributedDoubleBarrier(client, words[2], Integer.parseInt(words[4]));
                member.enter();
                MEMBERS.put(key, member);
                return "entered";
            }
            case "leave":
                MEMBERS.remove(key).leave();
                return "left";
            default:
                throw new IllegalArgumentException(words[3]);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
