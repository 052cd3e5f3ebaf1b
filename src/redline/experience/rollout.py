"""The rollout: what all lanes lived through since the weights last changed, and the batches made of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from redline.types import Array, BoolArray, EnvSpec, FloatArray, IntArray, Rollout, RolloutBatch

ROW_FIELDS = ("action", "log_probability", "reward", "value", "final_value", "return_ends", "episode_ends")


class RolloutBuffer:
    """T steps of N lanes, filled step by step, learnt from as a whole, then filled anew."""

    def __init__(self, spec: EnvSpec, *, num_envs: int, steps: int) -> None:
        self.steps = steps
        self.filled_steps = 0
        self._obs: Array = np.zeros((steps, num_envs, spec.stack, *spec.frame_shape), dtype=spec.frame_dtype)
        self._action: IntArray = np.zeros((steps, num_envs), np.int64)
        self._log_probability: FloatArray = np.zeros((steps, num_envs), np.float32)
        self._reward: FloatArray = np.zeros((steps, num_envs), np.float32)
        self._value: FloatArray = np.zeros((steps, num_envs), np.float32)
        self._final_value: FloatArray = np.zeros((steps, num_envs), np.float32)
        self._return_ends: BoolArray = np.zeros((steps, num_envs), np.bool_)
        self._episode_ends: BoolArray = np.zeros((steps, num_envs), np.bool_)

    @property
    def is_full(self) -> bool:
        """Whether all steps are there."""
        return self.filled_steps == self.steps

    def append(
        self,
        *,
        obs: Array,
        action: IntArray,
        log_probability: FloatArray,
        value: FloatArray,
        reward: FloatArray,
        final_value: FloatArray,
        return_ends: BoolArray,
        episode_ends: BoolArray,
    ) -> None:
        """Take in one step of all lanes; `final_value` counts only where an episode ended but its return did not."""
        t = self.filled_steps
        self._obs[t] = obs
        self._action[t] = action
        self._log_probability[t] = log_probability
        self._value[t] = value
        self._reward[t] = reward
        self._final_value[t] = final_value
        self._return_ends[t] = return_ends
        self._episode_ends[t] = episode_ends
        self.filled_steps += 1

    def rollout(self, last_value: FloatArray, *, gamma: float, trace: float, clip_rewards: bool) -> Rollout:
        """Return what a full buffer holds; `last_value` [N] is the value of the observations after the last step."""
        if not self.is_full:
            raise ValueError(f"the rollout has {self.filled_steps} of {self.steps} steps")
        following = np.concatenate([self._value[1:], last_value[None].astype(np.float32)])
        following = np.where(self._episode_ends, self._final_value, following)
        goes_on = ~(self._return_ends | self._episode_ends)
        return Rollout(
            reward=self._reward.clip(-1.0, 1.0) if clip_rewards else self._reward,
            value=self._value,
            following=following,
            discount=np.where(self._return_ends, 0.0, gamma).astype(np.float32),
            trace=np.where(goes_on, trace, 0.0).astype(np.float32),
        )

    def batches(
        self, advantage: FloatArray, target: FloatArray, *, rng: np.random.Generator, num_batches: int
    ) -> Iterator[RolloutBatch]:
        """Yield all rows once, shuffled, in `num_batches` parts of nearly the same size; one part as it lies there."""
        rows = self._action.size
        obs = self._obs.reshape(rows, *self._obs.shape[2:])
        columns = [array.reshape(rows) for array in (self._action, self._log_probability, advantage, target)]
        parts = np.array_split(rng.permutation(rows), num_batches) if num_batches > 1 else [slice(None)]
        for chosen in parts:
            action, log_probability, chosen_advantage, chosen_target = (
                torch.from_numpy(column[chosen]) for column in columns
            )
            yield RolloutBatch(
                obs=torch.from_numpy(obs[chosen]),
                action=action,
                log_probability=log_probability,
                advantage=chosen_advantage,
                target=chosen_target,
            )

    def mean_entropy(self) -> float:
        """Return an estimate of the policy's entropy in nats: the mean of −log π over the actions of a full buffer."""
        return float(-self._log_probability.mean())

    def observations(self) -> Array:
        """Return the observations so far [T, N, K, *frame]."""
        return self._obs[: self.filled_steps]

    def clear(self) -> None:
        """Begin anew."""
        self.filled_steps = 0

    def state(self) -> dict[str, Array]:
        """Return the steps filled so far, as a checkpoint keeps them."""
        arrays = {name: getattr(self, f"_{name}") for name in ("obs", *ROW_FIELDS)}
        return {name: array[: self.filled_steps] for name, array in arrays.items()}

    def load_state(self, state: dict[str, Array]) -> None:
        """Go on from what `state()` gave."""
        self.filled_steps = len(state["action"])
        for name in ("obs", *ROW_FIELDS):
            getattr(self, f"_{name}")[: self.filled_steps] = state[name]
