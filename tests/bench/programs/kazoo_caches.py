"""kazoo's TreeCache for the benchmark of caches. The words are those of benches/caches/main.rs."""

import logging
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.recipe.cache import TreeCache, TreeEvent

PATIENCE = 30

clients = []
caches = []
told = []


def connect(count, server):
    for _ in range(int(count)):
        client = KazooClient(hosts=server, timeout=60)
        client.start(timeout=30)
        clients.append(client)
    return "connected"


def size(cache, path):
    children = cache.get_children(path)
    if children is None:
        return 0
    return 1 + sum(size(cache, path + "/" + name) for name in children)


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("not in time")
        time.sleep(0.001)


def load(path, nodes):
    initialized = threading.Event()

    def on_event(event):
        if event.event_type == TreeEvent.INITIALIZED:
            initialized.set()
        elif event.event_type == TreeEvent.NODE_UPDATED:
            told.append((event.event_data.path, event.event_data.stat.version, time.monotonic_ns()))

    began = time.monotonic_ns()
    cache = TreeCache(clients[0], path)
    cache.listen(on_event)
    cache.start()
    caches.append(cache)
    if not initialized.wait(PATIENCE):
        return "not initialized"
    nanos = time.monotonic_ns() - began
    until(lambda: size(cache, path) == int(nodes))
    return "%d initialized" % nanos


def shows(path, data):
    def is_there():
        node = caches[0].get_data(path)
        return node is not None and node.data == data.encode()

    until(is_there)
    return "shown"


def record():
    told.clear()
    return "recording"


def recorded(nodes, version, file):
    until(lambda: sum(1 for one in list(told) if one[1] == int(version)) >= int(nodes))
    with open(file, "w") as output:
        for one in list(told):
            output.write("%s %d %d\n" % one)
    return "recorded"


def close():
    for cache in caches:
        cache.close()
    caches.clear()
    return "closed"


def end():
    for client in clients:
        client.stop()
        client.close()
    clients.clear()
    return "ended"


logging.disable(logging.CRITICAL)
print("ready", flush=True)
WORDS = {one.__name__: one for one in [connect, load, shows, record, recorded, close, end]}
for line in iter(sys.stdin.readline, ""):
    word, *arguments = line.split()
    print(WORDS[word](*arguments), flush=True)
