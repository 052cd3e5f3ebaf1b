"""`--model all` and `--seeds`: several runs one after the other, one table, nothing lost where one of them fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.cli import train
from redline.cli.flags import parse_runs, parse_train, read_seeds, requested_algorithm
from redline.cli.process import StopRequest
from redline.errors import UserError
from redline.runtime.launch import start_run

SHORT = ("--env", "CartPole-v1", "--max-steps", "80", "--num-envs", "4")


def chosen(tmp_path: Path, *names: str, extra: tuple[str, ...] = ()) -> list[Any]:
    return [parse_train([*SHORT, "--log-dir", str(tmp_path), "--algo", name, *extra]) for name in names]


def test_all_stands_for_every_algorithm(tmp_path: Path) -> None:
    flags = parse_runs([*SHORT, "--model", "all"])
    assert [item.algo for item in flags] == list(ALGORITHMS)
    config = tmp_path / "all.toml"
    config.write_text('algo = "all"\nenv = "CartPole-v1"\n')
    assert requested_algorithm(["--config", str(config)]) == "all"
    assert len(parse_runs(["--config", str(config)])) == len(ALGORITHMS)


def test_a_flag_that_does_not_suit_all_is_refused_with_the_algorithm_that_lacks_it() -> None:
    with pytest.raises(UserError, match=r"^a2c: .*--replay\.capacity.*every flag must suit every algorithm"):
        parse_runs([*SHORT, "--model", "all", "--replay.capacity", "500"])


def test_one_object_tells_of_every_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StopRequest() as stop:
        code = train.compare(chosen(tmp_path, "a2c", "pqn", extra=("--json",)), stop)
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [(run["algorithm"], run["steps"]) for run in found["runs"]] == [("a2c", 80), ("pqn", 80)]


def test_an_algorithm_that_cannot_run_does_not_cost_the_others_their_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_a2c(job: Any, algorithm: str, watcher: Any, **more: Any) -> Any:
        if algorithm == "a2c":
            raise UserError("the disk is full by now")
        return start_run(job, algorithm, watcher, **more)

    monkeypatch.setattr(train, "start_run", refuse_a2c)
    with StopRequest() as stop:
        code = train.compare(chosen(tmp_path, "a2c", "ppo", extra=("--plain",)), stop)
    *_, first, second = capsys.readouterr().out.splitlines()
    assert code == 1
    assert first.startswith("a2c")
    assert first.endswith("error: the disk is full by now")
    assert second.split()[:3] == ["ppo", "1", "80"]


def test_every_seed_is_a_run_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = [*SHORT, "--algo", "a2c", "--log-dir", str(tmp_path), "--json", "--seeds", "2-3"]
    assert train.run(args) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["algorithm"], run["seed"], run["steps"]) for run in found["runs"]] == [("a2c", 2, 80), ("a2c", 3, 80)]
    assert len({run["run"] for run in found["runs"]}) == 2


def test_every_seed_of_every_algorithm() -> None:
    flags = parse_runs([*SHORT, "--model", "all", "--seeds", "1,5"])
    assert [(item.algo, item.job.seed) for item in flags] == [(name, seed) for name in ALGORITHMS for seed in (1, 5)]


@pytest.mark.parametrize(
    ("text", "seeds"), [("7", [7]), ("1-3", [1, 2, 3]), ("1,5, 8", [1, 5, 8]), ("3-4,4-5,1", [3, 4, 5, 1])]
)
def test_seeds_are_ranges_and_lists(text: str, seeds: list[int]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1-", "-3", "1--3", "3-1", "1-5000", "1.5", "1,,2", "9" * 5_000])
def test_what_names_no_seeds_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"^--seeds [^\n]{0,200}use a range such as 1-3"):
        read_seeds(text)


def test_one_seed_or_several() -> None:
    with pytest.raises(UserError, match="--seed and --seeds were both given"):
        parse_runs([*SHORT, "--seed", "1", "--seeds", "1-3"])


def test_names_are_kept_as_the_catalog_has_them() -> None:
    assert parse_train([*SHORT, "--algo", "N_Step_DQN"]).algo == "n-step-dqn"
