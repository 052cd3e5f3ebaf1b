"""Records: complete, append-only, and without paths of the machine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recording import Measurement, make_record, relative_command, spread, write_record

MEASUREMENT = Measurement(
    name="dqn-speed-pong",
    title="DQN on Pong",
    headline="1.50 ×",
    learning="mean return −20.1",
    passed=True,
    config={"env": "ALE/Pong-v5", "unit": "steps/s"},
    repeats=[{"ratio": 1.4}, {"ratio": 1.6}],
    summary={"ratio": spread([1.4, 1.6])},
    packages=("pytest",),
)
ARGV = ["/somewhere/benchmarks/speed.py", "--repeats", "2"]


def test_a_spread_is_the_five_numbers_worked_by_hand() -> None:
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == {"median": 3.0, "min": 1.0, "q1": 2.0, "q3": 4.0, "max": 5.0}


def test_a_single_value_is_its_own_spread() -> None:
    assert set(spread([7.0]).values()) == {7.0}


def test_a_record_holds_command_commit_host_and_versions() -> None:
    record = make_record(MEASUREMENT, argv=ARGV, unix_s=0.0)
    assert record["schema"] == 1
    assert record["command"] == "python benchmarks/speed.py --repeats 2"
    assert record["versions"]["pytest"] == pytest.__version__
    assert {"commit", "host", "config", "repeats", "summary", "learning"} <= record.keys()


def test_a_path_of_this_machine_is_refused(tmp_path: Path) -> None:
    leaky = replace(MEASUREMENT, config={"run": str(tmp_path / "runs")})
    with pytest.raises(ValueError, match="path of this machine"):
        make_record(leaky, argv=ARGV, unix_s=0.0)


def test_a_run_elsewhere_is_shown_by_its_last_name_only() -> None:
    argv = ["learning_curve.py", "/data/someone/runs/pong/20260101-120000-s1", "--out=/data/x"]
    assert relative_command(argv) == "python benchmarks/learning_curve.py …/20260101-120000-s1 --out=…/x".replace(
        "…/20260101-120000-s1", "'…/20260101-120000-s1'"
    ).replace("--out=…/x", "'--out=…/x'")


def test_records_are_never_overwritten(tmp_path: Path) -> None:
    record = make_record(MEASUREMENT, argv=ARGV, unix_s=1_767_225_600.0)
    path = write_record(record, tmp_path)
    assert path.name == "dqn-speed-pong-20260101-000000.json"
    assert json.loads(path.read_text(encoding="utf-8")) == record
    with pytest.raises(FileExistsError):
        write_record(record, tmp_path)
