"""The actor: keeps the observation of each env, chooses actions, and counts each episode exactly once.

A `Player` lets an actor play whole episodes for an evaluation.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from redline.algorithms.family import ActorExtras, ActorParams, Algorithm, act
from redline.envs.vector import EpisodesUnderWay, VectorEnv, begin_stack, push_frames, restart_stack
from redline.episodes.episode import encode_trace
from redline.episodes.tracing import Choice, RecordingConfig, Tracer
from redline.exploration import Exploration
from redline.networks import Network, mask_state
from redline.runtime.counters import Purpose, stream
from redline.types import Array, BoolArray, IntArray, Progress, VectorStep

RequestedStop = Callable[[], str | None]  # says why to stop, if a stop is requested


@dataclass(frozen=True)
class Episode:
    """A finished episode, and the seed and offset from which it can be played again."""

    lane: int
    total_reward: float  # unclipped
    length_steps: int
    reset_seed: int  # seed of the lane's last key
    seed_offset_steps: int  # steps between that key and this episode's start
    trace: bytes | None = field(default=None, repr=False)  # its recording; None if it is not kept
    is_truncated: bool = False  # cut by a limit of frames, or by the env's own


class Actor:
    """Plays all lanes of a vector env in lockstep."""

    def __init__(
        self, env: VectorEnv, *, state_width: int = 0, recording: RecordingConfig | None = None, first_lane: int = 0
    ) -> None:
        self.env = env
        spec = env.spec
        self.obs: Array = np.zeros((env.num_envs, spec.stack, *spec.frame_shape), dtype=spec.frame_dtype)
        self._state = torch.zeros(env.num_envs, state_width)  # recurrent state of each lane
        self._under_way = EpisodesUnderWay(env)
        self._tracer: Tracer | None = None
        if recording is not None and not recording.is_off:
            self._tracer = Tracer(env, recording, self._under_way, first_lane=first_lane)

    def begin(self, first_frames: Array) -> None:
        self.obs = begin_stack(first_frames, self.env.spec.stack)
        self._start(np.ones(self.env.num_envs, dtype=np.bool_))
        if self._tracer is not None:
            self._tracer.begin()

    def choose(self, params: ActorParams, rng: np.random.Generator) -> tuple[IntArray, ActorExtras]:
        """Return an action for each lane, and the other outputs of the network."""
        actions, self._state, extras = act(params, self.obs, self._state.to(params.device), rng)
        if self._tracer is not None:
            self._tracer.acted(extras.preferences)
        return actions, extras

    def observe(self, step: VectorStep) -> list[Episode]:
        """Take in a step; return the episodes that ended with it."""
        under_way, ended = self._under_way, step.ended
        under_way.count(step)
        self.obs = push_frames(self.obs, step.frames)
        traces = {} if self._tracer is None else self._tracer.stepped(step)
        if not ended.any():
            return []
        episodes = [
            Episode(
                lane=lane,
                total_reward=float(under_way.total_reward[lane]),
                length_steps=int(under_way.length_steps[lane]),
                reset_seed=int(under_way.reset_seed[lane]),
                seed_offset_steps=int(under_way.seed_offset_steps[lane]),
                trace=encode_trace(traces[lane]) if lane in traces else None,
                is_truncated=not step.terminated[lane],
            )
            for lane in np.flatnonzero(ended).tolist()
        ]
        self.obs = restart_stack(self.obs, ended, step.first_frames)
        self._start(ended)
        return episodes

    def state(self) -> dict[str, Array]:
        """Return what a checkpoint keeps."""
        return {"obs": self.obs, "state": self._state.cpu().numpy(), **self._under_way.state()}

    def load_state(self, state: dict[str, Array]) -> None:
        """Go on from what `state()` gave."""
        self.obs = state["obs"].copy()
        self._state = torch.from_numpy(state["state"].copy())
        self._under_way.load_state(state)
        if self._tracer is not None:
            self._tracer.resume()

    def _start(self, lanes: BoolArray) -> None:
        self._state = mask_state(self._state, torch.from_numpy(lanes).to(self._state.device))
        self._under_way.begin(lanes)


class StoppedWhileEvaluatingError(Exception):
    """A stop was requested before all episodes had ended."""


class Player:
    """Plays whole episodes on a vector env made anew each time; its weights may be replaced in between."""

    def __init__(
        self,
        make_env: Callable[[int], VectorEnv],
        *,
        algorithm: Algorithm,
        network: Network,
        explore: Exploration,
        epsilon: float,
        recording: RecordingConfig | None = None,
    ) -> None:
        self.network = network
        self._make_env = make_env  # from a seed
        # All episodes are traced, and some of those that count are kept: lanes that have played their share play on
        # until the last lane has played its own.
        self._choice = None if recording is None or recording.is_off else Choice(recording)
        self._tracing = None if self._choice is None else replace(recording or RecordingConfig(), record="all")
        self.params = ActorParams(
            algorithm, network, epsilon, next(network.parameters()).device, explore=explore, is_silent=True
        )

    def play(
        self,
        num_episodes: int,
        *,
        seed: int,
        requested_stop: RequestedStop,
        progress: Progress = lambda share: None,
        explore: Exploration | None = None,
    ) -> list[Episode]:
        """Play exactly `num_episodes` whole episodes in games that `seed` decides; return them in order of ending.

        `requested_stop` is called before every vector step. `explore` chooses actions in another way for once.
        """
        params = self.params if explore is None else self.params._replace(explore=explore)
        with closing(self._make_env(seed)) as env:
            # Each lane plays a number of episodes fixed beforehand. The first `num_episodes` to end, whatever their
            # lane, would be biased towards short ones.
            lanes = np.arange(env.num_envs)
            left = num_episodes // len(lanes) + (lanes < num_episodes % len(lanes))  # [N]
            actor = Actor(env, state_width=self.network.state_width, recording=self._tracing)
            actor.begin(env.reset())
            played: list[Episode] = []
            vector_step = 0
            while left.any():
                if reason := requested_stop():
                    raise StoppedWhileEvaluatingError(f"{reason} after {len(played)} of {num_episodes} episodes")
                actions, _ = actor.choose(params, stream(seed, Purpose.EVALUATE, vector_step))
                env.send(actions)
                for episode in actor.observe(env.recv()):
                    if left[episode.lane]:
                        left[episode.lane] -= 1
                        played.append(self._kept(episode))
                        progress(len(played) / num_episodes)
                vector_step += 1
        return played

    def _kept(self, episode: Episode) -> Episode:
        """Return an episode without its trace if that is not to be kept."""
        is_kept = self._choice is None or self._choice.takes(episode.total_reward)
        return episode if is_kept else replace(episode, trace=None)
