"""The prober: one attempt to break out, from the attacker's own position.

The suite submits this file as the script of a run, with the name of a probe as its first argument. It prints
exactly one JSON line that begins with {"probe":

    {"probe": name, "outcome": "allowed" | "blocked" | "error", "errno": n | null, "detail": {...}}

"allowed" means that the attempt succeeded, "blocked" that the kernel or the sandbox refused it (errno says how),
"error" that the probe itself could not be made here. The prober never judges: what should have happened is
written beside each case, in the suite.

Only the standard library, and raw system calls through ctypes. A probe returns its detail when the attempt
succeeded and raises OSError when it was refused. Attempts that could harm a machine are made with arguments that
the kernel rejects after its permission checks (a bad pointer, a wrong magic number), so that even an unconfined
run of them changes nothing.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time

PROBES = {}
WORK = os.environ.get("PROBER_WORK", "/work")
SCRATCH = ("/work", "/out", "/tmp", "/dev/shm")


class Blocked(Exception):
    """Refused, with or without an error number."""

    def __init__(self, detail, err=None):
        super().__init__(str(detail))
        self.detail = detail
        self.err = err


class Unsupported(Exception):
    """This probe cannot be made on this machine (another architecture, for example)."""


def probe(function):
    PROBES[function.__name__.replace("_", "-")] = function
    return function


# --- system calls ---------------------------------------------------------------------------------------------

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
MACHINE = platform.machine()

# Numbers up to 423 differ between the architectures, later ones are the same.
NUMBERS = {
    "x86_64": dict(
        clone=56, kill=62, ptrace=101, syslog=103, mknodat=259, personality=135, ustat=136, sysfs=139,
        sched_setscheduler=144, vhangup=153, modify_ldt=154, pivot_root=155, adjtimex=159, chroot=161, acct=163,
        settimeofday=164, mount=165, umount2=166, swapon=167, swapoff=168, reboot=169, sethostname=170,
        setdomainname=171, iopl=172, ioperm=173, init_module=175, delete_module=176, quotactl=179, uselib=134,
        lookup_dcookie=212, clock_settime=227, mbind=237, set_mempolicy=238, kexec_load=246, add_key=248,
        request_key=249, keyctl=250, ioprio_set=251, migrate_pages=256, unshare=272, vmsplice=278, move_pages=279,
        perf_event_open=298, fanotify_init=300, prlimit64=302, name_to_handle_at=303, open_by_handle_at=304,
        clock_adjtime=305, setns=308, process_vm_readv=310, process_vm_writev=311, kcmp=312, finit_module=313,
        sched_setattr=314, seccomp=317, memfd_create=319, kexec_file_load=320, bpf=321, execveat=322,
        userfaultfd=323, io_setup=206, sched_setaffinity=203, setpriority=141, rt_tgsigqueueinfo=297, tgkill=234,
        getpid=39, remap_file_pages=216,
    ),
    "aarch64": dict(
        clone=220, kill=129, ptrace=117, syslog=116, mknodat=33, personality=92, sched_setscheduler=119,
        vhangup=58, pivot_root=41, adjtimex=171, chroot=51, acct=89, settimeofday=170, mount=40, umount2=39,
        swapon=224, swapoff=225, reboot=142, sethostname=161, setdomainname=162, init_module=105,
        delete_module=106, quotactl=60, lookup_dcookie=18, clock_settime=112, mbind=235, set_mempolicy=237,
        kexec_load=104, add_key=217, request_key=218, keyctl=219, ioprio_set=30, migrate_pages=238, unshare=97,
        vmsplice=75, move_pages=239, perf_event_open=241, fanotify_init=262, prlimit64=261, name_to_handle_at=264,
        open_by_handle_at=265, clock_adjtime=266, setns=268, process_vm_readv=270, process_vm_writev=271, kcmp=272,
        finit_module=273, sched_setattr=274, seccomp=277, memfd_create=279, kexec_file_load=294, bpf=280,
        execveat=281, userfaultfd=282, io_setup=0, sched_setaffinity=122, setpriority=140, rt_tgsigqueueinfo=240,
        tgkill=131, getpid=172, remap_file_pages=234,
    ),
}.get(MACHINE, {})
NUMBERS = dict(
    NUMBERS, pidfd_send_signal=424, io_uring_setup=425, io_uring_enter=426, io_uring_register=427, open_tree=428,
    move_mount=429, fsopen=430, fsconfig=431, fsmount=432, fspick=433, pidfd_open=434, clone3=435, pidfd_getfd=438,
    process_madvise=440, mount_setattr=442, quotactl_fd=443, memfd_secret=447, process_mrelease=448, cachestat=451,
    map_shadow_stack=453, statmount=457, listmount=458, lsm_get_self_attr=459, lsm_list_modules=461, mseal=462,
    setxattrat=463, open_tree_attr=467,
)


def call(name, *args):
    """One raw system call; a refusal is an OSError with the number that the kernel gave."""
    number = name if isinstance(name, int) else NUMBERS.get(name)
    if number is None:
        raise Unsupported(f"{name} does not exist on {MACHINE}")
    converted = []
    for arg in args:
        if isinstance(arg, bytes):
            arg = ctypes.c_char_p(arg)
        elif isinstance(arg, int):
            arg = ctypes.c_long(arg if arg < 1 << 63 else arg - (1 << 64))
        elif arg is None:
            arg = ctypes.c_void_p(None)
        converted.append(arg)
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(number), *converted)
    if result == -1:
        err = ctypes.get_errno()
        raise OSError(err, f"{name}: {os.strerror(err)}")
    return result


BAD_POINTER = 1  # in the first page, which is never mapped: the kernel answers EFAULT when it reads or writes there


def in_child(function, seconds=20.0):
    """Runs function in a forked child and hands back what it returned or raised; a child that a signal ended is
    Blocked, with the signal in its detail."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            answer = {"ok": function()}
        except OSError as e:
            answer = {"errno": e.errno, "text": str(e)}
        except Blocked as e:
            answer = {"errno": e.err, "text": str(e.detail)}
        except BaseException as e:  # the child must answer whatever happens
            answer = {"failed": repr(e)}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    data = b""
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            break
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        data += chunk
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if not data:
        if os.WIFSIGNALED(status):
            raise Blocked({"signal": os.WTERMSIG(status)}, None)
        raise RuntimeError(f"the child said nothing, status {status}")
    answer = json.loads(data)
    if "ok" in answer:
        return answer["ok"]
    if "failed" in answer:
        raise RuntimeError(answer["failed"])
    raise Blocked(answer["text"], answer["errno"])


class Sibling:
    """A child that sleeps until it is no longer needed: somebody else to attack."""

    def __enter__(self):
        self.pid = os.fork()
        if self.pid == 0:
            time.sleep(60)
            os._exit(0)
        return self.pid

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


