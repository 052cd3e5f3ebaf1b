"""The curves that TensorBoard shows."""

from pathlib import Path
from typing import Any

import pytest

from redline.runtime.curves import Curves


def points_of(run: Path, tag: str) -> list[tuple[int, float]]:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events: Any = accumulators.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_each_evaluation_is_one_point_at_the_step_of_its_weights(tmp_path: Path) -> None:
    curves = Curves(tmp_path, from_steps=0)
    for steps, mean in ((100, 1.0), (200, 2.5)):
        curves.add_evaluation(mean, steps=steps)
    curves.close()
    assert points_of(tmp_path, "learning/greedy_return") == [(100, 1.0), (200, 2.5)]


def test_a_resume_hides_points_beyond_its_checkpoint_and_none_before(tmp_path: Path) -> None:
    curves = Curves(tmp_path, from_steps=0)
    for steps in (100, 200, 300):
        curves.add_evaluation(1.0, steps=steps)
    curves.close()
    curves = Curves(tmp_path, from_steps=200)
    curves.add_evaluation(2.0, steps=300)
    curves.close()
    assert points_of(tmp_path, "learning/greedy_return") == [(100, 1.0), (200, 1.0), (300, 2.0)]
