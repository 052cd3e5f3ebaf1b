"""The evaluator as a process beside training: it waits, reads the newest weights, plays, and sends what it played."""

from dataclasses import dataclass

import torch

from redline.envs.catalog import allow_module
from redline.networks import Network
from redline.runtime.evaluation import Evaluator, NumberedEvaluation, StoppedWhileEvaluatingError
from redline.runtime.job import Job
from redline.runtime.processes.board import EVALUATOR, STARTING_S, Board, Place
from redline.runtime.processes.messages import Outbox, row_of
from redline.runtime.processes.shared_weights import SharedWeights
from redline.runtime.solving import TIME_SHARE
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

    def send(evaluation: NumberedEvaluation) -> None:
        outbox.send(
            "evaluation",
            number=evaluation.number,
            steps=evaluation.weights_steps,
            duration_s=evaluation.duration_s,
            rows=[row_of(episode) for episode in evaluation.episodes],
            is_confirmation=evaluation.is_confirmation,
        )
        place.beat(STARTING_S)  # games that confirm it have envs made anew

    def requested_stop() -> str | None:  # asked before every vector step
        place.beat()
        place.played(evaluator.num_envs)
        return "the run ended" if kit.board.is_stopped else None

    evaluator = Evaluator(kit.job, kit.spec, evaluations=kit.evaluations, finished=send)
    wait_s = kit.wait_s
    while not kit.board.is_stopped:
        place.wait_until(lambda: False, on="rest", timeout_s=wait_s)
        weights_steps = _read_weights(kit.weights, evaluator.network, place)
        place.beat(STARTING_S)  # its envs are made anew
        try:
            evaluator.evaluate(weights_steps, requested_stop)
        except StoppedWhileEvaluatingError:
            return
        place.beat()
        wait_s = (config.every_minutes or 0.0) * 60
        if kit.job.limits.target_eval_return is not None:
            wait_s = max(wait_s, evaluator.spent_s * (1.0 / TIME_SHARE - 1.0))


def _read_weights(weights: SharedWeights, network: Network, place: Place) -> int:
    """Give the network the newest weights, and return the steps at which they were taken."""
    before = weights.number
    weights.ask(EVALUATOR)
    # a learner that has learnt nothing since has nothing newer to give
    place.wait_until(lambda: weights.number > before, on="learner", timeout_s=5.0)
    return weights.read(network.state_dict()).steps
