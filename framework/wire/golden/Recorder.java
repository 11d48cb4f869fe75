import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.zookeeper.*;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.*;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.proto.*;
import org.apache.jute.*;
import javax.security.auth.callback.*;
import javax.security.sasl.*;
import org.apache.jute.Record;

/**
 * Records the frames between Java's client and Apache's server: a proxy between them writes each frame as hex text.
 *
 * An exchange is a comment line, its frames (`>` from the client, `<` from the server), and the values that Java's client
 * decoded (`=`). The script `record` starts the servers and this program.
 */
public class Recorder {
    static final List<String> out = Collections.synchronizedList(new ArrayList<>());
    static final List<Socket> open = new CopyOnWriteArrayList<>();
    static String hex(byte[] b) { return HexFormat.of().formatHex(b); }

    static ServerSocket proxy(int server) throws Exception {
        ServerSocket listen = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Thread t = new Thread(() -> { try { while (true) {
            Socket c = listen.accept(); Socket s = new Socket("127.0.0.1", server);
            c.setTcpNoDelay(true); s.setTcpNoDelay(true);
            open.add(c); open.add(s); pump(c, s, "> "); pump(s, c, "< ");
        } } catch (IOException e) {} });
        t.setDaemon(true); t.start(); return listen;
    }
    static void pump(Socket from, Socket to, String mark) {
        Thread t = new Thread(() -> { try {
            DataInputStream in = new DataInputStream(from.getInputStream());
            OutputStream o = to.getOutputStream();
            while (true) {
                int n = in.readInt(); byte[] b = new byte[n]; in.readFully(b);
                synchronized (out) { out.add(mark + hex(b)); }
                byte[] all = new byte[n + 4];
                all[0] = (byte)(n >> 24); all[1] = (byte)(n >> 16); all[2] = (byte)(n >> 8); all[3] = (byte)n;
                System.arraycopy(b, 0, all, 4, n); o.write(all); o.flush();
            }
        } catch (IOException e) { try { from.close(); to.close(); } catch (IOException x) {} } });
        t.setDaemon(true); t.start();
    }
    static void cut() { for (Socket s : open) try { s.close(); } catch (IOException e) {} open.clear(); }

    interface Call { Object call() throws Exception; }
    static void record(String label, Call call) throws Exception {
        out.add(""); out.add("# " + label);
        Object r;
        try { r = call.call(); } catch (KeeperException e) {
            r = "error " + e.code().intValue();
            if (e.getResults() != null) { StringBuilder s = new StringBuilder(r.toString()); for (OpResult o : e.getResults()) s.append(" ").append(((OpResult.ErrorResult) o).getErr()); r = s; }
        }
        Thread.sleep(200);
        if (r != null) out.add("= " + r);
        for (WatchedEvent e; (e = events.poll()) != null; )
            if (Set.of(1, 2, 3, 4).contains(e.getType().getIntValue())) out.add("= event " + e.getType().getIntValue() + " " + e.getPath());
    }
    static String s(Stat s) { return s == null ? "none" : "stat " + s.getCzxid()+","+s.getMzxid()+","+s.getCtime()+","+s.getMtime()+","+s.getVersion()+","+s.getCversion()+","+s.getAversion()+","+s.getEphemeralOwner()+","+s.getDataLength()+","+s.getNumChildren()+","+s.getPzxid(); }
    static String d(byte[] b) { return b == null ? "null" : "data " + hex(b); }
    static byte[] b(String s) { return s.getBytes(StandardCharsets.UTF_8); }
    static String a(List<ACL> l) { StringBuilder s = new StringBuilder("acl"); for (ACL x : l) s.append(" ").append(x.getPerms()).append(":").append(x.getId().getScheme()).append(":").append(x.getId().getId()); return s.toString(); }

    static final BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
    static final Watcher watcher = e -> events.add(e);
    static Object awaitState(Watcher.Event.KeeperState state) throws Exception {
        while (true) { WatchedEvent e = events.poll(20, TimeUnit.SECONDS); if (e == null) throw new Exception("no " + state);
            if (e.getType() == Watcher.Event.EventType.None && e.getState() == state) return null; }
    }
    static String create(ZooKeeper zk, String path, byte[] data, List<ACL> acl, CreateMode mode, long ttl) throws Exception {
        Stat st = new Stat(); String p = ttl > 0 ? zk.create(path, data, acl, mode, st, ttl) : zk.create(path, data, acl, mode, st);
        return p + " " + s(st);
    }

