"""Scores by minutes: curves, the recipe of each family, and recipes that must tell what their record says."""

from pathlib import Path
from typing import Any

import pytest

import pictures
import recipe_tables
import scores
from recording import RECORDS, Measurement
from redline.algorithms.catalog import ALGORITHMS
from redline.cli.flags import parse_train
from redline.cli.main import DONE, main
from redline.jsonl import RecordWriter
from redline.recipes import find_recipe, parse_recipe, recipe_names
from redline.report.charts import LineChart


def episode(minute: float, value: float, steps: int = 0) -> dict[str, Any]:
    return {"time_s": minute * 60, "steps": steps, "return": value}


def test_a_curve_has_the_mean_of_ten_episodes_every_quarter_of_a_minute_and_at_its_end() -> None:
    episodes = [episode(place / 20, float(place), steps=place) for place in range(1, 31)]  # one every 3 s
    points = scores.curve_of(episodes)
    assert (points[0].minutes, points[0].mean_return) == (0.5, 5.5)  # of 1 … 10
    assert [point.minutes for point in points] == pytest.approx([0.5, 0.75, 1.0, 1.25, 1.5])
    assert (points[-1].steps, points[-1].mean_return) == (30, 25.5)
    assert scores.curve_of(episodes[:9]) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_can_be_trained_with_its_familys_recipe(algorithm: str) -> None:
    training = scores.algorithm_training(algorithm, 1, minutes=20.0)
    job = parse_train(["--algo", algorithm, *training.flags]).job
    assert (job.env.id, job.limits.max_minutes, job.limits.target_eval_return) == ("pong", 20.0, 18.0)
    assert len(training.digest()) == 12


def test_a_peer_with_other_settings_is_another_run() -> None:
    one = scores.peer_training("games", "sb3-ppo", 1, "pong", 30.0)
    other = scores.peer_training("games", "sb3-dqn", 1, "pong", 30.0)
    assert one.flags[:2] == ("pong", "30")
    assert one.flags[2] != other.flags[2]
    assert '"n_steps": 128' in one.flags[2]


def curve(last: float, *, minutes: float) -> list[dict[str, Any]]:
    return [
        {"minutes": 0.5, "steps": 100, "mean_return": -21.0},
        {"minutes": minutes, "steps": 900, "mean_return": last},
    ]


SIDE_BY_SIDE = [
    {"algorithm": "ppo", "seed": 31, "solved": True, "minutes": 6.5, "score": 18.1, "curve": curve(18.0, minutes=6.0)},
    {"algorithm": "ppo", "seed": 32, "solved": False, "minutes": 12.0, "score": 3.0, "curve": curve(2.0, minutes=12.0)},
    {"algorithm": "sb3-ppo", "seed": 31, "curve": curve(-12.0, minutes=60.0)},
]


def test_trainers_stand_side_by_side_with_every_seed() -> None:
    table = recipe_tables.make_side_by_side_table({"side-by-side-pong": {"repeats": SIDE_BY_SIDE}})
    assert table.splitlines()[2:] == [
        "| Redline, recipe pong | 31 | 6.0 | 900 | 18.0 | after 6.5 min (18.1) |",
        "| Redline, recipe pong | 32 | 12.0 | 900 | 2.0 | no |",
        "| Stable-Baselines3 PPO | 31 | 60.0 | 900 | −12.0 | no |",
    ]


def done_games(rows_file: Path) -> Measurement:
    """Return the record of three games whose runs are in the file, all but SB3 on freeway: training it would fail."""
    trainings = [scores.game_training(game, 51, minutes=30.0) for game in ("freeway", "boxing", "breakout")]
    trainings += [scores.peer_training("games", "sb3-ppo", 51, game, 30.0) for game in ("boxing", "breakout")]
    means = (21.0, 15.7, 31.1, 0.4, 40.0)
    with RecordWriter(rows_file) as writer:
        for training, mean in zip(trainings, means, strict=True):
            told = {"settings_digest": training.digest(), "steps": 900, "curve": curve(mean, minutes=30.0)}
            score = {} if training.task == "games" else {"score": mean - 1}  # peers play no games afterwards
            writer.write({**training.row(), **told, **score})
    return scores.run_games(
        scores.parse(["games", "--rows", str(rows_file), "--games", "freeway", "boxing", "breakout"])
    )


