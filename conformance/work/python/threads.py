"""Threads, executors, asyncio with subprocesses, signals and timers."""
import asyncio
import os
import queue
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


with ThreadPoolExecutor(8) as pool:
    check(list(pool.map(lambda n: n * 2, range(100))) == list(range(0, 200, 2)), "an executor of threads")
jobs, done = queue.Queue(), []


def worker():
    while (job := jobs.get()) is not None:
        done.append(job)


threads = [threading.Thread(target=worker) for _ in range(4)]
for thread in threads:
    thread.start()
for n in range(100):
    jobs.put(n)
for _ in threads:
    jobs.put(None)
for thread in threads:
    thread.join()
check(sorted(done) == list(range(100)), "a queue between threads")
lock, total = threading.Lock(), [0]


def count():
    for _ in range(1000):
        with lock:
            total[0] += 1


threads = [threading.Thread(target=count) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check(total[0] == 4000, "a lock between threads")
fired = threading.Event()
threading.Timer(0.05, fired.set).start()
check(fired.wait(5), "a timer")


async def main():
    results = await asyncio.gather(*(asyncio.sleep(0.02, n) for n in range(20)))
    check(results == list(range(20)), "tasks")
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await process.communicate(b"through a pipe")
    check(out == b"through a pipe" and process.returncode == 0, "a program in asyncio")
    process = await asyncio.create_subprocess_shell("exit 3")
    check(await process.wait() == 3, "a shell in asyncio")
    check(await asyncio.to_thread(sum, [1, 2, 3]) == 6, "a thread in asyncio")
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.05)
        check(False, "a timeout")
    except TimeoutError:
        check(True, "a timeout")
    server = await asyncio.start_unix_server(lambda r, w: (w.write(b"hello"), w.close()), "/tmp/server.sock")
    reader, writer = await asyncio.open_unix_connection("/tmp/server.sock")
    check(await reader.read() == b"hello", "a server on a named socket")
    writer.close()
    server.close()


asyncio.run(main())
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append("alarm"))
signal.alarm(1)
signal.pause()
check(hits == ["alarm"], "an alarm")
signal.signal(signal.SIGUSR1, lambda *_: hits.append("usr1"))
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.01)
check("usr1" in hits, "a signal to oneself")
try:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    time.sleep(5)
    check(False, "an alarm that interrupts")
except TimeoutError:
    check(True, "an alarm that interrupts")
check(os.cpu_count() >= 1 and len(os.sched_getaffinity(0)) >= 1, "processors are counted")
check(time.monotonic() > 0 and time.time() > 1.6e9 and time.process_time() > 0, "clocks")
print(f"work ok: {checks} checks")
