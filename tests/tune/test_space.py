"""Search spaces: what they may say, and that every bound is tried before anything starts."""

import tomllib

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.cli.tune import checked_job, checker
from redline.errors import UserError
from redline.networks import Mlp
from redline.tune.space import (
    Choices,
    Range,
    Space,
    check_space,
    parse_space,
    shipped_space,
)

CARTPOLE_DQN = {"algo": "dqn", "env": "CartPole-v1"}


def checked(text: str, base: dict[str, str] = CARTPOLE_DQN) -> Space:
    return check_space(parse_space("space.toml", tomllib.loads(text)), checker(base))


def test_names_with_dots_and_tables_say_the_same() -> None:
    quoted = parse_space("a", tomllib.loads('"optimizer.lr" = {low = 1e-4, high = 1e-3, log = true}'))
    nested = parse_space("a", tomllib.loads("[optimizer]\nlr = {low = 1e-4, high = 1e-3, log = true}"))
    dotted = parse_space("a", tomllib.loads("optimizer.lr = {low = 1e-4, high = 1e-3, log = true}"))
    assert quoted == nested == dotted
    assert parse_space("a", quoted.to_plain()) == quoted


def test_a_range_is_whole_where_the_setting_is() -> None:
    space = checked(
        'batch-size = {low = 32, high = 64}\nsamples-per-step = {low = 4, high = 32}\n"returns.n" = {low = 1, high = 3}'
    )
    assert space.dimensions["batch-size"] == Range(32, 64, is_int=True)
    assert space.dimensions["samples-per-step"] == Range(4.0, 32.0)
    assert space.dimensions["returns.n"] == Range(1, 3, is_int=True)


def test_parts_lists_and_truths_can_be_chosen_and_parts_be_fixed() -> None:
    space = checked(
        'layers = {choices = ["plain", "normed"]}\n"network.widths" = {choices = [[64, 64], [256]]}\n'
        '"returns.clip_rewards" = {choices = [true, false]}\n[fixed]\noptimizer = {name = "radam", lr = 1e-3}'
    )
    assert space.dimensions["network.widths"] == Choices(("[64, 64]", "[256]"))
    assert space.fixed == {"optimizer": "radam", "optimizer.lr": 1e-3}
    job = checked_job({**CARTPOLE_DQN, **space.fixed, "network.widths": [256]})
    assert job.algorithm.network == Mlp(widths=(256,))
    assert type(job.algorithm.optimizer).__name__ == "Radam"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lets nothing vary"),
        ("[fixed]\nbatch-size = 32", "lets nothing vary"),
        ("fixed = 3", r"make it a table, \[fixed\]"),
        ("batch-sise = {low = 1, high = 2}", "unknown setting 'batch_sise': did you mean batch_size"),
        ("optimiser.lr = {low = 0.1, high = 0.2}", "unknown setting"),
        ("batch-size = 32", r"it is 32: use \{low"),
        ("batch-size = {}", "low is missing"),
        ("batch-size = {low = 1}", "high is missing"),
        ("batch-size = {lo = 1, high = 2}", "unknown key of a range 'lo': did you mean low"),
        ("batch-size = {low = 64, high = 32}", "low is 64 and high is 32: exchange them"),
        ("batch-size = {low = 0, high = 32}", "batch-size is 0"),
        ("batch-size = {low = 1, high = 1_000_000}", "batch-size is 1000000"),
        ("batch-size = {low = 1.5, high = 32}", "takes a value of type int"),
        ("batch-size = {low = 16.0, high = 32.0}", "takes a value of type int"),
        ("batch-size = {low = 1, high = 99999999999999999999}", "use a finite number"),
        ('batch-size = {low = "1", high = 32}', "low is '1': use a finite number"),
        ("batch-size = {low = true, high = 32}", "low is True: use a finite number"),
        ("batch-size = {choices = []}", "use a list of at least one value"),
        ("batch-size = {choices = 32}", "use a list of at least one value"),
        ("batch-size = {choices = [32, 32]}", "there twice"),
        ("batch-size = {choices = [32], low = 1}", "choices and a range"),
        ('batch-size = {choices = ["many"]}', "takes a value of type int"),
        ("batch-size = {choices = [2026-01-01]}", "use finite numbers, text"),
        ("optimizer.lr = {choices = [nan]}", "use finite numbers, text"),
        ("optimizer.lr = {low = 0.0, high = 1e-3, log = true}", "has no logarithm"),
        ("optimizer.lr = {low = -1.0, high = 1e-3}", "optimizer.lr is -1.0"),
        ("optimizer.lr = {low = 1e-4, high = inf}", "high is inf"),
        ("optimizer.lr = {low = nan, high = 1.0}", "low is nan"),
        ('optimizer.lr = {low = 1e-4, high = 1e-3, log = "yes"}', "use true or false"),
        ('layers = {choices = ["plain", "nosy"]}', "unknown layers 'nosy': did you mean noisy"),
        ('batch-size = {low = 1, high = 2}\n"batch_size" = {low = 1, high = 2}', "given twice"),
        ("batch-size = {low = 1, high = 2}\n[fixed]\nbatch-size = 2", "given twice"),
        ("batch-size = {low = 1, high = 2}\n[fixed]\nlayer = 2", r"\[fixed\]: unknown setting 'layer'"),
        ("batch-size = {low = 1, high = 2}\n[fixed]\nseed = 2", 'the search itself decides "seed"'),
        ("batch-size = {low = 1, high = 2}\n[fixed]\nmax-minutes = 2", "use --minutes-per-trial"),
        ("env.id = {choices = ['pong']}", "use --env"),
        ('"optimizer lr" = {low = 0.1, high = 0.2}', "'optimizer lr' is not the name of a setting"),
        ('"a\\nb" = {low = 0.1, high = 0.2}', "is not the name of a setting"),
        ('"" = {low = 0.1, high = 0.2}', "'' is not the name of a setting"),
        ('"optimizer..lr" = {low = 0.1, high = 0.2}', "is not the name of a setting"),
        ('batch-size = {low = 1, high = 2}\n[fixed]\n"lr = 1 #" = 2', "is not the name of a setting"),
        ("batch-size = {low = 1, high = 2}\n[fixed]\nactors = 2", "add --topology async"),
    ],
)
def test_bad_spaces_get_one_line_that_names_file_and_key(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refusal:
        checked(text)
    assert str(refusal.value).startswith("space.toml")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("env", ["CartPole-v1", "pong"])
@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_the_shipped_space_suits_every_algorithm(algo: str, env: str) -> None:
    base = {"algo": algo, "env": env}
    job = checked_job(base)
    name, content = shipped_space(job.algorithm.search_space(), sees_pictures=env == "pong")
    space = check_space(parse_space(name, content), checker(base))
    assert 4 <= len(space.dimensions) <= 8
