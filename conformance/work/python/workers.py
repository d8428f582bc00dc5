"""multiprocessing: pools by fork, spawn and forkserver, shared memory, locks, queues, managers."""
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


def square(n):
    return n * n


def add(value, lock, times):
    for _ in range(times):
        with lock:
            value.value += 1


def put(queue, n):
    queue.put((n, os.getpid()))


def fill(name):
    block = shared_memory.SharedMemory(name=name)
    block.buf[:5] = b"child"
    block.close()


def main():
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            check(pool.map(square, range(50)) == [n * n for n in range(50)], f"a pool by {method}")
            check(pool.apply_async(square, (7,)).get(30) == 49, f"a call by {method}")
    context = multiprocessing.get_context("fork")
    value, lock = context.Value("i", 0), context.Lock()
    processes = [context.Process(target=add, args=(value, lock, 500)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    check(value.value == 2000, "a lock between processes")
    queue = context.Queue()
    processes = [context.Process(target=put, args=(queue, n)) for n in range(3)]
    for process in processes:
        process.start()
    got = sorted(queue.get(timeout=20) for _ in range(3))
    for process in processes:
        process.join()
    check([n for n, _ in got] == [0, 1, 2] and len({pid for _, pid in got}) == 3, "a queue between processes")
    block = shared_memory.SharedMemory(create=True, size=8 << 20)
    process = context.Process(target=fill, args=(block.name,))
    process.start()
    process.join()
    check(bytes(block.buf[:5]) == b"child", "shared memory of 8 MiB")
    block.close()
    block.unlink()
    left, right = context.Pipe()
    process = context.Process(target=right.send, args=({"a": [1, 2]},))
    process.start()
    check(left.recv() == {"a": [1, 2]}, "a pipe between processes")
    process.join()
    with context.Manager() as manager:
        shared = manager.dict()
        process = context.Process(target=shared.update, args=({"key": "value"},))
        process.start()
        process.join()
        check(dict(shared) == {"key": "value"}, "a manager, which is a socket with a name")
    with ProcessPoolExecutor(2) as pool:
        check(list(pool.map(square, [1, 2, 3])) == [1, 4, 9], "an executor of processes")
    event = context.Event()
    process = context.Process(target=event.set)
    process.start()
    check(event.wait(20), "an event")
    process.join()
    barrier = context.Barrier(2)
    process = context.Process(target=barrier.wait)
    process.start()
    check(barrier.wait(20) in (0, 1), "a barrier")
    process.join()
    print(f"work ok: {checks} checks")


if __name__ == "__main__":
    main()
