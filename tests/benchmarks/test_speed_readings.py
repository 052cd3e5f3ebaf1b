"""The speed script: what the bench commands print becomes a record, judged by its goals."""

import sys
from typing import Any

import pytest

import speed
from recording import make_record

RATE = {"median": 1.7, "low": 1.6, "high": 1.8}
HEAD = {"schema": 1, "command": "redline bench", "commit": None, "host": {}, "versions": {}, "duration_s": 1.0}


def training(*, met: bool | None, same_updates: bool = True) -> dict[str, Any]:
    learnt = {"samples_per_step": RATE, "mean_return_in_windows": None, "episodes_in_windows": 0, "cores_used": RATE}
    config = {"algorithm": "dqn", "env": "PongNoFrameskip-v4", "num_envs": 8, "batch_size": 32, "steps_per_update": 4}
    return {
        **HEAD,
        "config": config,
        "steps_per_s": RATE,
        "updates_per_s": RATE,
        "limit_fraction": RATE,
        "peers": {"sb3": RATE},
        "ratio": {"sb3": RATE},
        "learning": {"redline": learnt, "sb3": learnt},
        "same_updates_per_step": same_updates,
        "is_busy": True,
        "others_percent": 20.0,
        "rounds": [{"redline": {}, "sb3": {}}],
        "goals": {"ratio_sb3": {"met": True}, "limit_fraction": {"met": met}},
    }


@pytest.mark.parametrize("met", [True, False, None])
def test_a_training_passes_if_all_goals_are_met(met: bool | None) -> None:
    found = speed.read_training(training(met=met))
    assert found.passed is met
    assert found.name == "dqn-speed-pong"
    assert "1.70 × (1.60–1.80) sb3" in found.headline
    assert "others used up to 20 %" in found.learning
    record = make_record(found, argv=["benchmarks/speed.py", "dqn"], unix_s=0.0)
    assert "host" not in record["summary"]


def test_unequal_learning_fails() -> None:
    found = speed.read_training(training(met=True, same_updates=False))
    assert found.passed is False
    assert "NOT done" in found.learning


def learner(algo: str, batch_size: int) -> dict[str, Any]:
    return {
        **HEAD,
        "config": {"algo": algo, "batch_size": batch_size, "threads": 2, "includes_forward_of_acting": algo == "a2c"},
        "limit": {"flop_per_update": 2e9, "sgemm_gflops": 100.0},
        "updates_per_s": RATE,
        "limit_fraction": RATE,
        "ratio": {},
        "is_busy": False,
        "rounds": [],
        "goals": {"limit_fraction": {"met": None}},
    }


def test_only_the_usual_learner_has_the_plain_name() -> None:
    assert speed.read_learner(learner("dqn", 32)).name == "learner-speed"
    assert speed.read_learner(learner("dqn", 256)).name == "learner-speed-dqn-256"
    a2c = speed.read_learner(learner("a2c", 80))
    assert a2c.name == "learner-speed-a2c-80"
    assert "shares with acting" in a2c.learning


def test_the_env_layer_is_told_with_its_seeded_resets() -> None:
    result = {
        **HEAD,
        "config": {"env": "pong", "num_envs": 8},
        "steps_per_s": RATE,
        "peers": {"bare": RATE},
        "ratio": {"bare": RATE},
        "ratio_with_keys": {"bare": {"median": 1.615, "low": 1.52, "high": 1.71}},
        "ratio_of_means": 1.7,
        "key_share": 0.05,
        "is_busy": False,
        "rounds": [],
        "goals": {"ratio": {"met": True}},
    }
    found = speed.read_env(result)
    assert "1.61 with seeded resets" in found.headline
    assert "take 5.0% of the time: with them 1.61 × (1.52–1.71)" in found.learning


def test_a_command_that_crashes_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "redline_command", lambda *_: [sys.executable, "-c", "raise SystemExit(1)"])
    with pytest.raises(SystemExit, match="ended with 1 and no result"):
        speed.run_bench(["env"])


def test_the_ladder_holds_if_its_base_does() -> None:
    rungs = [
        {"name": "textbook", "gain_over_base": {**RATE, "median": 1.0}, "learning": {"mean_return": 0.5}},
        {"name": "native", "gain_over_base": RATE, "learning": {"mean_return": 0.4}},
        {"name": "device", "gain_over_base": None, "learning": {"mean_return": None}},
    ]
    base = {"valid": True, "reason": "keeps up"}
    found = speed.read_ladder({**HEAD, "config": {"regime": "DQN"}, "rungs": rungs, "base": base})
    assert found.passed is True
    assert "with native" in found.headline
    assert "0.4 … 0.5" in found.learning


def test_what_is_typed_goes_on() -> None:
    options, passed_on = speed.parse(["ppo", "--rounds", "7", "--no-record"])
    assert (options.subject, options.no_record, passed_on) == ("ppo", True, ["--rounds", "7"])
    assert speed.parse(["--rounds", "7"])[0].subject == "dqn"
