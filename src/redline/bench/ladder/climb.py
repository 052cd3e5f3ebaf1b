"""`redline bench ladder`: all rungs by turns, what each gains and does to learning, and whether the base holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from redline.bench.host_result import result_head
from redline.bench.ladder import peer
from redline.bench.ladder.contenders import FAILURES, Contender, in_one_line
from redline.bench.ladder.engine import settled_job
from redline.bench.ladder.progress import LEARNING, TURN, WARM_UP, Kind, TimeLeft
from redline.bench.ladder.readings import Learnt, judge_base, rung_readings
from redline.bench.ladder.rounds import Measured, take_turns
from redline.bench.ladder.rungs import RUNGS, PlacedRung, Rung, place_rungs
from redline.bench.ladder.task import BATCH_SIZE, CATCH, GAMMA, PONG, STACK, STEPS_PER_UPDATE, Task
from redline.bench.measuring import Told
from redline.bench.other_work import busy_facts
from redline.errors import UserError
from redline.experience import available_bytes
from redline.runtime.building import prepare_process

OBS_BYTES = STACK * 84 * 84
KEPT_FREE_BYTES = 1024**3  # for networks, processes and everybody else


@dataclass(frozen=True)
class Ladder:
    """What is measured, and for how long."""

    names: Sequence[str] = ()  # of the rungs beside the base; all if none is named
    rounds: int = 5
    turn_s: float = 2.5  # that each rung works in each round
    learning_seeds: int = 1  # 0: what is learnt is not measured
    learning_steps: int = 6_000
    seed: int = 1
    rungs: Sequence[Rung] = RUNGS

    def __post_init__(self) -> None:
        for name, value, least in (
            ("rounds", self.rounds, 1),
            ("learning-seeds", self.learning_seeds, 0),
            ("learning-steps", self.learning_steps, CATCH.warmup_steps + 1),
        ):
            if value < least:
                raise UserError(f"{name} is {value}: use {least:_} or more")

    def run(self, told: Told = lambda _: None) -> dict[str, Any]:
        """Measure everything and return it as one plain object."""
        begin_s = time.perf_counter()
        placed = place_rungs(self.names, self.rungs)
        tried = [item for item in placed if item.missing is None]
        _refuse_too_much(tried, PONG)
        missing = peer.missing()
        contenders = len(tried) + (len(peer.ENVIRONS) if missing is None else 0)
        left = TimeLeft(
            told,
            {
                WARM_UP: Kind(contenders, guess_s=5.0),
                TURN: Kind(contenders * self.rounds, guess_s=self.turn_s),
                LEARNING: Kind(len(tried) * self.learning_seeds, guess_s=self.learning_steps / 250),
            },
        )
        prepare_process(settled_job(placed[0].parts, PONG, seed=self.seed))  # once, and so for all rungs alike
        measured = self._take_turns(tried, left, with_peer=missing is None)
        pupils = [item for item in tried if item.name in measured.turns]
        left.skip(LEARNING, (len(tried) - len(pupils)) * self.learning_seeds)
        learnt = self._learn(pupils, left)
        base = placed[0].name
        return {
            **result_head([peer.NAME]),
            "config": self._config(),
            "base": judge_base(measured, base=base, peers=tuple(peer.ENVIRONS), missing=missing),
            "rungs": [rung_readings(item, measured, learnt.get(item.name, Learnt()), base=base) for item in placed],
            **busy_facts(measured.others_percent),
            "duration_s": time.perf_counter() - begin_s,
        }

    def _take_turns(self, rungs: Sequence[PlacedRung], left: TimeLeft, *, with_peer: bool) -> Measured:
        makers: dict[str, Callable[[], Contender]] = {
            item.name: partial(item.runner.contender, item.parts, PONG, seed=self.seed) for item in rungs
        }
        for name, without in peer.ENVIRONS.items() if with_peer else ():
            makers[name] = partial(peer.StableBaselines3, seed=self.seed, without=without)
        return take_turns(makers, needed=rungs[0].name, rounds=self.rounds, turn_s=self.turn_s, left=left)

    def _learn(self, rungs: Sequence[PlacedRung], left: TimeLeft) -> dict[str, Learnt]:
        """Train each rung on the small game, once with each seed."""
        learnt = {}
        for item in rungs if self.learning_seeds else ():
            by_seed: list[float | None] = []
            reason = None
            for seed in range(self.seed, self.seed + self.learning_seeds):
                left.begin(LEARNING, f"what {item.name} learns, seed {seed}")
                try:
                    by_seed.append(item.runner.mean_return(item.parts, CATCH, seed=seed, steps=self.learning_steps))
                except FAILURES as error:
                    by_seed.append(None)
                    reason = f"failed: {in_one_line(error)}"
                    left.told(f"{item.name} with seed {seed} {reason}")
            learnt[item.name] = Learnt(by_seed, reason)
        return learnt

    def _config(self) -> dict[str, Any]:
        return {
            "regime": f"DQN, batch {BATCH_SIZE}, one update per {STEPS_PER_UPDATE} steps, Adam, γ {GAMMA:g}",
            "speed": _task_row(PONG),
            "learning": {**_task_row(CATCH), "steps": self.learning_steps, "seeds": self.learning_seeds},
            "rounds": self.rounds,
            "turn_s": self.turn_s,
            "seed": self.seed,
            "low_high": "90 % of the rounds",
            "gain": "median of the ratios within each round",
            "process": "every rung in this process has what Redline sets once per process: torch's threads, denormals "
            f"flushed to 0, freed memory kept; {peer.NAME} has it as a user has it",
            "openmp": f"{', '.join(peer.OPENMP)} as the redline command sets them; {peer.NAME} also by default",
        }


def _task_row(task: Task) -> dict[str, Any]:
    return {name: value for name, value in asdict(task).items() if name not in ("torso", "convolutions")} | {
        "network": repr(task.torso)
    }


def _refuse_too_much(rungs: Sequence[PlacedRung], task: Task) -> None:
    """Refuse rungs whose memories do not fit beside each other."""
    needed = KEPT_FREE_BYTES + sum(task.capacity * item.parts.replay.bytes_per_transition(OBS_BYTES) for item in rungs)
    free = available_bytes()
    if needed > free:
        raise UserError(
            f"{len(rungs)} rungs by turns need {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB is free: "
            "name fewer with --rungs"
        )
