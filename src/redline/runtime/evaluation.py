"""Evaluation: whole episodes without exploration, unclipped, noise off, in games that training never saw.

A `Player` plays them. An `Evaluator` evaluates a run while it trains, inline or in a process of its own, by the rules
in `solving.py`. `evaluate` is `redline eval`: it plays with the weights of a checkpoint and only reads the run.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_tensors

from redline.algorithms.family import ActorParams, Algorithm
from redline.envs.catalog import env_spec, make_vector_env, resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import Progress, VectorEnv
from redline.errors import UserError
from redline.exploration import Exploration, Greedy, Sampled
from redline.networks import Network
from redline.recordings.tracing import Choice, RecordingConfig
from redline.runs.manifest import Checkpoint
from redline.runtime.actor import Actor, Episode
from redline.runtime.building import find_device
from redline.runtime.counters import Scores
from redline.runtime.job import Job
from redline.runtime.randomness import Purpose, stream
from redline.runtime.recording import Recorder
from redline.runtime.roles import usable_cores
from redline.runtime.solving import (
    CONFIRMING_EPISODES,
    EPISODES,
    acting,
    describe_acting,
    describe_confirmation,
    is_confirmed,
    num_episodes,
)
from redline.runtime.watching import Watcher
from redline.types import EnvSpec

WEIGHTS = "weights.safetensors"
ARGMAX_PATIENCE_S = 20.0  # for greedy play of a policy

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
        self, num_episodes: int, *, seed: int, requested_stop: RequestedStop, progress: Progress = lambda share: None
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
    act: tuple[Exploration, float] | None = None,
    recording: RecordingConfig | None = None,
) -> Player:
    """Return a player of a job's env with weights that are still to be loaded.

    `act` is how it chooses actions, and ε; by default as the job's evaluations do. `threads` step native envs; how many
    compute is set once per process.
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
    weights_steps: int  # steps at which its weights were taken
    episodes: Sequence[Episode]
    duration_s: float
    is_confirmation: bool  # its games are to confirm the evaluation before it, with the same weights

    @property
    def mean_return(self) -> float:
        """Mean of the unclipped returns."""
        return fmean(episode.total_reward for episode in self.episodes)


class Evaluator:
    """Plays the evaluations of a run while it trains, with the weights that its `network` was given."""

    def __init__(
        self, job: Job, spec: EnvSpec, *, evaluations: int, finished: Callable[[NumberedEvaluation], None]
    ) -> None:
        """Go on after so many `evaluations`; `finished` is told of each as soon as it was played."""
        config = job.evaluator
        # training stands still for an inline evaluation: a target must not cost much time
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
        self.spent_s = 0.0  # on the newest evaluation, without the games that were to confirm it

    @property
    def network(self) -> Network:
        """The network that plays."""
        return self._player.network

    def evaluate(self, weights_steps: int, requested_stop: RequestedStop) -> None:
        """Play an evaluation and, if it reaches the target of the run, further games to confirm it.

        A requested stop drops what is being played: the episodes that ended are the shorter ones, their mean is biased.
        """
        target, begun_s = self._job.limits.target_eval_return, time.monotonic()
        try:
            mean = self._evaluate(num_episodes(self._job), weights_steps, requested_stop)
        finally:
            self.spent_s = time.monotonic() - begun_s
        if target is not None and mean >= target:
            self._evaluate(CONFIRMING_EPISODES, weights_steps, requested_stop, is_confirmation=True)

    def play_greedily(self, requested_stop: RequestedStop) -> float:
        """Return the mean of games in which a policy takes its likeliest actions; they count for nothing."""
        end_s = time.monotonic() + ARGMAX_PATIENCE_S

        def requested_or_late() -> str | None:
            if time.monotonic() > end_s:
                return f"no end after {ARGMAX_PATIENCE_S:g} s, it may go round in circles,"
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
        with _compute_threads(self._threads):
            return [one.episode for one in self._player.play(episodes, seed=seed, requested_stop=requested_stop)]