def test_a_game_without_a_bar_is_recorded_without_a_peer(tmp_path: Path) -> None:
    found = done_games(tmp_path / "rows.jsonl")
    assert found.headline == "freeway 21.0 (not compared), boxing 15.7 beside 0.4, breakout 31.1 beside 40.0"
    assert found.summary["freeway"] == {"redline": 21.0, "sb3_ppo": "not compared"}
    assert found.summary["boxing"] == {"redline": 15.7, "sb3_ppo": 0.4}
    assert not found.passed  # because of breakout
    trained = [(row["algorithm"], row["flags"][0]) for row in found.repeats if row["task"] == "games"]
    assert trained == [("sb3-ppo", "boxing"), ("sb3-ppo", "breakout")]


def test_games_stand_with_the_trainers_that_played_them(tmp_path: Path) -> None:
    record = {"repeats": done_games(tmp_path / "rows.jsonl").repeats}
    table = recipe_tables.make_games_table({"games-by-minutes": record})
    assert table.splitlines()[2:] == [
        "| freeway | Redline, recipe atari-small (not compared) | 51 | 900 | 21.0 | 20.0 |",
        "| boxing | Redline, recipe boxing | 51 | 900 | 15.7 | 14.7 |",
        "| boxing | Stable-Baselines3 PPO | 51 | 900 | 0.4 | – |",
        "| breakout | Redline, recipe breakout | 51 | 900 | 31.1 | 30.1 |",
        "| breakout | Stable-Baselines3 PPO | 51 | 900 | 40.0 | – |",
    ]


def test_a_failed_run_of_a_game_stands_in_the_table() -> None:
    row = {**scores.game_training("freeway", 51, minutes=30.0).row(), "error": "killed"}
    table = recipe_tables.make_games_table({"games-by-minutes": {"repeats": [row]}})
    assert table.splitlines()[2:] == [
        "| freeway | Redline, recipe atari-small (not compared) | 51 | – | failed: killed | – |"
    ]


def test_what_was_tried_stands_with_its_settings_and_its_newest_mean(tmp_path: Path) -> None:
    flags = ["--max-steps", "300", "--optimizer.lr", "2e-3", "--seed", "7", "--monitor.hz", "0"]
    assert main(["train", "--env", "CartPole-v1", *flags, "--log-dir", str(tmp_path)]) == DONE
    (facts,) = tmp_path.rglob("run.json")
    row = scores.read_trial(facts.parent)
    assert (row["algorithm"], row["seed"], row["flags"]) == ("dqn", 7, "--optimizer.lr 0.002")
    table = recipe_tables.make_tried_table({"tried-boxing": {"repeats": [row]}}, "boxing")
    last = f"{row['mean_return']:.1f} at 0k"
    assert table.splitlines()[2] == f"| dqn `--optimizer.lr 0.002` | 7 | – | – | – | – | – | – | {last} |"
    episodes = facts.with_name("episodes.jsonl")
    episodes.write_text("".join(episodes.read_text().splitlines(keepends=True)[:9]))
    with pytest.raises(SystemExit, match="has fewer than 10 episodes"):
        scores.read_trial(facts.parent)


def test_the_picture_of_trainers_has_a_line_for_each_run_and_a_colour_for_each_trainer() -> None:
    chart = pictures.chart_by_minutes(SIDE_BY_SIDE)
    assert isinstance(chart, LineChart)
    assert [(line.label, line.colour, line.in_legend) for line in chart.lines] == [
        ("Redline, recipe pong", 0, True),
        ("Redline, recipe pong", 0, False),
        ("Stable-Baselines3 PPO", 1, True),
    ]
    assert (chart.lines[2].x, chart.lines[2].y) == ([0.5, 60.0], [-21.0, -12.0])


RECIPE = """
model = "ppo"
[recipe]
about = "a game"
[[recipe.results]]
seed = 21
minutes = 5.2
score = 19.3
solved = true
"""


def record(minutes: float) -> dict[str, Any]:
    row = {"seed": 21, "minutes": minutes, "score": 19.27, "solved": True}
    return {"recipe-x": {"repeats": [row, {"seed": 22, "error": "killed"}]}}


def test_a_recipe_tells_what_its_record_says() -> None:
    recipe_tables.check_results(parse_recipe("x", RECIPE), record(5.21))
    with pytest.raises(ValueError, match="its newest record says"):
        recipe_tables.check_results(parse_recipe("x", RECIPE), record(7.0))


@pytest.mark.parametrize("name", recipe_names())
def test_what_a_recipe_tells_is_recorded(name: str) -> None:
    recipe = find_recipe(name)
    assert not recipe.results or (RECORDS / recipe.record).is_file()
