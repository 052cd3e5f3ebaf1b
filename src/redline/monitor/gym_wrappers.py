"""Gymnasium envs whose episodes get the means of the hardware meanwhile, and the file that they are written to."""

from __future__ import annotations

import multiprocessing
import time
import warnings
import weakref
from collections import deque
from itertools import takewhile
from pathlib import Path
from typing import Any, Generic, SupportsFloat, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from redline.jsonl import RecordTail, RecordWriter, Row
from redline.monitor.attaching import AttachedRecording, new_folder, record
from redline.monitor.hardware import HARDWARE, flat, means
from redline.monitor.sampling import DEFAULT_HZ

EPISODES = "episodes.jsonl"
MAX_SAMPLES = 4_096  # of the running episodes; beyond, pairs are merged
MAX_ROWS_PER_SAMPLE = 10  # with its means: hundreds of short episodes a second would fill a disk with copies
Out = Path | str | AttachedRecording


class SampleWindow:
    """The newest samples of a running recording, read on demand."""

    def __init__(self, path: Path, *, hz: float) -> None:
        # skip the rows of an earlier recording
        self._tail = RecordTail(path, last_bytes=0 if path.exists() else None)
        self._tail.new_rows()
        self.period_s = 1 / hz
        self._next_look_s = 0.0
        self._samples: deque[Row] = deque()
        self._newest_means: dict[str, float] = {}
        self.seen = 0  # samples so far

    def means(self, begin_unix_s: float, end_unix_s: float) -> dict[str, float]:
        """Return the means over a span, those of the newest sample if none covers it, or {} before the first."""
        self._look()
        if not self._samples or begin_unix_s >= _begin_unix_s(self._samples[-1]):
            return dict(self._newest_means)
        covering = takewhile(lambda row: row["unix_s"] > begin_unix_s, reversed(self._samples))
        found = means(covering, begin_unix_s=begin_unix_s, end_unix_s=end_unix_s)
        return found or dict(self._newest_means)

    def forget_before(self, unix_s: float) -> None:
        """Drop old samples; the newest stays."""
        while len(self._samples) > 1 and self._samples[0]["unix_s"] <= unix_s:
            self._samples.popleft()

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self.period_s / 2
        new = [numbers for row in self._tail.new_rows() if {"unix_s", "interval_s"} <= (numbers := flat(row)).keys()]
        if not new:
            return
        self._samples.extend(new)
        self.seen += len(new)
        self._newest_means = means(new[-1:], begin_unix_s=_begin_unix_s(new[-1]), end_unix_s=new[-1]["unix_s"])
        while len(self._samples) > MAX_SAMPLES:
            self._samples = _halved(self._samples)


def _begin_unix_s(sample: Row) -> float:
    return float(sample["unix_s"] - sample["interval_s"])


def _halved(samples: deque[Row]) -> deque[Row]:
    """Merge pairs of samples; means over both stay the same."""
    merged: deque[Row] = deque()
    while len(samples) > 1:
        two = [samples.popleft(), samples.popleft()]
        begin_unix_s, end_unix_s = _begin_unix_s(two[0]), two[1]["unix_s"]
        span = {"unix_s": end_unix_s, "interval_s": end_unix_s - begin_unix_s}
        merged.append({**means(two, begin_unix_s=begin_unix_s, end_unix_s=end_unix_s), **span})
    merged.extend(samples)
    return merged


