"""An actor's recording: a few numbers per step, from which its episodes can be played again; their size."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import EpisodesUnderWay, VectorEnv
from redline.episodes.episode import (
    CHECK_EVERY_STEPS,
    EPISODE,
    Trace,
    encode_episode,
    encode_trace,
    frame_checksum,
    num_checks,
    stretch_checksum,
)
from redline.errors import UserError
from redline.runs.blocks import encode_block
from redline.types import Array, FloatArray, IntArray, Progress, VectorStep
from redline.units import size

FIRST_ROOM = 2_048


@dataclass(frozen=True)
class RecordingConfig:
    """Which episodes are recorded, and whether with values."""

    record: str = "all"
    """Episodes to record: all, every Nth (a number), best (those that beat all before them) or off."""
    record_values: bool = False
    """Also record the agent's Q-values or policy at every step."""

    def __post_init__(self) -> None:
        is_number = self.record.isascii() and self.record.isdigit() and len(self.record) <= 10 and int(self.record) > 0
        if self.record not in ("all", "best", "off") and not is_number:
            raise UserError(f"record is {self.record!r}: use all, best, off, or a number N for every Nth episode")

    @property
    def is_off(self) -> bool:
        """Whether nothing is recorded."""
        return self.record == "off"


class Choice:
    """Decides which episodes are recorded, in the order of their ends."""

    def __init__(self, config: RecordingConfig) -> None:
        keep = self._keep = config.record
        self._every = int(keep) if keep.isdigit() else 1
        self._ended = 0
        self._best = -math.inf

    def takes(self, total_reward: float) -> bool:
        """Tell whether the episode that just ended is recorded."""
        self._ended += 1
        if self._keep == "best":
            is_best = total_reward > self._best
            self._best = max(self._best, total_reward)
            return is_best
        return (self._ended - 1) % self._every == 0


