"""Kills a run with SIGKILL at random moments, resumes it after each, and checks that nothing is lost or counted twice.

Three kills of four come at a random moment of training with frequent checkpoints, the fourth while the process starts.
"""

import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from recording import Measurement, at_least, finish, make_parser, say
from redline.jsonl import Row, read_records, scan_records
from redline.runs.manifest import CHECKPOINTS, checkpoint_folders, newest_valid, steps_of
from redline.runs.run_json import read_run_json
from redline_process import redline_command, run_redline, tail
from run_reading import as_text, of_training

FLAGS = {
    "cartpole": ("--env", "CartPole-v1", "--warmup-steps", "200", "--replay.capacity", "5000"),
    "pong": ("--env", "pong", "--network", "small", "--warmup-steps", "400", "--replay.capacity", "5000"),
}
ENDLESS_STEPS = 10_000_000
# played by the last resume, which is let finish: enough for some episodes to end
MORE_STEPS = {"cartpole": 2_000, "pong": 12_000}
START_TIMEOUT_S = 300.0
STARTUP_S = 3.0  # what a kill "while the process starts" is drawn from
STARTUP_SHARE = 0.25


@dataclass
class Harassed:
    """A run that is killed again and again, and what it left each time."""

    folder: Path
    rng: np.random.Generator
    train_s: float  # a kill during training comes after 0 … this
    run: Path | None = None
    kills: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """Return the log of the processes."""
        return self.folder / "log"

    def start_and_kill(self, *arguments: str) -> None:
        """Start a process, let it live for a random time, kill it, and note what it left."""
        before = newest_steps(self.run) if self.run else None
        is_early = self.run is not None and self.rng.random() < STARTUP_SHARE
        resumes_before = len(self.resumed_from())
        with self.log.open("ab") as said:
            process = subprocess.Popen(redline_command(*arguments, "--json"), stdout=said, stderr=said)
        try:
            if is_early:
                wait_s = float(self.rng.uniform(0.0, STARTUP_S))
            else:
                self._wait_until(lambda: self._is_training(resumes_before), process)
                wait_s = float(self.rng.uniform(0.0, self.train_s))
            time.sleep(wait_s)
            if process.poll() is not None:
                self.faults.append(f"kill {len(self.kills) + 1}: the process had ended by itself: {tail(self.log)}")
        finally:
            process.kill()
            process.wait()
        run = self.run = self.find_run()
        resumed = self.resumed_from()[resumes_before:]
        if before is not None and resumed and resumed[-1] != before:
            self.faults.append(f"a process went on from step {resumed[-1]}, the newest checkpoint was of step {before}")
        saving = any(path.name.startswith(".saving-") for path in (run / CHECKPOINTS).iterdir())
        self.kills.append(
            {
                "during": "start" if is_early else "training",
                "after_s": wait_s,
                "resumed_at_steps": resumed[-1] if resumed else None,
                "newest_checkpoint_steps": newest_steps(run),
                "while_saving_checkpoint": saving,
            }
        )
        say(f"kill {len(self.kills)}: {self.kills[-1]}")

    def find_run(self) -> Path:
        """Return the one run directory."""
        runs = sorted(path.parent for path in self.folder.glob("*/*/*/run.json"))
        if len(runs) != 1:
            raise RuntimeError(f"{len(runs)} run directories where one should be: {tail(self.log)}")
        return runs[0]

    def resumed_from(self) -> list[int]:
        """Return the steps at which the run was resumed so far."""
        if self.run is None:
            return []
        return [int(row["checkpoint"]) for row in read_records(self.run / "events.jsonl") if row["event"] == "resume"]

    def _is_training(self, resumes_before: int) -> bool:
        if self.run is None:
            return any(self.folder.glob(f"*/*/*/{CHECKPOINTS}/0/manifest.json"))
        return len(self.resumed_from()) > resumes_before

    def _wait_until(self, is_so: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
        give_up_s = time.monotonic() + START_TIMEOUT_S
        while not is_so() and process.poll() is None:
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"a process did not begin to train in {START_TIMEOUT_S:g} s: {tail(self.log)}")
            time.sleep(0.01)


def newest_steps(run: Path) -> int:
    """Return the steps of the newest complete checkpoint."""
    return steps_of(checkpoint_folders(run / CHECKPOINTS)[0])