# --- kernel surface -------------------------------------------------------------------------------------------

NAMESPACE_FLAGS = {
    "user": 0x10000000, "mnt": 0x00020000, "net": 0x40000000, "pid": 0x20000000, "ipc": 0x08000000,
    "uts": 0x04000000, "cgroup": 0x02000000, "time": 0x00000080,
}


@probe
def unshare(kind):
    return in_child(lambda: call("unshare", NAMESPACE_FLAGS[kind]))


@probe
def clone(kind):
    def attempt():
        pid = call("clone", NAMESPACE_FLAGS[kind] | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return pid
    return in_child(attempt)


@probe
def clone3(kind):
    """struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls."""
    def attempt():
        flags = 0 if kind == "none" else NAMESPACE_FLAGS[kind]
        args = ctypes.create_string_buffer(struct.pack("8Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
        pid = call("clone3", args, 64)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return pid
    return in_child(attempt)


@probe
def threads_work():
    """The other side of clone3's refusal: glibc must fall back to clone."""
    import threading
    seen = []
    threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if sorted(seen) != list(range(8)):
        raise RuntimeError(f"threads saw {seen}")
    return len(seen)


@probe
def mount(kind):
    def attempt():
        os.makedirs("/tmp/mnt", exist_ok=True)
        if kind == "bind":
            call("mount", b"/usr", b"/tmp/mnt", None, 4096, None)
        elif kind == "remount":
            call("mount", b"none", b"/", None, 32 | 4096, None)  # MS_REMOUNT|MS_BIND, writable
        else:
            call("mount", b"none", b"/tmp/mnt", kind.encode(), 0, None)
        return kind
    return in_child(attempt)


@probe
def umount(path):
    return in_child(lambda: call("umount2", path.encode(), 2))


@probe
def fsopen():
    return call("fsopen", b"tmpfs", 0)


@probe
def fspick():
    return call("fspick", -100, b"/", 0)


@probe
def fsmount():
    return call("fsmount", -1, 0, 0)


@probe
def fsconfig():
    return call("fsconfig", -1, 6, None, None, 0)


@probe
def open_tree():
    return call("open_tree", -100, b"/usr", 1)  # OPEN_TREE_CLONE


@probe
def open_tree_attr():
    return call("open_tree_attr", -100, b"/usr", 1, None, 0)


@probe
def move_mount():
    return call("move_mount", -1, b"", -100, b"/tmp", 4)  # MOVE_MOUNT_F_EMPTY_PATH


@probe
def mount_setattr():
    attributes = ctypes.create_string_buffer(struct.pack("4Q", 0, 1, 0, 0))  # clear MOUNT_ATTR_RDONLY
    return in_child(lambda: call("mount_setattr", -100, b"/", 0, attributes, 32))


@probe
def statmount():
    return call("statmount", BAD_POINTER, BAD_POINTER, 512, 0)


@probe
def listmount():
    return call("listmount", BAD_POINTER, BAD_POINTER, 1, 0)


@probe
def setns(pid, kind):
    def attempt():
        fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        return call("setns", fd, 0)
    return in_child(attempt)


@probe
def setns_bad_fd():
    """The call itself, without the help of /proc: EBADF says that it reached the kernel."""
    return call("setns", -1, 0)


@probe
def chroot():
    return in_child(lambda: call("chroot", b"/"))


@probe
def pivot_root():
    return in_child(lambda: call("pivot_root", b"/does-not-exist", b"/does-not-exist"))


PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_DETACH = 0, 16, 0x4206, 17


@probe
def ptrace_traceme():
    return in_child(lambda: call("ptrace", PTRACE_TRACEME, 0, 0, 0))


@probe
def ptrace_attach(whom):
    with Sibling() as pid:
        target = 1 if whom == "init" else pid
        call("ptrace", PTRACE_SEIZE, target, 0, 0)
        return target


def _vm(name, target, address, size=8):
    buffer = ctypes.create_string_buffer(size)
    local = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(buffer), size))
    remote = ctypes.create_string_buffer(struct.pack("QQ", address, size))
    return call(name, target, local, 1, remote, 1, 0)


@probe
def process_vm(name, whom):
    """Reads or writes a word of a sibling (its memory is a copy of ours, so the address is right) or of PID 1
    (whose address is unknown: EFAULT says that the permission check was passed)."""
    word = ctypes.create_string_buffer(b"hostile!")
    with Sibling() as pid:
        if whom == "init":
            return _vm(name, 1, BAD_POINTER)
        return _vm(name, pid, ctypes.addressof(word))


@probe
def process_madvise():
    return call("process_madvise", -1, BAD_POINTER, 1, 21, 0)


@probe
def process_mrelease():
    return call("process_mrelease", -1, 0)


@probe
def pidfd_open(whom):
    with Sibling() as pid:
        return call("pidfd_open", 1 if whom == "init" else pid, 0)


@probe
def pidfd_getfd():
    return call("pidfd_getfd", -1, 0, 0)


@probe
def pidfd_send_signal():
    return call("pidfd_send_signal", -1, 0, None, 0)


@probe
def kcmp():
    with Sibling() as pid:
        return call("kcmp", os.getpid(), pid, 1, 0, 0)


@probe
def about_another_process(name):
    """Calls that name a process: allowed for the caller itself, refused for PID 1, which has the script's uid."""
    target = 1
    if name == "prlimit64":
        new = ctypes.create_string_buffer(struct.pack("2Q", 64, 64))
        return call("prlimit64", target, resource.RLIMIT_NOFILE, new, None)
    if name == "setpriority":
        return call("setpriority", 0, target, 19)
    if name == "ioprio_set":
        return call("ioprio_set", 1, target, 3 << 13)
    if name == "sched_setscheduler":
        return call("sched_setscheduler", target, 3, ctypes.create_string_buffer(struct.pack("i", 0)))  # BATCH
    if name == "sched_setattr":
        return call("sched_setattr", target, ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 3, 0, 19, 0, 0, 0, 0)), 0)
    if name == "sched_setaffinity":
        return call("sched_setaffinity", target, 8, ctypes.create_string_buffer(struct.pack("Q", 1)))
    if name == "migrate_pages":
        mask = ctypes.create_string_buffer(struct.pack("Q", 1))
        return call("migrate_pages", target, 64, mask, mask)
    if name == "move_pages":
        return call("move_pages", target, 0, None, None, None, 0)
    raise Unsupported(name)


