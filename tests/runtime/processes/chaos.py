"""Runs that lose their processes at random, and what must be so afterwards."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from observed_run import Records, WatchedRun, find_run, name_of, nothing_left_in_shm, said_object

from probes import stamped_row_error
from redline.cli.main import BAD_INPUT, DONE, RESUMABLE
from redline.cli.saved_replay import read_replay
from redline.replay import BatchBuffers, ReplayMemory, gather
from redline.replay.chunks import EPISODE_ENDS, RETURN_ENDS
from redline.types import Draw, Handles
from waiting import wait_for

# checkpoints and evaluations all the time, so that whoever is struck is in the middle of something
STAMPED = ("--env", "probe/Stamped-v0", "--network", "small", "--samples-per-step", 2, "--warmup-steps", 500)
OFTEN = ("--checkpoint-minutes", 0.02, "--evaluator.every-minutes", 0.01, "--evaluator.episodes", 2)
ROLES = ("--topology", "async", "--actors", 3, "--num-envs", 6, "--learner.threads", 1)
CAPACITY = 20_000
SMALL = ("--replay.capacity", CAPACITY, "--max-steps", 10_000_000)
ALL_ROLES = ("learner", "evaluator", "actor-0", "actor-1", "actor-2")
STRUCK_WITHIN_S = 1.2  # of one another
LEARNER_SHARE, EVALUATOR_SHARE, STOP_SHARE = 0.12, 0.2, 0.35
STARTING_S, PLAYING_S = 6.0, 2.0  # in which a supervisor is killed, from its start or from that of its actors
RESUME_SHARE = 0.4


def say(text: str) -> None:
    """Show how far it is."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


@dataclass
class Toll:
    """What was done to a run, and how it took it."""

    strikes: Counter[str] = field(default_factory=Counter)  # by role and signal
    resumes: int = 0
    rows: int = 0
    episodes: int = 0
    steps: int = 0
    replaced_s: list[float] = field(default_factory=list)  # from a signal to the successor
    ended_s: list[float] = field(default_factory=list)  # from a signal to the learner to the end of all processes

    @property
    def count(self) -> int:
        """Processes that were killed or stopped."""
        return self.strikes.total()


