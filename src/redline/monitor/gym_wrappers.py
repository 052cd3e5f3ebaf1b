"""Gymnasium wrappers that record the hardware, and add its means to the last `info` of each episode.

After `env = MonitorEnv(env, "out")`, `info["hardware"]` of an episode's last step holds means by dotted names, such as
`cpu_cores_used` and `gpus.0.power_w`, and `redline watch` and `redline report` can read the folder.
"""

from __future__ import annotations

import multiprocessing
from typing import Any, Generic, SupportsFloat, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from redline.monitor.episode_log import EpisodeLog, Out
from redline.monitor.sampling import DEFAULT_HZ

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
