"""What the tables of docs/performance.md say is what the records hold."""

from performance_tables import (
    make_ladder_table,
    make_limit_table,
    make_peers_table,
    make_trials_table,
    make_unharmed_table,
)

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
    old, new = {"dqn-speed-pong": DQN}, {"dqn-speed-pong": DQN, "dqn-against-sb3": {**DQN, "title": "in pairs"}}
    assert "| DQN on Pong | sb3 | 1.62 (1.50–1.70) × | samples per step" in make_peers_table(old)
    assert "| in pairs | sb3 | 1.62 (1.50–1.70) × |" in make_peers_table(new)
    assert "DQN on Pong" not in make_peers_table(new)
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


def test_learning_before_and_after_stand_below_each_other() -> None:
    row = {
        "algorithm": "dqn",
        "before": {"mean_returns": [0.0, 0.5], "by_seed": {"1": 0.5, "2": 0.5}},
        "after": {"mean_returns": [0.0, 0.75], "by_seed": {"1": 0.75, "2": 0.75}},
        "change_at_the_end": {"mean": 0.25, "low": 0.25, "high": 0.25},
    }
    table = make_unharmed_table({"learning-before-after": {"config": {"points": [0.5, 1.0]}, "repeats": [row]}})
    assert "| dqn | 2 | before | 0.00 | 0.50 |  |" in table
    assert "|  |  | after | 0.00 | 0.75 | 0.25 (0.25 … 0.25) |" in table
