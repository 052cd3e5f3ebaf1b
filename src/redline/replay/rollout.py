"""The rollout: the steps of all lanes since the weights last changed, and the batches made of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from redline.types import Array, BoolArray, EnvSpec, FloatArray, IntArray, Rollout, RolloutBatch

ROW_DTYPES = {
    "action": np.int64,
    "log_probability": np.float32,
    "reward": np.float32,
    "value": np.float32,
    "final_value": np.float32,
    "return_ends": np.bool_,
    "episode_ends": np.bool_,
}


class RolloutBuffer:
    """T steps of N lanes, filled step by step, learnt from as a whole, then filled anew."""

    def __init__(self, spec: EnvSpec, *, num_envs: int, steps: int, pin_memory: bool = False) -> None:
        """Make room; pinned if a GPU will copy from it."""
        self.steps = steps
        self.filled_steps = 0
        shape, dtype = (steps, num_envs, spec.stack, *spec.frame_shape), getattr(torch, spec.frame_dtype)
        self._obs: Array = torch.zeros(shape, dtype=dtype, pin_memory=pin_memory).numpy()
        self._rows: dict[str, Array] = {name: np.zeros((steps, num_envs), dtype) for name, dtype in ROW_DTYPES.items()}

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
        """Add one step of all lanes; `final_value` counts only where an episode ended but its return did not."""
        t, rows = self.filled_steps, self._rows
        self._obs[t] = obs
        rows["action"][t] = action
        rows["log_probability"][t] = log_probability
        rows["value"][t] = value
        rows["reward"][t] = reward
        rows["final_value"][t] = final_value
        rows["return_ends"][t] = return_ends
        rows["episode_ends"][t] = episode_ends
        self.filled_steps += 1

    def rollout(self, last_value: FloatArray, *, gamma: float, trace: float, clip_rewards: bool) -> Rollout:
        """Return what a full buffer holds; `last_value` [N] is the value of the observations after the last step."""
        if not self.is_full:
            raise ValueError(f"the rollout has {self.filled_steps} of {self.steps} steps")
        value, reward, return_ends, episode_ends = (
            self._rows[name] for name in ("value", "reward", "return_ends", "episode_ends")
        )
        following = np.concatenate([value[1:], last_value[None].astype(np.float32)])
        following = np.where(episode_ends, self._rows["final_value"], following)
        goes_on = ~(return_ends | episode_ends)
        return Rollout(
            reward=reward.clip(-1.0, 1.0) if clip_rewards else reward,
            value=value,
            following=following,
            discount=np.where(return_ends, 0.0, gamma).astype(np.float32),
            trace=np.where(goes_on, trace, 0.0).astype(np.float32),
        )

    def whole(self, advantage: FloatArray, target: FloatArray, *, has_obs: bool = True) -> RolloutBatch:
        """Return all rows as one batch, which shares the buffer's memory; its observations may be left out."""
        rows = advantage.size
        obs = self._obs.reshape(rows, *self._obs.shape[2:])[: rows if has_obs else 0]
        columns = (self._rows["action"], self._rows["log_probability"], advantage, target)
        action, log_probability, advantages, targets = (torch.from_numpy(column.reshape(rows)) for column in columns)
        return RolloutBatch(torch.from_numpy(obs), action, log_probability, advantage=advantages, target=targets)

    @staticmethod
    def batches(whole: RolloutBatch, *, rng: np.random.Generator, num_batches: int) -> Iterator[RolloutBatch]:
        """Yield all rows of `whole` once, in `num_batches` parts of nearly the same size.

        They are shuffled unless there is one part, and picked on the device where they are.
        """
        if num_batches == 1:
            yield whole
            return
        order = torch.from_numpy(rng.permutation(len(whole.action)))
        if whole.action.device.type == "cuda":
            order = order.pin_memory().to(whole.action.device, non_blocking=True)
        for part in order.tensor_split(num_batches):
            yield RolloutBatch(
                whole.obs.index_select(0, part),
                whole.action[part],
                whole.log_probability[part],
                advantage=whole.advantage[part],
                target=whole.target[part],
            )

    def mean_entropy(self) -> float:
        """Return an estimate of the policy's entropy in nats: the mean of −log π over the actions of a full buffer."""
        return float(-self._rows["log_probability"].mean())

    def observations(self) -> Array:
        """Return the observations so far [T, N, K, *frame]."""
        return self._obs[: self.filled_steps]

    def clear(self) -> None:
        """Start anew."""
        self.filled_steps = 0

    def state(self) -> dict[str, Array]:
        """Return the steps filled so far, for a checkpoint."""
        return {name: array[: self.filled_steps] for name, array in {"obs": self._obs, **self._rows}.items()}

    def load_state(self, state: dict[str, Array]) -> None:
        """Continue from what `state()` returned."""
        self.filled_steps = len(state["action"])
        for name, array in {"obs": self._obs, **self._rows}.items():
            array[: self.filled_steps] = state[name]
