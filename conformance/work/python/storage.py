"""Files: temporary, compressed, databases, locks, names in every script."""
import bz2
import csv
import fcntl
import glob
import gzip
import hashlib
import json
import lzma
import mmap
import os
import pathlib
import pickle
import secrets
import shutil
import sqlite3
import tarfile
import tempfile
import uuid
import zipfile
import zlib

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


with tempfile.TemporaryDirectory() as d:
    check(d.startswith("/tmp"), "temporary directories are in /tmp")
    path = pathlib.Path(d, "沙漏 naïve 😀.txt")
    path.write_text("text", encoding="utf-8")
    check(os.listdir(d) == ["沙漏 naïve 😀.txt"] and path.read_text() == "text", "names in every script")
    os.symlink(path, f"{d}/link")
    os.link(path, f"{d}/hard")
    check(os.path.samefile(f"{d}/link", f"{d}/hard"), "links of one's own")
    os.rename(path, f"{d}/renamed")
    os.chmod(f"{d}/renamed", 0o600)
    os.utime(f"{d}/renamed", (0, 0))
    check(os.stat(f"{d}/renamed").st_mtime == 0 and os.stat(f"{d}/renamed").st_mode & 0o777 == 0o600, "modes and times")
    check(len(os.listdir(d)) == 3, "a listing")
with tempfile.NamedTemporaryFile() as f:
    f.write(b"x" * 10000)
    f.flush()
    check(os.path.getsize(f.name) == 10000, "a temporary file")
with tempfile.TemporaryFile() as f:
    f.write(b"unnamed")
    f.seek(0)
    check(f.read() == b"unnamed", "a file without a name")
data = os.urandom(1000) + b"compressible " * 1000
for module in (gzip, bz2, lzma):
    check(module.decompress(module.compress(data)) == data, module.__name__)
check(zlib.decompress(zlib.compress(data)) == data, "zlib")
with zipfile.ZipFile("/out/a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("沙漏.txt", "in a zip")
check(zipfile.ZipFile("/out/a.zip").read("沙漏.txt") == b"in a zip", "zip")
with tarfile.open("/out/a.tar.xz", "w:xz") as t:
    t.add("/out/a.zip", "a.zip")
check(tarfile.open("/out/a.tar.xz").getnames() == ["a.zip"], "tar")
database = sqlite3.connect("/work/data.db")
database.execute("create table t (n integer, s text)")
with database:
    database.executemany("insert into t values (?, ?)", [(n, f"行{n}") for n in range(1000)])
check(database.execute("select sum(n), max(s) from t").fetchone()[0] == 499500, "sqlite")
check(database.execute("pragma journal_mode=wal").fetchone()[0] == "wal", "sqlite's write-ahead log (shared memory)")
with open("/work/t.csv", "w", newline="") as f:
    csv.writer(f).writerows([["a", "é,\"\n"], [1, 2]])
check(list(csv.reader(open("/work/t.csv", newline=""))) == [["a", "é,\"\n"], ["1", "2"]], "csv")
check(json.loads(json.dumps({"沙": [1.5, None]})) == {"沙": [1.5, None]}, "json")
check(pickle.loads(pickle.dumps({1: {2}})) == {1: {2}}, "pickle")
with open("/work/lock", "w") as f:
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    check(True, "locks")
with open("/work/map", "wb+") as f:
    f.truncate(8192)
    with mmap.mmap(f.fileno(), 8192) as m:
        m[0:4] = b"abcd"
        m.flush()
    f.seek(0)
    check(f.read(4) == b"abcd", "a shared mapping")
fd = os.open("/work/alloc", os.O_CREAT | os.O_RDWR)
os.posix_fallocate(fd, 0, 1 << 20)
check(os.fstat(fd).st_size == 1 << 20, "fallocate")
os.pwrite(fd, b"at", 100)
check(os.pread(fd, 2, 100) == b"at" and os.fsync(fd) is None and os.sendfile is not None, "positions")
shutil.copytree("/work", "/tmp/copy", ignore=shutil.ignore_patterns("copy"))
check(len(glob.glob("/tmp/copy/**", recursive=True)) > 4, "copies of trees")
check(shutil.copyfile("/out/a.zip", "/tmp/b.zip") and os.path.getsize("/tmp/b.zip") == os.path.getsize("/out/a.zip"), "copies (sendfile, copy_file_range)")
shutil.rmtree("/tmp/copy")
check(shutil.disk_usage("/work").total > 1 << 20, "disk usage")
check(len(hashlib.sha256(data).hexdigest()) == 64 and len(hashlib.scrypt(b"p", salt=b"s", n=2, r=1, p=1)) == 64, "digests")
check(len(secrets.token_bytes(32)) == 32 and uuid.uuid4() != uuid.uuid4() and uuid.uuid1(), "randomness")
with open("/dev/null", "w") as f:
    f.write("gone")
check(open("/dev/zero", "rb").read(10) == bytes(10) and len(open("/dev/urandom", "rb").read(10)) == 10, "the five devices")
try:
    open("/dev/full", "w").write("x" * 100000)
    check(False, "/dev/full is full")
except OSError:
    check(True, "/dev/full is full")
print(f"work ok: {checks} checks")
