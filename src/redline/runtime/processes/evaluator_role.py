"""The evaluator, or greedy actor: whole episodes with the newest weights, without exploration, beside training."""

import time
from dataclasses import dataclass
from statistics import fmean

import torch

from redline.envs.suites import allow_module
from redline.runtime.evaluations import num_episodes
from redline.runtime.job import Job
from redline.runtime.playing import StoppedWhileEvaluatingError, greedy_seed, make_player
from redline.runtime.processes.board import EVALUATOR, STARTING_S, Board, Place
from redline.runtime.processes.messages import Outbox, row_of
from redline.runtime.processes.shared_weights import SharedWeights
from redline.runtime.solving import CONFIRMING_EPISODES, TIME_SHARE
from redline.types import EnvSpec


@dataclass(frozen=True)
class EvaluatorKit:
    """What the evaluator is given when it starts."""

    job: Job
    spec: EnvSpec
    evaluations: int  # that the run has had
    wait_s: float  # before the first one now
    board: Board
    weights: SharedWeights


def run_evaluator(kit: EvaluatorKit, outbox: Outbox) -> None:
    """Evaluate again and again until the run ends."""
    config, place = kit.job.evaluator, Place(kit.board, EVALUATOR)
    place.beat(STARTING_S)
    allow_module(kit.job.env.id)  # the supervisor was allowed to
    torch.set_flush_denormal(True)
    torch.set_num_threads(config.threads)
    evaluator, wait_s = _Evaluator(kit, place, outbox), kit.wait_s
    while not kit.board.is_stopped:
        place.wait_until(lambda: False, on="rest", timeout_s=wait_s)
        try:
            spent_s = evaluator.evaluate()
        except StoppedWhileEvaluatingError:
            return
        wait_s = (config.every_minutes or 0.0) * 60
        if kit.job.limits.target_eval_return is not None:
            wait_s = max(wait_s, spent_s * (1.0 / TIME_SHARE - 1.0))


class _Evaluator:
    """A player with the newest weights, and a number for each of its evaluations."""

    def __init__(self, kit: EvaluatorKit, place: Place, outbox: Outbox) -> None:
        self._job = kit.job
        self._weights = kit.weights
        self._place = place
        self._outbox = outbox
        self._number = kit.evaluations
        config = kit.job.evaluator
        self._num_envs = min(config.envs, num_episodes(kit.job))
        self._player = make_player(
            kit.job,
            kit.spec,
            device=torch.device(config.device or "cpu"),
            num_envs=self._num_envs,
            threads=config.threads,
            recording=kit.job.recording,
        )

    def evaluate(self) -> float:
        """Play an evaluation and, if it reaches the target, games to confirm it; return the seconds of the first."""
        weights_steps, begun_s = self._read_weights(), time.monotonic()
        target = self._job.limits.target_eval_return
        mean = self._play(num_episodes(self._job), weights_steps)
        spent_s = time.monotonic() - begun_s
        if target is not None and mean >= target:
            self._play(CONFIRMING_EPISODES, weights_steps, is_confirmation=True)
        return spent_s

    def _read_weights(self) -> int:
        """Take over the newest weights, and return the steps at which they were taken."""
        before = self._weights.number
        self._weights.ask(EVALUATOR)
        # a learner that has learnt nothing since has nothing newer to give
        self._place.wait_until(lambda: self._weights.number > before, on="learner", timeout_s=5.0)
        return self._weights.read(self._player.network.state_dict()).steps

    def _play(self, num_episodes: int, weights_steps: int, *, is_confirmation: bool = False) -> float:
        """Play so many episodes, tell of them, and return their mean."""
        self._number += 1
        begun_s = time.monotonic()
        self._place.beat(STARTING_S)  # its envs are made anew
        played = self._player.play(
            num_episodes,
            seed=greedy_seed(self._job.seed, self._number),
            progress=lambda _: None,
            requested_stop=self._requested_stop,
        )
        self._outbox.send(
            "evaluation",
            number=self._number,
            steps=weights_steps,
            duration_s=time.monotonic() - begun_s,
            rows=[row_of(item.episode) for item in played],
            is_confirmation=is_confirmation,
        )
        return fmean(item.episode.total_reward for item in played)

    def _requested_stop(self) -> str | None:
        self._place.beat()
        self._place.played(self._num_envs)
        return "the run ended" if self._place.board.is_stopped else None
