"""Does with kazoo's recipes what it is told: kazoo_peer.py HOST:PORT SESSION_MILLIS

The words are those of CuratorPeer.java. The only kind of locks is "kazoo": a Lock that also minds Curator's nodes.
"""

import queue
import sys
import threading
import time

from kazoo.client import KazooClient

PATIENCE = 60
CURATORS = ["lock-"]


class Peer(threading.Thread):
    """A thread that does one thing at a time."""

    def __init__(self, client, name):
        super().__init__(name=name, daemon=True)
        self.client = client
        self.todo = queue.Queue()
        self.held = {}
        self.members = {}
        self.start()

    def run(self):
        while True:
            verb, *arguments = self.todo.get()
            try:
                say(self.name, getattr(self, verb)(*arguments))
            except BaseException as trouble:
                say(self.name, "error %r" % trouble)

    def lock(self, kind, path):
        assert kind == "kazoo"
        return self.client.Lock(path, "kazoo", extra_lock_patterns=CURATORS)

    def token(self, lock):
        return self.client.exists(lock.path + "/" + lock.node).czxid

    def clock(self):
        return time.monotonic_ns()

    def session(self):
        return self.client.client_id[0]

    def acquire(self, kind, path, millis):
        lock = self.lock(kind, path)
        assert lock.acquire(timeout=int(millis) / 1000)
        self.held[path] = lock
        return "held %d" % self.token(lock)

    def release(self, kind, path):
        self.held.pop(path).release()
        return "released"

    def compete(self, kind, path, rounds, hold):
        for _ in range(int(rounds)):
            lock = self.lock(kind, path)
            say(self.name, "asked %d %s" % (time.monotonic_ns(), kind))
            assert lock.acquire(timeout=PATIENCE)
            at = time.monotonic_ns()
            say(self.name, "granted %d %d" % (at, self.token(lock)))
            time.sleep(int(hold) / 1000)
            say(self.name, "releasing %d" % time.monotonic_ns())
            lock.release()
            say(self.name, "released %d" % time.monotonic_ns())
        return "done"

    def number(self, path, kind, verb, *arguments):
        counter = self.client.Counter(path, support_curator=kind == "integer")
        if verb == "get":
            return counter.value
        delta, rounds = arguments
        for _ in range(int(rounds)):
            counter += int(delta)
        return "added"

    def barrier(self, path, verb, *millis):
        barrier = self.client.Barrier(path)
        if verb == "set":
            barrier.create()
            return "set"
        if verb == "remove":
            barrier.remove()
            return "removed"
        return str(barrier.wait(int(millis[0]) / 1000)).lower()

    def double(self, path, verb, *size):
        if verb == "enter":
            member = self.client.DoubleBarrier(path, int(size[0]))
            member.enter()
            assert member.participating
            self.members[path] = member
            return "entered"
        self.members.pop(path).leave()
        return "left"


SAYING = threading.Lock()


def say(thread, answer):
    with SAYING:
        print("> %s %s" % (thread, answer), flush=True)


if __name__ == "__main__":
    # A counter tries again as often as it has to.
    retry = {"max_tries": -1, "delay": 0.001, "max_delay": 0.01}
    client = KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000, command_retry=retry)
    client.start(timeout=30)
    say("main", "ready")
    threads = {}
    for line in sys.stdin:
        name, *words = line.split()
        if name not in threads:
            threads[name] = Peer(client, name)
        threads[name].todo.put(words)
    client.stop()
    client.close()