class EpisodeLog:
    """Writes episodes.jsonl beside the hardware.jsonl of a recording, which it starts unless one is given."""

    def __init__(self, out: Out | None, *, hz: float = DEFAULT_HZ) -> None:
        self._is_owner = not isinstance(out, AttachedRecording)
        self.recording = (
            out if isinstance(out, AttachedRecording) else record(new_folder() if out is None else out, hz=hz)
        )
        try:
            self._writer = RecordWriter(self.path / EPISODES)
        except OSError:
            self._end_recording()
            raise
        self._close_writer = weakref.finalize(self, self._writer.close)
        self.samples = SampleWindow(self.path / HARDWARE, hz=self.recording.hz)
        self._began_unix_s = time.time() - time.monotonic()
        self._repeats = (-1, 0)  # the newest sample, and how many rows repeat its means
        self._is_refused = False

    @property
    def path(self) -> Path:
        """Folder that is written to."""
        return self.recording.path

    def now(self) -> float:
        """Return the wall clock at the start plus monotonic time since, which never jumps."""
        return self._began_unix_s + time.monotonic()

    def add(
        self,
        *,
        begun_unix_s: float,
        total_reward: float,
        length_steps: int,
        steps: int,
        lane: int = 0,
        is_truncated: bool = False,
    ) -> dict[str, float]:
        """Write an episode that ends now, and return the hardware's means meanwhile; after `close`, {}."""
        if not self._close_writer.alive:
            return {}
        now = self.now()
        hardware = self.samples.means(begun_unix_s, now)
        row: dict[str, object] = {
            "unix_s": now,
            "begun_unix_s": begun_unix_s,
            "steps": steps,
            "role": "actor",
            "return": total_reward,
            "length_steps": length_steps,
            "lane": lane,
            "truncated": is_truncated,  # cut off by a limit: the game was not over
        }
        sample, rows = self._repeats
        rows = rows + 1 if sample == self.samples.seen else 1
        self._repeats = self.samples.seen, rows
        self._write(row if rows > MAX_ROWS_PER_SAMPLE else {**row, "hardware": hardware})
        return hardware

    def close(self) -> None:
        """End the recording unless it was passed in; closing twice is harmless."""
        self._close_writer()
        self._end_recording()

    def _end_recording(self) -> None:
        if self._is_owner:
            self.recording.close()

    def _write(self, row: dict[str, object]) -> None:
        try:
            self._writer.write(row)
        except OSError as error:  # a full disk must not end the training
            if not self._is_refused:
                self._is_refused = True
                message = f"{self.path / EPISODES} can't be written: {error.strerror}; episodes are missing in it"
                warnings.warn(message, RuntimeWarning, stacklevel=3)


Observation = TypeVar("Observation")
Action = TypeVar("Action")
KEY = "hardware"


class MonitorEnv(gym.Wrapper[Observation, Action, Observation, Action], Generic[Observation, Action]):
    """Records this process into the folder `out`, by default `monitor/<time>`, until the env is closed.

    `out` may also be what `redline.monitor.record` returned, or the `recording` of another env's `episode_log`: then
    that goes on when this env is closed. For a vector of envs use `MonitorVectorEnv` around the whole of it.
    """

    def __init__(self, env: gym.Env[Observation, Action], out: Out | None = None, hz: float = DEFAULT_HZ) -> None:
        super().__init__(env)
        self._refusal: ValueError | None = None
        try:
            self.episode_log = EpisodeLog(out, hz=hz)
        except ValueError as error:
            if multiprocessing.parent_process() is None:
                raise
            self._refusal = error  # raised by reset(): AsyncVectorEnv passes on its errors, but not those of __init__
            return
        self._steps = 0
        self._begin(self.episode_log.now())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; an unfinished one leaves no row."""
        if self._refusal is not None:
            raise self._refusal
        begun_unix_s = self.episode_log.now()
        result = super().reset(seed=seed, options=options)
        self._begin(begun_unix_s)
        return result

    def step(self, action: Action) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step; the last one of an episode adds the means."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._return += float(reward)
        self._length_steps += 1
        self._steps += 1
        if terminated or truncated:
            info[KEY] = self.episode_log.add(
                begun_unix_s=self._begun_unix_s,
                total_reward=self._return,
                length_steps=self._length_steps,
                steps=self._steps,
                is_truncated=bool(truncated and not terminated),
            )
            self._begin(self.episode_log.now())
            self.episode_log.samples.forget_before(self._begun_unix_s)
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Close the env and end the recording."""
        try:
            super().close()
        finally:
            if self._refusal is None:
                self.episode_log.close()

    def _begin(self, unix_s: float) -> None:
        self._begun_unix_s = unix_s
        self._return = 0.0
        self._length_steps = 0


