"""Does the workloads of the benchmark of peers with kazoo. For each line WORKLOAD SERVER PATH MILLIS SIZE it says how
many cycles it did, in how many nanoseconds; for a hand-off, in how many nanoseconds each one came.
Before it drains a queue it says so and waits for a line."""

import logging
import sys
import threading
import time

from kazoo.client import KazooClient

LEASES = 4


def connect(server):
    client = KazooClient(hosts=server, timeout=60)
    client.start(timeout=30)
    return client


def stop(client):
    client.stop()
    client.close()


def compete(server, millis, size, contender):
    clients = [connect(server) for _ in range(size)]
    cycles = [0] * size
    begin = time.monotonic_ns()

    def work(number):
        cycle = contender(clients[number])
        while time.monotonic_ns() - begin < millis * 1_000_000:
            cycle(number + cycles[number])
            cycles[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    nanos = time.monotonic_ns() - begin
    for client in clients:
        stop(client)
    return f"{sum(cycles)} {nanos}"


def mutex(path):
    def contender(client):
        lock = client.Lock(path)

        def cycle(_):
            lock.acquire()
            lock.release()

        return cycle

    return contender


def semaphore(path):
    def contender(client):
        leases = client.Semaphore(path, max_leases=LEASES)

        def cycle(_):
            leases.acquire()
            leases.release()

        return cycle

    return contender


def read_write(path):
    def contender(client):
        def cycle(number):
            lock = client.WriteLock(path) if number % 10 == 0 else client.ReadLock(path)
            lock.acquire()
            lock.release()

        return cycle

    return contender


def drain(server, path, size):
    client = connect(server)
    first = client.Lock(path)
    first.acquire()

    def turn():
        lock = client.Lock(path)
        lock.acquire()
        lock.release()

    threads = [threading.Thread(target=turn) for _ in range(size)]
    for thread in threads:
        thread.start()
    while len(client.get_children(path)) <= size:
        time.sleep(0.02)
    time.sleep(0.3)
    print("queued", flush=True)
    sys.stdin.readline()
    begin = time.monotonic_ns()
    first.release()
    for thread in threads:
        thread.join()
    nanos = time.monotonic_ns() - begin
    stop(client)
    return f"{size} {nanos}"


def hand_off(server, path, rounds):
    clients = [connect(server), connect(server)]
    locks = [client.Lock(path) for client in clients]
    locks[0].acquire()
    times = []
    for number in range(rounds):
        holder, waiter = locks[number % 2], locks[(number + 1) % 2]
        granted = []

        def wait():
            waiter.acquire()
            granted.append(time.monotonic_ns())

        thread = threading.Thread(target=wait)
        thread.start()
        while len(clients[0].get_children(path)) < 2:
            time.sleep(0.005)
        time.sleep(0.05)
        begin = time.monotonic_ns()
        holder.release()
        thread.join()
        times.append(granted[0] - begin)
    locks[rounds % 2].release()
    for client in clients:
        stop(client)
    return " ".join(map(str, times))


def run(workload, server, path, millis, size):
    if workload == "drain":
        return drain(server, path, size)
    if workload == "hand-off":
        return hand_off(server, path, size)
    contender = {"mutex": mutex, "semaphore": semaphore, "read-write": read_write}[workload](path)
    return compete(server, millis, size, contender)


logging.disable(logging.CRITICAL)
print("ready", flush=True)
for line in iter(sys.stdin.readline, ""):
    workload, server, path, millis, size = line.split()
    print(run(workload, server, path, int(millis), int(size)), flush=True)