@probe
def bpf(what):
    if what == "map":
        attributes = struct.pack("5I", 2, 4, 4, 1, 0)  # BPF_MAP_TYPE_ARRAY
        return call("bpf", 0, ctypes.create_string_buffer(attributes, 120), 120)
    instructions = ctypes.create_string_buffer(struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack("IIQQIIQII", 1, 2, ctypes.addressof(instructions), ctypes.addressof(licence), 0, 0, 0, 0, 0)
    return call("bpf", 5, ctypes.create_string_buffer(attributes, 120), 120)


@probe
def perf_event_open():
    attributes = struct.pack("IIQQQQQ", 1, 112, 1, 0, 0, 0, 1)  # software, task clock, disabled
    return call("perf_event_open", ctypes.create_string_buffer(attributes, 112), 0, -1, -1, 0)


@probe
def userfaultfd():
    return call("userfaultfd", 0)


@probe
def io_uring(name):
    if name == "io_uring_setup":
        return call(name, 1, ctypes.create_string_buffer(120))
    return call(name, -1, 0, None, 0, 0, 0)


@probe
def linux_aio():
    context = ctypes.create_string_buffer(8)
    return call("io_setup", 1, context)


@probe
def keys(name):
    if name == "add_key":
        return call("add_key", b"user", b"sandglass-prober", b"secret", 6, -2)  # the process keyring
    if name == "request_key":
        return call("request_key", b"user", b"sandglass-prober-missing", None, 0)
    return call("keyctl", 0, -3, 1)  # KEYCTL_GET_KEYRING_ID of the session keyring


SOCKETS = {
    "inet-stream": (2, 1, 0), "inet-dgram": (2, 2, 0), "inet6-stream": (10, 1, 0), "inet6-dgram": (10, 2, 0),
    "inet-raw": (2, 3, 1), "inet-ping": (2, 2, 1), "inet6-raw": (10, 3, 58), "mptcp": (2, 1, 262), "sctp": (2, 1, 132),
    "alg": (38, 5, 0), "vsock": (40, 1, 0), "rxrpc": (33, 2, 2), "key": (15, 3, 2), "bluetooth": (31, 3, 1),
    "packet": (17, 3, 0x0300), "xdp": (44, 3, 0), "smc": (43, 1, 0), "tipc": (30, 5, 0), "can": (29, 3, 1),
    "netlink-route": (16, 3, 0), "netlink-audit": (16, 3, 9), "netlink-xfrm": (16, 3, 6), "netlink-netfilter": (16, 3, 12),
    "netlink-uevent": (16, 3, 15), "netlink-connector": (16, 3, 11), "netlink-generic": (16, 3, 16),
    "qipcrtr": (42, 2, 0), "nfc": (39, 5, 0), "ax25": (3, 2, 0), "x25": (9, 5, 0), "rds": (21, 5, 0), "pppox": (24, 1, 0),
    "kcm": (41, 2, 0), "unix": (1, 1, 0),
}


@probe
def open_socket(name):
    family, kind, protocol = SOCKETS[name]
    fd = LIBC.socket(family, kind, protocol)
    if fd < 0:
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err))
    os.close(fd)
    return name


@probe
def socketpair_inet():
    """The kernel has no pair of this family and says EOPNOTSUPP, after it made the two sockets."""
    fds = (ctypes.c_int * 2)()
    if LIBC.socketpair(2, 1, 0, fds) < 0:
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err))
    return "pair"


@probe
def unix_sockets_work():
    """The family that stays open: pairs, named sockets in scratch, and descriptors passed over them."""
    left, right = socket.socketpair()
    left.sendall(b"hello")
    if right.recv(5) != b"hello":
        raise RuntimeError("a socket pair lost its bytes")
    server = socket.socket(socket.AF_UNIX)
    server.bind("/tmp/prober.sock")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect("/tmp/prober.sock")
    os.unlink("/tmp/prober.sock")
    return "works"


def machine_code(code):
    """Puts code into executable memory, which a JIT needs and which therefore stays possible."""
    if MACHINE != "x86_64":
        raise Unsupported(f"machine code for {MACHINE}")
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(address)
    function.memory = memory
    return function


def int80(number, ebx=0, ecx=0, edx=0, esi=0):
    """push rbx; mov eax/ebx/ecx/edx/esi; int 0x80; pop rbx; ret"""
    code = b"\x53\xb8" + struct.pack("<I", number) + b"\xbb" + struct.pack("<I", ebx) + b"\xb9" + struct.pack("<I", ecx)
    code += b"\xba" + struct.pack("<I", edx) + b"\xbe" + struct.pack("<I", esi) + b"\xcd\x80\x5b\xc3"
    result = machine_code(code)()
    if -4096 < result < 0:
        raise OSError(-result, f"int 0x80 number {number}: {os.strerror(-result)}")
    return result


@probe
def i386(what):
    """The i386 entry of a 64-bit process. socketcall takes its arguments from memory below 4 GiB."""
    if MACHINE != "x86_64":
        raise Unsupported(f"no i386 calls on {MACHINE}")

    def attempt():
        if what == "getpid":
            return int80(20)
        if what.startswith("socketcall-"):
            family, kind, protocol = SOCKETS[what[len("socketcall-"):]]
            low = LIBC.mmap
            low.restype = ctypes.c_void_p
            address = low(ctypes.c_void_p(0x10000000), 4096, 3, 0x22 | 0x40, -1, 0)  # MAP_32BIT
            if address is None or address >= 1 << 32:
                raise RuntimeError("no memory below 4 GiB")
            ctypes.memmove(address, struct.pack("<3I", family, kind, protocol), 12)
            return int80(102, 1, address)
        if what.startswith("socket-"):
            return int80(359, *SOCKETS[what[len("socket-"):]])
        if what == "unshare":
            return int80(310, NAMESPACE_FLAGS["user"])
        if what == "mount":
            return int80(21, BAD_POINTER, BAD_POINTER, BAD_POINTER)
        raise Unsupported(what)
    return in_child(attempt)


@probe
def x32(what):
    """Numbers of the x32 ABI, which share the 64-bit entry."""
    if MACHINE != "x86_64":
        raise Unsupported(f"no x32 calls on {MACHINE}")
    numbers = {"getpid": 39, "socket": 41, "ptrace": 521, "unshare": 272}
    args = {"getpid": (), "socket": (38, 5, 0), "ptrace": (PTRACE_TRACEME, 0, 0, 0), "unshare": (0x10000000,)}
    return in_child(lambda: call(0x40000000 | numbers[what], *args[what]))


@probe
def negative_number():
    return in_child(lambda: call(-7))


@probe
def name_to_handle_at():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount_id = ctypes.c_int()
    return call("name_to_handle_at", -100, b"/tmp", handle, ctypes.byref(mount_id), 0)


@probe
def open_by_handle_at():
    """The Shocker walk: a made-up handle for inode 2 of the file system that we stand on. A bad handle is ESTALE or
    EINVAL, after the capability was checked."""
    handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, 2, 0), 136)
    fd = os.open("/usr", os.O_RDONLY)
    return call("open_by_handle_at", fd, handle, os.O_RDONLY)


@probe
def memfd_create(flags="0"):
    return call("memfd_create", b"prober", int(flags))


