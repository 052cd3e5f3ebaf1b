"""Processes that use a known amount of the machine, and tell by their own counters how much it was."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# each waits for a line before it works, and for another before it ends, so that a window can be put around the work
FRAME = """
import json, os, resource, sys, time
def counters():
    usage, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    io = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime + children.ru_utime + children.ru_stime,
        # not ru_maxrss: that begins with what the parent held when it forked
        "rss_bytes": int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "write_bytes": int(io["write_bytes"]),
        "monotonic_s": time.monotonic(),
    }
def burn(seconds):
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass
def answer():
    print(json.dumps(counters()), flush=True)
    sys.stdin.readline()
answer()
WORK
answer()
"""
BURN = "burn(1.0)"
HOLD = "held = bytearray(b'x') * 300_000_000"  # every page is written to
WRITE = """
with open(sys.argv[1], "wb") as file:
    for _ in range(50):
        file.write(os.urandom(1_000_000))
    file.flush()
    os.fsync(file.fileno())
"""
SHORT_LIVES = """
import subprocess
for _ in range(4):
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.25: pass"], check=True)
"""


class Worker:
    """A process that works when it is told to."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.pid = process.pid
        self._process = process
        self.before = self._read()

    def work(self) -> dict[str, Any]:
        """Let it work, and return by how much its counters grew; `rss_bytes` is what it holds now."""
        self.go_on()
        after = self._read()
        grown = {name: after[name] - self.before[name] for name in after}
        return {**grown, "rss_bytes": after["rss_bytes"]}

    def go_on(self) -> None:
        """Give it the line it waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        counters: dict[str, Any] = json.loads(self._process.stdout.readline())
        return counters


@contextmanager
def worker(work: str, *args: str) -> Iterator[Worker]:
    """Start a process that waits to do `work`."""
    command = [sys.executable, "-c", FRAME.replace("WORK", work), *args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Worker(process)
        finally:
            process.communicate("\n")
