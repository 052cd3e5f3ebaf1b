"""Batches from rollouts: what the newest weights played is learnt from before they play on, then forgotten."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from redline.algorithms.family import ActorExtras
from redline.algorithms.on_policy import OnPolicy
from redline.envs import stacking
from redline.experience import RolloutBuffer
from redline.learner import Learner
from redline.runs.checkpoints import CheckpointStore
from redline.runs.manifest import Checkpoint
from redline.runtime.counters import Counters
from redline.runtime.pacing import Pacing
from redline.runtime.randomness import Purpose, stream
from redline.runtime.sources import SavedSource, part_of, prefixed
from redline.types import AnyBatch, Array, EnvSpec, FloatArray, IntArray, VectorStep

MOST_ROWS_KEPT = 512  # with what their backward pass needs: 0.2 MB each of the largest network at 84 × 84


class RolloutSource:
    """A rollout under way, and the learner whose network values the states that it does not act on."""

    learns_before_acting = True  # by the newest weights
    take_priorities = None
    memory = None
    waited_s = 0.0  # a rollout is there when it is learnt from

    def __init__(self, algorithm: OnPolicy, spec: EnvSpec, *, num_envs: int, seed: int, learner: Learner) -> None:
        self._algorithm = algorithm
        self._seed = seed
        self._learner = learner
        self._num_batches = -(-algorithm.rollout_steps * num_envs // algorithm.batch_size)
        self.entropy_nats: float | None = None  # of the last whole rollout: a few steps would tell little
        self._next_obs: Array | None = None  # [N, K, *frame] after the last step of the rollout
        self._features: list[torch.Tensor] = []  # [N, F] of each step of the rollout, where they are kept
        # learnt from once, as a whole, by the weights that acted: then the forward pass of acting is that of learning
        rows = algorithm.rollout_steps * num_envs
        self.keeps_features = algorithm.epochs == 1 and self._num_batches == 1 and rows <= MOST_ROWS_KEPT
        self.pacing = Pacing(samples_per_step=algorithm.samples_per_step, warmup_steps=0)
        self.buffer = RolloutBuffer(spec, num_envs=num_envs, steps=algorithm.rollout_steps)

    def begin(self, first_frames: Array) -> None:
        """Drop the rollout under way: what followed it is lost."""
        self._clear()

    def batches_due(self, counters: Counters) -> Iterator[Sequence[AnyBatch]]:
        """Yield a full rollout in batches, `epochs` times, each time in another order."""
        if not self.buffer.is_full or self._next_obs is None:
            return
        algorithm, returns = self._algorithm, self._algorithm.returns
        rollout = self.buffer.rollout(
            self._state_values(self._next_obs),
            gamma=returns.gamma,
            trace=returns.trace,
            clip_rewards=returns.clip_rewards,
        )
        advantage, target = algorithm.objective.targets(rollout)
        self.entropy_nats = self.buffer.mean_entropy()
        for _ in range(algorithm.epochs):
            rng = stream(self._seed, Purpose.DRAW, counters.batches_drawn)
            for batch in self.buffer.batches(advantage, target, rng=rng, num_batches=self._num_batches):
                counters.batches_drawn += 1
                yield [replace(batch, features=tuple(self._features))]
        self._clear()

    def num_samples(self, batch: AnyBatch) -> int:
        """Return the rows of a batch."""
        return len(batch.action)

    def append(self, *, obs: Array, actions: IntArray, extras: ActorExtras, step: VectorStep, next_obs: Array) -> None:
        """Keep a step of all lanes, with the value of the last observation where an episode was cut by a limit."""
        if extras.out is None or extras.preferences is None:
            raise ValueError("a rollout is played by the network, never at random")
        if extras.features is not None:
            self._features.append(extras.features)
        self._next_obs = next_obs
        value = self._algorithm.objective.state_values(torch.from_numpy(extras.out)).numpy()  # [N]
        final_value = np.zeros_like(value)
        if step.truncated.any():
            final_obs = stacking.push(obs, step.frames)[step.truncated]
            final_value[step.truncated] = self._state_values(final_obs)
        self.buffer.append(
            obs=obs,
            action=actions,
            log_probability=_log_probabilities(extras.preferences, actions),
            value=value,
            reward=step.reward,
            final_value=final_value,
            return_ends=step.return_ends,
            episode_ends=step.ended,
        )

    def _state_values(self, obs: Array) -> FloatArray:
        """Return the value of each observation [N, K, *frame] by the newest weights."""
        with torch.no_grad():
            out = self._learner.online(torch.from_numpy(obs).to(self._learner.device))
            values: FloatArray = self._algorithm.objective.state_values(out).cpu().numpy()
        return values

    def _clear(self) -> None:
        self.buffer.clear()
        self._features = []
        self._next_obs = None

    def save(self, store: CheckpointStore) -> SavedSource:
        """Return the rollout under way."""
        return SavedSource(prefixed("rollout", self.buffer.state()), None)

    def restore(
        self,
        checkpoint: Checkpoint,
        arrays: dict[str, Array],
        store: CheckpointStore,
        *,
        first_frames: Array | None,
    ) -> list[str]:
        """Go on with the rollout under way, if its episodes do."""
        if first_frames is None:
            self.buffer.load_state(part_of("rollout", arrays))
            self._next_obs = arrays["actor.obs"]
            if self.keeps_features:  # the weights have not changed since: the same numbers, bit for bit
                torso, device = self._learner.online.torso, self._learner.device
                self._features = [torso(torch.from_numpy(obs).to(device)) for obs in self.buffer.observations()]
        return []


def _log_probabilities(preferences: FloatArray, actions: IntArray) -> FloatArray:
    """Return log π [N] of the actions taken; for values it has no meaning, and nobody reads it."""
    shifted = preferences - preferences.max(axis=1, keepdims=True)
    log_policy = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))  # [N, A]
    chosen: FloatArray = log_policy[np.arange(len(actions)), actions]
    return chosen
