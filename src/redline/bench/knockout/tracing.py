"""A timeline of a few vector steps for trace viewers, with the phases of training marked in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from redline.bench.knockout.replacing import replaced
from redline.bench.knockout.subject import Subject
from redline.types import AnyBatch

SUFFIXES = (".json", ".json.gz")
FEW_STEPS = 8  # a full rollout is learnt from after the last of them
VIEWER = "https://ui.perfetto.dev"


def write_trace(subject: Subject, path: Path) -> int:
    """Write the Chrome trace of a few vector steps in which something is learnt; return how many."""
    trainer, period = subject.trainer, subject.period_steps
    steps = FEW_STEPS if trainer.source.memory is None else max(FEW_STEPS, period)
    if trainer.source.memory is None and period > FEW_STEPS:
        subject.play(period - FEW_STEPS)
    marks: list[tuple[object, str, Callable[..., Any]]] = [
        (trainer.world, "start_step", _marked("act", trainer.world.start_step)),
        (trainer.source, "batches_due", _marked_batches(trainer.source.batches_due)),
        (trainer.learner, "precompute_targets", _marked("learn", trainer.learner.precompute_targets)),
        (trainer.learner, "update", _marked("learn", trainer.learner.update)),
        (trainer.world, "finish_step", _marked("keep", trainer.world.finish_step)),
    ]
    activities = [ProfilerActivity.CPU]
    if trainer.learner.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # about what the profiler could not do on this machine
        for owner, name, marked in marks:
            stack.enter_context(replaced(owner, name, marked))
        with torch.profiler.profile(activities=activities) as profiler:
            subject.play(steps)
    profiler.export_chrome_trace(str(path))
    return steps


def _marked(phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(phase):
            return method(*args, **kwargs)

    return call


def _marked_batches(method: Callable[..., Iterator[Sequence[AnyBatch]]]) -> Callable[..., Iterator[Sequence[AnyBatch]]]:
    def batches(*args: Any) -> Iterator[Sequence[AnyBatch]]:
        iterator = method(*args)
        while True:
            with record_function("draw"):
                group = next(iterator, None)
            if group is None:
                return
            yield group

    return batches
