"""Trainings on a machine that lacks something; afterwards it is there again, and they are resumed and compared."""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign_kills import NUM_ENVS, SUBJECTS, find_run, reference_of
from campaign_oracles import DONE, Fault, judge
from campaign_place import Place
from campaign_process import Order, wait_for
from campaign_truth import judge_episodes, newest_checkpoint, weights_digest
from campaign_workshop import SPARES, Workshop

RUNS = ("dqn", "dqn", "stored", "ppo", "async", "async")
EXACT = ("dqn", "ppo")  # frames on a disk that lacks room are fewer
SHORTAGES = (
    *("disk", "disk", "disk and stdout", "disk and stdout", "inodes", "read-only", "descriptors", "descriptors"),
    *("processes", "memory", "address space", "shared memory", "file size", "full stdout", "closed stdout", "clock"),
)
AT_IMPORT = ("descriptors", "address space")  # may be lacking while modules load
NEEDS_MOUNT = ("disk", "disk and stdout", "inodes", "read-only", "shared memory")
SPEECH = ("one line", "one object")  # can't be judged if stdout and stderr may not grow
CGROUPS = {"processes": "pids", "memory": "memory"}
CGROUP_ROOT = Path("/sys/fs/cgroup")
BEGIN_WITHIN_S, GO_ON_S, LIMIT_S = 60.0, 5.0, 90.0
FURTHER_STEPS = 400
ROOMY_BYTES = 64_000_000
ALONE = "REDLINE_CAMPAIGN_ALONE"  # "1" where mounts are this campaign's own


@dataclass(frozen=True)
class Shortage:
    """What a training lacks, and how much of it there is."""

    subject: str
    lacks: str
    amount: int
    begins_s: float  # after training has begun; for limits, at the start

    def row(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"subject": self.subject, "lacks": self.lacks, "amount": self.amount}


@dataclass
class Conditions:
    """What is different for the command."""

    limits: dict[str, int] = field(default_factory=dict)
    cgroups: list[str] = field(default_factory=list)
    out: str | None = None
    disk: Path | None = None


def draw_shortage(_: Workshop, *, seed: int, index: int) -> Shortage:
    """Return shortage number `index` of a seed."""
    rng = random.Random(f"{seed}:shortage:{index}")  # noqa: S311  not for secrets
    lacks = rng.choice(SHORTAGES)
    amounts = {
        "disk": rng.choice((64_000, 500_000, 2_000_000, 8_000_000)),
        "disk and stdout": rng.choice((500_000, 2_000_000, 8_000_000)),
        "inodes": rng.randint(4, 60),
        "descriptors": rng.choice((8, 10, 12, 14, 16, 20, 24, 32, 48, 64)),
        "processes": rng.randint(1, 24),
        "memory": rng.choice((20, 60, 150, 300)) * 1_000_000,
        "address space": rng.choice((1, 2, 3, 4, 6)) * 1_000_000_000,
        "shared memory": rng.choice((4_096, 64_000, 1_000_000)),
        "file size": rng.choice((512, 4_096, 60_000, 500_000)),
        "clock": rng.choice((-40_000_000, -3_600, -1, 3_600, 40_000_000, 4_000_000_000)),
    }
    return Shortage(rng.choice(RUNS), lacks, amounts.get(lacks, 0), rng.choice((0.0, 0.0, rng.uniform(0.1, 2.0))))


def why_skipped(shortage: Shortage) -> str | None:
    """Return why this machine can't lack it; None if it can."""
    if shortage.lacks in NEEDS_MOUNT and os.environ.get(ALONE) != "1":
        return "this user can't mount a file system"
    group = CGROUPS.get(shortage.lacks)
    if group is not None and not os.access(CGROUP_ROOT / group / "cgroup.procs", os.W_OK):
        return f"this user can't make a {group} cgroup"
    return None


def run_shortage(shortage: Shortage, workshop: Workshop, place: Place) -> list[Fault]:
    """Train while something lacks, see it end, give it back, resume and compare."""
    argv = ("train", *SUBJECTS[shortage.subject], "--log-dir", "runs", *_ways_to_speak(shortage))
    with _conditions(shortage, place) as found:
        order = Order(
            argv,
            limit_s=LIMIT_S,
            limits=found.limits,
            cgroups=found.cgroups,
            out=found.out,
            spares=0 if found.limits or found.cgroups else SPARES.get(shortage.subject, 0),  # they need room themselves
            is_cold=shortage.lacks in AT_IMPORT,
            clock_jump_s=(shortage.begins_s, shortage.amount) if shortage.lacks == "clock" else None,
        )
        if shortage.lacks == "read-only":  # from the start: the kernel refuses it while files are open for writing
            _mount("remount,ro", place.cwd / "runs")
        running = workshop.zygote.start(order, place)
        if shortage.begins_s and found.disk is not None and shortage.lacks.startswith("disk"):
            wait_for(lambda: (run := find_run(place)) and newest_checkpoint(run) >= 0, running, BEGIN_WITHIN_S)
            running.has_ended(shortage.begins_s)
            fill(found.disk)
        if not running.has_ended(GO_ON_S):
            running.send(signal.SIGTERM)
        outcome = running.finish()
        _give_back(shortage, found)
        faults = judge(outcome, allowed=(-signal.SIGKILL,) if shortage.lacks == "memory" else ())
        unheard = SPEECH if shortage.lacks == "file size" else ()
        faults = [
            Fault(item.oracle, f"{shortage.lacks}: {item.detail}") for item in faults if item.oracle not in unheard
        ]
        run = find_run(place)
        if not faults and run is not None and newest_checkpoint(run) >= 0:
            faults += _resume_and_compare(shortage, run, workshop, place)
    if changed := place.changes(place.outside):
        faults.append(Fault("outside", f"{shortage.lacks}: {', '.join(changed)}"))
    if left := _left_in_shm():
        faults.append(Fault("shared memory", f"{shortage.lacks}: {', '.join(left)}"))
    return faults


