"""The evaluator, or greedy actor: whole episodes with the newest weights, without exploration, beside training."""

import time
from dataclasses import dataclass
from statistics import fmean

import torch

from redline.runtime.evaluations import num_episodes
from redline.runtime.job import Job
from redline.runtime.playing import StoppedWhileEvaluatingError, greedy_seed, make_player
from redline.runtime.processes.board import EVALUATOR, STARTING_S, Board, Place
from redline.runtime.processes.messages import Outbox, row_of
from redline.runtime.processes.shared_weights import SharedWeights, Version
from redline.runtime.solving import CONFIRMING_EPISODES, TIME_SHARE, acting
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
    job, config, place = kit.job, kit.job.evaluator, Place(kit.board, EVALUATOR)
    place.beat(STARTING_S)
    torch.set_flush_denormal(True)
    torch.set_num_threads(config.threads)
    target = job.limits.target_eval_return
    explore, epsilon = (None, None) if target is None else acting(job.algorithm)
    episodes = num_episodes(job)
    num_envs = min(config.envs, episodes)
    player = make_player(
        job,
        kit.spec,
        device=torch.device(config.device or "cpu"),
        num_envs=num_envs,
        threads=config.threads,
        explore=explore,
        epsilon=epsilon,
        recording=job.recording,
    )

    def requested_stop() -> str | None:
        place.beat()
        place.played(num_envs)
        return "the run ended" if kit.board.is_stopped else None

    number, wait_s = kit.evaluations, kit.wait_s

    def evaluate(count: int, version: Version, *, is_confirmation: bool = False) -> float:
        """Play so many episodes, tell of them, and return their mean."""
        nonlocal number
        number, begun_s = number + 1, time.monotonic()
        place.beat(STARTING_S)  # its envs are made anew
        played = player.play(
            count, seed=greedy_seed(job.seed, number), progress=lambda _: None, requested_stop=requested_stop
        )
        outbox.send(
            "evaluation",
            number=number,
            steps=version.steps,
            duration_s=time.monotonic() - begun_s,
            rows=[row_of(item.episode) for item in played],
            is_confirmation=is_confirmation,
        )
        return fmean(item.episode.total_reward for item in played)

    while not kit.board.is_stopped:
        place.wait_until(lambda: False, on="rest", timeout_s=wait_s)
        before = kit.weights.number
        kit.weights.ask(EVALUATOR)
        # a learner that has learnt nothing since has nothing newer to give
        place.wait_until(lambda before=before: kit.weights.number > before, on="learner", timeout_s=5.0)  # type: ignore[misc]
        version, begun_s = kit.weights.read(player.network.state_dict()), time.monotonic()
        try:
            mean = evaluate(episodes, version)
            if target is not None and mean >= target:
                evaluate(CONFIRMING_EPISODES, version, is_confirmation=True)
        except StoppedWhileEvaluatingError:
            return
        spent_s = time.monotonic() - begun_s
        wait_s = (config.every_minutes or 0.0) * 60
        if target is not None:
            wait_s = max(wait_s, spent_s * (1.0 / TIME_SHARE - 1.0))
