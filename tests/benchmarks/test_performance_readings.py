"""What the tables of docs/performance.md say is what the records hold, and the trials compare equals."""

import json
from pathlib import Path

import pytest
import torch

import learning_before_after
from learner_trials import TRIALS
from performance_tables import make_ladder_table, make_limit_table, make_peers_table, make_trials_table
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
    "name", ["interleave", "fold-scale", "relu-in-place", "space-to-depth", "pieces", "halves", "flat"]
)
def test_both_sides_of_a_trial_learn_the_same(name: str) -> None:
    sides = [make() for make in (TRIALS[name].without, TRIALS[name].with_it)]
    for side in sides:
        side(2)
    weights = [list(side.learner.online.parameters()) for side in sides if isinstance(side, Learning)]
    assert len(weights) == 2
    for without, with_it in zip(*weights, strict=True):
        torch.testing.assert_close(without, with_it, atol=1e-6, rtol=1e-4)


def test_runs_are_compared_at_the_same_steps_seed_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, final in (("before", 0.5), ("after", 0.75)):
        for seed in (1, 2):
            run = tmp_path / side / f"s{seed}"
            run.mkdir(parents=True)
            facts = {"schema": 1, "algorithm": "dqn", "config": {"seed": seed}}
            (run / "run.json").write_text(json.dumps(facts))
            rows = [
                {"schema": 1, "role": "actor", "steps": 10 * (i + 1), "return": final if i >= 300 else 0.0}
                for i in range(400)
            ]
            (run / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = ["--before", str(tmp_path / "before"), "--after", str(tmp_path / "after")]
    commits = ["--before-commit", "a", "--after-commit", "b"]
    assert learning_before_after.main([*folders, *commits, "--json", "--no-record"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["summary"]["dqn"]["mean"] == pytest.approx(0.25)
    assert record["repeats"][0]["after"]["mean_returns"] == pytest.approx([0.0, 0.0, 0.0, 0.75])
