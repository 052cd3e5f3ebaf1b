"""An agent on its own: a run's network with the weights of a checkpoint, for envs that others step."""

from typing import Any

import numpy as np
import torch

from redline.algorithms.family import ActorParams, act
from redline.envs import stacking
from redline.envs.catalog import resolve
from redline.envs.classic import GymnasiumEnv, frame_converter
from redline.errors import UserError
from redline.exploration import Greedy, Sampled
from redline.networks.cores import mask_state
from redline.runs.finding import NEWEST, find_checkpoint
from redline.runtime.building import find_device
from redline.runtime.evaluation import load_weights
from redline.runtime.randomness import Purpose, stream
from redline.runtime.resuming import SavedRun
from redline.types import Array, BoolArray


class Agent:
    """Chooses actions for the observations of a Gymnasium env, one env or several at once.

    An observation is a frame, which the agent stacks itself, or already a stack [K, …] of as many as it was trained on.
    K frames may be one stack or the frames of K envs: then `stacked` says which. An agent that stacks frames or has a
    recurrent core remembers the episode: call `reset` when one begins.
    """

    def __init__(self, saved: SavedRun, checkpoint: str | int = NEWEST, *, device: str = "auto") -> None:
        kind = resolve(saved.job.env.id)
        self.spec = kind.spec(saved.job.env)
        # what the env itself takes and shows, where Redline makes numbers from 0 on and frames of it
        self._first_action, self._space = 0, None
        if isinstance(kind, GymnasiumEnv) and kind.vector is None:
            actions, self._space = kind.spaces
            self._first_action = int(actions.start)
        self.algorithm = saved.job.algorithm
        self.device = find_device(device)
        network = self.algorithm.build_network(self.spec, torch.Generator()).requires_grad_(False).to(self.device)
        load_weights(network, find_checkpoint(saved.path, checkpoint, with_replay=False))
        self.network = network
        self._seed = saved.job.seed
        self._acted = 0
        self._stack: Array | None = None  # [N, K, *frame]
        self._state = torch.zeros(0)

    def reset(self, lanes: BoolArray | None = None) -> None:
        """Forget the episode: of all envs, or of those where `lanes` [N] is true."""
        if lanes is None or self._stack is None:
            self._stack = None
            return
        self._stack[lanes] = 0
        self._state = mask_state(self._state, torch.from_numpy(np.asarray(lanes, np.bool_)).to(self._state.device))

    def act(self, observation: Any, *, greedy: bool = False, stacked: bool | None = None) -> Any:
        """Return an action for each env, a single number for a single env.

        Value learners act greedily. Policies draw their actions unless `greedy`: their likeliest may go in circles.
        """
        given = np.asarray(self._as_frames(np.asarray(observation)), dtype=self.spec.frame_dtype)
        is_single, stack = self._stacked(given, stacked)
        draws = isinstance(self.algorithm.explore, Sampled) and not greedy
        params = ActorParams(
            self.algorithm,
            self.network,
            0.0,
            self.device,
            explore=Sampled() if draws else Greedy(),
            is_silent=True,
        )
        rng = stream(self._seed, Purpose.EVALUATE, self._acted)
        self._acted += 1
        actions, self._state, _ = act(params, stack, self._state, rng)
        actions = actions + self._first_action
        return int(actions[0]) if is_single else actions

    def _as_frames(self, given: Array) -> Array:
        """Return observations of one env or of several as frames, the way training sees them; frames as they are."""
        if self._space is None:
            return given
        leading = given.ndim - len(self._space.shape)  # axes: several envs, stacks of frames
        if leading < 0 or given.shape[leading:] != self._space.shape:
            return given
        to_frame = frame_converter(self._space)
        frames = [to_frame(one) for one in given.reshape(-1, *self._space.shape)]
        return np.stack(frames).reshape(*given.shape[:leading], *frames[0].shape)

    def _stacked(self, given: Array, stacked: bool | None) -> tuple[bool, Array]:
        """Tell whether one env is meant, and return what the network sees of each [N, K, *frame]."""
        shape, stack = self.spec.frame_shape, self.spec.stack
        whole = (stack, *shape)
        if stack > 1 and stacked is None and given.shape == whole:
            raise UserError(
                f"{given.shape} is one stack of {stack} frames, or {stack} envs: say which, stacked=True or False"
            )
        is_single = given.shape == shape or (stacked is True and given.shape == whole)
        batch = given[None] if is_single else given
        if self._stack is None or len(self._stack) != len(batch):
            self._stack = np.zeros((len(batch), *whole), given.dtype)
            self._state = torch.zeros(len(batch), self.network.state_width, device=self.device)
        if batch.shape[1:] == shape:
            self._stack = stacking.push(self._stack, batch)
        elif batch.shape[1:] == whole:
            self._stack = batch.copy()
        else:
            wanted = f"{shape}" if stack == 1 else f"{shape} or {whole}"
            raise UserError(f"an observation has shape {given.shape}: the agent was trained on {wanted}, or several")
        return is_single, self._stack
