"""The contenders in processes of their own, as they really are: minutes on a busy machine."""

from dataclasses import replace

import pytest

from redline.bench.ladder import peer
from redline.bench.ladder.rungs import place_rungs
from redline.bench.ladder.task import CATCH


@pytest.mark.slow
def test_stable_baselines_does_the_same_work_by_turns() -> None:
    pytest.importorskip("stable_baselines3")
    contender = peer.StableBaselines3(seed=1, without=peer.OPENMP)
    try:
        contender.warm_up()
        turns = [contender.take_turn(0.5) for _ in range(2)]
    finally:
        contender.close()
    assert all(turn.samples / turn.steps == 8.0 for turn in turns)
    assert all(turn.updates > 0 and turn.cpu_share > 0.0 for turn in turns)


@pytest.mark.slow
def test_a_run_with_processes_goes_on_after_each_halt() -> None:
    placed = next(item for item in place_rungs() if item.name == "processes")
    contender = placed.runner.contender(placed.parts, replace(CATCH, warmup_steps=200), seed=1)
    try:
        contender.warm_up()
        turns = [contender.take_turn(1.0) for _ in range(2)]
    finally:
        contender.close()
    assert all(turn.samples / turn.steps == pytest.approx(8.0, rel=0.1) for turn in turns)
