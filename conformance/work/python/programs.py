"""subprocess: shells, pipes, environments, timeouts, kills."""
import os
import signal
import subprocess
import sys

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


run = lambda *args, **kw: subprocess.run(*args, capture_output=True, text=True, **kw)
check(run("printf 'b\\na\\nc\\n' | sort | tr a-z A-Z", shell=True).stdout == "A\nB\nC\n", "a pipeline")
check(run(["sh", "-c", "exit 7"]).returncode == 7, "an exit code")
check(run(["sh", "-c", "kill -TERM $$"]).returncode == -15, "a signal")
check(run(["cat"], input="沙漏").stdout == "沙漏", "text through a program")
check(run([sys.executable, "-c", "print(6 * 7)"]).stdout == "42\n", "another interpreter")
check(run(["env"], env={"ONLY": "this", "PATH": os.environ["PATH"]}).stdout.splitlines()[0].startswith(("ONLY", "PATH")), "an environment")
try:
    run(["sleep", "30"], timeout=0.2)
    check(False, "a timeout")
except subprocess.TimeoutExpired:
    check(True, "a timeout")
child = subprocess.Popen(["sleep", "30"], start_new_session=True)
os.killpg(child.pid, signal.SIGKILL)
check(child.wait(10) == -9, "a group is killed")
first = subprocess.Popen(["printf", "x\\ny\\n"], stdout=subprocess.PIPE)
second = subprocess.Popen(["wc", "-l"], stdin=first.stdout, stdout=subprocess.PIPE)
check(second.communicate()[0].strip() == b"2", "two programs and a pipe")
check(os.popen("echo popen").read() == "popen\n", "popen")
check(os.system("test -d /work") == 0, "system")
check(run(["sh", "-c", "cd /tmp && echo $PWD"]).stdout == "/tmp\n", "a directory")
check(os.posix_spawn("/bin/true", ["true"], dict(os.environ)) > 0 and os.wait()[1] == 0, "posix_spawn")
check(run(["nproc"]).returncode == 0 and run(["date"]).stdout, "coreutils")
check(run("no-such-program", shell=True).returncode == 127, "a missing program is exit code 127")
print(f"work ok: {checks} checks")
