import ctypes, errno, fcntl, mmap, multiprocessing, os, shutil, socket, subprocess, tempfile, threading


def refused(number, call, *args):
    try:
        call(*args)
    except OSError as error:
        assert error.errno == number, (call, error)
    else:
        raise AssertionError((call, "was not refused"))


def square(number):
    return number * number


context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    assert pool.map(square, range(4)) == [0, 1, 4, 9]
lock, queue = context.Lock(), context.Queue()
with lock:
    queue.put("x")
assert queue.get() == "x"

thread = threading.Thread(target=square, args=(3,))
thread.start()
thread.join()
assert subprocess.run(["sh", "-c", "echo out; exit 3"], capture_output=True, start_new_session=True).returncode == 3
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "file")
    with open(path, "w+b") as file:
        file.write(b"x" * 4096)
        file.flush()
        mmap.mmap(file.fileno(), 0).flush()
    shutil.copy2(path, path + "2")
    os.replace(path, path + "3")
    shutil.copytree(folder, folder + "/copy")
    os.nice(1)
    with open(path + "2") as file:
        refused(errno.ENOTTY, fcntl.ioctl, file.fileno(), 2, b"1234")  # FIGETBSZ, which any file answers
ours, theirs = socket.socketpair()
socket.send_fds(ours, [b"x"], [0])
assert socket.recv_fds(theirs, 1, 1)[0] == b"x"

refused(errno.EAFNOSUPPORT, socket.socket, socket.AF_INET)
refused(errno.EAFNOSUPPORT, socket.socket, socket.AF_INET6)
refused(errno.EAFNOSUPPORT, socket.socket, 38, socket.SOCK_SEQPACKET)  # AF_ALG
refused(errno.EPERM, os.memfd_create, "file")
refused(errno.EPERM, os.sched_setaffinity, 0, {0})
refused(errno.EPERM, os.setuid, os.getuid())
libc = ctypes.CDLL(None, use_errno=True)
for name, args in (("unshare", (0x10000000,)), ("personality", (0x40000,)), ("setns", (0, 0))):
    assert getattr(libc, name)(*args) == -1 and ctypes.get_errno() == errno.EPERM, name
