"""Does a fleet tell what is wrong with it? Faults are planted in real fleets, and healthy runs are watched for long.

Each fault has a fleet of its own, and must be told within 60 s. The healthy fleet trains ten runs at a time, more than
the cores can feed, until they are done: not one incident may be told. Meanwhile the supervisor's cost is measured.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, say
from redline.fleet.health import HEALTH_JSONL, INCIDENT, ROW
from redline.fleet.lease import read_holder
from redline.fleet.slots import SLOTS_JSONL
from redline.jsonl import Row, read_records
from redline.monitor.processes import read_stat
from redline_process import WatchedProcess, redline_command, tail
from run_reading import as_text

MOST_S = 60.0
START_S, TOLD_S, END_S = 300.0, 180.0, 600.0
SETTLE_S = 30.0  # of a planted run, before its fault
LOADED_S = 30.0  # after which the supervisor only supervises
MOST_CORES, MOST_BYTES = 0.01, 100_000_000
RUNS = 10
DISK_BYTES, LEFT_BYTES = 400_000_000, 50_000_000
GAME = "CartPole-v1"

# loaded by every Python that finds it on its path: the fault begins in the runners when a file is there
FAULTS = """
import os, subprocess, sys, threading, time

def plant(kind, begin):
    held = []
    while not os.path.exists(begin):
        time.sleep(0.1)
    if kind == "orphan":
        subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while kind == "leak":
        held.append(b"x" * 5_000_000)
        time.sleep(0.5)

def refuse(event, args):
    if event == "open" and str(args[0]).endswith("metrics.jsonl") and args[2] & os.O_CREAT:
        raise RuntimeError("planted: it fails at its first row")

with open("/proc/self/cmdline", "rb") as file:
    is_runner = b"fleet\\0run" in file.read()
kind = os.environ.get("PLANTED_FAULT")
if is_runner and kind == "crash-loop":
    sys.addaudithook(refuse)
elif is_runner and kind:
    threading.Thread(target=plant, args=(kind, os.environ["PLANTED_BEGIN"]), daemon=True).start()
"""


@dataclass(frozen=True)
class Fleet:
    """A fleet that goes on."""

    process: WatchedProcess
    folder: Path
    begin: Path  # once this file is there, a planted fault begins

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a file."""
        path = self.folder / name
        return read_records(path) if path.exists() else []

    def incidents(self) -> list[Row]:
        """Return what was told to be wrong."""
        return [row for row in self.rows(HEALTH_JSONL) if row.get(ROW) == INCIDENT]

    def runner(self) -> int:
        """Wait until the first run has settled; return the process that trains it."""
        name = self.process.wait_for(self._first_slot, timeout_s=START_S)
        self.process.wait_for(lambda: self._has_learnt() or None, timeout_s=START_S)
        time.sleep(SETTLE_S)
        holder = read_holder(self.folder, name)
        if holder is None:
            raise RuntimeError("the lease of a run that trains is gone")
        return holder.pid

    def _first_slot(self) -> str | None:
        return next((str(row["slot"]) for row in self.rows(SLOTS_JSONL) if row.get("state") == "running"), None)

    def _has_learnt(self) -> bool:
        runs = self.folder.glob("runs/*/*/*/*/metrics.jsonl")
        return any(row.get("updates", 0) > 0 for path in runs for row in read_records(path))


