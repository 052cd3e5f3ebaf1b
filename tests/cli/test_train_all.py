"""`redline train --seeds` and `--model all`: several runs are a fleet."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.cli.flags import parse_train
from redline.cli.fleet import supervising
from redline.cli.main import DONE, main
from redline.cli.several import as_fleet
from redline.fleet.listing import read_listing

SHORT = ("--env", "CartPole-v1", "--max-steps", "80", "--num-envs", "4")


@pytest.mark.parametrize(
    ("typed", "fleet"),
    [
        (["--env", "pong", "--seed", "3"], None),
        (["--model", "all", "--help"], None),
        (["--seeds", "1-3"], ["--games", "pong", "--model", "dqn", "--seeds", "1-3"]),
        (["--model", "all", "--seed", "3"], ["--games", "pong", "--model", "all", "--seeds", "3"]),
        (["--seeds=1,5", "--recipe", "pong"], ["--recipe", "pong", "--seeds", "1,5"]),
        (
            ["--env.id", "enduro", "--algo", "ppo", "--seeds", "1-2", "--lr", "0.1", "--json"],
            ["--lr", "0.1", "--json", "--games", "enduro", "--model", "ppo", "--seeds", "1-2"],
        ),
        (
            ["--seeds", "1-2", "--log-dir", "my runs"],
            ["--games", "pong", "--model", "dqn", "--seeds", "1-2", "--dir", "my runs/seeds-1-2"],
        ),
    ],
)
def test_several_runs_are_a_fleet(typed: list[str], fleet: list[str] | None) -> None:
    found = as_fleet(typed)
    if fleet is None or "--log-dir" not in typed:
        assert found == fleet
    else:
        assert found is not None
        assert found[:-1] == fleet[:-1]
        assert found[-1].startswith("my runs/pong-")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--seed", "1", "--seeds", "1-3"), "--seed and --seeds were both given"),
        (("--seeds", "3-1"), "seeds 3-1 names no seeds"),
        (("--model", "all", "--replay.capacity", "500"), "CartPole-v1 a2c: a2c has no replay memory"),
        (("--model", "all", "--print-config"), "name one algorithm with --model, and one --seed"),
        (("--seeds", "1-3", "--auto"), "measure once: redline plan speed --write speed.toml"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(
    refused: Callable[[Sequence[str], str], None], typed: tuple[str, ...], said: str
) -> None:
    refused(["train", *SHORT, *typed], said)


@pytest.mark.usefixtures("elsewhere")
def test_all_stands_for_every_algorithm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "all.toml").write_text('algo = "all"\nenv = "CartPole-v1"\n')
    for typed in ([*SHORT, "--model", "all"], ["--config", "all.toml"]):
        assert main(["train", *typed, "--seeds", "1,5", "--dry-run", "--json"]) == DONE
        found = json.loads(capsys.readouterr().out)["slots"]
        assert [(row["algorithm"], row["seed"]) for row in found] == [
            (name, seed) for name in ALGORITHMS for seed in (1, 5)
        ]


@pytest.mark.usefixtures("elsewhere")
def test_every_seed_is_a_run_of_its_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "write_report", lambda _: "a report")
    flags = ["--concurrency", "2", "--stagger-s", "0"]
    assert main(["train", *SHORT, "--algo", "a2c", "--json", "--seeds", "2-3", *flags]) == DONE
    found = json.loads(capsys.readouterr().out)["slots"]
    assert [(run["algorithm"], run["seed"], run["steps"]) for run in found] == [("a2c", 2, 80), ("a2c", 3, 80)]
    assert len({run["run"] for run in found}) == 2
    assert len(read_listing(Path("fleets/cartpole-v1-a2c")).slots) == 2


def test_names_are_kept_as_the_catalog_has_them() -> None:
    assert parse_train([*SHORT, "--algo", "N_Step_DQN"]).algo == "n-step-dqn"
