"""Recipes: every file can be trained from, keeps to the game's pictures, and is kept in the run that used it."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from redline.cli.flags import parse_train, train_defaults
from redline.cli.main import BAD_INPUT, DONE, main
from redline.errors import UserError
from redline.recipes import find_recipe, parse_recipe, read_toml, recipe_names, to_toml
from redline.runtime.config import flatten, to_settings
from redline.tune.space import canonical_key

NAMES = ("atari-small", "boxing", "breakout", "pong", "pong-dqn", "pong-ppo")


def test_the_promised_recipes_are_there() -> None:
    assert set(NAMES) <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_a_job_with_its_own_settings(name: str) -> None:
    recipe = find_recipe(name)
    flags = parse_train(["--recipe", name])
    assert (flags.algo, flags.recipe) == (recipe.algorithm, name)
    assert flags.job.env.id == (recipe.game if recipe.game != "any" else "pong")
    assert flags.job.env.size == recipe.settings["env"]["size"]
    assert recipe.about
    assert recipe.departs


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_a_configuration_file_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(find_recipe(name).text, encoding="utf-8")
    assert parse_train(["--config", str(path)]).job == parse_train(["--recipe", name]).job


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_keeps_the_rewards_and_the_episodes_of_the_game(name: str) -> None:
    settings = dict(flatten(find_recipe(name).settings))
    assert not {"env.skip", "env.max_episode_frames", "returns.clip_rewards"} & settings.keys()


def test_the_recipe_for_any_game_is_what_those_of_the_games_share() -> None:
    breakout, boxing = (set(flatten(find_recipe(name).settings)) for name in ("breakout", "boxing"))
    assert set(flatten(find_recipe("atari-small").settings)) == breakout & boxing


def test_flags_override_a_recipe() -> None:
    flags = parse_train(["--recipe", "pong", "--env.size", "84", "--optimizer.lr", "1e-5", "--env", "breakout"])
    assert (flags.job.env.size, flags.job.algorithm.optimizer.lr_at(0), flags.job.env.id) == (84, 1e-5, "breakout")


def test_without_a_recipe_an_algorithm_is_its_papers() -> None:
    job = parse_train(["--env", "pong", "--model", "dqn"]).job
    assert (job.env.size, type(job.algorithm.network).__name__, job.limits.target_eval_return) == (84, "Nature", None)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--recipe", "pnog"], "did you mean pong"),
        (["--recipe", "best.toml"], "use redline train --config best.toml"),
        (["--recipe", "pong", "--config", "x.toml"], "use one"),
        (["--recipe", "pong-ppo", "--model", "dqn"], "recipe pong-ppo is for ppo, not for dqn"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_in_a_line(args: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_train(args)


def test_a_recipe_that_is_no_table_is_refused() -> None:
    with pytest.raises(UserError, match=r"use \[recipe\]"):
        parse_recipe("x", 'recipe = "pong"')


def test_the_list_tells_what_each_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--json"]) == DONE
    (found,) = [one for one in json.loads(capsys.readouterr().out)["recipes"] if one["name"] == "pong"]
    assert (found["game"], found["algorithm"]) == ("pong", find_recipe("pong").algorithm)
    assert main(["recipes"]) == DONE
    assert "pong-dqn" in capsys.readouterr().out


def test_one_recipe_is_printed_as_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "pong"]) == DONE
    assert tomllib.loads(capsys.readouterr().out) == tomllib.loads(find_recipe("pong").text)
    assert main(["recipes", "pnog"]) == BAD_INPUT


def test_a_run_keeps_the_name_and_the_text_of_its_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-steps", "64", "--num-envs", "1", "--monitor.hz", "0", "--target-eval-return", "None"]
    assert main(["train", "--recipe", "pong", *flags, "--log-dir", str(tmp_path), "--json"]) == DONE
    run = Path(json.loads(capsys.readouterr().out)["run"])
    facts = json.loads((run / "run.json").read_text())
    assert facts["recipe"] == {"name": "pong", "text": find_recipe("pong").text}


# Any file of settings


def test_a_file_with_thousands_of_tables_inside_each_other_gets_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a." * 3_000 + "b = 1\n")
    with pytest.raises(UserError, match=r"tables inside each other|is not TOML"):
        read_toml(path, "space")


@pytest.mark.parametrize("path", ["pipe", "/dev/zero", "/dev/null", "."])
def test_pipes_and_devices_are_no_files_of_settings(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"can't be read: (not a regular file|is a directory)"):
        read_toml(tmp_path / path, "config file")


def test_a_file_that_is_no_space_gets_one_line(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    with pytest.raises(UserError, match="can't be read"):
        read_toml(path, "search space")
    path.write_text("a = [")
    with pytest.raises(UserError, match="is not TOML"):
        read_toml(path, "search space")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not TOML"):
        read_toml(path, "search space")
    path.write_text("#" * 2_000_000)
    with pytest.raises(UserError, match="larger than"):
        read_toml(path, "search space")


@pytest.mark.parametrize("link", ["loop.toml", "missing.toml"])
def test_a_link_that_leads_to_no_file_is_said_in_the_systems_words(link: str, tmp_path: Path) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    (tmp_path / "missing.toml").symlink_to("elsewhere.toml")
    said = {"loop.toml": "too many levels of symbolic links", "missing.toml": "no such file or directory"}[link]
    with pytest.raises(UserError, match=f"can't be read: {said}"):
        read_toml(tmp_path / link, "config file")


def test_settings_come_back_from_their_file(tmp_path: Path) -> None:
    settings = {
        "algo": "rainbow",
        "env": "CartPole-v1",
        "network": "mlp",
        "network.widths": [32, 32],
        "returns.clip-rewards": True,
        "optimizer.lr": 1e-05,
        "layers": "normed",
        "explore": "epsilon-greedy",
        "batch-size": 16,
    }
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(settings, ["found\nby a test"]))
    assert path.read_text().startswith("# found by a test\n")
    flags = train_defaults(["--config", str(path)])
    found = {canonical_key(key): value for key, value in flatten(to_settings(flags.job))}
    assert flags.algo == "rainbow"
    assert {key: found[key] for key in settings if key not in ("algo", "env")} == {
        key: value for key, value in settings.items() if key not in ("algo", "env")
    }
