"""An actor's recording: a few numbers per step, from which its episodes can be played again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from redline.envs.vector import EpisodesUnderWay, VectorEnv
from redline.episodes.episode import (
    CHECK_EVERY_STEPS,
    Trace,
    frame_checksum,
    stretch_checksum,
)
from redline.errors import UserError
from redline.types import Array, FloatArray, IntArray, VectorStep

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
