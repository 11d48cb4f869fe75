import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.BoundedExponentialBackoffRetry;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.data.ACL;

/** Keeps a shop's nodes from strangers: the menu is public. */
public class Shop {
    static final ACLProvider ACLS = new ACLProvider() {
        @Override
        public List<ACL> getDefaultAcl() {
            return Ids.CREATOR_ALL_ACL;
        }

        @Override
        public List<ACL> getAclForPath(String path) {
            List<ACL> acl = new ArrayList<>(getDefaultAcl());
            if (path.equals("/shop/menu")) {
                acl.addAll(Ids.READ_ACL_UNSAFE);
            }
            return acl;
        }
    };

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
            .connectString(args[0])
            .namespace("shop")
            .authorization("digest", "clerk:secret".getBytes())
            .aclProvider(ACLS)
            .sessionTimeoutMs(10_000)
            .connectionTimeoutMs(5_000)
            .retryPolicy(new BoundedExponentialBackoffRetry(100, 1000, 5))
            .build();
        CountDownLatch heard = new CountDownLatch(1);
        client.getConnectionStateListenable().addListener((c, state) -> {
            if (state == ConnectionState.CONNECTED) {
                System.out.println("the shop is open");
                heard.countDown();
            }
        });
        client.start();
        heard.await();
        client.create().orSetData().forPath("/menu", "soup".getBytes());
        InterProcessMutex till = new InterProcessMutex(client, "/till");
        till.acquire();

        CuratorFramework stranger = CuratorFrameworkFactory.newClient(
            args[0], new RetryOneTime(100));
        stranger.start();
        byte[] menu = stranger.getData().forPath("/shop/menu");
        System.out.println("a stranger reads: " + new String(menu));
        try {
            stranger.setData().forPath("/shop/menu", "mud".getBytes());
        } catch (KeeperException.NoAuthException e) {
            System.out.println("a stranger may not write the menu");
        }
        try {
            new InterProcessMutex(stranger, "/shop/till").acquire();
        } catch (KeeperException.NoAuthException e) {
            System.out.println("a stranger may not queue at the till");
        }
        till.release();
        stranger.close();
        client.close();
    }
}
