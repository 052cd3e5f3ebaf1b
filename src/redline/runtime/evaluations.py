"""The evaluations of a run while it trains: when they fall due, how they are played, what is written down of them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import torch

from redline.exploration import Greedy, Sampled
from redline.runtime.actor import Episode
from redline.runtime.building import find_device
from redline.runtime.counters import Counters
from redline.runtime.job import Job
from redline.runtime.measuring import Measured
from redline.runtime.playing import (
    Player,
    RequestedStop,
    StoppedWhileEvaluatingError,
    greedy_seed,
    make_player,
)
from redline.runtime.recording import Recorder
from redline.runtime.solving import (
    CONFIRMING_EPISODES,
    CONFIRMING_SLACK,
    EPISODES,
    EXPECTED_S,
    acting,
    evaluation_is_due,
    is_confirmed,
)
from redline.runtime.watching import Watcher

ARGMAX_PATIENCE_S = 20.0  # for greedy play of a policy


def evaluation_due(counters: Counters, every_steps: int) -> bool:
    """Tell whether a multiple of `every_steps` was passed since the newest evaluation; 0 is never."""
    return every_steps > 0 and counters.steps // every_steps > counters.evaluated_steps // every_steps


def record_evaluation(
    episodes: Sequence[Episode],
    *,
    number: int,
    weights_steps: int,
    duration_s: float,
    recorder: Recorder,
    watcher: Watcher,
    how: str = "",
    is_confirmation: bool = False,
) -> float:
    """Write down an evaluation with the weights of step `weights_steps`, and return its mean return.

    `how` says how actions were chosen, where that is not as the algorithm's paper evaluates.
    """
    returns = [episode.total_reward for episode in episodes]
    mean, lowest, highest = fmean(returns), min(returns), max(returns)
    for episode in episodes:
        recorder.greedy_episode(episode, evaluation=number, weights_steps=weights_steps)
    recorder.event(
        "evaluation",
        number=number,
        weights_steps=weights_steps,
        episodes=len(returns),
        mean_return=mean,
        min_return=lowest,
        max_return=highest,
        duration_s=duration_s,
        how=how,
        is_confirmation=is_confirmation,
    )
    watcher.note(
        f"evaluation {number}{how and f' ({how})'} with the weights of step {weights_steps:,}: mean {mean:.2f}, "
        f"min {lowest:g}, max {highest:g} of {len(returns)} episodes, in {duration_s:.1f} s"
    )
    return mean


def describe_acting(job: Job) -> str:
    """Say how the evaluations of a run with a target choose their actions; nothing where there is no target."""
    if job.limits.target_eval_return is None:
        return ""
    return "sampled" if isinstance(acting(job.algorithm)[0], Sampled) else "greedy, ε = 0"


def describe_confirmation(mean: float, target: float) -> str:
    """Say what further games with the same weights make of an evaluation that reached the target."""
    needed = target - CONFIRMING_SLACK
    verdict = "solved" if is_confirmed(mean, target) else "not solved yet"
    return (
        f"{CONFIRMING_EPISODES} further episodes with the same weights: mean {mean:.2f}, {needed:g} needed: {verdict}"
    )


class InlineEvaluator:
    """Plays between two vector steps of a trainer, which goes on as if nothing had been."""

    def __init__(self, trainer: Measured, *, recorder: Recorder, watcher: Watcher) -> None:
        self._trainer = trainer
        self._recorder = recorder
        self._watcher = watcher
        self._player: Player | None = None
        self._duration_s = EXPECTED_S  # of the newest evaluation
        self.argmax_mean: float | None = None  # of greedy play, of a policy that solved its game by draws

    @property
    def is_due(self) -> bool:
        """Whether it is time for an evaluation."""
        job, counters = self._trainer.job, self._trainer.counters
        target = job.limits.target_eval_return
        if target is not None and evaluation_is_due(
            job.algorithm, counters, self._trainer.scores, target=target, expected_s=self._duration_s
        ):
            return True
        return evaluation_due(counters, job.evaluate_every_steps)

    def play(self, requested_stop: RequestedStop) -> None:
        """Play an evaluation with the newest weights; where a stop is requested, drop it: it stays due.

        Where it reaches the target of the run, further games with the same weights are to confirm it.
        """
        job, counters, scores = self._trainer.job, self._trainer.counters, self._trainer.scores
        target, evaluated_at_s, begun_s = job.limits.target_eval_return, counters.evaluated_at_s, time.monotonic()
        player = self._player = self._player or _player_of(job, self._trainer)
        player.network.load_state_dict(self._trainer.learner.online.state_dict())
        mean = self._evaluate(player, num_episodes(job), requested_stop)
        self._duration_s = time.monotonic() - begun_s
        if target is not None and mean is not None and mean >= target:
            confirmed = self._evaluate(player, CONFIRMING_EPISODES, requested_stop, is_confirmation=True)
            if confirmed is None:
                counters.evaluated_at_s = evaluated_at_s  # due again as soon as there is time for it
            else:
                scores.confirm(confirmed, target=target, is_enough=is_confirmed(confirmed, target))
                self._watcher.note(describe_confirmation(confirmed, target))
        # without the games that confirm: a run that failed to confirm would have to wait for minutes to try again
        counters.evaluation_s += self._duration_s

    def _evaluate(
        self, player: Player, episodes: int, requested_stop: RequestedStop, *, is_confirmation: bool = False
    ) -> float | None:
        """Play so many episodes and return their mean, None if they were dropped."""
        job, counters, begun_s = self._trainer.job, self._trainer.counters, time.monotonic()
        number = counters.evaluations + 1
        try:
            played = self._play(player, episodes, number, requested_stop)
        except StoppedWhileEvaluatingError as stopped:
            # those that ended are the shorter ones: their mean would be biased
            self._watcher.note(f"evaluation {number} dropped: {stopped}")
            return None
        mean = record_evaluation(
            played,
            number=number,
            weights_steps=counters.steps,
            duration_s=time.monotonic() - begun_s,
            recorder=self._recorder,
            watcher=self._watcher,
            how=describe_acting(job),
            is_confirmation=is_confirmation,
        )
        self._trainer.scores.greedy = mean
        counters.evaluations, counters.evaluated_steps = number, counters.steps
        counters.evaluated_at_s = counters.time_s
        return mean

    def _play(self, player: Player, episodes: int, number: int, requested_stop: RequestedStop) -> list[Episode]:
        job = self._trainer.job
        with _compute_threads(_num_threads(job)):
            played = player.play(
                episodes,
                seed=greedy_seed(job.seed, number),
                progress=lambda share: None,
                requested_stop=requested_stop,
            )
        return [one.episode for one in played]

    def compare_with_argmax(self, requested_stop: RequestedStop) -> None:
        """Tell how a policy that solved its game by draws plays greedily; it counts for nothing, and may never end."""
        player, counters = self._player, self._trainer.counters
        if player is None or not isinstance(self._trainer.job.algorithm.explore, Sampled):
            return
        end_s = time.monotonic() + ARGMAX_PATIENCE_S

        def requested_or_late() -> str | None:
            if time.monotonic() > end_s:
                return f"no end after {ARGMAX_PATIENCE_S:g} s, it may go round in circles,"
            return requested_stop()

        try:
            with player.acting_by(Greedy()):
                played = self._play(player, EPISODES, counters.evaluations + 1, requested_or_late)
        except StoppedWhileEvaluatingError as stopped:
            self._watcher.note(f"greedy play (always the likeliest action): {stopped}")
            return
        self.argmax_mean = fmean(episode.total_reward for episode in played)
        self._watcher.note(
            f"greedy play (always the likeliest action): mean {self.argmax_mean:.2f} of {EPISODES} episodes"
        )


def num_episodes(job: Job) -> int:
    """Return how many episodes an evaluation has; a target asks for enough of them."""
    episodes = job.evaluator.episodes
    return episodes if job.limits.target_eval_return is None else max(EPISODES, episodes)


def _num_threads(job: Job) -> int:
    """Return how many threads an evaluation has while training stands still; a target must not cost much time."""
    if job.limits.target_eval_return is None:
        return job.evaluator.threads
    return max(job.evaluator.threads, job.learner.threads)


def _player_of(job: Job, trainer: Measured) -> Player:
    evaluator, episodes = job.evaluator, num_episodes(job)
    has_target = job.limits.target_eval_return is not None
    return make_player(
        job,
        trainer.spec,
        device=find_device(evaluator.device or job.device),
        num_envs=min(max(EPISODES, evaluator.envs) if has_target else evaluator.envs, episodes),
        threads=min(_num_threads(job), episodes),
        recording=job.recording,
    )


@contextmanager
def _compute_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
