"""`fleet.toml`: games × algorithms × seeds × variants, entries, overrides, recipes; mistakes with their line."""

from pathlib import Path

import pytest

from redline.errors import UserError
from redline.fleet.list_file import Asked, line_of, list_of_flags, read_list, read_seeds
from redline.fleet.listing import Setting

WHOLE = """
name = "two-games"
games = ["pong", "breakout:500"]
models = "dqn, ppo"
seeds = "1-2"
engine = "local"
concurrency = 2
stagger-s = 5
price-per-hour = 0.5

[settings]
max-minutes = 30
optimizer.lr = 1e-4

[[overrides]]
games = "breakout"
models = "ppo"
settings = { batch-size = 64, max-minutes = 10 }
"""


def read(tmp_path: Path, text: str, **typed: Setting) -> Asked:
    (tmp_path / "fleet.toml").write_text(text)
    return read_list(tmp_path / "fleet.toml", {name.replace("_", "-"): value for name, value in typed.items()})


def test_a_file_lists_games_algorithms_seeds_settings_and_wishes(tmp_path: Path) -> None:
    asked = read(tmp_path, WHOLE)
    assert asked.name == "two-games"
    assert asked.wishes == {"engine": "local", "concurrency": 2, "stagger_s": 5.0, "price_per_hour": 0.5}
    slots = {slot.name: slot.settings for slot in asked.slots}
    assert list(slots)[::2] == ["pong-dqn-s1", "pong-ppo-s1", "breakout-dqn-s1", "breakout-ppo-s1"]
    assert slots["pong-dqn-s2"] == {"max-minutes": 30, "optimizer.lr": 1e-4}
    limits = {"max-episodes": 500, "max-steps": "None"}
    assert slots["breakout-dqn-s1"] == {**limits, "max-minutes": 30, "optimizer.lr": 1e-4}
    assert slots["breakout-ppo-s1"] == {**limits, "max-minutes": 10, "optimizer.lr": 1e-4, "batch-size": 64}


def test_typed_settings_override_the_file(tmp_path: Path) -> None:
    slots = read(tmp_path, WHOLE, max_minutes=1, batch_size=8).slots
    assert {(slot.settings["max-minutes"], slot.settings["batch-size"]) for slot in slots} == {(1, 8)}


def test_entries_have_their_own_games_recipes_and_variants(tmp_path: Path) -> None:
    asked = read(
        tmp_path,
        """
        seeds = 7
        settings = { max-minutes = 5 }
        [[runs]]
        recipe = "pong"
        [[runs]]
        games = "CartPole-v1"
        model = "ppo"
        seeds = [1, 2]
        [runs.variants.small]
        batch_size = 32
        [runs.variants.large]
        batch_size = 64
        """,
    )
    assert [slot.name for slot in asked.slots][1:] == [
        *("cartpole-v1-ppo-small-s1", "cartpole-v1-ppo-small-s2"),
        *("cartpole-v1-ppo-large-s1", "cartpole-v1-ppo-large-s2"),
    ]
    by_recipe, small, *_ = asked.slots
    assert (by_recipe.game, by_recipe.seed, by_recipe.settings) == ("pong", 7, {"recipe": "pong", "max-minutes": 5})
    assert (small.variant, small.settings) == ("small", {"max-minutes": 5, "batch-size": 32})


def test_ten_games_have_their_episodes_unless_something_else_limits_the_runs() -> None:
    games = list_of_flags("ten", "ppo", "1", {}).slots
    assert len(games) == 10
    assert games[0].settings == {"max-episodes": 30_000, "max-steps": "None"}
    assert {str(slot.settings) for slot in list_of_flags("ten", "ppo", "1", {"max-minutes": 2}).slots} == {
        "{'max-minutes': 2}"
    }
    (pong,) = list_of_flags("pong:3000", None, "1", {"max-minutes": 2}).slots
    assert (pong.algorithm, pong.settings["max-episodes"]) == ("dqn", 3_000)


