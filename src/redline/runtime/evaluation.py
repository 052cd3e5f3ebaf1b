"""Evaluation: whole episodes without exploration, unclipped, noise off, in games that training never saw.

A game is solved when an evaluation reaches the target and further games with the same weights confirm it. A stop at the
first good evaluation would select lucky ones. So EPISODES games must reach the target, and CONFIRMING_EPISODES further
ones must nearly reach it again. An `Evaluator` plays by these rules, inline or in a process of its own.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from redline.envs.catalog import make_vector_env
from redline.episodes.tracing import RecordingConfig
from redline.exploration import Exploration, Greedy, Sampled
from redline.learner import compute_threads
from redline.networks import Network
from redline.runtime.actor import Episode, Player, RequestedStop
from redline.runtime.config import Job
from redline.runtime.counters import Counters, Scores
from redline.runtime.resolve import find_device
from redline.runtime.run_log import RunLog
from redline.types import EnvSpec

EPISODES = 10  # of an evaluation
CONFIRMING_EPISODES = 30  # with the same weights, in other games
CONFIRMING_SLACK = 1.0  # by which their mean may fall short of the target
TIME_SHARE = 0.10  # of a run that evaluations may take
# share of the way from the first returns to the target from which evaluations may follow closely
PROMISING = 0.85  # where training explores, and so plays worse than its evaluations
PROMISING_SAMPLED = 0.95  # where both draw from the policy
UNPROMISING_INTERVAL_S = 300.0  # between two evaluations before that
PROMISING_SHARE = 0.25  # of the time that evaluations may take from there on, as far as TIME_SHARE of the run allows
EXPECTED_S = 1.0  # of an evaluation, before the first

CURVE_BEGINS = 0.15  # share of the way from which the curve is extrapolated
CURVE_SHARE = 1 / 3  # of the time: the newest part, which is extrapolated
LEAST_EPISODES = 10  # in it
MOST_TIMES = 20.0  # the time so far: a slower rise is none
ARGMAX_PATIENCE_S = 20.0  # for greedy play of a policy

# They keep the seeds of training, of `redline eval` and of evaluations while a run trains apart. They are part of the
# seeds: never change them.
EVALUATION = 0x6576616C
GREEDY = 0x67726565


def evaluation_seed(run_seed: int, seed: int, *, kind: int = EVALUATION) -> int:
    """Return the seed of an evaluation: the same for the same numbers, and never one of training."""
    return int(np.random.SeedSequence([run_seed, kind, seed]).generate_state(1)[0] >> 1)


def greedy_seed(run_seed: int, number: int) -> int:
    """Return the seed of a run's evaluation with that number, counted from 1: each plays games of its own."""
    return evaluation_seed(run_seed, number, kind=GREEDY)


# Rules


def acting(job: Job) -> tuple[Exploration, float]:
    """Return how a run's evaluations choose actions, and ε.

    Without a target they are greedy, with the paper's ε. With a target a policy draws: its likeliest actions may loop.
    """
    explore = job.algorithm.explore
    if job.limits.target_eval_return is None:
        return Greedy(), explore.evaluation_epsilon()
    return (Sampled() if isinstance(explore, Sampled) else Greedy()), 0.0


def describe_acting(job: Job) -> str:
    """Say how a run's evaluations choose actions, if not as the algorithm's paper does."""
    if job.limits.target_eval_return is None:
        return ""
    return "sampled" if isinstance(acting(job)[0], Sampled) else "greedy, ε = 0"


def num_episodes(job: Job) -> int:
    """Return how many episodes an evaluation has; a target asks for enough of them."""
    episodes = job.evaluator.episodes
    return episodes if job.limits.target_eval_return is None else max(EPISODES, episodes)


def evaluation_is_due(job: Job, counters: Counters, scores: Scores, *, expected_s: float) -> bool:
    """Tell whether it is time for an inline evaluation, which will take about `expected_s`."""
    every_steps, target = job.evaluate_every_steps, job.limits.target_eval_return
    if every_steps > 0 and counters.steps // every_steps > counters.evaluated_steps // every_steps:
        return True
    return target is not None and _is_due_by_target(job, counters, scores, target=target, expected_s=expected_s)


