"""The episode under way in each lane of a vector env: its return, its length, and where it began."""

import numpy as np

from redline.envs.vector import State, VectorEnv
from redline.types import BoolArray, IntArray, VectorStep


class EpisodesUnderWay:
    """Counts what the lanes of an env give."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self.total_reward = np.zeros(env.num_envs)  # [N] unclipped
        self.length_steps: IntArray = np.zeros(env.num_envs, np.int64)
        self.key_seed: IntArray = np.zeros(env.num_envs, np.int64)  # of the lane's last key
        self.key_offset_steps: IntArray = np.zeros(env.num_envs, np.int64)  # from that key to the episode's start

    def begin(self, lanes: BoolArray) -> None:
        """Start an episode in those lanes, where their envs are now."""
        self.total_reward[lanes] = 0.0
        self.length_steps[lanes] = 0
        self.key_seed[lanes] = self._env.key_seed[lanes]
        self.key_offset_steps[lanes] = self._env.steps_since_key[lanes]

    def count(self, step: VectorStep) -> None:
        """Add a step of each lane."""
        self.total_reward += step.reward
        self.length_steps += 1

    def state(self) -> State:
        """Return what a checkpoint keeps."""
        return {
            "return": self.total_reward,
            "length_steps": self.length_steps,
            "key_seed": self.key_seed,
            "key_offset_steps": self.key_offset_steps,
        }

    def load_state(self, state: State) -> None:
        """Go on from what `state()` gave."""
        for name, values in self.state().items():
            values[:] = state[name]