class MonitorVectorEnv(
    VectorWrapper[Observation, Action, Observation, Action, Any],
    Generic[Observation, Action],
):
    """Does for a vector of envs what `MonitorEnv` does for one.

    `info["hardware"]` has an array for each name, with a value for each env that ended, and NaN for the others;
    `info["_hardware"]` tells which ended.
    """

    def __init__(
        self, env: VectorEnv[Observation, Action, Any], out: Out | None = None, hz: float = DEFAULT_HZ
    ) -> None:
        super().__init__(env)
        self.episode_log = EpisodeLog(out, hz=hz)
        # otherwise the step after an end only resets, and belongs to no episode
        self._resets_in_same_step = env.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP
        self._steps = 0
        self._begun_unix_s = np.full(self.num_envs, self.episode_log.now())  # [E], as the three below
        self._returns = np.zeros(self.num_envs)
        self._lengths_steps = np.zeros(self.num_envs, dtype=np.int64)
        self._is_over = np.zeros(self.num_envs, dtype=np.bool_)  # and not yet begun anew

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin episodes, all or those of a `reset_mask`; unfinished ones leave no row."""
        begun_unix_s = self.episode_log.now()
        mask = (options or {}).get("reset_mask")  # before: the env takes it out
        lanes = np.ones(self.num_envs, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)
        result = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._begin(lanes, begun_unix_s)
        self._is_over[lanes] = False
        return result

    def step(self, actions: Action) -> tuple[Observation, Any, Any, Any, dict[str, Any]]:
        """Take a step in each env; where it ends an episode, add the means."""
        counted = ~self._is_over
        if not counted.all():
            self._begin(self._is_over, self.episode_log.now())
        observations, rewards, terminations, truncations, info = self.env.step(actions)
        self._returns[counted] += np.asarray(rewards, dtype=np.float64)[counted]
        self._lengths_steps += counted
        self._steps += int(counted.sum())
        terminated, truncated = np.asarray(terminations, dtype=np.bool_), np.asarray(truncations, dtype=np.bool_)
        ended = terminated | truncated
        self._is_over = np.zeros_like(ended)
        if ended.any():
            info[KEY], info[f"_{KEY}"] = self._end(ended, truncated & ~terminated), ended
            if self._resets_in_same_step:
                self._begin(ended, self.episode_log.now())
            else:
                self._is_over = ended.copy()
        return observations, rewards, terminations, truncations, info

    def close(self, **kwargs: Any) -> None:
        """Close the envs and end the recording."""
        try:
            super().close(**kwargs)
        finally:
            self.episode_log.close()

    def _begin(self, lanes: NDArray[np.bool_], unix_s: float) -> None:
        self._begun_unix_s[lanes] = unix_s
        self._returns[lanes] = 0.0
        self._lengths_steps[lanes] = 0

    def _end(self, ended: NDArray[np.bool_], truncated: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
        table: dict[str, NDArray[np.float64]] = {}
        for lane in np.flatnonzero(ended).tolist():
            found = self.episode_log.add(
                begun_unix_s=float(self._begun_unix_s[lane]),
                total_reward=float(self._returns[lane]),
                length_steps=int(self._lengths_steps[lane]),
                steps=self._steps,
                lane=lane,
                is_truncated=bool(truncated[lane]),
            )
            for name, value in found.items():
                table.setdefault(name, np.full(self.num_envs, np.nan))[lane] = value
        self.episode_log.samples.forget_before(float(self._begun_unix_s[~ended].min(initial=self.episode_log.now())))
        return table
