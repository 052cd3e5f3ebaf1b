"""The arithmetic of a plan of the disk, on numbers worked by hand."""

from dataclasses import replace

from redline.episodes.estimate import MeasuredRecordings
from redline.plan.disk import CORE_BYTES, EPISODE_ROW_BYTES, HARDWARE_ROW_BYTES, METRICS_ROW_BYTES, DiskPlan

MEASURED = MeasuredRecordings(num_steps=9_000, num_episodes=10, recorded_bytes=7_200, is_measured=True)


def plan_with(*, free_bytes: int, record: str = "all") -> DiskPlan:
    return DiskPlan(
        measured=MEASURED,
        env="pong",
        algorithm="dqn",
        steps=50_000_000,
        steps_per_s=500.0,
        num_actions=6,
        record=record,
        has_values=False,
        checkpoints_bytes=135_000_000,
        replay_bytes=1_000_000_000,
        cores=2,
        free_bytes=free_bytes,
        path="runs",
    )


def test_recordings_grow_with_the_steps() -> None:
    every, tenth, none = (plan_with(free_bytes=0, record=record).recordings_bytes for record in ("all", "10", "off"))
    assert every == 40_000_000  # 0.8 bytes a step
    assert 4_000_000 < tenth < 40_000_000  # a tenth of the episodes, but the actions that lead there as well
    assert none == 0


def test_rows_are_counted_by_the_episode_and_by_the_clock() -> None:
    found = replace(plan_with(free_bytes=0), steps=900_000).rows_bytes
    episodes, seconds = 1_000, 1_800
    hardware = seconds * (HARDWARE_ROW_BYTES + 2 * CORE_BYTES)
    assert found == episodes * EPISODE_ROW_BYTES + seconds // 5 * METRICS_ROW_BYTES + hardware


def test_a_plan_is_the_sum_of_its_parts_and_fits_if_the_disk_has_as_much() -> None:
    plan = plan_with(free_bytes=0)
    assert plan.total_bytes == 40_000_000 + 135_000_000 + 1_000_000_000 + plan.rows_bytes
    assert not plan.fits
    assert plan_with(free_bytes=plan.total_bytes).fits
    assert not plan_with(free_bytes=plan.total_bytes - 1).fits


def test_a_plan_as_json_has_whole_bytes() -> None:
    plan = plan_with(free_bytes=10**12).to_json()
    assert (plan["recordings_bytes_per_episode"], plan["recordings_bytes"]) == (720, 40_000_000)
    assert plan["mean_length_steps"] == 900.0
    assert (plan["basis"], plan["played_episodes"], plan["fits"]) == ("measured", 10, True)
    names = ("recordings", "checkpoints", "replay", "rows")
    assert plan["total_bytes"] == sum(plan[f"{name}_bytes"] for name in names)
    assert all(type(plan[f"{name}_bytes"]) is int for name in (*names, "total", "free"))