@contextmanager
def fleet_of(*flags: str, fault: str = "", folder: Path | None = None) -> Iterator[Fleet]:
    """Start a fleet; leaving the context ends it and its runs."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "sitecustomize.py").write_text(FAULTS, encoding="utf-8")
        python_path = os.pathsep.join(filter(None, [name, os.environ.get("PYTHONPATH")]))
        environ = {"PLANTED_FAULT": fault, "PLANTED_BEGIN": str(home / "begin"), "PYTHONPATH": python_path}
        place = (folder or home) / "fleet"
        command = redline_command("fleet", "start", *flags, "--dir", str(place), "--plain")
        with WatchedProcess(command, home / "said.log", environ=environ) as process:
            fleet = Fleet(process, place, home / "begin")
            try:
                yield fleet
            finally:
                end_runs(fleet)


def end_runs(fleet: Fleet) -> None:
    """End the runs of a fleet at once, with what they left behind; they have sessions of their own."""
    with suppress(RuntimeError):
        fleet.process.kill()  # or it would start them again
    for slot in {str(row["slot"]) for row in fleet.rows(SLOTS_JSONL) if "slot" in row}:
        holder = read_holder(fleet.folder, slot)
        with suppress(ProcessLookupError, PermissionError):
            if holder is not None:
                os.killpg(holder.pid, signal.SIGKILL)


# Faults: each returns the moment from which on it is there


def plant_leak(fleet: Fleet) -> float:
    """Let a run lose 10 MB a second."""
    fleet.runner()
    fleet.begin.touch()
    return time.time()


def plant_hang(fleet: Fleet) -> float:
    """Stop a run by a signal."""
    os.kill(fleet.runner(), signal.SIGSTOP)
    return time.time()


def plant_orphan(fleet: Fleet) -> float:
    """Kill a run that has begun a process which stays."""
    runner = fleet.runner()
    fleet.begin.touch()
    time.sleep(2.0)
    os.kill(runner, signal.SIGKILL)
    return time.time()


def plant_crash_loop(fleet: Fleet) -> float:
    """Return when a run failed for the first time; it always does."""

    def first_failure() -> float | None:
        rows = fleet.rows(SLOTS_JSONL)
        ends = [row["unix_s"] for row in rows if row.get("state") == "waiting" and row.get("attempt")]
        return float(ends[0]) if ends else None

    return fleet.process.wait_for(first_failure, timeout_s=START_S)


def plant_full_disk(fleet: Fleet) -> float:
    """Fill the disk of a fleet but for a little."""
    fleet.runner()
    facts = os.statvfs(fleet.folder)
    rest = facts.f_bavail * facts.f_frsize - LEFT_BYTES
    with (fleet.folder.parent / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(rest, 1))
    return time.time()


PLANTED: Mapping[str, Callable[[Fleet], float]] = {
    "leak": plant_leak,
    "hang": plant_hang,
    "orphan": plant_orphan,
    "crash-loop": plant_crash_loop,
    "disk": plant_full_disk,
}


@contextmanager
def small_disk() -> Iterator[Path | None]:
    """Mount a small disk; None where that is not permitted."""
    with tempfile.TemporaryDirectory() as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", name]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            yield None
            return
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=False)


def plant(kind: str) -> Row:
    """Plant a fault, and return how long it took until it was told."""
    flags = ("--games", "CartPole-v1", "--model", "dqn", "--max-minutes", "20", "--checkpoint-minutes", "0.2")
    if kind != "disk":
        return _plant(kind, flags, None)
    with small_disk() as disk:
        if disk is None:
            return {"fault": kind, "skipped": "mounting a small disk needs root"}
        return _plant(kind, flags, disk)


def _plant(kind: str, flags: Sequence[str], disk: Path | None) -> Row:
    with fleet_of(*flags, fault=kind, folder=disk) as fleet:
        planted_unix_s = PLANTED[kind](fleet)

        def told() -> Row | None:
            return next((row for row in fleet.incidents() if row["kind"] == kind), None)

        try:
            incident = fleet.process.wait_for(told, timeout_s=TOLD_S)
        except RuntimeError as error:
            return {"fault": kind, "after_s": None, "error": str(error).replace(str(fleet.folder), "FLEET")}
        before = [row["kind"] for row in fleet.incidents() if row["unix_s"] < planted_unix_s]
        usual = {"crash"} if kind == "crash-loop" else set()
        return {
            "fault": kind,
            "after_s": incident["unix_s"] - planted_unix_s,
            "message": incident["message"],
            "false_before": sorted(set(before) - usual),
        }


# Healthy runs


def watch_healthy(minutes: float, runs: int) -> Row:
    """Train healthy runs to their end; return what was told meanwhile, and what the supervisor took."""
    seeds = f"1-{-(-runs // 2)}"
    flags = ["--games", GAME, "--model", "dqn,ppo", "--seeds", seeds, "--max-minutes", str(minutes)]
    flags += ["--concurrency", str(runs), "--stagger-s", "2"]
    with fleet_of(*flags) as fleet:
        pid = fleet.process.pid
        time.sleep(LOADED_S)
        begin_s = last_s = time.monotonic()
        begin = last = read_stat(pid)
        if begin is None or last is None or begin.has_ended:
            raise RuntimeError(f"the supervisor ended at once: {tail(fleet.begin.with_name('said.log'))}")
        peak_bytes = most_alive = 0
        end_s = begin_s + 60.0 * minutes * 2 + END_S
        while (now := read_stat(pid)) is not None and not now.has_ended and time.monotonic() < end_s:
            last, last_s = now, time.monotonic()
            peak_bytes = max(peak_bytes, now.rss_bytes)
            samples = fleet.rows(HEALTH_JSONL)
            most_alive = max([most_alive, *(row["alive"] for row in samples if "alive" in row)])
            if all_over(fleet):
                break
            time.sleep(5.0)
        newest = newest_metrics(fleet)
        return {
            "minutes": (last_s - begin_s) / 60.0,
            "incidents": [{name: row[name] for name in ("kind", "slot", "message")} for row in fleet.incidents()],
            "supervisor_cores": (last.cpu_s - begin.cpu_s) / (last_s - begin_s),
            "supervisor_peak_bytes": peak_bytes,
            "most_runs_at_a_time": most_alive,
            "steps": sum(row["steps"] for row in newest),
            "mean_returns": [row["mean_return_100"] for row in newest],
        }


def all_over(fleet: Fleet) -> bool:
    """Tell whether each slot that has been started is over."""
    states = {row["slot"]: row["state"] for row in fleet.rows(SLOTS_JSONL) if "slot" in row}
    return bool(states) and all(state not in ("running", "waiting") for state in states.values())


def newest_metrics(fleet: Fleet) -> list[Row]:
    """Return the newest reading of every run."""
    return [read_records(path)[-1] for path in sorted(fleet.folder.glob("runs/*/*/*/*/metrics.jsonl"))]


def main(argv: Sequence[str] | None = None) -> int:
    """Plant faults, watch healthy runs, and record what came of it."""
    options = parse(argv)
    planted = []
    for kind in options.faults:
        planted.append(plant(kind))
        say(str(planted[-1]))
    healthy = watch_healthy(options.minutes, options.runs) if options.minutes else None
    say(str(healthy))
    return finish(measurement(options, planted, healthy), as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, planted: Sequence[Row], healthy: Row | None) -> Measurement:
    """Return what was seen as a measurement."""
    tried = [row for row in planted if "skipped" not in row]
    late = [row["fault"] for row in tried if row["after_s"] is None or row["after_s"] > MOST_S or row["false_before"]]
    told = ", ".join(f"{row['fault']} {as_seconds(row)}" for row in planted)
    headline, is_cheap, learnt = f"told after: {told}", True, "nothing was trained for long"
    if healthy is not None:
        cores, peak_bytes = healthy["supervisor_cores"], healthy["supervisor_peak_bytes"]
        is_cheap = cores < MOST_CORES and peak_bytes < MOST_BYTES
        headline += (
            f"; {len(healthy['incidents'])} false alarms in {healthy['minutes']:.0f} min of "
            f"{healthy['most_runs_at_a_time']} healthy runs at a time; supervisor {cores:.2%} of a core, "
            f"{peak_bytes / 1e6:.0f} MB"
        )
        means = ", ".join(as_text(value) for value in healthy["mean_returns"])
        learnt = f"{healthy['steps']:,} steps in all healthy runs, their mean returns {means}"
    return Measurement(
        name="fleet-health",
        title="what is wrong with a fleet, planted and told",
        headline=headline,
        learning=learnt,
        passed=not late and is_cheap and not (healthy and healthy["incidents"]),
        config={
            "faults": options.faults,
            "minutes": options.minutes,
            "runs": options.runs,
            "game": GAME,
            "most_s": MOST_S,
            "most_cores": MOST_CORES,
            "most_bytes": MOST_BYTES,
        },
        repeats=list(planted),
        summary={"late_or_missed": late, "healthy": healthy},
    )


def as_seconds(row: Mapping[str, Any]) -> str:
    """Return when a fault was told, in words."""
    if "skipped" in row:
        return f"skipped ({row['skipped']})"
    return "never" if row["after_s"] is None else f"{row['after_s']:.0f} s"


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--faults", nargs="*", choices=tuple(PLANTED), default=list(PLANTED), help="faults to plant")
    parser.add_argument("--minutes", type=float, default=30.0, help="of healthy training; 0 for none")
    parser.add_argument("--runs", type=at_least(1), default=RUNS, help="healthy runs at a time")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
