"""`redline algos` as a user runs it."""

import json
from pathlib import Path

import pytest

from redline.algorithms.catalog import ALGORITHMS, part_fields
from redline.cli.algos import KINDS, fit_columns
from redline.cli.main import BAD_INPUT, DONE, main

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("elsewhere")


def write_record(folder: Path, name: str, algorithms: object, *, unix_s: float = 1.0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record = {"schema": 1, "unix_s": unix_s, "summary": {"algorithms": algorithms}}
    (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")


def line_of(name: str, out: str) -> str:
    """Return the first line of the first table that begins with the name."""
    return next(line for line in out.splitlines() if line.split()[:1] == [name])


def test_all_algorithms_stand_in_the_table_by_family_and_name(capsys: Output) -> None:
    assert main(["algos"]) == DONE
    out = capsys.readouterr().out
    rows = [line.split()[:2] for line in out.splitlines() if line.split()[1:2] in (["q-learning"], ["on-policy"])]
    assert {name for name, _ in rows} == set(ALGORITHMS)
    families = [family for _, family in rows]
    assert families == sorted(families, reverse=True)
    for family in ("q-learning", "on-policy"):
        names = [name for name, found in rows if found == family]
        assert names == sorted(names)
    assert "arXiv:1707.06347" in line_of("ppo", out)
    assert "noisy, dueling, categorical, online-chooses, greedy, prioritized" in out
    assert "lr 0.00025, batch 256, 128 steps × 4 epochs, 8 envs, λ 0.95, γ 0.99" in out


def test_the_results_come_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.chdir(tmp_path)  # outside of the repository
    assert main(["algos", "--json"]) == DONE
    algorithms = json.loads(capsys.readouterr().out)["algorithms"]
    assert all(facts["results"]["cartpole"]["record"].endswith(".json") for facts in algorithms.values())


def test_each_algorithm_has_its_newest_measurement(tmp_path: Path, capsys: Output) -> None:
    records = tmp_path / "records"
    solved = {"seeds": 3, "seeds_passed": 1, "first_reached_steps": 90_000, "best_mean_return_100": 410.0}
    newer = {"seeds": 3, "seeds_passed": 3, "first_reached_steps": 24_400, "best_mean_return_100": 495.5}
    # by unix_s, not by the name of the file; a later record need not hold all algorithms
    write_record(records, "algorithms-cartpole-v1-b", {"ppo": solved, "dqn": solved}, unix_s=10.0)
    write_record(records, "algorithms-cartpole-v1-a", {"ppo": newer}, unix_s=20.0)
    never = {"seeds": 3, "seeds_passed": 0, "first_reached_steps": None, "best_mean_return_100": 0.4}
    write_record(records, "algorithms-catch-a", {"ppo": never})
    write_record(records, "algorithms-pong-speed-a", {"ppo": {"steps_per_s": 2_345.6, "steps": 20_000, "loss": 0.1}})
    score = {"mean_return": -3.25, "episodes": 10, "steps": 2_000_000, "minutes": 15.5}
    write_record(records, "algorithms-pong-score-a", {"ppo": score})
    assert main(["algos", "--records", str(records)]) == DONE
    out = capsys.readouterr().out
    assert line_of("ppo", out).split()[-5:] == ["3/3", "24k", "0/3", "2,346", "−3.2"]
    assert line_of("dqn", out).split()[-5:] == ["1/3", "90k", "–", "–", "–"]
    assert main(["algos", "ppo", "--records", str(records)]) == DONE
    out = capsys.readouterr().out
    assert "3 of 3 seeds passed, first after 24,400 steps (median), best mean-100 495.50" in out
    assert "−3.2 (10 episodes, 2,000,000 steps, 15.5 minutes), record algorithms-pong-score-a.json" in out


def test_one_algorithm_is_told_with_departures_and_sources(capsys: Output) -> None:
    assert main(["algos", "C51"]) == DONE
    out = capsys.readouterr().out
    entry = ALGORITHMS["c51"]
    for text in ("c51 (q-learning)", "Departures", entry.paper, entry.atari.source, entry.classic.source):
        assert text in out
    assert "predict categorical" in out


def test_json_holds_all_parts_and_defaults_of_all_algorithms(tmp_path: Path, capsys: Output) -> None:
    write_record(tmp_path / "r", "algorithms-pong-score-x", {"dqn": {"mean_return": 12.5}}, unix_s=7.0)
    assert main(["algos", "--json", "--records", str(tmp_path / "r")]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert set(found["algorithms"]) == set(ALGORITHMS)
    for name, told in found["algorithms"].items():
        algorithm = ALGORITHMS[name].classic.algorithm
        for domain in ("atari", "classic"):
            assert list(told["defaults"][domain]["parts"]) == part_fields(algorithm)
            assert told["defaults"][domain]["source"]
        assert told["defaults"]["classic"]["lr"] == algorithm.optimizer.lr_at(0)
        assert told["defaults"]["classic"]["gamma"] == algorithm.returns.gamma
        assert set(told["results"]) == set(KINDS)
    score = found["algorithms"]["dqn"]["results"]["pong_score"]
    assert score == {"mean_return": 12.5, "record": "algorithms-pong-score-x.json", "unix_s": 7.0}
    assert found["algorithms"]["dqn"]["own_parts"] == []
    assert found["algorithms"]["double-dqn"]["own_parts"] == ["bootstrap"]


def test_json_of_one_algorithm_has_the_same_shape(capsys: Output) -> None:
    assert main(["algos", "drqn", "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert list(found["algorithms"]) == ["drqn"]
    assert found["algorithms"]["drqn"]["parts"]["core"] == "gru"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"unix_s": 1}', '{"unix_s": "soon", "summary": {"algorithms": {}}}', '{"unix_s": true}']
)
def test_a_damaged_record_is_named_and_the_rest_stands(text: str, tmp_path: Path, capsys: Output) -> None:
    write_record(tmp_path, "algorithms-pong-speed-1", {"dqn": {"steps_per_s": 300}, "pqn": 5})
    (tmp_path / "algorithms-pong-speed-2.json").write_text(text, encoding="utf-8")
    assert main(["algos", "--records", str(tmp_path)]) == DONE
    out, err = capsys.readouterr()
    assert line_of("dqn", out).split()[-2:] == ["300", "–"]
    assert line_of("pqn", out).split()[-2:] == ["–", "–"]
    assert err.startswith("redline: warning: algorithms-pong-speed-2.json is left out: ")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["rainbo"], "did you mean rainbow"),
        (["--records", "nowhere"], "records nowhere is no folder"),
        (["--frobnicate"], "frobnicate"),
        (["dqn", "ppo"], "ppo"),
    ],
)
def test_bad_input_is_one_line(args: list[str], part: str, capsys: Output) -> None:
    assert main(["algos", *args]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert part in err


def test_a_narrow_terminal_gets_several_tables_that_start_with_the_name() -> None:
    assert list(fit_columns([10, 20, 30, 5], 200)) == [[0, 1, 2, 3]]
    assert list(fit_columns([10, 20, 30, 5], 51)) == [[0, 1], [0, 2, 3]]
    assert list(fit_columns([10, 20, 30, 5], 8)) == [[0, 1], [0, 2], [0, 3]]
