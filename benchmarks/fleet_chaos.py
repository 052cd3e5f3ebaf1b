"""Kills the runs and the supervisor of a fleet at random moments, and checks that no run is lost or trained twice.

Three kills of four wait until the victim trains, the fourth comes at any moment; one of five hits the supervisor, after
which another one begins. A second fleet with the same list is left alone: its weights are what each run must end with.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from campaign_truth import weights_digest
from kill_resume import audit
from recording import Measurement, at_least, finish, make_parser, say
from redline.fleet.lease import Holder, read_holder
from redline.fleet.listing import read_listing
from redline.fleet.place import is_alive
from redline.fleet.runner import run_folders
from redline.fleet.slots import SUPERVISOR, SlotStatus, read_statuses
from redline.jsonl import read_records
from redline_process import redline_command, tail

FLAGS = ("--games", "CartPole-v1", "--model", "ppo", "--checkpoint-minutes", "0.01")
STEPS_PER_KILL = 4_000  # that all runs together train between two kills, about
SUPERVISOR_SHARE, EARLY_SHARE = 0.2, 0.25
PATIENCE_S = 600.0  # for anything to begin


@dataclass
class Chaos:
    """A fleet that is struck again and again."""

    folder: Path
    rng: np.random.Generator
    mean_s: float  # between two kills
    command: Sequence[str]  # that starts the fleet
    kills: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.supervisor = self.supervise()

    @property
    def log(self) -> Path:
        """Return what the supervisors say."""
        return self.folder.with_suffix(".log")

    def supervise(self) -> "subprocess.Popen[bytes]":
        """Start a supervisor, the first time with the list."""
        is_new = not (self.folder / "fleet.json").exists()
        command = [*self.command] if is_new else redline_command("fleet", "resume", str(self.folder), "--plain")
        with self.log.open("ab") as said:
            return subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)

    def strike(self, number: int) -> bool:
        """Kill the supervisor or a run; return whether there was still one."""
        if self.rng.random() < SUPERVISOR_SHARE:
            return self._strike_supervisor()
        is_early = self.rng.random() < EARLY_SHARE
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            statuses = self.statuses()
            if statuses and all(status.state in ("done", "given up") for status in statuses):
                return False
            victims = [status for status in statuses if is_victim(status, is_early=is_early)]
            if victims:
                time.sleep(float(self.rng.uniform(0.0, 2 * self.mean_s)))
                return self._strike_run(victims[int(self.rng.integers(len(victims)))], is_early=is_early)
            self._restart_if_ended()
            time.sleep(0.05)
        self.faults.append(f"kill {number}: nothing ran for {PATIENCE_S:.0f} s: {tail(self.log)}")
        return False

    def _strike_supervisor(self) -> bool:
        time.sleep(float(self.rng.uniform(0.0, self.mean_s)))
        if self.supervisor.poll() is None:
            self.supervisor.kill()
            self.kills.append({"victim": "supervisor", "while": "supervising"})
        self.supervisor.wait()
        self.supervisor = self.supervise()
        return True

    def _strike_run(self, status: SlotStatus, *, is_early: bool) -> bool:
        holder = read_holder(self.folder, status.slot.name)
        if holder is not None and holder.state == "running" and is_alive(holder.pid, holder.process_start_ticks):
            os.kill(holder.pid, signal.SIGKILL)
            moment = "any" if is_early else "training"
            self.kills.append({"victim": status.slot.name, "while": moment, "attempt": holder.attempt})
        return True

    def _restart_if_ended(self) -> None:
        if self.supervisor.poll() is not None:
            self.faults.append(f"the supervisor ended by itself with {self.supervisor.returncode}: {tail(self.log)}")
            self.supervisor = self.supervise()

    def statuses(self) -> list[SlotStatus]:
        """Return how the slots stand; none before there is a list."""
        if not (self.folder / "fleet.json").exists():
            return []
        return read_statuses(self.folder, read_listing(self.folder))

    def close(self) -> None:
        """End what is left if something failed."""
        holders = [status.holder for status in self.statuses() if status.holder is not None]
        for holder in [read_holder(self.folder, SUPERVISOR), *holders]:
            end(holder)


def is_victim(status: SlotStatus, *, is_early: bool) -> bool:
    """Tell whether a run can be struck: at any moment, or while it trains."""
    holder = status.holder
    if status.state != "running" or holder is None or not is_alive(holder.pid, holder.process_start_ticks):
        return False
    return is_early or holder.steps > holder.steps_at_start


def end(holder: Holder | None) -> None:
    """Kill a process that holds a lease."""
    if holder is not None and holder.state == "running" and is_alive(holder.pid, holder.process_start_ticks):
        os.kill(holder.pid, signal.SIGKILL)


def start_command(options: Namespace, folder: Path) -> list[str]:
    """Return the command that trains the list."""
    steps = STEPS_PER_KILL * -(-options.kills // options.runs)
    how = ("--concurrency", str(options.concurrency), "--stagger-s", "0", "--order", "as-listed", "--plain")
    listed = ("--seeds", f"1-{options.runs}", "--max-steps", str(options.steps or steps))
    return redline_command("fleet", "start", *FLAGS, *listed, *how, "--dir", str(folder))


def harass(options: Namespace, folder: Path) -> tuple[Chaos, float]:
    """Strike a fleet until it was killed often enough, and let it end."""
    chaos = Chaos(folder, np.random.default_rng(options.seed), options.mean_seconds, start_command(options, folder))
    begun_s = time.monotonic()
    try:
        while len(chaos.kills) < options.kills and chaos.strike(len(chaos.kills) + 1):
            say(f"{len(chaos.kills)} of {options.kills} kills: {chaos.kills[-1] if chaos.kills else '–'}")
        code = chaos.supervisor.wait()
    finally:
        chaos.close()
    if code != 0:
        chaos.faults.append(f"the last supervisor ended with {code}: {tail(chaos.log)}")
    if len(chaos.kills) < options.kills:
        chaos.faults.append(f"the fleet was over after {len(chaos.kills)} kills: give it more --steps")
    return chaos, time.monotonic() - begun_s


def judge(folder: Path, truth: Path) -> tuple[list[str], dict[str, int]]:
    """Return what is wrong with a fleet that is over, and what it trained."""
    listing = read_listing(folder)
    faults, sums = [], {"done": 0, "attempts": 0, "steps": 0, "episodes": 0, "equal_weights": 0}
    expected = {status.slot.name: status for status in read_statuses(truth, read_listing(truth))}
    for status in read_statuses(folder, listing):
        name, runs = status.slot.name, run_folders(folder, status.slot.name)
        if status.state != "done" or status.run is None:
            faults.append(f"{name} is lost: {status.state} ({status.reason})")
            continue
        if len(runs) != 1:
            faults.append(f"{name} was trained {len(runs)} times")
        starts = sum(row["event"] == "start" for row in read_records(status.run / "events.jsonl"))
        faults += [f"{name}: its run began {starts} times"] if starts != 1 else []
        faults += [f"{name}: {fault}" for fault in audit(status.run)]
        whole = expected[name]
        weights = weights_digest(status.run, status.steps)
        expected_weights = None if whole.run is None else weights_digest(whole.run, whole.steps)
        is_equal = weights is not None and weights == expected_weights
        faults += [] if is_equal else [f"{name} ends with other weights than an undisturbed run"]
        episodes = len(read_records(status.run / "episodes.jsonl"))
        for key, value in (("attempts", status.attempt), ("steps", status.steps), ("episodes", episodes)):
            sums[key] += value
        sums["done"] += 1
        sums["equal_weights"] += is_equal
    return faults, sums


def main(argv: Sequence[str] | None = None) -> int:
    """Strike a fleet, train another in peace, compare, and record what came of it."""
    options = parse(argv)
    with tempfile.TemporaryDirectory() as place:
        folder, truth = Path(place) / "chaos", Path(place) / "peace"
        chaos, seconds = harass(options, folder)
        say("the same list in peace")
        done = subprocess.run(start_command(options, truth), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the undisturbed fleet ended with {done.returncode}: {done.stderr[-2_000:]}")
        faults, sums = judge(folder, truth)
        faults = [fault.replace(place, "FOLDER") for fault in [*chaos.faults, *faults]]
    for fault in faults:
        say(f"FAULT: {fault}")
    return finish(
        measurement(options, chaos.kills, faults, sums, seconds), as_json=options.json, keep=not options.no_record
    )


def measurement(
    options: Namespace, kills: list[dict[str, Any]], faults: list[str], sums: dict[str, int], seconds: float
) -> Measurement:
    """Return what was seen as a measurement."""
    of_supervisor = sum(kill["victim"] == SUPERVISOR for kill in kills)
    found = (
        f"0 of {options.runs} runs lost, 0 trained twice, {sums['episodes']:,} episodes counted once, "
        f"{sums['equal_weights']} with the weights of an undisturbed run"
    )
    return Measurement(
        name="fleet-chaos",
        title=f"kill −9 at {len(kills)} random moments of a fleet of {options.runs} runs",
        headline=f"{len(faults)} faults" if faults else found,
        learning=f"{of_supervisor} kills of the supervisor, {len(kills) - of_supervisor} of runs, "
        f"{sums['attempts']} attempts, {sums['steps']:,} steps",
        passed=not faults,
        config={"flags": FLAGS, **{key: vars(options)[key] for key in ("runs", "kills", "concurrency", "seed")}},
        repeats=kills,
        summary={**sums, "faults": faults, "kills_of_supervisor": of_supervisor, "seconds": seconds},
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=at_least(1), default=10, help="runs of the fleet")
    parser.add_argument("--kills", type=at_least(1), default=200, help="how often something is killed")
    parser.add_argument("--steps", type=at_least(1), default=None, help="steps of each run (by the number of kills)")
    parser.add_argument("--concurrency", type=at_least(1), default=2, help="runs side by side")
    parser.add_argument("--mean-seconds", type=float, default=1.5, help="mean time from a victim's choice to its kill")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