class Chaos:
    """One run that is struck again and again, by a random hand."""

    def __init__(self, folder: Path, seed: int, learner_share: float) -> None:
        self._folder = folder
        self._learner_share = learner_share
        self._rng = np.random.default_rng(seed)
        self._struck_unix_s: dict[int, float] = {}
        self.toll = Toll()
        self.run = WatchedRun(folder, "train", *STAMPED, *ROLES, *OFTEN, *SMALL, "--log-dir", folder / "runs")
        self.records = find_run(folder / "runs")
        wait_for(lambda: self.records.steps > 1_000, "the run learns")

    def strike(self) -> None:
        """Kill or stop a random process, and see to it that the run goes on."""
        time.sleep(self._rng.uniform(0.0, STRUCK_WITHIN_S))
        role = self._choose_role()
        pid = self.run.pid(role)
        if pid is None or pid in self._struck_unix_s:
            return
        number = signal.SIGSTOP if self._rng.random() < STOP_SHARE else signal.SIGKILL
        self.run.note_memories()
        self._struck_unix_s[pid] = time.time()
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            self.toll.strikes[f"{role.partition('-')[0]} {number.name}"] += 1
        if role == "learner":
            self._resume()
        elif self.toll.count % 10 == 0:
            steps = self.records.steps
            wait_for(lambda: self.records.steps > steps, f"training goes on after {role} got {number.name}")
            say(f"{self.toll.count} strikes, {self.records.steps:,} steps")

    def _choose_role(self) -> str:
        drawn = self._rng.random() - self._learner_share
        if drawn < 0.0:
            return "learner"
        return "evaluator" if drawn < EVALUATOR_SHARE else f"actor-{self._rng.integers(3)}"

    def _resume(self) -> None:
        """See the run end without its learner, and go on with it."""
        begun_s = time.monotonic()
        assert self.run.wait(15.0) == RESUMABLE
        self.run.wait_until_gone()
        self.toll.ended_s.append(time.monotonic() - begun_s)
        push = ("step", "chunk", "episode")[self._rng.integers(3)]
        resumes = len(self.records.events("resume"))
        self.run = WatchedRun(self._folder, "resume", self.records.run, "--push", push)
        self.toll.resumes += 1
        if self._rng.random() < 0.75:  # else the learner may be struck again while it starts
            wait_for(lambda: len(self.records.events("resume")) > resumes, f"it is resumed: {self.run.err}")
        say(f"resume {self.toll.resumes} from step {self.records.saved_steps:,}, push {push}: {self.run.err}")

    def finish(self) -> Toll:
        """Let the run save and end; check all that it leaves."""
        wait_for(lambda: self.run.pid("learner"), "there is a learner")
        wait_for(lambda: not set(self._struck_unix_s) & set(self.run.processes()), "all that were struck are replaced")
        resumed_at = self.records.saved_steps
        wait_for(lambda: self.records.saved_steps > resumed_at + 500, "training goes on")
        roles = Counter(name for name in self.run.processes().values() if name.startswith("redline-"))
        assert roles == dict.fromkeys((name_of(role) for role in ALL_ROLES), 1)
        self.run.note_memories()
        self.run.signal_all(signal.SIGTERM)
        assert self.run.wait() == RESUMABLE, self.run.err
        self.run.wait_until_gone()
        toll = self.toll
        toll.steps, toll.episodes = self.records.saved_steps, self.records.check_counts()
        self.records.check_evaluations(episodes=2)
        toll.rows = check_rows(self.records.run)
        assert toll.rows > 0.95 * min(toll.steps, CAPACITY)
        toll.replaced_s = self._replacement_times()
        assert not self.records.events("warning")
        return toll

    def _replacement_times(self) -> list[float]:
        """Return the seconds from each signal to the start of the successor."""
        times, waiting = [], {}
        for row in self.records.all_events():
            if row["event"] == "process-lost" and row["pid"] in self._struck_unix_s:
                waiting[row["role"]] = self._struck_unix_s[row["pid"]]
            elif row["event"] == "process" and row["role"] in waiting:
                struck_unix_s = waiting.pop(row["role"])
                if row["restarts"]:  # else it belongs to the next invocation
                    times.append(row["unix_s"] - struck_unix_s)
        return times


def harass(folder: Path, *, strikes: int, seed: int, learner_share: float = LEARNER_SHARE) -> Toll:
    """Kill and stop random processes of a training run, resume it when its learner is lost; check what is left."""
    with nothing_left_in_shm():
        chaos = Chaos(folder, seed, learner_share)
        try:
            while chaos.toll.count < strikes:
                chaos.strike()
            toll = chaos.finish()
        finally:
            chaos.run.__exit__()
    say(f"{toll}")
    return toll


def check_rows(run: Path) -> int:
    """Check every row of the memory in the newest checkpoint; return how many there are."""
    memory = read_replay(run, steps=None, progress=lambda _: None).memory
    firsts, sizes = memory.intervals()
    for row, (first, size) in enumerate(zip(firsts.tolist(), sizes.tolist(), strict=True)):
        for start in range(first, first + size, 1_000):
            numbers = np.arange(start, min(start + 1_000, first + size))
            _check_some(memory, Handles(np.full(len(numbers), memory.table.first_lane + row), numbers))
    count = int(sizes.sum())
    memory.close()
    return count


