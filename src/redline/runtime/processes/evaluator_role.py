"""The evaluator as a process: it waits, reads the newest weights, plays, and sends the episodes."""

from dataclasses import dataclass

import torch

from redline.envs.catalog import allow_module
from redline.networks import Network
from redline.runtime.config import Job
from redline.runtime.evaluation import Evaluator, NumberedEvaluation, StoppedWhileEvaluatingError
from redline.runtime.processes.messages import Outbox, row_of
from redline.runtime.processes.shared_parts import SharedParts, SharedWeights
from redline.runtime.processes.shared_status import EVALUATOR, STARTING_S, Slot
from redline.runtime.solving import TIME_SHARE
from redline.types import EnvSpec


@dataclass(frozen=True)
class EvaluatorKit:
    """What the evaluator is given when it starts."""

    job: Job
    spec: EnvSpec
    evaluations: int  # of the run so far
    wait_s: float  # before the next one
    parts: SharedParts


def run_evaluator(kit: EvaluatorKit, outbox: Outbox) -> None:
    """Evaluate again and again until the run ends."""
    config, slot = kit.job.evaluator, Slot(kit.parts.status, EVALUATOR)
    slot.beat(STARTING_S)
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
        slot.beat(STARTING_S)  # confirming games make new envs

    def requested_stop() -> str | None:  # called before every vector step
        slot.beat()
        slot.played(evaluator.num_envs)
        return "the run ended" if kit.parts.status.is_stopped else None

    evaluator = Evaluator(kit.job, kit.spec, evaluations=kit.evaluations, finished=send)
    wait_s = kit.wait_s
    while not kit.parts.status.is_stopped:
        slot.wait_until(lambda: False, on="rest", timeout_s=wait_s)
        weights_steps = _read_weights(kit.parts.weights, evaluator.network, slot)
        slot.beat(STARTING_S)  # an evaluation makes new envs
        try:
            evaluator.evaluate(weights_steps, requested_stop)
        except StoppedWhileEvaluatingError:
            return
        slot.beat()
        wait_s = (config.every_minutes or 0.0) * 60
        if kit.job.limits.target_eval_return is not None:
            wait_s = max(wait_s, evaluator.spent_s * (1.0 / TIME_SHARE - 1.0))


def _read_weights(weights: SharedWeights, network: Network, slot: Slot) -> int:
    """Give the network the newest weights, and return the steps at which they were taken."""
    before = weights.number
    weights.ask(EVALUATOR)
    # there is none if the learner has done no update since
    slot.wait_until(lambda: weights.number > before, on="learner", timeout_s=5.0)
    return weights.read(network.state_dict()).steps
