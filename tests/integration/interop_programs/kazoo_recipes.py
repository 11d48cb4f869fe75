"""Runs one of kazoo's recipes with several clients: kazoo_recipes.py HOST:PORT RECIPE

Ends with 0 if the recipe keeps its promise, with a traceback if not.
"""

import sys
import threading
import time

from kazoo.client import KazooClient

CLIENTS = 4
ROUNDS = 5


class Inside:
    """Who is inside at the moment, and the most there ever were."""

    def __init__(self):
        self.guard = threading.Lock()
        self.now = 0
        self.most = 0
        self.entries = 0

    def stay(self):
        with self.guard:
            self.entries += 1
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.005)
        with self.guard:
            self.now -= 1


def compete(hosts, work):
    """Runs work(client, number) in a thread and with a client for each number."""
    failures = []

    def run(number):
        client = KazooClient(hosts=hosts, timeout=10)
        try:
            client.start(timeout=10)
            work(client, number)
        except BaseException as failure:
            failures.append(failure)
        finally:
            client.stop()
            client.close()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "somebody waits for ever"
    if failures:
        raise failures[0]


def lock(hosts):
    inside = Inside()

    def work(client, number):
        lock = client.Lock("/kazoo/lock", "worker %d" % number)
        for _ in range(ROUNDS):
            with lock:
                inside.stay()

    compete(hosts, work)
    assert inside.entries == CLIENTS * ROUNDS
    assert inside.most == 1, inside.most


def semaphore(hosts):
    inside = Inside()
    both = threading.Barrier(2)

    def work(client, number):
        semaphore = client.Semaphore("/kazoo/semaphore", "worker %d" % number, max_leases=2)
        if number < 2:
            # Two can be inside at once.
            with semaphore:
                both.wait(20)
        for _ in range(ROUNDS):
            with semaphore:
                inside.stay()

    compete(hosts, work)
    assert inside.entries == CLIENTS * ROUNDS
    assert inside.most <= 2, inside.most


def read_write(hosts):
    """Step by step: with kazoo 2.8 a reader and a later writer can wait for each other."""
    clients = [KazooClient(hosts=hosts, timeout=10) for _ in range(3)]
    for client in clients:
        client.start(timeout=10)
    one, two = (client.ReadLock("/kazoo/rw") for client in clients[:2])
    writer = clients[2].WriteLock("/kazoo/rw")

    assert one.acquire(timeout=10) and two.acquire(timeout=10)
    assert not writer.acquire(blocking=False), "a writer beside two readers"
    waiting = Waiting(writer)
    one.release()
    waiting.assert_waits()
    two.release()
    waiting.assert_granted()

    one, other = clients[0].ReadLock("/kazoo/rw"), clients[1].WriteLock("/kazoo/rw")
    assert not one.acquire(blocking=False), "a reader beside a writer"
    assert not other.acquire(blocking=False), "two writers"
    waiting = Waiting(clients[0].ReadLock("/kazoo/rw"))
    waiting.assert_waits()
    writer.release()
    waiting.assert_granted()
    waiting.lock.release()
    for client in clients:
        client.stop()
        client.close()


class Waiting:
    """A lock that is waited for in the background."""

    def __init__(self, lock):
        self.lock = lock
        self.thread = threading.Thread(target=lambda: lock.acquire(timeout=20), daemon=True)
        self.thread.start()

    def assert_waits(self):
        self.thread.join(0.1)
        assert not self.lock.is_acquired

    def assert_granted(self):
        self.thread.join(20)
        assert self.lock.is_acquired


def handover(hosts):
    """The lock of a client whose session ends goes to the one that waits.

    Prints the session of the holder, for someone to end it.
    """
    holder = KazooClient(hosts=hosts, timeout=10)
    waiter = KazooClient(hosts=hosts, timeout=10)
    holder.start(timeout=10)
    waiter.start(timeout=10)
    holder.Lock("/kazoo/handover", "holder").acquire(timeout=10)
    lock = waiter.Lock("/kazoo/handover", "waiter")
    waiting = Waiting(lock)
    while len(waiter.get_children("/kazoo/handover")) < 2:
        time.sleep(0.005)
    print(holder.client_id[0], flush=True)
    waiting.assert_granted()
    lock.release()
    for client in (holder, waiter):
        client.stop()
        client.close()


if __name__ == "__main__":
    RECIPES = {"lock": lock, "semaphore": semaphore, "read-write": read_write, "handover": handover}
    RECIPES[sys.argv[2]](sys.argv[1])