@probe
def memfd_secret():
    return call("memfd_secret", 0)


def a_program(path):
    """A copy of a small real program in scratch."""
    for source in ("/bin/true", "/usr/bin/true"):
        if os.path.exists(source):
            break
    else:
        raise Unsupported("no program to copy")
    with open(source, "rb") as f:
        data = f.read()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o755)
    os.write(fd, data)
    os.close(fd)
    os.chmod(path, 0o755)
    return path


def run_program(*argv, executable=None):
    """Executes in a child: the exit code, or the error of execve."""
    def attempt():
        os.execv(executable or argv[0], list(argv))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.set_inheritable(writer, False)
        try:
            attempt()
        except OSError as e:
            os.write(writer, struct.pack("i", e.errno))
        os._exit(127)
    os.close(writer)
    data = os.read(reader, 4)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if data:
        err = struct.unpack("i", data)[0]
        raise OSError(err, f"execve: {os.strerror(err)}")
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise Blocked({"exit": code})
    return code


@probe
def exec_file(directory):
    return run_program(a_program(f"{directory}/prober-program"))


@probe
def exec_through_loader(directory):
    """The dynamic loader maps a file that execve refuses: only noexec on the mapping stops it."""
    path = a_program(f"{directory}/prober-program")
    for loader in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"):
        if os.path.exists(loader):
            return run_program(loader, path)
    raise Unsupported("no dynamic loader")


@probe
def exec_descriptor(directory):
    """execveat(fd, "", AT_EMPTY_PATH) of a file that never had a name."""
    fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o755)
    with open("/bin/true", "rb") as f:
        os.write(fd, f.read())
    readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    os.close(fd)

    def attempt():
        argv = (ctypes.c_char_p * 2)(b"prober", None)
        call("execveat", readable, b"", argv, None, 0x1000)
    return in_child_exec(attempt)


@probe
def exec_image_descriptor():
    """The same call on a program of the image: what is refused here is the call, not the file."""
    fd = os.open("/bin/true", os.O_RDONLY)

    def attempt():
        argv = (ctypes.c_char_p * 2)(b"true", None)
        call("execveat", fd, b"", argv, None, 0x1000)
    return in_child_exec(attempt)


def in_child_exec(attempt):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            attempt()
        except OSError as e:
            os.write(writer, struct.pack("i", e.errno))
        os._exit(127)
    os.close(writer)
    data = os.read(reader, 4)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if data:
        err = struct.unpack("i", data)[0]
        raise OSError(err, os.strerror(err))
    return os.waitstatus_to_exitcode(status)


@probe
def map_executable(directory, how):
    """Maps a file that the script wrote as executable, at once or through mprotect."""
    path = f"{directory}/prober-code"
    with open(path, "wb") as f:
        f.write(b"\xc3" * 4096)
    fd = os.open(path, os.O_RDONLY)
    mapping = LIBC.mmap
    mapping.restype = ctypes.c_void_p
    protection = 1 | 4 if how == "mmap" else 1
    ctypes.set_errno(0)
    address = mapping(None, 4096, protection, 2, fd, 0)
    if address is None or address == 2**64 - 1:
        err = ctypes.get_errno()
        raise OSError(err, "mmap: " + os.strerror(err))
    if how == "mprotect" and LIBC.mprotect(ctypes.c_void_p(address), 4096, 1 | 4) != 0:
        err = ctypes.get_errno()
        raise OSError(err, "mprotect: " + os.strerror(err))
    return how


@probe
def personality(value):
    return in_child(lambda: call("personality", int(value, 16)))


@probe
def modify_ldt():
    return call("modify_ldt", 0, ctypes.create_string_buffer(64), 64)


@probe
def iopl():
    return in_child(lambda: call("iopl", 3))


@probe
def ioperm():
    return in_child(lambda: call("ioperm", 0x80, 1, 1))


@probe
def privileged(name):
    """Calls that only an administrator may make, each with arguments that do nothing."""
    attempts = {
        "kexec_load": (0, BAD_POINTER, BAD_POINTER, 0xFFFF),
        "kexec_file_load": (-1, -1, 0, None, 0),
        "init_module": (BAD_POINTER, 0, b""),
        "finit_module": (-1, b"", 0),
        "delete_module": (b"prober_missing", 0o4000),
        "reboot": (0, 0, 0, None),
        "swapon": (b"/does-not-exist", 0),
        "swapoff": (b"/does-not-exist",),
        "acct": (b"/does-not-exist",),
        "quotactl": (0x80000700 >> 0, b"/dev/does-not-exist", 0, None),
        "quotactl_fd": (-1, 0x80000700, 0, None),
        "syslog": (10, None, 0),
        "settimeofday": (BAD_POINTER, None),
        "clock_settime": (0, BAD_POINTER),
        "clock_adjtime": (0, BAD_POINTER),
        "adjtimex": (BAD_POINTER,),
        "sethostname": (b"hostile", 7),
        "setdomainname": (b"hostile", 7),
        "vhangup": (),
        "fanotify_init": (0, 0),
        "lookup_dcookie": (0, BAD_POINTER, 0),
        "uselib": (b"/does-not-exist",),
        "sysfs": (3,),
        "ustat": (0, BAD_POINTER),
        "mbind": (0, 0, 0, None, 0, 0),
        "set_mempolicy": (0, None, 0),
        "vmsplice": (-1, None, 0, 0),
        "remap_file_pages": (0, 0, 0, 0, 0),
        "map_shadow_stack": (0, 0, 0),
    }
    args = attempts[name]
    return in_child(lambda: call(name, *args))


@probe
def newer_call(name):
    """Calls that are younger than most profiles: unknown ones are answered with ENOSYS, never with a kill."""
    return in_child(lambda: call(name, -1, BAD_POINTER, BAD_POINTER, 0xFFFF, 0xFFFF, 0))


@probe
def unknown_call():
    return in_child(lambda: call(5000))


@probe
def tiocsti():
    """Types into a terminal: the controlling one, or a new one if the sandbox gives any."""
    for path in ("/dev/tty", "/dev/console", "/dev/tty0"):
        try:
            fd = os.open(path, os.O_RDWR)
        except OSError:
            continue
        return _type_into(fd, path)
    master = os.open("/dev/ptmx", os.O_RDWR)
    unlocked = struct.pack("i", 0)
    import fcntl
    fcntl.ioctl(master, 0x40045431, unlocked)
    slave = fcntl.ioctl(master, 0x5441, os.O_RDWR | os.O_NOCTTY)  # TIOCGPTPEER
    return _type_into(slave, "pty")


def _type_into(fd, name):
    import fcntl
    fcntl.ioctl(fd, 0x5412, b"x")
    return name


