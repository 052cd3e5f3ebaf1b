"""The evaluator, or greedy actor: whole episodes with the newest weights, without exploration, beside training."""

import time
from dataclasses import dataclass

import torch

from redline.runtime.job import Job
from redline.runtime.playing import StoppedWhileEvaluatingError, greedy_seed, make_player
from redline.runtime.processes.board import EVALUATOR, STARTING_S, Board, Place
from redline.runtime.processes.messages import Outbox, row_of
from redline.runtime.processes.shared_weights import SharedWeights
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
    num_envs = min(config.envs, config.episodes)
    player = make_player(
        job,
        kit.spec,
        device=torch.device(config.device or "cpu"),
        num_envs=num_envs,
        threads=config.threads,
        recording=job.recording,
    )

    def requested_stop() -> str | None:
        place.beat()
        place.played(num_envs)
        return "the run ended" if kit.board.is_stopped else None

    number, wait_s = kit.evaluations, kit.wait_s
    while not kit.board.is_stopped:
        place.wait_until(lambda: False, on="rest", timeout_s=wait_s)
        wait_s = (config.every_minutes or 0.0) * 60
        before = kit.weights.number
        kit.weights.ask(EVALUATOR)
        # a learner that has learnt nothing since has nothing newer to give
        place.wait_until(lambda before=before: kit.weights.number > before, on="learner", timeout_s=5.0)  # type: ignore[misc]
        version = kit.weights.read(player.network.state_dict())
        number, begun_s = number + 1, time.monotonic()
        place.beat(STARTING_S)  # its envs are made anew
        try:
            played = player.play(
                config.episodes,
                seed=greedy_seed(job.seed, number),
                progress=lambda _: None,
                requested_stop=requested_stop,
            )
        except StoppedWhileEvaluatingError:
            return
        outbox.send(
            "evaluation",
            number=number,
            steps=version.steps,
            duration_s=time.monotonic() - begun_s,
            rows=[row_of(item.episode) for item in played],
        )
