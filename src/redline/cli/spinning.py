"""How long OpenMP threads spin before they sleep: long on a free machine, briefly on a busy one.

The learner's threads wait for each other dozens of times per update, and a sleeping thread wakes late. But on a busy
machine the thread that they wait for may not be running, and spinning takes the CPU time that it needs. OpenMP reads
these settings once, when torch is loaded: they must be set before any command is imported.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SHORT_SPIN = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "2000"}
LONG_SPIN = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "50000"}

LEARNING = ("train", "resume", "profile", "bench")
LEARNING_PLANS = (("plan", "speed"), ("plan", "machines"))
LOOK_S = 0.15
MOST_BUSY_CORES = 0.25  # by other processes, on a machine that counts as free


def choose_spin(args: Sequence[str]) -> Mapping[str, str]:
    """Return the settings for a command: long only if it learns in one process on a free machine."""
    if not _learns(args) or "async" in " ".join(args) or _resumes_in_processes(args):
        return SHORT_SPIN
    return LONG_SPIN if busy_cores() <= MOST_BUSY_CORES else SHORT_SPIN


def _learns(args: Sequence[str]) -> bool:
    return bool(args) and (args[0] in LEARNING or tuple(args[:2]) in LEARNING_PLANS or "--measure" in args)


def spin_in_processes() -> Mapping[str, str]:
    """Return what to change for a run in several processes, if this one was made for learning alone."""
    return SHORT_SPIN if all(os.environ.get(name) == value for name, value in LONG_SPIN.items()) else {}


def busy_cores() -> float:
    """Return how many cores are busy while this process sleeps; infinity if that can't be read."""
    before, begun_s = _busy_s(), time.monotonic()
    time.sleep(LOOK_S)
    after, spent_s = _busy_s(), time.monotonic() - begun_s
    return float("inf") if before is None or after is None else (after - before) / spent_s


def _busy_s() -> float | None:
    try:
        user, nice, system, _, _, irq, softirq, steal, *_ = (
            int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        )
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _resumes_in_processes(args: Sequence[str]) -> bool:
    """Tell whether a run to resume has, or may have, actors and learner in separate processes."""
    if args[0] != "resume":
        return False
    from redline.errors import UserError
    from redline.files import read_json_object
    from redline.runs.locating import locate_run
    from redline.runs.run_json import MAX_RUN_JSON_BYTES

    named = [word for word in args[1:] if not word.startswith("-")]
    try:
        facts = read_json_object(locate_run(named[0]) / "run.json", max_bytes=MAX_RUN_JSON_BYTES)
        return bool(facts["config"]["topology"] != "inline")
    except (UserError, OSError, ValueError, KeyError, IndexError, TypeError):  # the command itself says what is wrong
        return True
