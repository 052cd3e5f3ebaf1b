"""Envs and actor in the process of the learner: the reference topology.

The emulators run on their own threads from `send` to `recv`, while the learner learns.
"""

import time

from redline.algorithms.family import ActorExtras
from redline.envs.vector import Progress, VectorEnv
from redline.recordings.tracing import RecordingConfig
from redline.runtime.actor import Actor
from redline.runtime.sources import part_of, prefixed
from redline.runtime.training import Played, Turn, WorldRestored
from redline.types import Array, EnvSpec, IntArray


class InlineWorld:
    """A vector env and the actor that plays it."""

    def __init__(self, env: VectorEnv, *, state_width: int = 0, recording: RecordingConfig | None = None) -> None:
        self.env = env
        self.actor = Actor(env, state_width=state_width, recording=recording)
        self.waited_s = {"envs": 0.0}
        self._sent: tuple[IntArray, ActorExtras] | None = None

    @property
    def spec(self) -> EnvSpec:
        """What a network and a replay memory must know."""
        return self.env.spec

    @property
    def num_envs(self) -> int:
        """Lanes."""
        return self.env.num_envs

    def begin(self) -> Array:
        """Start an episode in every lane, and return the first frames."""
        first_frames = self.env.reset()
        self.actor.begin(first_frames)
        return first_frames

    def start_step(self, turn: Turn) -> None:
        """Act with the newest weights, and let the envs step."""
        self._sent = self.actor.choose(turn.policy, turn.rng())
        self.env.send(self._sent[0])

    def finish_step(self, turn: Turn) -> Played:
        """Wait for the envs, and keep what they gave."""
        if self._sent is None:
            raise RuntimeError("finish_step() follows start_step()")
        begun_s = time.monotonic()
        step = self.env.recv()
        self.waited_s["envs"] += time.monotonic() - begun_s
        obs, (actions, extras) = self.actor.obs, self._sent
        episodes = self.actor.observe(step)
        turn.source.append(obs=obs, actions=actions, extras=extras, step=step, next_obs=self.actor.obs)
        return Played(self.env.num_envs, episodes)

    def state(self) -> dict[str, Array]:
        """Return what a checkpoint keeps of actor and envs."""
        return {**prefixed("actor", self.actor.state()), **prefixed("env", self.env.state())}

    def restore(self, arrays: dict[str, Array], progress: Progress | None) -> WorldRestored:
        """Bring actor and envs back, or begin anew where that can't be."""
        cut = "the episodes under way are cut, all envs start anew"
        if "actor.return" not in arrays:
            return WorldRestored([f"the actors were processes of their own: {cut}"], self.begin())
        num_envs = len(arrays["actor.return"])
        if num_envs != self.num_envs:
            return WorldRestored([f"{num_envs} envs became {self.num_envs}: {cut}"], self.begin())
        if self.env.restore(part_of("env", arrays), progress):
            self.actor.load_state(part_of("actor", arrays))
            return WorldRestored([], None)
        self.actor.begin(self.env.frames)
        return WorldRestored([f"{self.spec.name} did not come back as it was: {cut}"], self.env.frames)
