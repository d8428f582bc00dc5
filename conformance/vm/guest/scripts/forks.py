# More and more processes, until somebody says no; prints the error number and how many there were.
import os
import signal

children = []
try:
    while len(children) < 1000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        children.append(pid)
    print("no limit")
except OSError as error:
    print("errno", error.errno, "after", len(children))
for pid in children:
    os.kill(pid, signal.SIGKILL)