def _check_some(memory: ReplayMemory, handles: Handles) -> None:
    count = len(handles.lane)
    draw = Draw(handles, weight=np.ones(count, np.float32))
    rows = BatchBuffers(memory.layout, batch_size=count, n_steps=1)
    gather(memory, draw, gamma=1.0, clip_rewards=False, out=rows)
    flags = memory.pool.flags[memory.locate(draw).address[:, 0]]
    for row in range(count):
        is_terminal = bool(flags[row] & RETURN_ENDS)
        fault = stamped_row_error(
            rows.frames[row],
            action=int(rows.action[row]),
            reward=float(rows.reward[row]),
            terminated=is_terminal,
            # where an actor was lost, the episode is cut although its env did not say so
            truncated=None if flags[row] & EPISODE_ENDS and not is_terminal else False,
        )
        assert fault is None, f"lane {handles.lane[row]}, transition {handles.number[row]}: {fault}"


@dataclass
class Decapitations:
    """What came of killing supervisors."""

    lived_s: list[float] = field(default_factory=list)
    gone_s: list[float] = field(default_factory=list)  # from the signal to the end of all processes
    processes: Counter[int] = field(default_factory=Counter)  # how many there were
    resumes_killed: int = 0
    without_checkpoint: int = 0  # runs that were left without one, or without a directory
    resumed: int = 0  # runs that were resumed to the end


def decapitate(folder: Path, *, kills: int, seed: int) -> Decapitations:
    """Kill supervisors at random moments, every other one while it starts; check that only directories are left."""
    rng, found = np.random.default_rng(seed), Decapitations()
    started: list[Path] = []
    with nothing_left_in_shm():
        for number in range(kills):
            resumable = [path for path in started if _saved_steps(path) >= 0]
            if resumable and rng.random() < RESUME_SHARE:
                (run,) = resumable[int(rng.integers(len(resumable)))].glob("*/*/*")
                command: tuple[object, ...] = ("resume", run)
                found.resumes_killed += 1
            else:
                started.append(folder / f"runs-{number}")
                command = ("train", *STAMPED, *ROLES, *OFTEN, *SMALL, "--log-dir", started[-1])
            _decapitate(folder, command, rng, found, is_starting=number % 2 == 0)
            say(f"supervisor {number + 1}: killed after {found.lived_s[-1]:.1f} s, gone after {found.gone_s[-1]:.2f} s")
        for log_dir in started:
            _resume_to_the_end(folder, log_dir, found)
    say(f"{found}")
    return found


def _decapitate(
    folder: Path, command: tuple[object, ...], rng: np.random.Generator, found: Decapitations, *, is_starting: bool
) -> None:
    begun_s = time.monotonic()
    with WatchedRun(folder, *command) as run:
        if not is_starting:
            run.wait_for_role("actor-2")
        kill_s = time.monotonic() + float(rng.uniform(0.0, STARTING_S if is_starting else PLAYING_S))
        while (left_s := kill_s - time.monotonic()) > 0.0:
            run.note_memories()
            time.sleep(min(0.1, left_s))
        assert run.program.poll() is None, run.err
        found.lived_s.append(time.monotonic() - begun_s)
        found.processes[len(run.processes())] += 1
        run.program.kill()
        found.gone_s.append(run.wait_until_gone())


def _saved_steps(log_dir: Path) -> int:
    runs = list(log_dir.glob("*/*/*"))
    return Records(runs[0]).saved_steps if runs else -1


def _resume_to_the_end(folder: Path, log_dir: Path, found: Decapitations) -> None:
    saved = _saved_steps(log_dir)
    for run in log_dir.glob("*/*/*"):
        with WatchedRun(folder, "resume", run, "--max-steps", max(saved, 0) + 600, "--json") as resumed:
            code = resumed.wait()
            resumed.wait_until_gone()
            if saved < 0:
                assert code == BAD_INPUT
                assert len(resumed.err.splitlines()) == 1, resumed.err
                continue
            assert code == DONE, resumed.err
            assert said_object(resumed)["steps"] >= saved + 600
        assert Records(run).check_counts() == said_object(resumed)["episodes"]
        check_rows(run)
        found.resumed += 1
    found.without_checkpoint += saved < 0
