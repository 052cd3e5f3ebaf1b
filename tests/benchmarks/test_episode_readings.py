"""What the benchmarks read out of a run's rows."""

import pytest

from kill_resume import audit_counters, audit_rows
from memory_flat import growth, rows_after_full
from redline.jsonl import Row
from run_reading import first_reaching, of_training, running_means

# two lanes: lane 0 ends after 3 and 5 steps, lane 1 after 4
ROWS: list[Row] = [
    {"lane": 0, "seed": 7, "seed_offset_steps": 0, "steps": 6, "length_steps": 3, "return": 1.0},
    {"lane": 1, "seed": 8, "seed_offset_steps": 0, "steps": 8, "length_steps": 4, "return": 2.0},
    {"lane": 0, "seed": 7, "seed_offset_steps": 3, "steps": 10, "length_steps": 2, "return": 3.0},
]
STATE = {"counters": {"episodes": 3, "steps": 12}, "recent_returns": [1.0, 2.0, 3.0]}


def test_a_sound_run_has_no_faults() -> None:
    assert audit_rows(ROWS, num_envs=2) == []
    assert audit_counters(ROWS, STATE) == []


def test_an_episode_counted_twice_is_found_by_address_end_and_sum() -> None:
    faults = audit_rows([*ROWS, ROWS[2]], num_envs=2)
    assert [fault.split(" with ")[0] for fault in faults[:2]] == ["2 episodes", "2 episodes"]
    assert "add up to 7 steps, not 5" in faults[2]
    assert "4 rows, but the checkpoint counts 3 episodes" in audit_counters([*ROWS, ROWS[2]], STATE)


def test_an_episode_played_again_under_a_new_seed_breaks_the_sum() -> None:
    again = ROWS[2] | {"seed": 9, "seed_offset_steps": 0, "steps": 12}
    assert audit_rows([*ROWS, again], num_envs=2) == ["lane 0 at step 12: its episodes add up to 7 steps, not 6"]


def test_a_lost_episode_breaks_the_sum() -> None:
    assert audit_rows(ROWS[1:], num_envs=2) == ["lane 0 at step 10: its episodes add up to 2 steps, not 5"]


def test_rows_out_of_order_are_found() -> None:
    assert "steps fall from 8 to 6" in audit_rows([ROWS[1], ROWS[0], ROWS[2]], num_envs=2)


def test_the_mean_is_over_a_whole_hundred_only() -> None:
    rows: list[Row] = [{"return": float(n), "steps": 10 * n, "time_s": 60.0 * n} for n in range(102)]
    points = running_means(rows)
    assert [point.mean_return_100 for point in points] == [49.5, 50.5, 51.5]
    reached = first_reaching(points, 50.0)
    assert reached is not None
    assert (reached.steps, reached.minutes) == (1000, 100.0)
    assert first_reaching(points, 60.0) is None


def test_episodes_of_evaluations_are_no_episodes_of_training() -> None:
    rows: list[Row] = [{"role": "actor", "return": 1.0}, {"role": "greedy", "return": 9.0, "evaluation": 1}]
    assert of_training(rows) == rows[:1]


def test_growth_compares_the_medians_of_the_first_and_last_tenth() -> None:
    assert growth([100] * 10 + [500] * 80 + [103] * 10)["growth"] == pytest.approx(0.03)


def test_memory_is_read_from_when_the_replay_is_full() -> None:
    rows: list[Row] = [
        {"steps": steps, "replay_transitions": min(steps, 99), "replay_capacity_transitions": 100}
        for steps in (50, 100, 150)
    ]
    assert [row["steps"] for row in rows_after_full(rows)] == [100, 150]
