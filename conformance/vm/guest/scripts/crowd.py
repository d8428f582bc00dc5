# Twenty processes, each in a session of its own, that take no hint to end.
import os
import signal

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        break
while True:
    signal.pause()
