"""Evaluation: whole episodes without exploration, unclipped, noise off, in games that training never saw.

A `Player` plays them. An `Evaluator` evaluates a run while it trains, inline or in a process of its own, by the rules
in `solving.py`. `playing.py` plays with the weights of a checkpoint.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch

from redline.algorithms.family import ActorParams, Algorithm
from redline.envs.catalog import make_vector_env
from redline.envs.vector import VectorEnv
from redline.episodes.tracing import Choice, RecordingConfig
from redline.exploration import Exploration, Greedy
from redline.networks import Network
from redline.runtime.actor import Actor, Episode
from redline.runtime.config import Job
from redline.runtime.counters import Scores
from redline.runtime.gauges import Display
from redline.runtime.randomness import Purpose, stream
from redline.runtime.resolve import find_device
from redline.runtime.run_log import RunLog
from redline.runtime.solving import (
    CONFIRMING_EPISODES,
    EPISODES,
    acting,
    describe_acting,
    describe_confirmation,
    is_confirmed,
    num_episodes,
)
from redline.types import EnvSpec, Progress

ARGMAX_PATIENCE_S = 20.0  # for greedy play of a policy

# They keep the seeds of training, of `redline eval` and of evaluations while a run trains apart. They are part of the
# seeds: never change them.
EVALUATION = 0x6576616C
GREEDY = 0x67726565

RequestedStop = Callable[[], str | None]


@dataclass(frozen=True)
class PlayedEpisode:
    """One whole episode."""

    episode: Episode
    is_truncated: bool  # cut by a limit of frames, or by the env's own


class StoppedWhileEvaluatingError(Exception):
    """A stop was requested before all episodes had ended."""


def evaluation_seed(run_seed: int, seed: int, *, kind: int = EVALUATION) -> int:
    """Return the seed of an evaluation: the same for the same numbers, and never one of training."""
    return int(np.random.SeedSequence([run_seed, kind, seed]).generate_state(1)[0] >> 1)


def greedy_seed(run_seed: int, number: int) -> int:
    """Return the seed of a run's evaluation with that number, counted from 1: each plays games of its own."""
    return evaluation_seed(run_seed, number, kind=GREEDY)


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

    @contextmanager
    def acting_by(self, explore: Exploration) -> Iterator[None]:
        """Choose actions in another way for a while."""
        before, self.params = self.params, self.params._replace(explore=explore)
        try:
            yield
        finally:
            self.params = before

    def play(
        self, num_episodes: int, *, seed: int, requested_stop: RequestedStop, progress: Progress = lambda share: None
    ) -> list[PlayedEpisode]:
        """Play exactly `num_episodes` whole episodes in games that `seed` decides; return them in order of ending.

        `requested_stop` is called before every vector step.
        """
        with closing(self._make_env(seed)) as env:
            return self._play(env, num_episodes, seed=seed, progress=progress, requested_stop=requested_stop)

    def _play(
        self, env: VectorEnv, num_episodes: int, *, seed: int, progress: Progress, requested_stop: RequestedStop
    ) -> list[PlayedEpisode]:
        # Each lane plays a number of episodes fixed beforehand. The first `num_episodes` to end, whatever their lane,
        # would be biased towards short ones.
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
        """Return an episode without its trace if that is not to be kept."""
        is_kept = self._choice is None or self._choice.takes(episode.total_reward)
        return episode if is_kept else replace(episode, trace=None)


def make_player(
    job: Job,
    spec: EnvSpec,
    *,
    device: torch.device,
    num_envs: int,
    threads: int,
    act: tuple[Exploration, float] | None = None,
    recording: RecordingConfig | None = None,
) -> Player:
    """Return a player of a job's env whose weights are still to be loaded.

    `act` is the exploration and ε; by default those of the job's evaluations. `threads` step native envs.
    """
    explore, epsilon = act or acting(job)
    return Player(
        lambda seed: make_vector_env(job.env, num_envs=num_envs, seed=seed, threads=threads, seed_interval_steps=0),
        algorithm=job.algorithm,
        network=job.algorithm.build_network(spec, torch.Generator()).requires_grad_(False).to(device),
        explore=explore,
        epsilon=epsilon,
        recording=recording,
    )


@dataclass(frozen=True)
class NumberedEvaluation:
    """One of the evaluations of a run while it trains."""

    number: int  # from 1, over all resumes
    weights_steps: int  # steps of the run when its weights were taken
    episodes: Sequence[Episode]
    duration_s: float
    is_confirmation: bool  # it is to confirm the evaluation before it, with the same weights

    @property
    def mean_return(self) -> float:
        """Mean of the unclipped returns."""
        return fmean(episode.total_reward for episode in self.episodes)


