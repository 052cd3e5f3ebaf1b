"""The speed of a run by its files: after the warm-up, by the wall clock, with its spread."""

from decimal import Decimal
from pathlib import Path

import pytest
from made_runs import T0, episode, event, facts, reading, write_run

from redline.envs.game_lists import GameLimit
from redline.errors import UserError
from redline.jsonl import Row
from redline.plan.run_speed import read_run_speed, speed_of, speeds_by_game


def warm_row(time_s: float) -> Row:
    """Return a reading of a warm-up at 1,000 steps/s."""
    return {"time_s": time_s, "unix_s": T0 + time_s, "steps": 1_000 * time_s, "updates": 0}


def learning_row(time_s: float, *, late_s: float = 0.0, steps_per_s: float = 100.0) -> Row:
    """Return a reading of learning that begins at 10 s with 10,000 steps."""
    steps = 10_000 + steps_per_s * (time_s - 10)
    told = {"steps": steps, "updates": steps / 4, "warmup_steps_per_s": 1_000.0}
    return reading(time_s) | told | {"unix_s": T0 + time_s + late_s}


ROWS = [warm_row(5), *(learning_row(time_s) for time_s in range(10, 111, 5))]
RUN = facts(max_steps=50_000, warmup_steps=10_000, checkpoint_minutes=3.0)


def test_learning_counts_from_the_first_update(tmp_path: Path) -> None:
    folder = write_run(tmp_path, RUN, metrics=ROWS, episodes=[episode(20, 5), episode(30, 6) | {"length_steps": 30}])
    run = read_run_speed(str(folder))
    assert (run.game, run.limit) == ("CartPole-v1", GameLimit("CartPole-v1", 50_000, "steps"))
    assert (run.episode_steps, run.checkpoint_minutes) == (20, 3.0)
    found = speed_of([run])
    assert (found.rate, found.low_rate, found.high_rate) == (100, 100, 100)
    assert (found.warmup_steps, found.warmup_steps_per_s) == (10_000, 1_000)
    assert (found.unit, found.source) == ("steps/s", "run")


def test_evaluations_and_checkpoints_count_and_stops_do_not(tmp_path: Path) -> None:
    # 50 s of evaluations that training time leaves out, after 60 s; the machine was off for an hour after 80 s
    late = {60: 50.0, 85: 3_650.0}
    rows, late_s = [], 0.0
    for time_s in range(10, 111, 5):
        late_s = late.get(time_s, late_s)
        rows.append(learning_row(time_s, late_s=late_s))
    resumed = event(80, "resume") | {"unix_s": T0 + 80 + 3_649}
    run = read_run_speed(str(write_run(tmp_path, RUN, metrics=rows, events=[event(0, "start"), resumed])))
    assert run.learning_s == pytest.approx(150, abs=6)
    assert run.learning_steps == 10_000


def test_the_spread_is_that_of_ten_parts(tmp_path: Path) -> None:
    rows, steps = [], 10_000.0
    for place in range(101):  # every second tenth is twice as fast
        rows.append(reading(10 + place) | {"steps": steps, "updates": 1 + place})
        steps += 100 if place // 10 % 2 == 0 else 200
    found = speed_of([read_run_speed(str(write_run(tmp_path, RUN, metrics=rows)))])
    assert (found.low_rate, found.rate, found.high_rate) == (100, 150, 200)


def test_a_game_without_a_run_takes_the_speed_of_the_others_and_says_so(tmp_path: Path) -> None:
    run = read_run_speed(str(write_run(tmp_path, RUN, metrics=ROWS)))
    speeds, notes = speeds_by_game([GameLimit("CartPole-v1", 5), GameLimit("pong", 5)], [run])
    assert speeds["pong"].rate == Decimal(100)
    assert notes == ["pong has no run: it trains as fast as CartPole-v1, and its episodes are as long"]


def test_what_tells_no_speed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run directory"):
        read_run_speed(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"tells no speed: metrics\.jsonl is missing"):
        read_run_speed(str(write_run(tmp_path / "empty", RUN)))
    with pytest.raises(UserError, match="has learnt for 0 s, too short to tell its speed"):
        read_run_speed(str(write_run(tmp_path / "warming up", RUN, metrics=ROWS[:1])))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "broken" / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="tells no speed"):
        read_run_speed(str(tmp_path / "broken"))
