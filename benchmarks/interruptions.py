"""Interrupts a run on CartPole at random moments, and compares the time that this took with what `plan time` prints.

Each run is interrupted in one way: by SIGTERM, after which it saves itself, or by SIGKILL. Moments are as random as a
preemptible machine's: the time to the next one is exponential. What is lost is measured by the wall clock: from the
newest checkpoint to the end of a process, and from there to the first step of the next. The first few restarts tell
how long one takes; they are not counted.
"""

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from kill_resume import ENDLESS_STEPS, FLAGS, newest_steps
from recording import Measurement, at_least, finish, make_parser, say
from redline.jsonl import read_records
from redline.runs.manifest import CHECKPOINTS, checkpoint_folders
from redline_process import WatchedProcess, find_run, redline_command, run_redline

NOTICE = {"sigterm": True, "kill": False}
START_S = 600.0  # a generous limit
ENOUGH = 100  # interruptions of all runs, for a verdict


@dataclass(frozen=True)
class Life:
    """One process of a run, from its start to its interruption."""

    trains_after_s: float  # after its start
    kept_s: float  # of training, up to the newest checkpoint
    lost_s: float  # from there to the end of the process

    @property
    def extra_s(self) -> float:
        """What an interruption cost, if this process is the first after one and before another."""
        return self.trains_after_s + self.lost_s


def live(command: Sequence[str], folder: Path, *, gap_s: float, has_notice: bool) -> Life:
    """Start a process, interrupt it after so many seconds of training, and tell what became of its time."""
    run = find_run(folder)
    begun = 0 if run is None else len(begins(run))
    with WatchedProcess(command, folder / "said.log") as process:
        run = run or process.wait_for(lambda: find_run(folder), timeout_s=START_S)
        known = run
        process.wait_for(lambda: len(begins(known)) > begun or None, timeout_s=START_S)
        trains_unix_s = begins(run)[-1]
        time.sleep(max(trains_unix_s + gap_s - time.time(), 0.0))
        if has_notice:
            process.stop()
        else:
            process.kill()
        ended_unix_s = time.time()
    saved_unix_s = checkpoint_folders(run / CHECKPOINTS)[0].stat().st_mtime
    kept_s = max(saved_unix_s - trains_unix_s, 0.0)
    return Life(
        trains_after_s=trains_unix_s - process.started_unix_s,
        kept_s=kept_s,
        lost_s=ended_unix_s - trains_unix_s - kept_s,
    )


def begins(run: Path) -> list[float]:
    """Return when each process of a run began to train."""
    path = run / "events.jsonl"
    rows = read_records(path) if path.exists() else []
    return [row["unix_s"] for row in rows if row["event"] in ("start", "resume")]


def interrupt(options: Namespace, *, way: str, folder: Path) -> dict[str, Any]:
    """Interrupt a run again and again; return what was lost, and the interval that the plan prints."""
    flags = [*FLAGS["cartpole"], "--seed", str(options.seed), "--checkpoint-minutes", str(options.checkpoint_minutes)]
    command = redline_command("train", *flags, "--max-steps", str(ENDLESS_STEPS), "--log-dir", str(folder), "--json")
    rng, lives = np.random.default_rng([options.seed, NOTICE[way]]), list[Life]()
    for number in range(options.calibrate + options.interruptions):
        gap_s = float(rng.exponential(options.gap_seconds))
        lives.append(live(command, folder, gap_s=gap_s, has_notice=NOTICE[way]))
        run = find_run(folder)
        command = redline_command("resume", str(run), "--json")
        say(f"{way} {number + 1}: {lives[-1]}")
    found = read_lives(lives, calibrate=options.calibrate, has_notice=NOTICE[way])
    run = find_run(folder)
    return {
        "way": way,
        "steps": 0 if run is None else newest_steps(run),
        "lives": [asdict(life) for life in lives[options.calibrate :]],
        **found,
        **printed_interval(options, way=way, found=found, log=folder / "said.log"),
    }


def read_lives(lives: Sequence[Life], *, calibrate: int, has_notice: bool) -> dict[str, Any]:
    """Return what the interruptions took, and what the first few, which don't count, tell of a restart.

    With notice, a restart begins with the time in which the run saves itself; the first start of all is no restart.
    """
    first, counted = lives[:calibrate], lives[calibrate:]
    saving_s = fmean(life.lost_s for life in first) if has_notice else 0.0
    return {
        "interruptions": len(counted),
        "kept_s": sum(life.kept_s for life in counted),
        "extra_s": sum(life.extra_s for life in counted),
        "restart_s": saving_s + fmean(life.trains_after_s for life in first[1:]),
    }


def printed_interval(options: Namespace, *, way: str, found: Mapping[str, Any], log: Path) -> dict[str, float]:
    """Return what `redline plan time` prints for as much training: 1,000 steps a second stand for any rate."""
    arguments = ["--games", "CartPole-v1", "--rate", "1000", "--steps", str(max(round(found["kept_s"] * 1_000), 1))]
    arguments += ["--interruptions-per-hour", str(3_600 / options.gap_seconds), "--restart-s", str(found["restart_s"])]
    if not NOTICE[way]:
        arguments += ["--without-notice", "--checkpoint-minutes", str(options.checkpoint_minutes)]
    total = run_redline(["plan", "time", *arguments], log)["total"]
    return {f"{end}_s": total[f"lost_{end}"] * 3_600 for end in ("hours", "low", "high")}


def measurement(options: Namespace, seen: Sequence[dict[str, Any]]) -> Measurement:
    """Return what was seen as a measurement."""
    inside = [found["low_s"] <= found["extra_s"] <= found["high_s"] for found in seen]
    is_enough = sum(found["interruptions"] for found in seen) >= ENOUGH
    told = [
        f"{found['way']}: {found['interruptions']} took {found['extra_s']:.0f} s beside {found['kept_s']:.0f} s of "
        f"training, printed {found['low_s']:.0f}–{found['high_s']:.0f} s"
        for found in seen
    ]
    return Measurement(
        name="interruptions" if is_enough else "interruptions-tried",
        title="what random interruptions of a run on CartPole took, and the 90 % interval of redline plan time",
        headline="; ".join(told),
        learning=", ".join(f"{found['steps']:,} steps kept ({found['way']})" for found in seen),
        passed=all(inside) if is_enough else None,
        config={
            "gap_seconds": options.gap_seconds,
            "checkpoint_minutes": options.checkpoint_minutes,
            "calibrate": options.calibrate,
            "seed": options.seed,
        },
        repeats=[{"way": found["way"], **life} for found in seen for life in found["lives"]],
        summary={found["way"]: {key: found[key] for key in found if key != "lives"} for found in seen},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Interrupt a run in every way, and record what it took."""
    options = parse(argv)
    seen = []
    for way in NOTICE:
        with tempfile.TemporaryDirectory() as name:
            seen.append(interrupt(options, way=way, folder=Path(name)))
    return finish(measurement(options, seen), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--interruptions", type=at_least(1), default=60, help="of each run, counted ones")
    parser.add_argument("--calibrate", type=at_least(2), default=4, help="interruptions before, which tell a restart")
    parser.add_argument("--gap-seconds", type=float, default=15.0, help="mean seconds of training between two")
    parser.add_argument("--checkpoint-minutes", type=float, default=0.05, help="minutes between checkpoints")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run and of the moments")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
