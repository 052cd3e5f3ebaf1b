"""The evaluations of a run while it trains: when they fall due, how they are played, what is written down of them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import torch

from redline.runtime.actor import Episode
from redline.runtime.building import find_device
from redline.runtime.counters import Counters
from redline.runtime.curves import Curves
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
from redline.runtime.watching import Watcher


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
    curves: Curves,
    watcher: Watcher,
) -> float:
    """Write down an evaluation with the weights of step `weights_steps`, and return its mean return."""
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
    )
    curves.add_evaluation(mean, steps=weights_steps)
    watcher.note(
        f"evaluation {number} with the weights of step {weights_steps:,}: mean {mean:.2f}, min {lowest:g}, "
        f"max {highest:g} of {len(returns)} episodes, in {duration_s:.1f} s"
    )
    return mean


class InlineEvaluator:
    """Plays between two vector steps of a trainer, which goes on as if nothing had been."""

    def __init__(self, trainer: Measured, *, recorder: Recorder, curves: Curves, watcher: Watcher) -> None:
        self._trainer = trainer
        self._recorder = recorder
        self._curves = curves
        self._watcher = watcher
        self._player: Player | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time for an evaluation."""
        return evaluation_due(self._trainer.counters, self._trainer.job.evaluate_every_steps)

    def play(self, requested_stop: RequestedStop) -> None:
        """Play an evaluation with the newest weights; where a stop is requested, drop it: it stays due."""
        job, counters, begun_s = self._trainer.job, self._trainer.counters, time.monotonic()
        player = self._player = self._player or _player_of(job, self._trainer)
        player.network.load_state_dict(self._trainer.learner.online.state_dict())
        number = counters.evaluations + 1
        try:
            with _compute_threads(job.evaluator.threads):
                played = player.play(
                    job.evaluator.episodes,
                    seed=greedy_seed(job.seed, number),
                    progress=lambda share: None,
                    requested_stop=requested_stop,
                )
        except StoppedWhileEvaluatingError as stopped:
            # those that ended are the shorter ones: their mean would be biased
            self._watcher.note(f"evaluation {number} dropped: {stopped}")
            return
        self._trainer.scores.greedy = record_evaluation(
            [one.episode for one in played],
            number=number,
            weights_steps=counters.steps,
            duration_s=time.monotonic() - begun_s,
            recorder=self._recorder,
            curves=self._curves,
            watcher=self._watcher,
        )
        counters.evaluations, counters.evaluated_steps = number, counters.steps


def _player_of(job: Job, trainer: Measured) -> Player:
    evaluator = job.evaluator
    return make_player(
        job,
        trainer.spec,
        device=find_device(evaluator.device or job.device),
        num_envs=min(evaluator.envs, evaluator.episodes),
        threads=evaluator.threads,
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