def harass(
    flags: Sequence[str], *, kills: int, seed: int, train_s: float, more_steps: int, folder: Path
) -> dict[str, Any]:
    """Kill and resume a run `kills` times, let it finish, audit it; return what was seen."""
    subject = Harassed(folder, np.random.default_rng(seed), train_s)
    subject.start_and_kill("train", *flags, "--max-steps", str(ENDLESS_STEPS), "--log-dir", str(folder))
    run = subject.find_run()
    for _ in range(kills - 1):
        subject.start_and_kill("resume", str(run))
    left = newest_steps(run)
    summary = run_redline(["resume", str(run), "--max-steps", str(left + more_steps)], subject.log)
    subject.find_run()  # still the only one
    resumes = subject.resumed_from()
    faults = [*subject.faults, *audit(run)]
    if resumes[-1] != left:
        faults.append(f"the last resume went on from step {resumes[-1]}, the newest checkpoint was of step {left}")
    if resumes != sorted(resumes):
        faults.append(f"a resume fell behind an earlier one: {resumes}")
    return {
        "kills": subject.kills,
        "faults": [fault.replace(str(folder), "LOG-DIR") for fault in faults],
        "resumes_completed": len(resumes),
        "steps": summary["steps"],
        "updates": summary["updates"],
        "episodes": summary["episodes"],
        "mean_return_100": summary["mean_return_100"],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Kill and resume a run, and record what came of it."""
    options = parse(argv)
    flags = [*FLAGS[options.env], "--seed", str(options.seed), "--checkpoint-minutes", str(options.checkpoint_minutes)]
    with tempfile.TemporaryDirectory() as folder:
        seen = harass(
            flags,
            kills=options.kills,
            seed=options.seed,
            train_s=options.train_seconds,
            more_steps=MORE_STEPS[options.env],
            folder=Path(folder),
        )
    for fault in seen["faults"]:
        say(f"FAULT: {fault}")
    return finish(measurement(options, flags, seen), as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, flags: list[str], seen: dict[str, Any]) -> Measurement:
    """Return what was seen as a measurement."""
    kills, faults = seen.pop("kills"), seen["faults"]
    saving = sum(kill["while_saving_checkpoint"] for kill in kills)
    starting = sum(kill["during"] == "start" for kill in kills)
    return Measurement(
        name=f"kill-resume-{options.env}",
        title=f"kill −9 at {len(kills)} random moments of a run on {options.env}, a resume after each",
        headline=f"{len(faults)} faults; {seen['episodes']:,} episodes in {seen['steps']:,} steps, each counted once"
        if not faults
        else f"{len(faults)} faults",
        learning=f"{starting} kills while starting, {saving} while a checkpoint was written; {seen['updates']:,} "
        f"updates, mean-100 {as_text(seen['mean_return_100'])}",
        passed=not faults,
        config={"flags": flags, "train_seconds": options.train_seconds, "seed": options.seed},
        repeats=kills,
        summary=seen | {"kills_while_starting": starting, "kills_while_saving_checkpoint": saving},
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--env", choices=tuple(FLAGS), default="cartpole", help="env")
    parser.add_argument("--kills", type=at_least(1), default=20, help="how often it is killed")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run and of the moments")
    parser.add_argument("--train-seconds", type=float, default=4.0, help="a kill comes 0 … this after training began")
    parser.add_argument("--checkpoint-minutes", type=float, default=0.01, help="minutes between checkpoints")
    return parser.parse_args(argv)


def audit(run: Path) -> list[str]:
    """Return what is wrong with the episodes of a run that has ended; nothing if all is well."""
    path = run / "episodes.jsonl"
    if not path.exists():
        return ["no episode ended, so nothing could be checked: play more steps"]
    scan = scan_records(path)
    rows = of_training(scan.rows)
    checkpoint = newest_valid(run)
    num_envs = int(read_run_json(run)["config"]["num_envs"])
    faults = audit_rows(rows, num_envs=num_envs)
    if scan.unreadable_lines or scan.is_torn:
        faults.append(f"{scan.unreadable_lines} unreadable lines, torn last line: {scan.is_torn}")
    faults += [f"newer checkpoint is damaged: {reason}" for reason in checkpoint.skipped]
    return faults + audit_counters(rows, checkpoint.state)


def audit_rows(rows: Sequence[Row], *, num_envs: int) -> list[str]:
    """Check rows against each other.

    An episode is known by its address, (lane, seed, seed_offset_steps), and by its end, (lane, steps). A lane plays
    without a pause, so the lengths of its episodes up to a row add up to the lane's steps at that row: an episode
    that is missing, double or of another length breaks the sum.
    """
    faults: list[str] = []
    for what, keys in (("address", ("lane", "seed", "seed_offset_steps")), ("end", ("lane", "steps"))):
        counts = Counter(tuple(row[key] for key in keys) for row in rows)
        faults += [f"{count} episodes with {what} {key}" for key, count in counts.items() if count > 1]
    faults += [
        f"steps fall from {before['steps']} to {after['steps']}"
        for before, after in pairwise(rows)
        if after["steps"] < before["steps"]
    ]
    played: Counter[int] = Counter()
    for row in rows:
        played[row["lane"]] += row["length_steps"]
        if played[row["lane"]] * num_envs != row["steps"]:
            faults.append(
                f"lane {row['lane']} at step {row['steps']}: its episodes add up to {played[row['lane']]} steps, "
                f"not {row['steps'] / num_envs:g}"
            )
            break  # every later row of the lane would repeat it
    return faults


def audit_counters(rows: Sequence[Row], state: dict[str, Any]) -> list[str]:
    """Check rows against the counters of the last checkpoint."""
    faults: list[str] = []
    counters, recent = state["counters"], state["recent_returns"]
    if len(rows) != counters["episodes"]:
        faults.append(f"{len(rows)} rows, but the checkpoint counts {counters['episodes']} episodes")
    played_steps = sum(row["length_steps"] for row in rows)
    if played_steps > counters["steps"]:
        faults.append(f"the episodes have {played_steps} steps, more than the {counters['steps']} of the run")
    if [row["return"] for row in rows[-len(recent) :] if recent] != recent:
        faults.append("the last returns are not those that the checkpoint holds")
    return faults


if __name__ == "__main__":
    sys.exit(main())
