"""The speed script: what the bench commands print becomes a record, judged by its goals."""

import sys
from typing import Any

import pytest

import speed
from recording import make_record
from redline.cli.flags import parse_train
from sb3_training import SPEED_PEERS

RATE = {"median": 1.7, "low": 1.6, "high": 1.8}
HEAD = {"schema": 1, "command": "redline bench", "commit": None, "host": {}, "versions": {}, "duration_s": 1.0}


def training(*, met: bool | None, same_updates: bool = True) -> dict[str, Any]:
    learnt = {"samples_per_step": RATE, "mean_return_in_windows": None, "episodes_in_windows": 0, "cores_used": RATE}
    config = {"algorithm": "dqn", "env": {"id": "PongNoFrameskip-v4"}, "num_envs": 8, "batch_size": 32}
    return {
        **HEAD,
        "config": config,
        "steps_per_s": RATE,
        "updates_per_s": RATE,
        "limit_fraction": RATE,
        "learning": {"redline": learnt},
        "same_updates_per_step": same_updates,
        "is_busy": True,
        "others_percent": 20.0,
        "rounds": [{"redline": {}}],
        "goals": {"limit_fraction": {"met": met}},
    }


@pytest.mark.parametrize("met", [True, False, None])
def test_a_training_passes_if_all_goals_are_met(met: bool | None) -> None:
    found = speed.read_training(training(met=met))
    assert found.passed is met
    assert found.name == "dqn-speed-pong"
    assert found.headline == "2 steps/s; 170 % (160–180) of the limit"
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


def pair(ratio: float, *, samples_per_step: float = 8.0) -> dict[str, Any]:
    ours = {"steps_per_s": 100.0 * ratio, "samples_per_step": 8.0}
    return {"redline": ours, "sb3": {"steps_per_s": 100.0, "samples_per_step": samples_per_step}}


def test_each_pair_gives_a_ratio() -> None:
    found = speed.read_pairs([pair(ratio) for ratio in (1.5, 1.7, 1.6)], "redline", "sb3")
    assert found["ratio"]["median"] == pytest.approx(1.6)
    assert [row["ratio"] for row in found["rows"]] == pytest.approx([1.5, 1.7, 1.6])
    assert "160 against 100 steps/s" in found["headline"]
    assert found["is_fair"]


def test_a_side_that_learns_less_is_not_compared() -> None:
    found = speed.read_pairs([pair(2.0, samples_per_step=7.6)] * 3, "redline", "sb3")
    assert not found["is_fair"]
    assert "NOT the same" in found["learning"]


@pytest.mark.parametrize("subject", speed.GOAL_RATIOS["float32"])
def test_both_sides_have_the_same_settings(subject: str) -> None:
    job = parse_train(["--env", "pong", *speed.PAIRED[subject], *speed.LIKE_SB3.get(subject, ())]).job
    ours, peer = job.algorithm, SPEED_PEERS[subject]
    options = peer.options
    assert job.num_envs == peer.num_envs
    assert ours.batch_size == peer.batch_size
    assert ours.optimizer.lr_at(0) == options["learning_rate"]
    assert ours.returns.gamma == 0.99  # SB3's default
    if subject == "dqn":
        assert ours.warmup_steps == options["learning_starts"]
        assert ours.replay.capacity == options["buffer_size"]
        updates_per_vector_step = options["gradient_steps"] / options["train_freq"][0]
        assert ours.updates_per_vector_step(job.num_envs) == updates_per_vector_step
        steps_per_update = job.num_envs / updates_per_vector_step
        assert ours.target_sync_updates * steps_per_update == options["target_update_interval"]
    else:
        assert ours.rollout_steps == options["n_steps"]
        assert (ours.objective.entropy_weight, ours.objective.value_weight) == (options["ent_coef"], options["vf_coef"])
    if subject == "ppo":
        assert (ours.epochs, ours.objective.clip) == (options["n_epochs"], options["clip_range"])


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (["env", "--against", "sb3"], "takes one of dqn, ppo, a2c"),
        (["learner", "--against", "HEAD"], "takes one of dqn, dqn-async, ppo, a2c"),
        (["ppo", "--against", "sb3", "--rounds", "3"], "--rounds does not go with --against"),
        (["dqn-async"], "dqn-async needs --against COMMIT"),
    ],
)
def test_what_does_not_go_together_is_one_line(typed: list[str], reason: str) -> None:
    with pytest.raises(SystemExit, match=reason):
        speed.main(typed)


def test_what_is_typed_goes_on() -> None:
    options, passed_on = speed.parse(["ppo", "--rounds", "7", "--no-record"])
    assert (options.subject, options.no_record, passed_on) == ("ppo", True, ["--rounds", "7"])
    assert speed.parse(["--rounds", "7"])[0].subject == "dqn"
