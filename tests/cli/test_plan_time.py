"""`redline plan time` as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import facts, reading, write_run

from redline.cli.main import DONE, main

RATE = ["--rate", "900", "--unit", "episodes"]
BAD = [
    ([], "plan time needs a rate: use --rate 900 --unit episodes, --measure, or --from RUN"),
    ([*RATE, "--measure"], "--rate and --measure both tell the rate: keep one"),
    ([*RATE, "--price-per-hour", "-2"], "price-per-hour is '-2': use a number of 0 or more"),
    ([*RATE, "--price-per-hour", "nan"], "price-per-hour is 'nan'"),
    ([*RATE, "--games", "pongg:5"], "unknown env 'pongg': did you mean pong"),
    ([*RATE, "--games", ""], "names no game"),
    ([*RATE, "--games", "pong"], "pong has no limit: write pong:3000"),
    (["--rate", "0"], "rate is '0': use a number above 0"),
    (["--rate", "-5"], "rate is '-5': use a number above 0"),
    (["--rate", "fast"], "rate is 'fast'"),
    (["--rate", "inf"], "rate is 'inf'"),
    (["--rate", "100"], "is in episodes and the rate in steps/s: say how long an episode is with --episode-steps"),
    ([*RATE, "--games", "pong", "--steps", "5000"], "is in steps and the rate in episodes/h"),
    ([*RATE, "--episodes", "5", "--steps", "5"], "--episodes and --steps both limit every game: keep one"),
    ([*RATE, "--episodes", "0"], "episodes is 0: use 1 to"),
    ([*RATE, "--baseline", "0"], "baseline is '0': use a number above 0"),
    ([*RATE, "--baseline", "nowhere"], "nowhere is no run directory"),
    (["--from", "nowhere"], "nowhere is no run directory"),
    ([*RATE, "--from"], "--from names nothing"),
    ([*RATE, "--from", ""], "--from names nothing"),
    ([*RATE, "--baseline"], "--baseline names nothing"),
    (["--from", "nowhere", "--unit", "steps"], "--unit does nothing here"),
    ([*RATE, "--seconds", "5"], "--seconds does nothing here: leave it out, or add --measure"),
    ([*RATE, "--restart-s", "5"], "--restart-s does nothing here"),
    (["--rate", "9", "--steps", "5", "--episode-growth", "2"], "--episode-growth does nothing here"),
    (["--rate", "9", "--steps", "5", "--episode-steps", "900"], "--episode-steps does nothing here"),
    ([*RATE, "--concurrency", "0"], "concurrency is 0: use 1 to"),
    ([*RATE, "--interruptions-per-hour", "-1"], "interruptions-per-hour is -1"),
    ([*RATE, "--interruptions-per-hour", "60", "--without-notice"], "undo more than they leave"),
    ([*RATE, "--interruptions-per-hour", "1", "--checkpoint-minutes", "5"], "add --without-notice"),
    ([*RATE, "--unit", "laps"], "--unit is 'laps': use episodes or steps or frames"),
    (["--measure", "--model", "dqm"], "unknown algorithm 'dqm': did you mean dqn"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy(args: list[str], message: str, refused: Any) -> None:
    refused(["plan", "time", *args], message)


def plan(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["plan", "time", *args, "--json"]) == DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_before_and_after_stand_in_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--games", "ten", *RATE, "--price-per-hour", "2", "--baseline", "20")
    assert found["schema"] == 1
    assert (found["total"]["hours"], found["total"]["days"], found["total"]["cost"]) == (173, 7.2, 346)
    before = found["baseline"]["total"]
    assert (before["hours"], before["days"], before["cost"]) == (7_800, 325, 15_600)
    assert found["saved"] == {"ratio": 45, "hours": 7_627, "days": 318, "cost": 15_254, "percent": 98}
    row = found["rows"][0]
    assert (row["game"], row["limit"], row["unit"]) == ("ms_pacman", 30_000, "episodes")
    assert (row["rate"], row["rate_unit"], row["rate_source"]) == (900, "episodes/h", "given")
    assert any("episodes stay as long as when 900 an hour were played" in words for words in found["assumptions"])


def test_a_growth_of_ten_reads_as_ten(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--games", "ten", *RATE, "--episode-growth", "10")
    assert any("high: 10 × as long" in words for words in found["assumptions"])


def test_the_tables_read_as_people_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--games", "ten", *RATE, "--price-per-hour", "2", "--baseline", "20", "--plain"]
    assert main(["plan", "time", *args]) == DONE
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "space_invaders 15,000 episodes 20 episodes/h 750 750–1,605 31.3 $1,500" in lines
    assert "space_invaders 15,000 episodes 900 episodes/h 17 17–36 0.7 $34" in lines
    assert "total 156,000 episodes 173 173–371 7.2 $346" in lines
    assert "45 × as fast: 7,627 hours, 318 days, $15,254 less (98 %)" in lines


def test_frames_are_four_to_a_step_of_an_atari_game(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--games", "pong,CartPole-v1", "--steps", "3600000", "--rate", "400", "--unit", "frames")
    assert [(row["rate"], row["hours"]) for row in found["rows"]] == [(100, 10.0), (400, 2.5)]
    assert found["rows"][0]["cost"] is None


@pytest.mark.slow  # five readings of real training, half a minute
def test_a_measurement_is_of_real_training(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--measure", "--model", "ppo", "--games", "redline/Catch-v0", "--episodes", "1000000", "--seconds", "0.5"]
    found = plan(capsys, *args)
    row = found["rows"][0]
    assert row["rate_source"] == "measured"
    assert 0 < row["low"] <= row["hours"] <= row["high"]
    assert row["episode_steps"] == 11  # the ball falls from the first of twelve rows to the last
    assert any("ppo with its usual settings" in words for words in found["assumptions"])


def test_runs_tell_rate_limit_and_checkpoints_before_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = facts(max_steps=360_000, checkpoint_minutes=10.0)
    slow = write_run(tmp_path / "slow", run, metrics=[reading(time_s) for time_s in range(5, 65, 5)])
    fast = write_run(
        tmp_path / "fast", run, metrics=[reading(time_s, steps=200 * time_s) for time_s in range(5, 65, 5)]
    )
    args = ["--from", str(fast), "--baseline", str(slow), "--price-per-hour", "0.6"]
    spot = ["--interruptions-per-hour", "2", "--without-notice", "--restart-s", "60"]
    found = plan(capsys, *args, *spot)
    row = found["rows"][0]
    assert (row["game"], row["limit"], row["unit"], row["rate_source"]) == ("CartPole-v1", 360_000, "steps", "run")
    assert (row["rate"], row["lost_hours"]) == (
        200,
        0.113,
    )  # 360,000 steps ÷ 200/s = 0.5 h, × 2 × (5 + 1) min, and what interrupts that
    assert (row["hours"], row["cost"]) == (0.613, 0.37)
    assert found["baseline"]["rows"][0]["hours"] == 1.23
    assert found["saved"]["ratio"] == 2
    assert any("5 min 00 s of work is lost without notice" in words for words in found["assumptions"])


def test_help_says_what_a_rate_is_in(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["plan", "time", "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "episodes (per hour), steps (per second; usual) or frames (the same)" in text
    for flag in ("--games", "--rate", "--from", "--baseline", "--price-per-hour", "--interruptions-per-hour"):
        assert flag in text