class Evaluator:
    """Plays the evaluations of a run while it trains, with the weights of its `network`."""

    def __init__(
        self, job: Job, spec: EnvSpec, *, evaluations: int, finished: Callable[[NumberedEvaluation], None]
    ) -> None:
        """Go on after `evaluations` earlier ones; `finished` is called with each as soon as it is played."""
        config = job.evaluator
        # training stands still for an inline evaluation: one that waits for a target must be short
        is_hurried = job.topology == "inline" and job.limits.target_eval_return is not None
        self.num_envs = min(max(EPISODES, config.envs) if is_hurried else config.envs, num_episodes(job))
        self._threads = max(config.threads, job.learner.threads) if is_hurried else config.threads
        self._player = make_player(
            job,
            spec,
            device=find_device(config.device or job.device),
            num_envs=self.num_envs,
            threads=min(self._threads, self.num_envs),
            recording=job.recording,
        )
        self._job = job
        self._number = evaluations
        self._finished = finished
        self.spent_s = 0.0  # on the newest evaluation, without its confirming games

    @property
    def network(self) -> Network:
        """The network that plays."""
        return self._player.network

    def evaluate(self, weights_steps: int, requested_stop: RequestedStop) -> None:
        """Play an evaluation and, if it reaches the target of the run, further games to confirm it.

        A requested stop drops the evaluation: the episodes that have ended are the shorter ones, their mean is biased.
        """
        target, begun_s = self._job.limits.target_eval_return, time.monotonic()
        try:
            mean = self._evaluate(num_episodes(self._job), weights_steps, requested_stop)
        finally:
            self.spent_s = time.monotonic() - begun_s
        if target is not None and mean >= target:
            self._evaluate(CONFIRMING_EPISODES, weights_steps, requested_stop, is_confirmation=True)

    def play_greedily(self, requested_stop: RequestedStop) -> float:
        """Return the mean return of games in which a policy takes its likeliest actions; they do not count."""
        end_s = time.monotonic() + ARGMAX_PATIENCE_S

        def requested_or_late() -> str | None:
            if time.monotonic() > end_s:
                return f"no end after {ARGMAX_PATIENCE_S:g} s (greedy play may loop)"
            return requested_stop()

        with self._player.acting_by(Greedy()):
            return fmean(episode.total_reward for episode in self._play(EPISODES, requested_or_late))

    def _evaluate(
        self, episodes: int, weights_steps: int, requested_stop: RequestedStop, *, is_confirmation: bool = False
    ) -> float:
        begun_s = time.monotonic()
        played = self._play(episodes, requested_stop)
        self._number += 1
        duration_s = time.monotonic() - begun_s
        evaluation = NumberedEvaluation(self._number, weights_steps, played, duration_s, is_confirmation)
        self._finished(evaluation)
        return evaluation.mean_return

    def _play(self, episodes: int, requested_stop: RequestedStop) -> list[Episode]:
        """Play the games of the next number."""
        seed = greedy_seed(self._job.seed, self._number + 1)
        with compute_threads(self._threads):
            return [one.episode for one in self._player.play(episodes, seed=seed, requested_stop=requested_stop)]


@contextmanager
def compute_threads(count: int) -> Iterator[None]:
    """Let PyTorch compute with `count` threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def record_evaluation(
    evaluation: NumberedEvaluation, *, job: Job, scores: Scores, log: RunLog, display: Display
) -> None:
    """Log and show an evaluation; `scores` take in what it confirms."""
    number, weights_steps, how = evaluation.number, evaluation.weights_steps, describe_acting(job)
    returns = [episode.total_reward for episode in evaluation.episodes]
    mean, lowest, highest = evaluation.mean_return, min(returns), max(returns)
    for episode in evaluation.episodes:
        log.greedy_episode(episode, evaluation=number, weights_steps=weights_steps)
    log.event(
        "evaluation",
        number=number,
        weights_steps=weights_steps,
        episodes=len(returns),
        mean_return=mean,
        min_return=lowest,
        max_return=highest,
        duration_s=evaluation.duration_s,
        how=how,
        is_confirmation=evaluation.is_confirmation,
    )
    display.note(
        f"evaluation {number}{how and f' ({how})'} with the weights of step {weights_steps:,}: mean {mean:.2f}, "
        f"min {lowest:g}, max {highest:g} of {len(returns)} episodes, in {evaluation.duration_s:.1f} s"
    )
    target = job.limits.target_eval_return
    if evaluation.is_confirmation and target is not None:
        scores.confirm(mean, target=target, is_enough=is_confirmed(mean, target))
        display.note(describe_confirmation(mean, target))