def test_a_fleet_is_named_after_its_list() -> None:
    assert list_of_flags("ten", "dqn,ppo", "1-3", {}).name == "ten-dqn-ppo"
    assert list_of_flags("pong,CartPole-v1", "ppo", "1", {}).name == "pong-ppo-CartPole-v1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("games = 'pong'\nmodls = 'ppo'", r"fleet.toml line 2: unknown key 'modls': did you mean models"),
        ("games = 'pong'\nbatch-size = 3", r"line 2: unknown key 'batch-size': .*go below \[settings\]"),
        ("models = 'ppo'", r"fleet.toml line 1|games are missing"),
        ("games = 'pong'\nmodels = 'pppo'", r"unknown algorithm 'pppo': did you mean ppo"),
        ("games = 'pon'", r"unknown env 'pon': did you mean pong"),
        ("games = ['pong', 'pong']", r"line 1: games has pong twice"),
        ("games = 'pong'\nseeds = '3-1'", r"line 2: seeds 3-1 names no seeds"),
        ("games = 'pong'\nseeds = 1.5", r"line 2: seeds is '1.5'"),
        ("games = 'pong'\nseeds = 99999999999", r"line 2: seeds is 99999999999"),
        ("games = 'pong'\nconcurrency = 0", r"line 2: concurrency is '0': use auto"),
        ("games = 'pong'\nengine = 'dask'", r"line 2: engine is 'dask': use local, ray or slurm"),
        ("games = 'pong'\n[settings]\nseed = 3", r"line 3: seed is no setting of a run in a fleet"),
        ("games = 'pong'\n[settings]\nlr = [[1]]", r"line 3: lr is \[\[1\]\]: use numbers or text in a list"),
        ("games = 'pong'\nsettings = 3", r"line 2: settings is no table"),
        ("games = 'pong'\nvariants = { a = 3 }", r"line 2: variants is no table of tables"),
        ("games = 'pong'\nruns = 3", r"line 2: runs is no list of tables: write \[\[runs\]\]"),
        ("games = 'pong'\nruns = [3]", r"line 2: runs 1: this is no table"),
        ("games = 'pong'\nrecipe = 'pongg'", r"line 2: unknown recipe 'pongg'"),
        ("games = 'pong'\nname = 3", r"line 2: name is 3: write it in quotes"),
        ("games = 'pong'\nmodel = 'dqn'\nalgo = 'ppo'", r"mean the same: keep one"),
        ("games = 'pong'\nseeds = []", r"line 2: seeds are empty: use a range"),
        ("games = 'pong'\n[[overrides]]\ngames = 'breakout'", r"fleet.toml: overrides 1 fits no run of the fleet"),
        ("games = 3", r"line 1: games is 3: write names in quotes"),
        ("games = ''", r"line 1: games are empty"),
        ("games = ", r"is not TOML"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)


def test_an_option_that_train_does_not_know_is_told_with_its_line_not_that_of_the_one_that_it_resembles(
    tmp_path: Path,
) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("[settings]\nbatch-size = 32\nbatch_sze = 64\n")
    assert line_of(path, "pong dqn: unknown option --batch-sze: did you mean --batch-size?") == " line 3"


@pytest.mark.parametrize(
    ("value", "seeds"), [("1-3", (1, 2, 3)), (5, (5,)), ([1, "3-4", 1], (1, 3, 4)), ("1,5, 8", (1, 5, 8))]
)
def test_seeds(value: object, seeds: tuple[int, ...]) -> None:
    assert read_seeds(value) == seeds


@pytest.mark.parametrize("value", ["", True, None, -1, "1--3", {}, "9" * 5_000, "1-5000"])
def test_what_is_no_seeds(value: object) -> None:
    with pytest.raises(UserError, match=r"^seeds? [^\n]{0,200}use "):
        read_seeds(value)