def _ways_to_speak(shortage: Shortage) -> tuple[str, ...]:
    # what can't be written to stdout can't be one object
    return ("--plain",) if "stdout" in shortage.lacks or shortage.lacks == "file size" else ("--json",)


def _resume_and_compare(shortage: Shortage, run: Path, workshop: Workshop, place: Place) -> list[Fault]:
    is_exact = shortage.subject in EXACT
    further = () if is_exact else ("--max-steps", str(newest_checkpoint(run) + FURTHER_STEPS))
    argv = ("resume", "runs", "--checkpoint-minutes", "5", "--json", *further)
    outcome = workshop.zygote.run(Order(argv, limit_s=120.0, spares=SPARES.get(shortage.subject, 0)), place)
    faults = judge(outcome)
    if outcome.code != DONE:
        why = outcome.err.strip().splitlines()[-1:] or [""]
        return [*faults, Fault("lost run", f"{shortage.lacks}: resume ended with {outcome.code}: {why[0][:160]}")]
    faults += judge_episodes(run, num_envs=NUM_ENVS if is_exact else None)
    reference = reference_of(workshop, shortage.subject) if is_exact else None
    if reference is not None and weights_digest(run, reference.further_steps) != reference.weights:
        faults.append(Fault("weights", f"{shortage.lacks}: other weights than those of the undisturbed run"))
    return faults


@contextmanager
def _conditions(shortage: Shortage, place: Place) -> Iterator[Conditions]:
    """Make the machine lack something for as long as the context lasts."""
    found = Conditions()
    runs, lacks, amount = place.cwd / "runs", shortage.lacks, shortage.amount
    limits = {"descriptors": "descriptors", "address space": "memory", "file size": "file_bytes"}
    try:
        if lacks in NEEDS_MOUNT:
            found.disk = Path("/dev/shm") if lacks == "shared memory" else runs  # noqa: S108  a private one
            found.disk.mkdir(exist_ok=True)
            is_late = shortage.begins_s > 0.0 and lacks != "shared memory"
            size = ROOMY_BYTES if is_late or not amount else amount
            _mount(f"nr_inodes={amount}" if lacks == "inodes" else f"size={size}", found.disk)
        if lacks == "disk and stdout":
            (runs / "said").touch()
            found.out = str(runs / "said")
        if lacks in limits:
            found.limits = {limits[lacks]: amount}
        if lacks in CGROUPS:
            found.cgroups = [str(_cgroup(CGROUPS[lacks], amount))]
        if "stdout" in lacks and found.out is None:
            found.out = "/dev/full" if lacks == "full stdout" else "closed"
        yield found
    finally:
        if found.disk is not None:
            subprocess.run(["umount", "--lazy", str(found.disk)], check=False, capture_output=True)
        for group in found.cgroups:
            with suppress(OSError):
                Path(group).rmdir()


def _give_back(shortage: Shortage, found: Conditions) -> None:
    if found.disk is not None and shortage.lacks != "shared memory":
        (found.disk / "filler").unlink(missing_ok=True) if shortage.lacks != "read-only" else None
        _mount(f"remount,rw,size={ROOMY_BYTES},nr_inodes=100000", found.disk)


def fill(disk: Path) -> None:
    """Leave no room on a file system."""
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4_096)


def _mount(options: str, folder: Path) -> None:
    kind = [] if "remount" in options else ["-t", "tmpfs"]
    subprocess.run(["mount", *kind, "-o", options, "tmpfs", str(folder)], check=True, capture_output=True)


def _cgroup(kind: str, amount: int) -> Path:
    folder = CGROUP_ROOT / kind / f"redline-campaign-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    limit = {"pids": "pids.max", "memory": "memory.limit_in_bytes"}[kind]
    (folder / limit).write_text(str(amount), encoding="utf-8")
    return folder


def _left_in_shm() -> list[str]:
    """Return what is in /dev/shm, which is this campaign's own; and remove it."""
    if os.environ.get(ALONE) != "1":
        return []
    left = sorted(Path("/dev/shm").iterdir())  # noqa: S108
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [path.name for path in left]


def size_of(shortage: Shortage) -> int:
    """Return how large a case is: those of one process are simpler."""
    return len(shortage.lacks) + (0 if shortage.subject in EXACT else 50)