def _is_due_by_target(job: Job, counters: Counters, scores: Scores, *, target: float, expected_s: float) -> bool:
    """Tell whether an evaluation fits into its share of the time, and the weights have changed enough."""
    total_s = counters.time_s + counters.evaluation_s
    if counters.evaluation_s + expected_s > TIME_SHARE * (total_s + expected_s):
        return False
    since_s = counters.time_s - counters.evaluated_at_s
    way = way_done(scores, target)
    promising = PROMISING_SAMPLED if isinstance(job.algorithm.explore, Sampled) else PROMISING
    if way is not None and way >= promising:
        # nearly the same weights would only be another draw of luck
        return since_s >= min(expected_s * (1.0 / PROMISING_SHARE - 1.0), UNPROMISING_INTERVAL_S)
    return since_s >= UNPROMISING_INTERVAL_S


def way_done(scores: Scores, target: float) -> float | None:
    """Return how much of the way from the first episodes to the target the newest ones have gone; None at the start."""
    first, newest = scores.first_mean, scores.newest_mean
    if first is None or newest is None:
        return None
    return 1.0 if target <= first else (newest - first) / (target - first)


def projected_s(scores: Scores, *, target: float | None, now_s: float) -> float | None:
    """Return the seconds until the returns reach the target if they go on rising as they did lately.

    None without a target, while they do not rise, or if too little is known.
    """
    if target is None or (way := way_done(scores, target)) is None or way < CURVE_BEGINS:
        return None
    newest = [point for point in scores.curve if point[0] >= now_s * (1.0 - CURVE_SHARE)]
    if len(newest) < LEAST_EPISODES:
        return None
    times, returns = np.array(newest).T
    if np.ptp(times) <= 0.0:
        return None
    slope, start = np.polyfit(times - now_s, returns, 1)  # start: the line's height now
    missing = max(0.0, float(target - start))
    if slope <= 0.0 or missing > MOST_TIMES * now_s * slope:
        return None
    return missing / float(slope)


# Playing by them


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
        return fmean(episode.total_reward for episode in self.episodes)


class Evaluator:
    """Plays the evaluations of a run while it trains, with the weights of its `network`."""

    def __init__(
        self, job: Job, spec: EnvSpec, evaluations: int, finished: Callable[[NumberedEvaluation], None]
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
                return f"given up at {ARGMAX_PATIENCE_S:g} s (it may loop)"
            return requested_stop()

        return fmean(episode.total_reward for episode in self._play(EPISODES, requested_or_late, explore=Greedy()))

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

    def _play(self, episodes: int, requested_stop: RequestedStop, explore: Exploration | None = None) -> list[Episode]:
        """Play the games of the next number."""
        seed = greedy_seed(self._job.seed, self._number + 1)
        with compute_threads(self._threads):
            return self._player.play(episodes, seed=seed, requested_stop=requested_stop, explore=explore)


def record_evaluation(
    evaluation: NumberedEvaluation, *, job: Job, counters: Counters, scores: Scores, log: RunLog
) -> None:
    """Log, show and count an evaluation; `scores` take in what it confirms."""
    number, weights_steps, how = evaluation.number, evaluation.weights_steps, describe_acting(job)
    returns = [episode.total_reward for episode in evaluation.episodes]
    mean, lowest, highest = evaluation.mean_return, min(returns), max(returns)
    for episode in evaluation.episodes:
        log.episode(episode, "greedy", evaluation=number, weights_steps=weights_steps)
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
    log.display.note(
        f"evaluation {number}{how and f' ({how})'} with the weights of step {weights_steps:,}: mean {mean:.2f}, "
        f"min {lowest:g}, max {highest:g} of {len(returns)} episodes, in {evaluation.duration_s:.1f} s"
    )
    scores.greedy_return, target = mean, job.limits.target_eval_return
    counters.evaluations, counters.evaluated_steps, counters.evaluated_at_s = number, weights_steps, counters.time_s
    if evaluation.is_confirmation and target is not None:
        needed = target - CONFIRMING_SLACK
        scores.confirmed_return = mean
        if mean >= needed:
            scores.solved_target = target
        log.display.note(
            f"{CONFIRMING_EPISODES} further episodes with the same weights: mean {mean:.2f}, {needed:g} needed: "
            f"{'solved' if mean >= needed else 'not solved yet'}"
        )
