"""What the tables of docs/performance.md say is what the records hold, and the trials compare equals."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import learning_before_after
from learner_trials import TRIALS
from performance_tables import (
    make_ladder_table,
    make_limit_table,
    make_peers_table,
    make_trials_table,
    make_unharmed_table,
)
from redline.algorithms.named.dqn import DQN as DQN_ALGORITHM
from trial_learners import Learning

RATE = {"median": 150.0, "low": 140.0, "high": 160.4}
SHARE = {"median": 0.561, "low": 0.5, "high": 0.6}
DQN = {
    "title": "DQN on Pong",
    "learning": "samples per step 8.00 and 8.00",
    "summary": {
        "steps_per_s": RATE,
        "limit": {"steps_per_s": 267.4},
        "limit_fraction": SHARE,
        "ratio": {"sb3": {"median": 1.62, "low": 1.5, "high": 1.7}},
    },
}


def rung(name: str, **changes: object) -> dict[str, object]:
    learning = {"mean_return": -0.5, "by_seed": [-0.5], "reason": None}
    facts = {"name": name, "switches_on": "something", "over": "textbook", "missing": None, "gain": SHARE}
    rates = {"steps_per_s": RATE, "updates_per_s": RATE, "samples_per_step": RATE, "cpu_share": SHARE}
    return {**facts, **rates, "learning": learning, **changes}


def test_the_limit_stands_beside_what_is_reached_of_it() -> None:
    assert "| DQN, steps/s | 267 | 150 (140–160) | 56% (50%–60%) |" in make_limit_table({"dqn-speed-pong": DQN})
    assert "| DQN on Pong | sb3 | 1.62 (1.50–1.70) × | samples per step" in make_peers_table({"dqn-speed-pong": DQN})
    learner = {
        "config": {"algo": "dqn", "batch_size": 256},
        "summary": {"updates_per_s": RATE, "limit": {"updates_per_s": 200.0}, "limit_fraction": SHARE},
    }
    table = make_limit_table({"learner-speed-dqn-256": learner})
    assert "| one update of DQN with 256 transitions, updates/s | 200.0 |" in table
    assert make_limit_table({}) == "Nothing is recorded yet."


def test_a_rung_that_needs_a_gpu_has_no_figures() -> None:
    names = ("gain", "steps_per_s", "updates_per_s", "samples_per_step", "cpu_share")
    absent = rung("gpu", missing="needs a GPU", **dict.fromkeys(names))
    table = make_ladder_table({"ladder": {"repeats": [rung("native-env"), absent], "headline": "up to 2 ×"}})
    assert "| native-env | something | 150 (140–160) |" in table
    assert "0.56 (0.50–0.60) × textbook | 56% | −0.50 |" in table
    assert "| gpu | something | – | – | – | – | – | needs a GPU |" in table
    assert table.endswith("Up to 2 ×.")


def test_what_is_kept_and_what_is_not_are_told_apart() -> None:
    gain = {"median": 1.1, "min": 1.0, "max": 1.2}
    rows = [{"title": name, "kept": name == "good", "gain": gain} for name in ("good", "bad")]
    records = {"learner-trials": {"repeats": rows}}
    assert "| good | 1.10 × (1.00–1.20) |" in make_trials_table(records, kept=True)
    assert "good" not in make_trials_table(records, kept=False)


@pytest.mark.parametrize(
    "name",
    [
        "planes",
        "interleave",
        "fold-scale",
        "relu-in-place",
        "dense-transposed",
        "space-to-depth",
        "pieces",
        "halves",
        "small-halves",
        "small-pieces",
        "flat",
    ],
)
def test_both_sides_of_a_trial_learn_the_same(name: str) -> None:
    sides = [make() for make in (TRIALS[name].without, TRIALS[name].with_it)]
    for side in sides:
        side(2)
    weights = [list(side.learner.online.parameters()) for side in sides if isinstance(side, Learning)]
    assert len(weights) == 2
    for without, with_it in zip(*weights, strict=True):
        torch.testing.assert_close(without, with_it, atol=1e-6, rtol=1e-4)


def write_run(run: Path, *, seed: int, final: float, **changes: object) -> None:
    run.mkdir(parents=True)
    config = {"seed": seed, "log_dir": run.parent.name, "env": {"id": "redline/Catch-v0"}, "lr": 0.1, **changes}
    (run / "run.json").write_text(json.dumps({"schema": 1, "algorithm": "dqn", "config": config}))
    rows = [
        {"schema": 1, "role": "actor", "steps": 10 * (i + 1), "return": final if i >= 300 else 0.0} for i in range(400)
    ]
    (run / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def compare_runs(folder: Path) -> int:
    folders = ["--before", str(folder / "before"), "--after", str(folder / "after")]
    commits = ["--before-commit", "a", "--after-commit", "b"]
    return learning_before_after.main([*folders, *commits, "--json", "--no-record"])


def test_runs_are_compared_at_the_same_steps_seed_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, final in (("before", 0.5), ("after", 0.75)):
        for seed in (1, 2, 3):
            write_run(tmp_path / side / f"s{seed}", seed=seed, final=final)
    assert compare_runs(tmp_path) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["summary"]["dqn"]["mean"] == pytest.approx(0.25)
    assert record["repeats"][0]["after"]["mean_returns"] == pytest.approx([0.0, 0.0, 0.0, 0.75])
    assert record["config"]["game"] == "redline/Catch-v0"
    table = make_unharmed_table({"learning-before-after": record})
    assert "| dqn | 3 | before | 0.00 | 0.00 | 0.00 | 0.50 |  |" in table
    assert "|  |  | after | 0.00 | 0.00 | 0.00 | 0.75 | 0.25 (0.25 … 0.25) |" in table


def test_runs_with_other_settings_or_the_same_seed_twice_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "before" / "s1", seed=1, final=0.5)
    write_run(tmp_path / "after" / "s1", seed=1, final=0.5, lr=0.2, env={"id": "redline/Catch-v0", "size": 40})
    with pytest.raises(SystemExit, match=r"differ in env.size, lr$"):
        compare_runs(tmp_path)
    write_run(tmp_path / "before" / "again", seed=1, final=0.5)
    with pytest.raises(SystemExit, match="before holds two runs of dqn with seed 1"):
        compare_runs(tmp_path)


def test_a_count_of_updates_is_not_rounded_up_to_groups() -> None:
    learning = Learning(replace(DQN_ALGORITHM, batch_size=2), group=4)
    learning(5)
    assert learning.learner.updates == 5
