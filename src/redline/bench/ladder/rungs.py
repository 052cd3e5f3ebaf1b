"""The rungs, as data: what each switches on, and which rung it builds on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from redline.bench.ladder.devices import OnGpu, OnGpuUnawaited
from redline.bench.ladder.env_parts import CLIPPING, Native, Wrapped
from redline.bench.ladder.plain_loop import LoopParts, Stepping, fused_adam
from redline.bench.ladder.replay_parts import FramesOnce
from redline.bench.ladder.runners import InEngine, InPlainLoop, InProcesses, Runner
from redline.errors import UserError, unknown_name

BASE = "textbook"
NUM_ENVS = 8


@dataclass(frozen=True)
class Rung:
    """One thing that is switched on, beside all that the rung below it has."""

    name: str
    switches_on: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of LoopParts
    runner: Runner | None = None  # None: that of the rung it builds on
    over: str | None = None  # the rung it builds on; None: the one before
    needs_gpu: bool = False


RUNGS = (
    Rung(BASE, "one env behind Gymnasium's wrappers, NCHW, default Adam, whole stacks copied", runner=InPlainLoop()),
    Rung("native-env", "the native env, still one", {"env": Native(1)}),
    Rung("envs-8", "8 envs, acting in one batch", {"env": Native(NUM_ENVS)}),
    Rung("overlapped", "learning while the envs step", {"stepping": Stepping.OVERLAPPED}),
    Rung("channels-last", "channels_last instead of NCHW", {"memory_format": torch.channels_last}),
    Rung("fused-adam", "Adam in one pass", {"optimizer": fused_adam}),
    Rung("frames-once", "a replay that keeps each frame once", {"replay": FramesOnce()}),
    Rung("zstd", "frames compressed", {"replay": FramesOnce("zstd")}),
    Rung("prefetch", "the next batch gathered by a thread", {"replay": FramesOnce("zstd", prefetch=1)}),
    Rung(
        "engine",
        "Redline's own trainer, several things in one: its loop, He initialisation, 1/255 folded into the first layer, "
        "activations in place, targets of coming updates computed together",
        runner=InEngine(),
    ),
    # the same samples per step in fewer, larger updates is another way to learn: nothing else builds on it
    Rung("batch-64", "one update of 64 per 8 steps", {"joined_updates": 2}),
    Rung("batch-128", "one update of 128 per 16 steps", {"joined_updates": 4}),
    Rung("batch-256", "one update of 256 per 32 steps", {"joined_updates": 8}),
    Rung("batch-512", "one update of 512 per 64 steps", {"joined_updates": 16}),
    Rung(
        "processes",
        "actor and learner in processes, weights after every vector step (--actor.sync-steps 8); "
        "and what a run keeps: records, curves, a checkpoint",
        runner=InProcesses(sync_steps=NUM_ENVS),
        over="engine",
    ),
    Rung("sync-4", "weights every 4 vector steps (--actor.sync-steps 32)", runner=InProcesses(4 * NUM_ENVS)),
    Rung("sync-10", "weights every 10 vector steps (--actor.sync-steps 80)", runner=InProcesses(10 * NUM_ENVS)),
    Rung("gpu", "network and learning on a GPU", {"device": OnGpu()}, over="prefetch", needs_gpu=True),
    Rung("gpu-copies", "batches copied while the host goes on", {"device": OnGpuUnawaited()}, needs_gpu=True),
    Rung(
        "gpu-play",
        "learning on the GPU, playing on the CPU, in processes",
        runner=InProcesses(NUM_ENVS, {"learner.device": "cuda", "actor.device": "cpu"}),
        over="processes",
        needs_gpu=True,
    ),
    # only their speed can show: neither game has lives, and both have rewards of ±1
    Rung(
        "no-life-loss",
        "a life lost ends nothing: that wrapper off; speed only, neither Pong nor Catch has lives",
        {"env": Wrapped((CLIPPING,))},
        over=BASE,
    ),
    Rung(
        "no-clipping",
        "rewards as they are: that wrapper off too; speed only, both games' rewards are ±1",
        {"env": Wrapped(())},
    ),
)


@dataclass(frozen=True)
class PlacedRung:
    """A rung with all that it has, and the nearest one below it that is measured too."""

    rung: Rung
    parts: LoopParts
    runner: Runner
    below: str | None  # None for the base

    @property
    def name(self) -> str:
        """Its name."""
        return self.rung.name

    @property
    def missing(self) -> str | None:
        """Why it can't be measured here, or None if it can."""
        return "needs a GPU" if self.rung.needs_gpu and not torch.cuda.is_available() else None


def place_rungs(names: Sequence[str] = (), rungs: Sequence[Rung] = RUNGS) -> list[PlacedRung]:
    """Return the rungs that are named, all if none is, and the base; in the order of the ladder."""
    known = [rung.name for rung in rungs]
    for name in names:
        if name not in known:
            raise unknown_name("rung", name, known)
    wanted = {known[0], *(names or known)}
    placed: dict[str, PlacedRung] = {}
    for place, rung in enumerate(rungs):
        over = None if place == 0 else placed[rung.over or known[place - 1]]
        runner = rung.runner or (over.runner if over else None)
        if runner is None:
            raise UserError(f"rung {rung.name} has no runner: the first one names it")
        parts = replace(over.parts if over else LoopParts(), **rung.changes)
        below = None if over is None else over.name if over.name in wanted else over.below
        placed[rung.name] = PlacedRung(rung, parts, runner, below)
    return [item for item in placed.values() if item.name in wanted]