@contextmanager
def _compute_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Count numbers as 0 that are too small for a usual exponent, as training does."""
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    were_flushed = not bool(smallest / 2)  # torch does not tell otherwise
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(were_flushed)


def record_evaluation(
    evaluation: NumberedEvaluation, *, job: Job, scores: Scores, recorder: Recorder, watcher: Watcher
) -> None:
    """Write down an evaluation and tell of it; `scores` learn what it confirms."""
    number, weights_steps, how = evaluation.number, evaluation.weights_steps, describe_acting(job)
    returns = [episode.total_reward for episode in evaluation.episodes]
    mean, lowest, highest = evaluation.mean_return, min(returns), max(returns)
    for episode in evaluation.episodes:
        recorder.greedy_episode(episode, evaluation=number, weights_steps=weights_steps)
    recorder.event(
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
    watcher.note(
        f"evaluation {number}{how and f' ({how})'} with the weights of step {weights_steps:,}: mean {mean:.2f}, "
        f"min {lowest:g}, max {highest:g} of {len(returns)} episodes, in {evaluation.duration_s:.1f} s"
    )
    target = job.limits.target_eval_return
    if evaluation.is_confirmation and target is not None:
        scores.confirm(mean, target=target, is_enough=is_confirmed(mean, target))
        watcher.note(describe_confirmation(mean, target))


@dataclass(frozen=True)
class EvaluationConfig:
    """How `redline eval` plays."""

    episodes: int = 30
    """Whole episodes to play."""
    seed: int = 0
    """Seed of the games and of random actions; the run's own seed is part of both."""
    epsilon: float | None = None
    """Share of random actions; as the algorithm's paper evaluates if not given."""
    num_envs: int = 8
    """Environments played side by side, never more than there are episodes."""
    sample: bool = False
    """Draw actions from the policy of a policy-gradient run instead of taking its likeliest."""
    device: str = "auto"
    """Where the network computes: auto, cpu, cuda or cuda:i."""

    def __post_init__(self) -> None:
        if not 1 <= self.episodes <= 10_000:
            raise UserError(f"episodes is {self.episodes}: use 1 to 10_000")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed is {self.seed}: use 0 to {2**31 - 1:_}")
        if self.epsilon is not None and not 0.0 <= self.epsilon <= 1.0:
            raise UserError(f"epsilon is {self.epsilon}, but a probability lies between 0 and 1")
        if not 1 <= self.num_envs <= 1024:
            raise UserError(f"num-envs is {self.num_envs}: use 1 to 1024")
        if self.sample and self.epsilon is not None:
            raise UserError("sample and epsilon are two ways to act: use one of them")


@dataclass(frozen=True)
class Evaluation:
    """What `redline eval` played, and how."""

    played: list[PlayedEpisode]  # in the order in which they ended
    epsilon: float
    num_envs: int
    protocol: str
    frames_per_step: int
    device: torch.device
    duration_s: float


def evaluate(
    job: Job,
    checkpoint: Checkpoint,
    config: EvaluationConfig,
    *,
    progress: Progress,
    requested_stop: RequestedStop = lambda: None,
    recording: RecordingConfig | None = None,
) -> Evaluation:
    """Play the episodes that `config` asks for with the weights of a checkpoint; recorded, if so wished."""
    begun_s = time.monotonic()
    explore, epsilon = choose_acting(job.algorithm, config)
    device = find_device(config.device)
    num_envs, cores = min(config.num_envs, config.episodes), usable_cores()
    spec = env_spec(job.env)
    player = make_player(
        job,
        spec,
        device=device,
        num_envs=num_envs,
        threads=min(cores, num_envs),
        act=(explore, epsilon),
        recording=recording,
    )
    load_weights(player.network, checkpoint)
    with _compute_threads(cores if spec.is_image else 1), _denormals_flushed():
        played = player.play(
            config.episodes,
            seed=evaluation_seed(job.seed, config.seed),
            progress=progress,
            requested_stop=requested_stop,
        )
    return Evaluation(
        played=played,
        epsilon=epsilon,
        num_envs=num_envs,
        protocol=describe_protocol(job.env),
        frames_per_step=spec.frames_per_step,
        device=device,
        duration_s=time.monotonic() - begun_s,
    )


def choose_acting(algorithm: Algorithm, config: EvaluationConfig) -> tuple[Exploration, float]:
    """Return how actions are chosen, and ε: greedily, unless draws from a policy are asked for."""
    if config.sample:
        if not isinstance(algorithm.explore, Sampled):
            raise UserError("the run's algorithm learns values, which are no policy to draw from: leave --sample away")
        return Sampled(), 0.0
    return Greedy(), algorithm.explore.evaluation_epsilon() if config.epsilon is None else config.epsilon


def load_weights(network: Network, checkpoint: Checkpoint) -> None:
    """Give the network the weights of a checkpoint."""
    try:
        network.take_weights(load_tensors(checkpoint.files[WEIGHTS]))
    except (KeyError, OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the weights in {checkpoint.path} cannot be loaded: {reason}") from error


def describe_protocol(config: EnvConfig) -> str:
    """Say in one sentence by which rules was played."""
    rules = resolve(config.id).evaluation_rules
    return f"{rules}; whole episodes of at most {config.max_episode_frames:,} frames, unclipped rewards"
