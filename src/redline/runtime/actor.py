"""The actor: keeps what each env shows, chooses actions, and counts each episode exactly once."""

from dataclasses import dataclass, field

import numpy as np
import torch

from redline.algorithms.family import ActorExtras, ActorParams, act
from redline.envs import stacking
from redline.envs.vector import VectorEnv
from redline.networks.cores import mask_state
from redline.recordings.episode import encode_trace
from redline.recordings.tracing import RecordingConfig, Tracer
from redline.types import Array, BoolArray, IntArray, VectorStep


@dataclass(frozen=True)
class Episode:
    """A finished episode, and the address from which it can be played again."""

    lane: int
    total_reward: float  # unclipped
    length_steps: int
    key_seed: int  # seed of the lane's last key
    key_offset_steps: int  # steps between that key and this episode's start
    trace: bytes | None = field(default=None, repr=False)  # its recording; None if it is not to be kept


class Actor:
    """Plays all lanes of a vector env in lockstep."""

    def __init__(
        self, env: VectorEnv, *, state_width: int = 0, recording: RecordingConfig | None = None, first_lane: int = 0
    ) -> None:
        self.env = env
        spec = env.spec
        self.obs: Array = np.zeros((env.num_envs, spec.stack, *spec.frame_shape), dtype=spec.frame_dtype)
        self._state = torch.zeros(env.num_envs, state_width)  # what the network remembers of each episode
        self._return = np.zeros(env.num_envs)  # [N] unclipped reward of the episode under way
        self._length_steps = np.zeros(env.num_envs, dtype=np.int64)
        self._key_seed = np.zeros(env.num_envs, dtype=np.int64)
        self._key_offset_steps = np.zeros(env.num_envs, dtype=np.int64)
        self._tracer = None if recording is None or recording.is_off else Tracer(env, recording, first_lane=first_lane)

    def begin(self, first_frames: Array) -> None:
        """Start an episode in every lane."""
        self.obs = stacking.begin(first_frames, self.env.spec.stack)
        self._note_starts(np.ones(self.env.num_envs, dtype=np.bool_))
        if self._tracer is not None:
            self._tracer.begin()

    def choose(self, params: ActorParams, rng: np.random.Generator) -> tuple[IntArray, ActorExtras]:
        """Return an action for each lane, and what else the network said."""
        actions, self._state, extras = act(params, self.obs, self._state.to(params.device), rng)
        if self._tracer is not None:
            self._tracer.acted(actions, extras.preferences)
        return actions, extras

    def observe(self, step: VectorStep) -> list[Episode]:
        """Take in what a step gave; return the episodes that ended with it."""
        self._return += step.reward
        self._length_steps += 1
        ended = step.ended
        self.obs = stacking.push(self.obs, step.frames)
        traces = {} if self._tracer is None else self._tracer.stepped(step)
        if not ended.any():
            return []
        episodes = [
            Episode(
                lane=lane,
                total_reward=float(self._return[lane]),
                length_steps=int(self._length_steps[lane]),
                key_seed=int(self._key_seed[lane]),
                key_offset_steps=int(self._key_offset_steps[lane]),
                trace=encode_trace(traces[lane]) if lane in traces else None,
            )
            for lane in np.flatnonzero(ended).tolist()
        ]
        self.obs = stacking.restart(self.obs, ended, step.first_frames)
        self._note_starts(ended)
        return episodes

    def state(self) -> dict[str, Array]:
        """Return what a checkpoint keeps."""
        return {
            "obs": self.obs,
            "state": self._state.cpu().numpy(),
            "return": self._return,
            "length_steps": self._length_steps,
            "key_seed": self._key_seed,
            "key_offset_steps": self._key_offset_steps,
        }

    def load_state(self, state: dict[str, Array]) -> None:
        """Go on from what `state()` gave."""
        self.obs = state["obs"].copy()
        self._state = torch.from_numpy(state["state"].copy())
        self._return[:] = state["return"]
        self._length_steps[:] = state["length_steps"]
        self._key_seed[:] = state["key_seed"]
        self._key_offset_steps[:] = state["key_offset_steps"]
        if self._tracer is not None:
            self._tracer.resume(lengths=self._length_steps, returns=self._return)

    def _note_starts(self, lanes: BoolArray) -> None:
        self._state = mask_state(self._state, torch.from_numpy(lanes).to(self._state.device))
        self._return[lanes] = 0.0
        self._length_steps[lanes] = 0
        self._key_seed[lanes] = self.env.key_seed[lanes]
        self._key_offset_steps[lanes] = self.env.steps_since_key[lanes]
