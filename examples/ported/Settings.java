import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryForever;

/** Changes settings alone, and reads them beside other readers. */
public class Settings {
    static final String LOCK = "/settings/lock";
    static final String THEME = "/settings/theme";

    public static void main(String[] args) throws Exception {
        CuratorFramework client = connect(args[0]);
        InterProcessReadWriteLock lock =
            new InterProcessReadWriteLock(client, LOCK);
        CuratorFramework guest = connect(args[0]);
        InterProcessReadWriteLock guests =
            new InterProcessReadWriteLock(guest, LOCK);

        lock.writeLock().acquire();
        try {
            client.create().orSetData().creatingParentsIfNeeded()
                .forPath(THEME, "dark".getBytes());
            boolean reads =
                guests.readLock().acquire(1, TimeUnit.SECONDS);
            System.out.println("a reader beside the writer: " + reads);
            lock.readLock().acquire(); // the downgrade
        } finally {
            lock.writeLock().release();
        }
        boolean reads = guests.readLock().acquire(5, TimeUnit.SECONDS);
        System.out.println("a reader beside the reader: " + reads);
        byte[] theme = guest.getData().forPath(THEME);
        System.out.println("it reads: " + new String(theme));
        guests.readLock().release();

        boolean writes =
            guests.writeLock().acquire(1, TimeUnit.SECONDS);
        System.out.println("a writer beside the reader: " + writes);
        lock.readLock().release();
        writes = guests.writeLock().acquire(5, TimeUnit.SECONDS);
        System.out.println("a writer behind the reader: " + writes);
        guests.writeLock().release();
        guest.close();
        client.close();
    }

    static CuratorFramework connect(String servers) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            servers, new RetryForever(500));
        client.start();
        return client;
    }
}