@probe
def tioclinux():
    import fcntl
    for path in ("/dev/tty0", "/dev/tty1", "/dev/console"):
        if os.path.exists(path):
            fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
            fcntl.ioctl(fd, 0x541C, b"\x06")  # the state of the shift keys
            return path
    raise OSError(errno.ENOENT, "no console")


@probe
def standard_streams_are_terminals(how="as they are"):
    if how == "plant":
        os.dup2(os.openpty()[1], 2)
    terminals = [n for n in (0, 1, 2) if os.isatty(n)]
    if not terminals:
        raise Blocked("no terminal")
    return terminals


@probe
def seccomp_listener():
    """A filter of one's own with a notification descriptor, through which calls could be answered."""
    def attempt():
        if LIBC.prctl(38, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        code = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        return call("seccomp", 1, 8, program)  # SECCOMP_SET_MODE_FILTER, NEW_LISTENER
    return in_child(attempt)


def status_of(path="/proc/self/status"):
    with open(path) as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


@probe
def status(how="self"):
    """What the kernel says of us, or of a program that we execute."""
    if how == "exec":
        import subprocess
        text = subprocess.run(["cat", "/proc/self/status"], stdout=subprocess.PIPE, check=True).stdout.decode()
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    else:
        fields = status_of()
    wanted = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
              "Seccomp_filters", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "SigBlk", "SigIgn")
    return {k: fields[k].strip() for k in wanted if k in fields}


@probe
def no_new_privs():
    return {"no_new_privs": LIBC.prctl(39, 0, 0, 0, 0)}


@probe
def setuid_program(directory):
    path = a_program(f"{directory}/prober-setuid")
    os.chmod(path, 0o6755)
    return run_program(path)


