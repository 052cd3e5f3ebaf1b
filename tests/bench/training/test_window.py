"""The window: the warm-up lies before it, and it holds whole rollouts."""

from redline.bench.training.settings import SETTINGS
from redline.bench.training.window import Reading, SteadyWindow


def test_a_window_excludes_the_warmup() -> None:
    window = SteadyWindow(seconds=0.0, opens_at_steps=100)
    window.add_return(-21.0)
    assert not window.read(steps=96, updates=0)
    assert not window.read(steps=104, updates=1)
    window.add_return(-19.0)
    assert window.read(steps=112, updates=3)
    assert window.cpu_s >= 0.0
    window.first, window.last, window.cpu_s = Reading(0.0, 104, 1), Reading(2.0, 112, 3), 3.0
    row = window.row()
    assert (row["steps_per_s"], row["updates_per_s"], row["updates_per_step"]) == (4.0, 1.0, 0.25)
    assert row["cores_used"] == 1.5
    assert (row["mean_return"], row["mean_return_with_warmup"]) == (-19.0, -20.0)


def test_a_window_of_rollouts_opens_and_closes_at_their_ends() -> None:
    window = SteadyWindow(seconds=0.0, opens_at_steps=10, every_steps=8)
    reads = [window.read(steps=steps, updates=steps // 8) for steps in (8, 12, 16, 20, 24)]
    assert reads == [False, False, False, False, True]
    assert window.first is not None
    assert window.last is not None
    assert (window.first.steps, window.last.steps) == (16, 24)


def test_the_window_of_a_setting_holds_whole_rollouts() -> None:
    assert SETTINGS["ppo"].window_every_steps == 8 * 128
    assert SETTINGS["dqn"].opens_at_steps == 6_000 + 400
