"""Locale, encodings, dates, and what a script can ask about where it is."""
import datetime
import decimal
import getpass
import importlib
import locale
import os
import platform
import pwd
import statistics
import sys
import time
import unicodedata
import zoneinfo

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


check(sys.getfilesystemencoding() == "utf-8" and sys.stdout.encoding.lower() == "utf-8", "UTF-8 everywhere")
check(locale.setlocale(locale.LC_ALL, "") and locale.getpreferredencoding().upper() == "UTF-8", "a UTF-8 locale")
print("沙漏 naïve 😀")
with open("/work/沙漏.txt", "w") as f:
    f.write("é")
check(open("/work/沙漏.txt", "rb").read() == b"\xc3\xa9", "UTF-8 by default")
check(unicodedata.normalize("NFD", "é") == "e\u0301", "Unicode")
check("日本".encode("shift_jis").decode("shift_jis") == "日本" and "中".encode("gb18030"), "other encodings")
check(datetime.datetime.now().astimezone().utcoffset() == datetime.timedelta(0) and time.tzname[0] == "UTC", "UTC")
tokyo = datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))
check(tokyo.utcoffset() == datetime.timedelta(hours=9), "time zones")
check(len(zoneinfo.available_timezones()) > 400, "all of them")
check(os.getcwd() == "/work" and os.environ["HOME"] == "/work" and os.path.expanduser("~") == "/work", "a home")
check(getpass.getuser() and pwd.getpwuid(os.getuid()).pw_name, "a name")
check(os.getuid() == 65534 and os.getgid() == 65534 and os.getgroups() in ([], [65534]), "nobody")
check(platform.platform() and platform.node() and os.uname().machine, "a platform")
check(os.getloadavg() and os.times() and os.sysconf("SC_PAGESIZE") >= 4096, "questions about the machine")
check(decimal.Decimal("0.1") + decimal.Decimal("0.2") == decimal.Decimal("0.3"), "decimals")
check(statistics.median([1, 2, 3]) == 2, "statistics")
for name in ("ctypes", "ssl", "sqlite3", "lzma", "bz2", "zlib", "hashlib", "uuid", "xml.etree.ElementTree", "html.parser", "urllib.parse",
             "email", "http", "socket", "select", "decimal", "fractions", "heapq", "graphlib", "dataclasses",
             "typing", "unittest", "doctest", "pdb", "cProfile", "tracemalloc", "faulthandler", "resource", "termios", "fcntl", "mmap"):
    importlib.import_module(name)
    checks += 1
import ctypes
check(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)(41) == 42, "callbacks from C")
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
    check(False, "no network")
except OSError:
    check(True, "no network, as an exception")
try:
    socket.getaddrinfo("example.com", 80)
    check(False, "no names")
except OSError:
    check(True, "no names, as an exception")
import resource
check(resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 256, "enough descriptors")
print(f"work ok: {checks} checks")
