"""The training that a plan is about: the flags of `redline train`, and its speed, measured here."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from redline.cli.flags import TrainFlags, as_typed, is_several, refuse_auto, refuse_replay_flags, train_defaults
from redline.cli.plan.speed import environ_of
from redline.cli.process import ended_by_signals
from redline.errors import UserError
from redline.plan.pinned import Pinned, measure_pinned


def training_defaults(args: Sequence[str]) -> TrainFlags:
    """Return the defaults of the flags of one training; refuse several."""
    if is_several(args):
        raise UserError("one training is planned at a time: use --model with one name (see redline algos) and --seed")
    refuse_auto(args, "a plan trains nothing, so leave it out")
    return train_defaults(args)


def asked_training(flags: TrainFlags, args: Sequence[str]) -> TrainFlags:
    """Return parsed flags as they were typed; refuse those that would do nothing."""
    if flags.print_config:
        raise UserError("--print-config prints settings and plans nothing: use redline train --print-config")
    refuse_replay_flags(args, flags.job, flags.algo)
    return as_typed(flags, args)


def measure_training(
    asked: TrainFlags,
    *,
    counts: Sequence[int],
    rounds: int,
    window_s: float,
    progress: Callable[[str], None],
    on_cpu: bool = False,
) -> Pinned:
    """Measure the training with each count of cores; its processes end with this one."""
    job = replace(asked.job, device="cpu") if on_cpu else asked.job
    with ended_by_signals():
        return measure_pinned(
            job, asked.algo, counts=counts, rounds=rounds, window_s=window_s, environ=environ_of, progress=progress
        )
