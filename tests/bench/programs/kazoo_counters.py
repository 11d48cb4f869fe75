"""kazoo's Counter for the benchmark of counters. The words are those of benches/counters/main.rs."""

import logging
import sys
import threading
import time

from kazoo.client import KazooClient

clients = []


def connect(count, server):
    for _ in range(int(count)):
        retry = {"max_tries": -1, "delay": 0.01, "max_delay": 0.1}
        client = KazooClient(hosts=server, timeout=60, command_retry=retry)
        client.start(timeout=30)
        clients.append(client)
    return "connected"


def increment(counters, millis):
    """Increments each counter in a thread of its own for so long."""
    counts = [0] * len(counters)
    began = time.monotonic_ns()
    end = began + int(millis) * 1_000_000

    def work(number):
        counter = counters[number]
        while time.monotonic_ns() < end:
            counter += 1
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(counters))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return " ".join(str(each) for each in [time.monotonic_ns() - began, *counts])


def count(path, millis):
    return increment([client.Counter(path) for client in clients], millis)


def share(path, millis, tasks):
    # The methods of one object keep the result of a change in it, so each thread has an object of its own.
    return increment([clients[0].Counter(path) for _ in range(int(tasks))], millis)


def end():
    for client in clients:
        client.stop()
        client.close()
    clients.clear()
    return "ended"


logging.disable(logging.CRITICAL)
print("ready", flush=True)
WORDS = {one.__name__: one for one in [connect, count, share, end]}
for line in iter(sys.stdin.readline, ""):
    word, *arguments = line.split()
    print(WORDS[word](*arguments), flush=True)
