"""Playing without exploration: whole episodes, unclipped, noise off, in games that training never saw."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from redline.algorithms.family import ActorParams, Algorithm
from redline.envs.factory import make_vector_env
from redline.envs.vector import Progress, VectorEnv
from redline.exploration import Exploration, Greedy
from redline.networks import Network
from redline.recordings.tracing import Choice, RecordingConfig
from redline.runtime.actor import Actor, Episode
from redline.runtime.job import Job
from redline.runtime.randomness import Purpose, stream
from redline.runtime.solving import acting
from redline.types import EnvSpec

# These keep the seeds of games apart: of training, of `redline eval`, and of evaluations while a run trains. They are
# part of the seeds: never change them.
EVALUATION = 0x6576616C
GREEDY = 0x67726565

RequestedStop = Callable[[], str | None]


@dataclass(frozen=True)
class PlayedEpisode:
    """One whole episode, and why it ended."""

    episode: Episode
    is_truncated: bool  # cut by a limit: of frames, or of the env's own


class StoppedWhileEvaluatingError(Exception):
    """A stop was requested before all episodes had ended."""


def evaluation_seed(run_seed: int, seed: int, *, kind: int = EVALUATION) -> int:
    """Return the seed of an evaluation: never one by which the run trains, the same again for the same numbers."""
    return int(np.random.SeedSequence([run_seed, kind, seed]).generate_state(1)[0] >> 1)


def greedy_seed(run_seed: int, number: int) -> int:
    """Return the seed of a run's evaluation of that number, counted from 1: each plays games of its own."""
    return evaluation_seed(run_seed, number, kind=GREEDY)


class Player:
    """Plays on a vector env that it makes anew for each play; its network's weights may be replaced in between."""

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
        # Each episode has a key of its own, so all are traced, and of those that count some are kept: lanes that have
        # played their share go on until the last has.
        self._choice = None if recording is None or recording.is_off else Choice(recording)
        self._tracing = None if self._choice is None else replace(recording or RecordingConfig(), record="all")
        self.params = ActorParams(
            algorithm,
            network,
            epsilon,
            next(network.parameters()).device,
            explore=explore,
            is_silent=True,
        )

    @contextmanager
    def acting_by(self, explore: Exploration) -> Iterator[None]:
        """Choose actions in another way for a while."""
        before, self.params = self.params, self.params._replace(explore=explore)
        try:
            yield
        finally:
            self.params = before

    def play(
        self, num_episodes: int, *, seed: int, progress: Progress, requested_stop: RequestedStop
    ) -> list[PlayedEpisode]:
        """Play exactly so many episodes from first step to last, in games that `seed` decides, and in order of ending.

        `requested_stop` is asked before every vector step.
        """
        env = self._make_env(seed)
        try:
            return self._play(env, num_episodes, seed=seed, progress=progress, requested_stop=requested_stop)
        finally:
            env.close()

    def _play(
        self, env: VectorEnv, num_episodes: int, *, seed: int, progress: Progress, requested_stop: RequestedStop
    ) -> list[PlayedEpisode]:
        # Each lane plays a number fixed beforehand. The first so many to end, whatever their lane, would be the short
        # ones: a lane that plays long episodes would be stopped in the middle of one while others count many.
        lanes = np.arange(env.num_envs)
        left = num_episodes // len(lanes) + (lanes < num_episodes % len(lanes))  # [N]
        actor = Actor(env, state_width=self.network.state_width, recording=self._tracing)
        actor.begin(env.reset())
        played: list[PlayedEpisode] = []
        vector_step = 0
        while left.any():
            if reason := requested_stop():
                raise StoppedWhileEvaluatingError(f"{reason} after {len(played)} of {num_episodes} episodes")
            actions, _ = actor.choose(self.params, stream(seed, Purpose.EVALUATE, vector_step))
            env.send(actions)
            step = env.recv()
            for episode in actor.observe(step):
                if left[episode.lane]:
                    left[episode.lane] -= 1
                    is_truncated = not step.terminated[episode.lane]
                    played.append(PlayedEpisode(self._kept(episode), is_truncated=is_truncated))
                    progress(len(played) / num_episodes)
            vector_step += 1
        return played

    def _kept(self, episode: Episode) -> Episode:
        """Return an episode that counts, without its recording if that is not to be kept."""
        is_kept = self._choice is None or self._choice.takes(episode.total_reward)
        return episode if is_kept else replace(episode, trace=None)


def make_player(
    job: Job,
    spec: EnvSpec,
    *,
    device: torch.device,
    num_envs: int,
    threads: int,
    explore: Exploration | None = None,
    epsilon: float | None = None,
    recording: RecordingConfig | None = None,
) -> Player:
    """Return a player of a job's env with weights that are still to be loaded.

    Unless `explore` says otherwise it acts as evaluations with a target do if the job has one, else greedily with the
    paper's ε. `threads` step native envs; how many compute is set once per process.
    """
    algorithm = job.algorithm
    if explore is None and job.limits.target_eval_return is not None:
        explore, epsilon = acting(algorithm)
    return Player(
        lambda seed: make_vector_env(job.env, num_envs=num_envs, seed=seed, threads=threads, key_interval_steps=0),
        algorithm=algorithm,
        network=algorithm.build_network(spec, torch.Generator()).requires_grad_(False).to(device),
        explore=explore or Greedy(),
        epsilon=algorithm.explore.evaluation_epsilon() if epsilon is None else epsilon,
        recording=recording,
    )