class Tracer:
    """Follows every lane of a vector env; its first lane has number `first_lane` in the run.

    The env holds the actions. The caller counts `under_way` before `stepped`, and begins episodes in it afterwards.
    """

    def __init__(
        self, env: VectorEnv, config: RecordingConfig, under_way: EpisodesUnderWay, *, first_lane: int = 0
    ) -> None:
        self._env = env
        self._under_way = under_way
        self._first_lane = first_lane
        self._choice = Choice(config)
        lanes = env.num_envs
        self._lanes = np.arange(lanes)
        # steps from the seeded reset to the first unrecorded action
        self._from: IntArray = np.zeros(lanes, np.int64)
        self._rewards: FloatArray = np.zeros((lanes, CHECK_EVERY_STEPS), np.float32)  # since the last check
        self._checks: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
        self._checks_from: IntArray = np.zeros(lanes, np.int64)
        # of the running episode; float16 is precise enough for drawing
        self._values: Array | None = (
            np.full((lanes, FIRST_ROOM, env.spec.num_actions), np.nan, np.float16) if config.record_values else None
        )

    def begin(self) -> None:
        """Start every lane at its seeded reset."""
        for lane in self._lanes.tolist():
            self._start_episode(lane)
        self._from[:] = self._env.steps_since_seed

    def resume(self) -> None:
        """Continue in the middle of episodes: actions since the seeded reset are known, earlier checks are not."""
        for lane in self._lanes.tolist():
            self._start_episode(lane)
        self._from[:] = 0
        # the current check lacks earlier rewards: begin with the next
        self._checks_from[:] = -(-self._under_way.length_steps // CHECK_EVERY_STEPS)

    def acted(self, preferences: FloatArray | None) -> None:
        """Record the agent's values before it acted."""
        if self._values is None:
            return
        lengths = self._under_way.length_steps
        while lengths.max() >= self._values.shape[1]:  # also in a warm-up without values
            self._values = np.concatenate([self._values, np.full_like(self._values, np.nan)], axis=1)
        if preferences is not None:
            self._values[self._lanes, lengths] = preferences

    def stepped(self, step: VectorStep) -> dict[int, Trace]:
        """Record the outcome of a step; return the episodes that ended and are recorded, by lane."""
        lengths, ended = self._under_way.length_steps, step.ended
        self._rewards[self._lanes, (lengths - 1) % CHECK_EVERY_STEPS] = step.reward
        due = ended | (lengths % CHECK_EVERY_STEPS == 0)
        if not due.any():
            return {}
        for lane in np.flatnonzero(due).tolist():
            self._check(lane, step.frames[lane])
        traces: dict[int, Trace] = {}
        for lane in np.flatnonzero(ended).tolist():
            is_kept = self._choice.takes(float(self._under_way.total_reward[lane]))
            if is_kept:
                traces[lane] = self._trace(lane, is_truncated=not step.terminated[lane])
            self._start_episode(lane)
            if is_kept or self._env.steps_since_seed[lane] == 0:  # recorded, or obsolete after a new seed
                self._from[lane] = self._env.steps_since_seed[lane]
        return traces

    def _check(self, lane: int, frame: Array) -> None:
        length = int(self._under_way.length_steps[lane])
        number = -(-length // CHECK_EVERY_STEPS) - 1
        if number >= self._checks_from[lane]:
            rewards = self._rewards[lane, : length - number * CHECK_EVERY_STEPS]
            end = int(self._under_way.seed_offset_steps[lane]) + length
            actions = self._env.actions_since_seed(lane, end - len(rewards), end)
            self._checks[lane].append((frame_checksum(frame), stretch_checksum(rewards, actions)))

    def _trace(self, lane: int, *, is_truncated: bool) -> Trace:
        under_way = self._under_way
        begin, offset, length = (
            int(values[lane]) for values in (self._from, under_way.seed_offset_steps, under_way.length_steps)
        )
        return Trace(
            lane=self._first_lane + lane,
            reset_seed=int(under_way.reset_seed[lane]),
            seed_offset_steps=offset,
            length_steps=length,
            total_reward=float(under_way.total_reward[lane]),
            is_truncated=is_truncated,
            actions_from=begin,
            actions=self._env.actions_since_seed(lane, begin, offset + length),
            checks_from=int(self._checks_from[lane]),
            checks=np.array(self._checks[lane], np.uint32).reshape(-1, 2),
            values=None if self._values is None else self._values[lane, :length].copy(),
        )

    def _start_episode(self, lane: int) -> None:
        self._checks[lane] = []
        self._checks_from[lane] = 0
        if self._values is not None:
            self._values[lane] = np.nan


# How many bytes recordings take: computed for a typical episode, or measured by playing

USUAL_LENGTH_STEPS = 500  # an episode of random play: 190 of Breakout, 900 of Pong
SHORT_LENGTH_STEPS = 25  # the same for envs without pictures, such as CartPole
LONGEST_EXAMPLE_STEPS = 20_000  # a longer episode takes in proportion
RECORDS_BROKEN = 200  # by an agent that learns, about: Pong has 42 returns above its lowest, Breakout some hundreds
PATIENCE = 4.0  # × the requested seconds, in which every lane must end an episode


def estimate_bytes(*, steps: int, num_actions: int, mean_length_steps: float, values: bool, record: str) -> int:
    """Return about how many bytes a run with a random agent records.

    Nothing compresses worse than random actions: other agents take no more for episodes of equal length.
    """
    config = RecordingConfig(record=record, record_values=values)
    if config.is_off or steps <= 0:
        return 0
    length_steps = min(max(mean_length_steps, 1.0), float(steps))
    num_episodes = steps / length_steps
    if record == "all":
        return ceil(num_episodes * _episode_bytes(length_steps, length_steps, num_actions, values=values))
    every = num_episodes / min(num_episodes, RECORDS_BROKEN) if record == "best" else float(record)
    # a record holds the actions since the record before or the seeded reset: on average half an interval
    since_key_steps = length_steps + (SEED_INTERVAL_STEPS + length_steps) / 2
    actions_steps = min(every * length_steps, since_key_steps)
    each_bytes = _episode_bytes(length_steps, actions_steps, num_actions, values=values)
    return ceil(num_episodes / every * each_bytes)


def describe_estimate(num_bytes: int, *, steps: int, record: str, values: bool) -> str:
    """Return one line on what a run will record and its size."""
    if record == "off":
        return "no episode is recorded: --record all keeps every one"
    usual = {
        "all": "every episode is recorded",
        "1": "every episode is recorded",
        "best": "every episode that beats all earlier ones is recorded",
    }
    kept = usual.get(record, f"one episode in {record} is recorded")
    what = "with the agent's values, " if values else ""
    return f"{kept}, {what}about {size(num_bytes, digits=1)} for {steps:,} steps"


def _episode_bytes(length_steps: float, actions_steps: float, num_actions: int, *, values: bool) -> float:
    """Return the bytes of an episode of random play, by encoding an example of its size."""
    scale = max(1.0, actions_steps / LONGEST_EXAMPLE_STEPS, length_steps / LONGEST_EXAMPLE_STEPS)
    length, actions = max(1, round(length_steps / scale)), max(1, round(actions_steps / scale))
    rng = np.random.default_rng(0)
    example = Trace(
        lane=7,
        reset_seed=2**30,
        seed_offset_steps=5_000,
        length_steps=length,
        total_reward=-21.0,
        is_truncated=False,
        actions_from=5_000 + length - actions,
        actions=rng.integers(num_actions, size=actions),
        checks_from=0,
        checks=rng.integers(2**32, size=(num_checks(length), 2), dtype=np.uint32),
        values=rng.normal(size=(length, num_actions)).astype(np.float16) if values else None,
    )
    return scale * recorded_bytes(example)


def recorded_bytes(trace: Trace, *, steps: int = 10_000_000) -> int:
    """Return the bytes of an episode in a run's file."""
    payload = encode_episode(encode_trace(trace), role="actor", unix_s=1_794_816_032.557_905_2)
    return len(encode_block(EPISODE, steps, payload))


@dataclass(frozen=True)
class MeasuredRecordings:
    """The measured size of episodes of random play."""

    num_steps: int  # of ended episodes
    num_episodes: int
    recorded_bytes: int
    is_measured: bool  # False: no episode ended in time, so an example was encoded

    @property
    def mean_length_steps(self) -> float:
        """Steps of an episode."""
        return self.num_steps / self.num_episodes

    @property
    def bytes_per_episode(self) -> float:
        """Recorded bytes of an episode."""
        return self.recorded_bytes / self.num_episodes

    @property
    def bytes_per_step(self) -> float:
        """The same per step."""
        return self.recorded_bytes / self.num_steps


def measure_recordings(
    env: EnvConfig,
    *,
    values: bool,
    seconds: float,
    seed: int,
    num_envs: int,
    threads: int,
    progress: Progress = lambda _: None,
) -> MeasuredRecordings:
    """Play at random for `seconds` and until every lane has ended an episode; measure every ended episode.

    Stopping earlier would measure only short ones. With `values`, random values are recorded as well.
    """
    vector = make_vector_env(env, num_envs=num_envs, seed=seed, threads=threads)
    steps_played = num_steps = num_episodes = num_bytes = 0
    try:
        config = RecordingConfig(record="all", record_values=values)
        for traces in _play_at_random(vector, config, seconds=seconds, seed=seed, progress=progress):
            steps_played += num_envs
            num_steps += sum(trace.length_steps for trace in traces)
            num_episodes += len(traces)
            num_bytes += sum(recorded_bytes(trace) for trace in traces)
    finally:
        vector.close()
    if num_episodes:
        return MeasuredRecordings(num_steps, num_episodes, num_bytes, is_measured=True)
    length = max(1, steps_played // num_envs)
    each = _episode_bytes(length, length, vector.spec.num_actions, values=values)
    return MeasuredRecordings(length, 1, ceil(each), is_measured=False)


def _play_at_random(
    env: VectorEnv, recording: RecordingConfig, *, seconds: float, seed: int, progress: Progress
) -> Iterator[Collection[Trace]]:
    """Yield the episodes that end with each step."""
    rng, lanes_ended = np.random.default_rng(seed), np.zeros(env.num_envs, np.bool_)
    under_way = EpisodesUnderWay(env)
    tracer = Tracer(env, recording, under_way)
    env.reset()
    under_way.begin(~lanes_ended)
    tracer.begin()
    begun_s = time.monotonic()
    while (share := (time.monotonic() - begun_s) / seconds) < 1.0 or not (lanes_ended.all() or share >= PATIENCE):
        actions = rng.integers(env.spec.num_actions, size=env.num_envs)
        shape = (env.num_envs, env.spec.num_actions)
        tracer.acted(rng.normal(size=shape).astype(np.float32) if recording.record_values else None)
        env.send(actions)
        step = env.recv()
        lanes_ended |= step.ended
        under_way.count(step)
        yield tracer.stepped(step).values()
        under_way.begin(step.ended)
        progress(min(share, 1.0))