    public static void main(String[] args) throws Exception {
        int server = Integer.parseInt(args[1]);
        while (true) try { new Socket("127.0.0.1", server).close(); break; } catch (ConnectException e) { Thread.sleep(100); }
        Thread.sleep(2000);
        ServerSocket proxy = proxy(server);
        String address = "127.0.0.1:" + proxy.getLocalPort();
        if (args[0].equals("standalone")) standalone(address); else ensemble(address);
        out.add(0, "# Recorded by Recorder.java: Apache ZooKeeper " + Version.getVersion() + ", " + args[0] + ". Frames have no length in front.");
        try (PrintWriter w = new PrintWriter(new FileWriter(args[2]))) { for (String l : out) w.println(l); }
        System.exit(0);
    }

    static void standalone(String address) throws Exception {
        List<ACL> open = Ids.OPEN_ACL_UNSAFE;
        ZooKeeper[] zk = new ZooKeeper[1];
        record("connect: new", () -> { zk[0] = new ZooKeeper(address, 6000, watcher); awaitState(Watcher.Event.KeeperState.SyncConnected);
            return "session " + zk[0].getSessionId() + " password " + hex(zk[0].getSessionPasswd()) + " timeout " + zk[0].getSessionTimeout(); });
        ZooKeeper z = zk[0];
        record("create: persistent, the old request", () -> z.create("/old", b("x"), open, CreateMode.PERSISTENT));
        record("create2: persistent", () -> create(z, "/golden", b("data"), open, CreateMode.PERSISTENT, 0));
        record("create2: ephemeral", () -> create(z, "/golden/ephemeral", b(""), open, CreateMode.EPHEMERAL, 0));
        record("getEphemerals", () -> "ephemerals " + String.join(" ", z.getEphemerals()));
        record("create2: persistent sequential", () -> create(z, "/golden/ps-", b("1"), open, CreateMode.PERSISTENT_SEQUENTIAL, 0));
        record("create2: ephemeral sequential", () -> create(z, "/golden/es-", b("\u00e4\u20ac"), open, CreateMode.EPHEMERAL_SEQUENTIAL, 0));
        record("createContainer", () -> create(z, "/golden/container", b("c"), open, CreateMode.CONTAINER, 0));
        record("createTTL: persistent", () -> create(z, "/golden/ttl", b("t"), open, CreateMode.PERSISTENT_WITH_TTL, 3600000));
        record("createTTL: persistent sequential", () -> create(z, "/golden/ttls-", b("t"), open, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, 1099511627775L));
        record("create2: node exists", () -> create(z, "/golden", b("data"), open, CreateMode.PERSISTENT, 0));
        record("create2: no parent", () -> create(z, "/missing/child", b("data"), open, CreateMode.PERSISTENT, 0));
        record("create2: child of an ephemeral node", () -> create(z, "/golden/ephemeral/child", b(""), open, CreateMode.PERSISTENT, 0));
        record("create2: two entries of an access list", () -> create(z, "/golden/acl", b("a"), Arrays.asList(new ACL(ZooDefs.Perms.READ, Ids.ANYONE_ID_UNSAFE), new ACL(ZooDefs.Perms.ALL, new Id("ip", "127.0.0.1"))), CreateMode.PERSISTENT, 0));
        record("create2: bad access list", () -> create(z, "/golden/bad", b("a"), Arrays.asList(new ACL(31, new Id("nothing", "x"))), CreateMode.PERSISTENT, 0));
        record("exists: present", () -> s(z.exists("/golden", false)));
        record("exists: absent", () -> s(z.exists("/absent", false)));
        record("exists: present, watch", () -> s(z.exists("/golden/ps-0000000001", true)));
        record("exists: absent, watch", () -> s(z.exists("/golden/later", true)));
        record("getData", () -> { Stat st = new Stat(); return d(z.getData("/golden/es-0000000002", false, st)) + " " + s(st); });
        record("getData: watch", () -> { Stat st = new Stat(); return d(z.getData("/golden", true, st)) + " " + s(st); });
        record("getData: absent", () -> d(z.getData("/absent", true, new Stat())));
        record("setData: any version", () -> s(z.setData("/golden/ps-0000000001", b("two"), -1)));
        record("setData: version", () -> s(z.setData("/golden/ps-0000000001", b("three"), 1)));
        record("setData: bad version", () -> s(z.setData("/golden/ps-0000000001", b("four"), 1)));
        record("getChildren", () -> ("children " + String.join(" ", z.getChildren("/golden", false))).trim());
        record("getChildren: watch", () -> ("children " + String.join(" ", z.getChildren("/golden/acl", true))).trim());
        record("getChildren: none", () -> ("children " + String.join(" ", z.getChildren("/golden/ttl", false))).trim());
        record("getACL", () -> { Stat st = new Stat(); return a(z.getACL("/golden/acl", st)) + " " + s(st); });
        record("setACL: any version", () -> s(z.setACL("/golden/acl", Arrays.asList(new ACL(31, Ids.ANYONE_ID_UNSAFE)), -1)));
        record("setACL: bad version", () -> s(z.setACL("/golden/acl", Arrays.asList(new ACL(31, Ids.ANYONE_ID_UNSAFE)), 7)));
        record("sync", () -> { CompletableFuture<String> f = new CompletableFuture<>(); z.sync("/golden", (rc, p, c) -> f.complete(p), null); f.get(); return "synced"; });
        record("delete: not empty", () -> { z.delete("/golden", -1); return "deleted"; });
        record("delete: bad version", () -> { z.delete("/golden/acl", 9); return "deleted"; });
        record("delete: version", () -> { z.delete("/golden/acl", 0); return "deleted"; });
        record("delete: any version", () -> { z.delete("/golden/ps-0000000001", -1); return "deleted"; });
        record("delete: absent", () -> { z.delete("/golden/absent", -1); return "deleted"; });
        record("multi: done", () -> { List<OpResult> r = z.multi(Arrays.asList(
                Op.check("/golden", 0), Op.create("/golden/m", b("m"), open, CreateMode.PERSISTENT), Op.create("/golden/me-", b(""), open, CreateMode.EPHEMERAL_SEQUENTIAL),
                Op.setData("/golden/m", b("n"), 0), Op.create("/golden/mc", b("c"), open, CreateMode.CONTAINER), Op.create("/golden/mt", b("t"), open, CreateMode.PERSISTENT_WITH_TTL, 3600000),
                Op.delete("/golden/m", 1))); return "results " + results(r); });
        record("multi: failed", () -> { z.multi(Arrays.asList(Op.create("/golden/f", b("f"), open, CreateMode.PERSISTENT), Op.check("/golden", 5), Op.delete("/golden/absent", -1))); return "done"; });
        record("addWatch: persistent", () -> { z.addWatch("/golden", watcher, AddWatchMode.PERSISTENT); return "added"; });
        record("addWatch: recursive", () -> { z.addWatch("/golden/container", watcher, AddWatchMode.PERSISTENT_RECURSIVE); return "added"; });
        record("notification: created, on a missing node and in a list of children", () -> create(z, "/golden/later", b("l"), open, CreateMode.PERSISTENT, 0));
        record("notification: data changed, of a persistent watch", () -> s(z.setData("/golden", b("again"), -1)));
        record("notification: created, below a recursive watch, and children changed", () -> create(z, "/golden/container/x", b("l"), open, CreateMode.PERSISTENT, 0));
        record("exists: watch on a node to be deleted", () -> s(z.exists("/golden/later", true)));
        record("notification: deleted", () -> { z.delete("/golden/later", -1); return "deleted"; });
        record("removeWatches: any", () -> { z.removeAllWatches("/golden/container", Watcher.WatcherType.Any, false); return "removed"; });
        record("exists: watch to be removed", () -> s(z.exists("/golden/ttl", true)));
        record("removeWatches: data", () -> { z.removeAllWatches("/golden/ttl", Watcher.WatcherType.Data, false); return "removed"; });
        record("getChildren: watch to be removed", () -> ("children " + String.join(" ", z.getChildren("/golden/ttl", true))).trim());
        record("removeWatches: children", () -> { z.removeAllWatches("/golden/ttl", Watcher.WatcherType.Children, false); return "removed"; });
        record("auth", () -> { z.addAuthInfo("digest", b("user:password")); return null; });
        record("getChildren: after auth", () -> ("children " + String.join(" ", z.getChildren("/golden/ttl", false))).trim());
        record("create2: access list of the creator", () -> create(z, "/golden/mine", b("a"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT, 0));
        record("exists: watch on data", () -> s(z.exists("/old", true)));
        record("exists: watch on a missing node", () -> s(z.exists("/absent", true)));
        record("getChildren: watch on children", () -> ("children " + String.join(" ", z.getChildren("/golden/ttl", true))).trim());
        record("connect: re-attach, auth, setWatches2", () -> { cut(); awaitState(Watcher.Event.KeeperState.SyncConnected); Thread.sleep(300);
            return "session " + z.getSessionId() + " password " + hex(z.getSessionPasswd()) + " timeout " + z.getSessionTimeout(); });
        record("removeWatches: persistent", () -> { z.removeAllWatches("/golden", Watcher.WatcherType.Any, false); return "removed"; });
        record("connect: re-attach, auth, setWatches", () -> { cut(); awaitState(Watcher.Event.KeeperState.SyncConnected); Thread.sleep(300);
            return "session " + z.getSessionId() + " password " + hex(z.getSessionPasswd()) + " timeout " + z.getSessionTimeout(); });
        record("ping", () -> { Thread.sleep(1500); return null; });
        record("create2: access list without reads", () -> create(z, "/secret", b("s"), Arrays.asList(new ACL(4, Ids.ANYONE_ID_UNSAFE)), CreateMode.PERSISTENT, 0));
        record("getData: forbidden", () -> d(z.getData("/secret", false, new Stat())));
        record("closeSession", () -> { z.close(); return null; });
        record("connect: refused", () -> { ZooKeeper w = new ZooKeeper(address, 6000, watcher, z.getSessionId(), z.getSessionPasswd(), false);
            awaitState(Watcher.Event.KeeperState.Expired); return "expired"; });
        record("connect: new, refused credentials", () -> { ZooKeeper w = new ZooKeeper(address, 6000, watcher); awaitState(Watcher.Event.KeeperState.SyncConnected);
            w.addAuthInfo("nothing", b("x")); awaitState(Watcher.Event.KeeperState.AuthFailed); return "auth failed"; });
        record("connect: new, by a client older than read-only servers", () -> { raw(address); return null; });
        record("connect: new, a read-only server will do", () -> { ZooKeeper w = new ZooKeeper(address, 6000, watcher, true); awaitState(Watcher.Event.KeeperState.SyncConnected);
            return "session " + w.getSessionId() + " password " + hex(w.getSessionPasswd()) + " timeout " + w.getSessionTimeout(); });
    }
    static String results(List<OpResult> all) { StringBuilder s = new StringBuilder(); for (OpResult o : all) {
        s.append(s.length() == 0 ? "" : " | ");
        if (o instanceof OpResult.CreateResult) { OpResult.CreateResult c = (OpResult.CreateResult) o; s.append("created " + c.getPath() + " " + s(c.getStat())); }
        else if (o instanceof OpResult.SetDataResult) s.append("set " + s(((OpResult.SetDataResult) o).getStat()));
        else if (o instanceof OpResult.DeleteResult) s.append("deleted"); else if (o instanceof OpResult.CheckResult) s.append("checked"); else s.append("?"); } return s.toString(); }

    /** A transaction of `create2` requests: Java's client creates nodes by `create` there, and gets no stat. */
    static void raw(String address) throws Exception {
        Socket socket = new Socket("127.0.0.1", Integer.parseInt(address.split(":")[1]));
        DataInputStream in = new DataInputStream(socket.getInputStream());
        DataOutputStream to = new DataOutputStream(socket.getOutputStream());
        exchange(in, to, new ConnectRequest(0, 0, 6000, 0, new byte[16]));
        out.add(""); out.add("# multi: create2");
        List<ACL> open = Ids.OPEN_ACL_UNSAFE;
        byte[] reply = exchange(in, to, new RequestHeader(1, ZooDefs.OpCode.multi),
            new MultiHeader(ZooDefs.OpCode.create2, false, -1), new CreateRequest("/raw", b("r"), open, 0),
            new MultiHeader(ZooDefs.OpCode.create2, false, -1), new CreateRequest("/raw-", b(""), open, 3),
            new MultiHeader(-1, true, -1));
        MultiResponse response = new MultiResponse();
        BinaryInputArchive archive = BinaryInputArchive.getArchive(new ByteArrayInputStream(reply, 16, reply.length - 16));
        response.deserialize(archive, "multi");
        out.add("= results " + results(response.getResultList()));
        socket.close();
    }
    /** A login as the JDK's client makes it: ZooKeeper's names the user twice (`authzid`). */
    static void rawSasl(String address) throws Exception {
        CallbackHandler answers = callbacks -> { for (Callback each : callbacks) {
            if (each instanceof NameCallback) ((NameCallback) each).setName("super");
            else if (each instanceof PasswordCallback) ((PasswordCallback) each).setPassword("secret".toCharArray());
            else if (each instanceof RealmCallback) ((RealmCallback) each).setText(((RealmCallback) each).getDefaultText()); } };
        SaslClient login = Sasl.createSaslClient(new String[] { "DIGEST-MD5" }, null, "zookeeper", "zk-sasl-md5", Map.of(), answers);
        Socket socket = new Socket("127.0.0.1", Integer.parseInt(address.split(":")[1]));
        DataInputStream in = new DataInputStream(socket.getInputStream());
        DataOutputStream to = new DataOutputStream(socket.getOutputStream());
        exchange(in, to, new ConnectRequest(0, 0, 6000, 0, new byte[16]));
        byte[] token = new byte[0];
        for (int xid = 1; !login.isComplete(); xid++) {
            byte[] reply = exchange(in, to, new RequestHeader(xid, ZooDefs.OpCode.sasl), new GetSASLRequest(token));
            token = login.evaluateChallenge(Arrays.copyOfRange(reply, 20, reply.length));
        }
        out.add("= complete");
        socket.close();
    }
    static byte[] exchange(DataInputStream in, DataOutputStream to, Record... records) throws IOException {
        ByteArrayOutputStream frame = new ByteArrayOutputStream();
        for (Record record : records) record.serialize(BinaryOutputArchive.getArchive(frame), "");
        to.writeInt(frame.size()); frame.writeTo(to);
        byte[] reply = new byte[in.readInt()]; in.readFully(reply);
        return reply;
    }

    static void ensemble(String address) throws Exception {
        record("connect: new, SASL without an authorization id", () -> { rawSasl(address); return null; });
        ZooKeeperAdmin[] zk = new ZooKeeperAdmin[1];
        record("connect: new, SASL", () -> { zk[0] = new ZooKeeperAdmin(address, 6000, watcher); awaitState(Watcher.Event.KeeperState.SaslAuthenticated); Thread.sleep(200);
            return "session " + zk[0].getSessionId() + " password " + hex(zk[0].getSessionPasswd()) + " timeout " + zk[0].getSessionTimeout(); });
        ZooKeeperAdmin z = zk[0];
        record("create2: access list of the user", () -> create(z, "/mine", b("a"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT, 0));
        record("getACL: sasl", () -> { Stat st = new Stat(); return a(z.getACL("/mine", st)) + " " + s(st); });
        String member = System.getProperty("member");
        record("reconfig: joining", () -> { Stat st = new Stat(); byte[] r = z.reconfigure("server.2=127.0.0.1:15194:15195:observer;127.0.0.1:15196", null, null, -1, st); return d(r) + " " + s(st); });
        record("reconfig: leaving", () -> { Stat st = new Stat(); byte[] r = z.reconfigure(null, "2", null, -1, st); return d(r) + " " + s(st); });
        record("reconfig: members", () -> { Stat st = new Stat(); byte[] r = z.reconfigure(null, null, member, -1, st); return d(r) + " " + s(st); });
        record("reconfig: bad version", () -> { Stat st = new Stat(); byte[] r = z.reconfigure(null, null, member, 77, st); return d(r) + " " + s(st); });
        record("getConfig", () -> { Stat st = new Stat(); return d(z.getConfig(false, st)) + " " + s(st); });
        record("closeSession", () -> { z.close(); return null; });
    }
}