@probe
def become(what):
    """Another identity, by the calls that exist for it."""
    def attempt():
        if what == "root":
            os.setuid(0)
        elif what == "group":
            os.setgid(0)
        elif what == "groups":
            os.setgroups([0, 27])
        elif what == "other":
            os.setresuid(1000, 1000, 1000)
        elif what == "ambient":
            header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
            sets = ctypes.create_string_buffer(24)
            LIBC.capget(header, sets)
            effective, permitted, _, effective2, permitted2, _ = struct.unpack("6I", sets.raw[:24])
            inheritable = struct.pack("6I", effective, permitted, permitted & 1 << 21, effective2, permitted2, 0)
            LIBC.capset(header, ctypes.create_string_buffer(inheritable))
            if LIBC.prctl(47, 2, 21, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")
        elif what == "capset":
            header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
            data = ctypes.create_string_buffer(struct.pack("6I", 1 << 21, 1 << 21, 0, 0, 0, 0))
            if LIBC.capset(header, data) != 0:
                raise OSError(ctypes.get_errno(), "capset")
        return what
    return in_child(attempt)


@probe
def privileged_files():
    """setuid, setgid and file capabilities anywhere in the image."""
    found = []
    seen = 0
    for directory, names, files in os.walk("/"):
        if directory == "/":
            names[:] = [n for n in names if n not in ("proc", "sys")]
        for name in files:
            path = os.path.join(directory, name)
            try:
                info = os.lstat(path)
            except OSError:
                continue
            seen += 1
            if stat.S_ISREG(info.st_mode) and info.st_mode & 0o6000:
                found.append(path)
            elif stat.S_ISREG(info.st_mode) and info.st_mode & 0o111:
                try:
                    os.getxattr(path, "security.capability", follow_symlinks=False)
                    found.append(path)
                except OSError:
                    pass
    if seen < 100:
        raise RuntimeError(f"only {seen} files were seen")
    if not found:
        raise Blocked({"files": seen})
    return found[:20]


@probe
def tools_of_the_builder():
    """Package managers and compilers have no place in the image."""
    import shutil
    names = ("pip", "pip3", "npm", "npx", "corepack", "apt", "apt-get", "dpkg", "gcc", "cc", "g++", "clang", "ld", "as",
             "make", "curl", "wget", "ssh", "sudo", "su", "mount", "umount", "nsenter", "unshare", "gdb", "strace")
    found = [name for name in names if shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")]
    for module in ("pip", "ensurepip"):
        import importlib.util
        if importlib.util.find_spec(module):
            found.append(f"python -m {module}")
    if not found:
        raise Blocked("none")
    return found


@probe
def mknod(kind):
    devices = {"mem": (stat.S_IFCHR, 1, 1), "sda": (stat.S_IFBLK, 8, 0), "null": (stat.S_IFCHR, 1, 3), "kmsg": (stat.S_IFCHR, 1, 11)}
    kind_bits, major, minor = devices[kind]
    path = f"/tmp/prober-{kind}"
    call("mknodat", -100, path.encode(), kind_bits | 0o600, os.makedev(major, minor))
    os.unlink(path)
    return path


@probe
def scratch_flags():
    """Flags, size and inodes of each scratch mount, from the kernel."""
    result = {}
    for path in SCRATCH:
        v = os.statvfs(path)
        result[path] = {
            "nosuid": bool(v.f_flag & os.ST_NOSUID), "nodev": bool(v.f_flag & os.ST_NODEV),
            "noexec": bool(v.f_flag & os.ST_NOEXEC), "read_only": bool(v.f_flag & os.ST_RDONLY),
            "bytes": v.f_blocks * v.f_frsize, "inodes": v.f_files,
            "mount_point": os.path.ismount(path),
        }
    return result


@probe
def devices():
    """Device nodes anywhere but those five that every program expects."""
    allowed = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
    # One of the five under another name (a path masked by /dev/null) is no other device.
    numbers = {os.stat(path).st_rdev for path in allowed if os.path.exists(path)}
    found = []
    for directory, names, files in os.walk("/"):
        if directory == "/":
            names[:] = [n for n in names if n not in ("proc", "sys")]
        for name in files:
            path = os.path.join(directory, name)
            try:
                info = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISBLK(info.st_mode) or stat.S_ISCHR(info.st_mode) and info.st_rdev not in numbers:
                found.append(path)
    missing = [path for path in allowed if not os.path.exists(path)]
    if missing:
        raise RuntimeError(f"missing: {missing}")
    if not found:
        raise Blocked("only the five")
    return found[:20]


@probe
def open_device(path):
    os.close(os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    return path


@probe
def speculation():
    """PR_GET_SPECULATION_CTRL for store bypass (0) and indirect branches (1)."""
    return {"store_bypass": LIBC.prctl(52, 0, 0, 0, 0), "indirect_branch": LIBC.prctl(52, 1, 0, 0, 0)}


# --- files ----------------------------------------------------------------------------------------------------

@probe
def write_everywhere():
    """Tries to make a file in every directory there is."""
    allowed, outside, tried, errors = [], [], 0, {}
    for directory, names, _ in os.walk("/", followlinks=False):
        if directory == "/":
            names[:] = [n for n in names if n not in ("proc", "sys")]
        tried += 1
        path = os.path.join(directory, ".prober-was-here")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as e:
            errors[errno.errorcode.get(e.errno, e.errno)] = errors.get(errno.errorcode.get(e.errno, e.errno), 0) + 1
            continue
        os.unlink(path)
        inside = any(directory == s or directory.startswith(s + "/") for s in SCRATCH)
        (allowed if inside else outside).append(directory)
    missing = [s for s in SCRATCH if s not in allowed]
    if missing:
        raise RuntimeError(f"scratch is not writable: {missing}")
    if tried < 50:
        raise RuntimeError(f"only {tried} directories were tried")
    if not outside:
        raise Blocked({"tried": tried, "errors": errors}, errno.EROFS if "EROFS" in errors else errno.EACCES)
    return outside[:20]


@probe
def open_for_writing(path):
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    return path


@probe
def open_tree_for_writing(root, limit="20000"):
    """Every file below root that opens for writing; nothing is written."""
    found, tried, errors = [], 0, {}
    for directory, _, files in os.walk(root):
        for name in files:
            if tried >= int(limit):
                break
            path = os.path.join(directory, name)
            if path == "/proc/sys/net/core/somaxconn/.." or os.path.islink(path):
                continue
            tried += 1
            try:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as e:
                errors[errno.errorcode.get(e.errno, e.errno)] = errors.get(errno.errorcode.get(e.errno, e.errno), 0) + 1
                continue
            os.close(fd)
            found.append(path)
    if not found:
        raise Blocked({"tried": tried, "errors": errors}, errno.EROFS if "EROFS" in errors else errno.EACCES)
    return {"tried": tried, "found": found[:20]}


@probe
def own_proc_for_writing():
    """The files of our own /proc entry: whoever owns a process may write some of them, unless a layer says no."""
    found, errors = [], {}
    for name in ("oom_score_adj", "oom_adj", "comm", "coredump_filter", "clear_refs", "timerslack_ns", "autogroup",
                 "uid_map", "gid_map", "setgroups", "projid_map", "loginuid", "sched", "mem", "attr/current", "attr/exec"):
        try:
            os.close(os.open(f"/proc/self/{name}", os.O_WRONLY))
            found.append(name)
        except OSError as e:
            errors[name] = errno.errorcode.get(e.errno, e.errno)
    if not found:
        raise Blocked(errors, errno.EACCES)
    return found


@probe
def read_path(path):
    """Whether there is anything to read: the bytes of a file, or the entries of a directory."""
    if os.path.isdir(path) and not os.path.islink(path):
        entries = os.listdir(path)
        if not entries:
            raise Blocked("an empty directory", errno.ENODATA)
        return {"entries": len(entries), "first": sorted(entries)[0]}
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = os.read(fd, 512)
    finally:
        os.close(fd)
    if not data:
        raise Blocked("an empty file", errno.ENODATA)
    return {"bytes": len(data)}


@probe
def find_canary(token, *paths):
    """Looks for a secret of the host at its own paths, through /proc, and by climbing out."""
    tried = []
    prefixes = ("", "/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../../..", "/out/../../..", "/proc/1/cwd/../../..")
    for path in paths:
        for prefix in prefixes:
            candidate = prefix + path
            tried.append(candidate)
            try:
                with open(candidate, "rb") as f:
                    if token.encode() in f.read(1 << 16):
                        return candidate
            except OSError:
                continue
    for key, value in os.environ.items():
        if token in value or token in key:
            return f"environment {key}"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as f:
                    # Our own arguments name the secret, because the suite told us what to look for.
                    if token.encode() in f.read() and not (name == "cmdline"):
                        return f"/proc/{pid}/{name}"
            except OSError:
                continue
    raise Blocked({"tried": len(tried)}, errno.ENOENT)


@probe
def connect_unix(path):
    """A socket of a service of the host; a name that begins with @ is an abstract one."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect("\0" + path[1:] if path.startswith("@") else path)
    return path


@probe
def mountinfo():
    with open("/proc/self/mountinfo") as f:
        lines = f.read().splitlines()
    mounts = []
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        mounts.append({"path": fields[4], "options": fields[5], "type": kind[0], "source": kind[1], "super": kind[2] if len(kind) > 2 else ""})
    return mounts


@probe
def cgroup(what):
    if what == "mount-v1":
        return in_child(lambda: (os.makedirs("/tmp/cg", exist_ok=True), call("mount", b"cgroup", b"/tmp/cg", b"cgroup", 0, b"memory"))[1])
    if what == "mount-v2":
        return in_child(lambda: (os.makedirs("/tmp/cg", exist_ok=True), call("mount", b"cgroup2", b"/tmp/cg", b"cgroup2", 0, None))[1])
    if what == "mkdir":
        refusal = OSError(errno.ENOENT, "no cgroup directory")
        for directory, names, _ in os.walk("/sys/fs/cgroup"):
            try:
                path = os.path.join(directory, "prober")
                os.mkdir(path)
                os.rmdir(path)
                return directory
            except OSError as e:
                refusal = e
        raise refusal
    refusal = OSError(errno.ENOENT, "no such file")
    for directory, _, files in os.walk("/sys/fs/cgroup"):
        for name in files:
            if name in what.split(","):
                try:
                    os.close(os.open(os.path.join(directory, name), os.O_WRONLY))
                    return os.path.join(directory, name)
                except OSError as e:
                    refusal = e
    raise refusal


@probe
def cgroup_path():
    """Our own cgroup as we see it: its place on the host must not show."""
    with open("/proc/self/cgroup") as f:
        paths = sorted({line.rstrip("\n").split(":", 2)[2] for line in f})
    if paths in ([], ["/"]):
        raise Blocked(paths)
    return paths


@probe
def proc_of(pid, name):
    """The parts of another process that show or change what it is."""
    path = f"/proc/{pid}/{name}"
    if name in ("exe", "root", "cwd"):
        os.readlink(path)
        os.close(os.open(path, os.O_PATH))
        return path
    if name in ("fd", "map_files", "fdinfo"):
        return os.listdir(path)[:3]
    if name == "mem-write":
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        return path
    fd = os.open(path, os.O_RDONLY)
    if name == "mem":
        os.close(fd)
        return path
    data = os.read(fd, 64)
    os.close(fd)
    if not data:
        raise Blocked("empty")
    return len(data)


@probe
def proc_of_sibling(name):
    with Sibling() as pid:
        return proc_of(pid, name)


@probe
def own_executable_for_writing(how):
    """Overwrites the interpreter that runs us, or keeps a descriptor to do it once nobody runs it any more."""
    path = os.readlink("/proc/self/exe") if how == "path" else "/proc/self/exe"
    if how == "reopen":
        fd = os.open("/proc/self/exe", os.O_PATH)
        path = f"/proc/self/fd/{fd}"
    os.close(os.open(path, os.O_WRONLY))
    return path


@probe
def processes_seen():
    """Every process that /proc shows, with its name."""
    seen = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                seen[int(pid)] = f.read().strip()
        except OSError as e:
            seen[int(pid)] = f"errno {e.errno}"
    return {"pids": sorted(seen), "names": seen, "own": os.getpid(), "parent": os.getppid()}


def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the directory that we just read
    return found


@probe
def inherited_descriptors(how="self"):
    """Open descriptors beyond 0, 1 and 2, in the script or in a program that it executes."""
    if how == "exec":
        import subprocess
        text = subprocess.run(["ls", "/proc/self/fd"], stdout=subprocess.PIPE, close_fds=False, check=True).stdout.decode()
        found = {int(n): "?" for n in text.split()}
        extra = {n: v for n, v in found.items() if n > 2}
        extra.pop(3, None)  # the directory that ls reads
    else:
        # Our own script file is closed by the interpreter before it runs; the listing's own descriptor is gone.
        extra = {n: v for n, v in descriptors().items() if n > 2}
    if not extra:
        raise Blocked(descriptors())
    return extra


@probe
def link_across(source, target):
    os.link(source, target)
    return target


@probe
def rename_across(source, target):
    if not os.path.exists(source):
        open(source, "w").close()
    os.rename(source, target)
    return target


@probe
def reopen_for_writing(path):
    fd = os.open(path, os.O_PATH)
    os.close(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY))
    return path


@probe
def truncate(path):
    os.truncate(path, os.stat(path).st_size)
    return path


@probe
def change_attributes(path, what):
    if what == "mode":
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    elif what == "owner":
        os.chown(path, os.getuid(), os.getgid())
    elif what == "time":
        os.utime(path)
    elif what == "xattr":
        os.setxattr(path, "user.prober", b"1")
    elif what == "unlink":
        os.unlink(path)
    return path


@probe
def device_ioctl():
    """RNDGETENTCNT reads a number from /dev/urandom; no capability and no mount flag stops it, only Landlock does."""
    import fcntl
    fd = os.open("/dev/urandom", os.O_RDONLY)
    return struct.unpack("i", fcntl.ioctl(fd, 0x80045200, struct.pack("i", 0)))[0]


# --- what a run leaves for the next ---------------------------------------------------------------------------

IPC_KEY = 0x5A17D6


def plant(token):
    """Leaves the token in every place that could outlive a run; says where it could be left."""
    left = []
    for directory in SCRATCH:
        try:
            with open(f"{directory}/left-behind", "w") as f:
                f.write(token)
            left.append(directory)
        except OSError:
            pass
    LIBC.shmat.restype = ctypes.c_void_p
    segment = LIBC.shmget(IPC_KEY, 4096, 0o1666)
    if segment >= 0:
        address = LIBC.shmat(segment, None, 0)
        if address not in (None, 2**64 - 1):
            ctypes.memmove(address, token.encode() + b"\0", len(token) + 1)
            left.append("sysv shared memory")
    if LIBC.semget(IPC_KEY, 1, 0o1666) >= 0:
        left.append("sysv semaphore")
    queue = LIBC.msgget(IPC_KEY, 0o1666)
    if queue >= 0:
        left.append("sysv queue")
    try:
        librt = ctypes.CDLL(None, use_errno=True)
        if librt.mq_open(b"/left-behind", os.O_RDWR | os.O_CREAT, 0o666, None) >= 0:
            left.append("posix queue")
    except AttributeError:
        pass
    try:
        call("add_key", b"user", b"left-behind", token.encode(), len(token), -5)  # the user session keyring
        left.append("keyring")
    except (OSError, Unsupported):
        pass
    try:
        server = socket.socket(socket.AF_UNIX)
        server.bind("\0left-behind")
        server.listen()
        plant.server = server
        left.append("abstract socket")
    except OSError:
        pass
    return left


def look(token):
    found = []
    for directory in SCRATCH:
        for root, _, files in os.walk(directory):
            for name in files:
                try:
                    with open(os.path.join(root, name), "rb") as f:
                        if token.encode() in f.read(1 << 20) and name == "left-behind":
                            found.append(os.path.join(root, name))
                except OSError:
                    pass
    if LIBC.shmget(IPC_KEY, 4096, 0) >= 0:
        found.append("sysv shared memory")
    if LIBC.semget(IPC_KEY, 1, 0) >= 0:
        found.append("sysv semaphore")
    if LIBC.msgget(IPC_KEY, 0) >= 0:
        found.append("sysv queue")
    try:
        if ctypes.CDLL(None).mq_open(b"/left-behind", os.O_RDWR) >= 0:
            found.append("posix queue")
    except AttributeError:
        pass
    try:
        call("request_key", b"user", b"left-behind", None, 0)
        found.append("keyring")
    except (OSError, Unsupported):
        pass
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect("\0left-behind")
        found.append("abstract socket")
    except OSError:
        pass
    return found


@probe
def leave_behind(token, hold="0"):
    left = plant(token)
    if float(hold):
        print("planted", flush=True)
        time.sleep(float(hold))
    return left


@probe
def find_left_behind(token, *steps):
    """With "plant" among the steps, the token is planted first: the control, which shows that we would see it."""
    if "plant" in steps:
        plant(token)
    found = look(token)
    if not found:
        raise Blocked("nothing")
    return found


@probe
def scratch_is_empty():
    """A run starts with nothing but its inputs."""
    found = {}
    for directory in SCRATCH:
        # The script itself, and the font cache that every run starts with.
        entries = [e for e in os.listdir(directory) if not e.startswith("main.") and e != ".matplotlib"]
        if entries:
            found[directory] = entries[:20]
    if not found:
        raise Blocked("empty")
    return found


# --- processes and limits -------------------------------------------------------------------------------------

@probe
def fork_many(limit):
    """Forks sleeping children until it is refused, at most `limit` of them."""
    children = []
    try:
        while len(children) < int(limit):
            pid = os.fork()
            if pid == 0:
                time.sleep(120)
                os._exit(0)
            children.append(pid)
    except OSError as e:
        raise Blocked({"children": len(children)}, e.errno) from None
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    return len(children)


@probe
def thread_many(limit):
    import threading
    stop = threading.Event()
    threads = []
    threading.stack_size(64 * 1024)
    try:
        while len(threads) < int(limit):
            thread = threading.Thread(target=stop.wait)
            thread.start()
            threads.append(thread)
    except RuntimeError as e:
        raise Blocked({"threads": len(threads), "text": str(e)}, errno.EAGAIN) from None
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return len(threads)


@probe
def fill(directory, megabytes):
    """Fills a scratch mount; ENOSPC is the right answer."""
    chunk = b"\xa5" * (1 << 20)
    written = 0
    path = f"{directory}/prober-fill"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while written < int(megabytes) << 20:
            written += os.write(fd, chunk)
    except OSError as e:
        raise Blocked({"written": written}, e.errno) from None
    finally:
        os.close(fd)
        os.unlink(path)
    return written


@probe
def fill_inodes(directory, count):
    made = 0
    base = f"{directory}/prober-inodes"
    os.mkdir(base)
    try:
        for made in range(int(count)):
            os.close(os.open(f"{base}/{made}", os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError as e:
        raise Blocked({"made": made}, e.errno) from None
    return made


@probe
def allocate(megabytes, how="touch"):
    """Takes memory and uses it."""
    size = int(megabytes) << 20
    if how == "locked":
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x2000)
    elif how == "shared":
        memory = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    else:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, size, 4096):
        memory[offset] = 1
    return size


@probe
def pipes(megabytes):
    """Kernel memory: full pipes."""
    held = 0
    ends = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    import fcntl
    try:
        while held < int(megabytes) << 20:
            reader, writer = os.pipe()
            ends.append((reader, writer))
            try:
                fcntl.fcntl(writer, 1031, 1 << 20)
            except OSError:
                pass
            os.set_blocking(writer, False)
            try:
                while True:
                    held += os.write(writer, b"\0" * 65536)
            except BlockingIOError:
                pass
    except OSError as e:
        raise Blocked({"held": held}, e.errno) from None
    return held


@probe
def spin(workers, seconds):
    """CPU seconds that the workers got in so many seconds of wall clock."""
    deadline = time.monotonic() + float(seconds)
    start = time.monotonic()
    children = []
    for _ in range(int(workers)):
        pid = os.fork()
        if pid == 0:
            while time.monotonic() < deadline:
                for _ in range(10000):
                    pass
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.monotonic() - start
    return {"cpu": (used.ru_utime + used.ru_stime) / wall, "wall": wall}


@probe
def priority(what):
    def attempt():
        if what == "fifo":
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        elif what == "rr":
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        elif what == "deadline":
            call("sched_setattr", 0, ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 1000000, 10000000, 10000000)), 0)
        elif what == "nice":
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        elif what == "ionice":
            call("ioprio_set", 1, 0, 1 << 13)
        return what
    return in_child(attempt)


@probe
def raise_limit(name, how="as it is"):
    number = getattr(resource, name)
    if how == "plant":
        resource.setrlimit(number, (0, 0))
    hard = resource.getrlimit(number)[1]
    if hard == resource.RLIM_INFINITY:
        raise Unsupported("the limit is infinite already")
    try:
        resource.setrlimit(number, (hard + 1, hard + 1))
    except ValueError as e:  # what Python makes of EPERM
        raise Blocked(str(e), errno.EPERM) from None
    return hard + 1


@probe
def limits():
    names = [n for n in dir(resource) if n.startswith("RLIMIT_")]
    return {n: list(resource.getrlimit(getattr(resource, n))) for n in names}


@probe
def lower_oom_score():
    with open("/proc/self/oom_score_adj") as f:
        before = int(f.read())
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError as e:
        raise Blocked({"step": "open", "before": before}, e.errno) from None
    try:
        os.write(fd, str(max(before - 1, -1000)).encode())
    except OSError as e:
        raise Blocked({"step": "write", "before": before}, e.errno) from None
    return before


@probe
def dumpable():
    """Whether PID 1 can be looked into. Its /proc files belong to root when it is not dumpable; in a namespace without a
    root that looks like our own id, so the open has the last word."""
    owner = os.stat("/proc/1/environ").st_uid
    if owner != os.getuid():
        raise Blocked({"owner": owner})
    os.close(os.open("/proc/1/environ", os.O_RDONLY))
    return owner


@probe
def kill_process(target, number):
    """kill(1) and kill(-1): PID 1 takes no signal from inside, and we do not hit ourselves with -1."""
    os.kill(int(target), int(number))
    time.sleep(0.2)
    with open("/proc/1/comm") as f:
        return f.read().strip()


@probe
def environment():
    return dict(os.environ)


@probe
def arguments(*args):
    return list(args)


@probe
def network(how="as it is"):
    """Interfaces and addresses that /proc shows, without any socket."""
    if how == "plant":
        network.server = socket.socket(socket.AF_UNIX)
        network.server.bind("\0somebody-else")
    with open("/proc/net/dev") as f:
        names = [line.split(":")[0].strip() for line in f if ":" in line]
    def lines(path):
        try:
            with open(path) as f:
                return f.read().splitlines()
        except OSError:
            return []
    return {
        "interfaces": names,
        "routes": lines("/proc/net/route")[1:],
        "routes6": [r for r in lines("/proc/net/ipv6_route") if not r.endswith(" lo")],
        "unix": [line for line in lines("/proc/net/unix") if "@" in line],
    }


@probe
def host_facts():
    """Facts that would name the machine."""
    def text(path):
        with open(path) as f:
            return f.read()
    # After the name in parentheses: state, parent, process group, session.
    _, parent, group, session = text("/proc/self/stat").rpartition(")")[2].split()[:4]
    return {"hostname": text("/proc/sys/kernel/hostname").strip(), "uid_map": text("/proc/self/uid_map").split(),
            "pid": os.getpid(), "ppid": int(parent), "pgid": int(group), "sid": int(session)}


@probe
def clock_namespace():
    """Offsets of the time namespace must not be ours to set, and the clocks must be the host's."""
    try:
        os.close(os.open("/proc/self/timens_offsets", os.O_WRONLY))
    except OSError as e:
        raise Blocked({"now": time.time()}, e.errno) from None
    return time.time()


@probe
def timers_work():
    """alarm, setitimer and timer_create stay within the process that set them."""
    hits = []
    signal.signal(signal.SIGALRM, lambda *_: hits.append("alarm"))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    deadline = time.monotonic() + 5
    while not hits and time.monotonic() < deadline:
        time.sleep(0.01)
    if not hits:
        raise RuntimeError("the timer never fired")
    return hits


@probe
def nothing():
    return "alive"


def main():
    name, args = sys.argv[1], sys.argv[2:]
    line = {"probe": name, "outcome": "error", "errno": None, "detail": None}
    try:
        line["detail"] = PROBES[name](*args)
        line["outcome"] = "allowed"
    except Blocked as e:
        line.update(outcome="blocked", errno=e.err, detail=e.detail)
    except OSError as e:
        line.update(outcome="blocked", errno=e.errno, detail=str(e))
    except MemoryError as e:
        line.update(outcome="blocked", errno=errno.ENOMEM, detail=str(e))
    except Unsupported as e:
        line.update(outcome="error", detail=f"unsupported: {e}")
    except Exception as e:  # whatever it is, the suite must hear of it
        line.update(outcome="error", detail=repr(e))
    print("\n" + json.dumps(line), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
