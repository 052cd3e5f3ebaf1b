"""Costs worked by hand: differences within a round, what overlaps, and what is named."""

import pytest

from redline.bench.costs import ENV_AND_LEARNER, PARTS, bottleneck, cost_of, low_high, median_of, overlap
from redline.bench.knockouts import VARIANTS

# milliseconds per vector step; envs and learner hide 2 ms of each other
QUIET = {
    "full": 20.0,
    "constant_batch": 19.0,
    "no_optimiser": 18.0,
    "no_backward": 12.0,
    "no_loss": 8.0,
    "no_env": 17.0,
    "no_acting": 19.0,
    "no_records": 20.0,
    "no_env_no_loss": 3.0,
}
DRIFT = (0.0, 5.0, 1.0, 3.0, 2.0, 4.0, 9.0)  # the machine's, the same for all of a round


def rounds_of(**changed: float) -> dict[str, list[float]]:
    return {name: [ms + drift for drift in DRIFT] for name, ms in {**QUIET, **changed}.items()}


def test_every_variant_is_measured_by_some_part() -> None:
    assert set(QUIET) == set(VARIANTS)


def test_costs_are_differences_within_a_round_so_drift_cancels() -> None:
    rounds = rounds_of()
    costs = {name: cost_of(rounds, part)["ms_per_vector_step"]["median"] for name, part in PARTS.items()}
    assert costs == pytest.approx(
        {"optimiser": 2, "backward": 6, "forward": 4, "sampling": 1, "env": 3, "acting": 1, "records": 0}
    )
    assert cost_of(rounds, PARTS["env"])["ms_per_vector_step"] == pytest.approx({"median": 3, "low": 3, "high": 3})


def test_what_is_saved_only_by_leaving_out_both_is_hidden() -> None:
    found = overlap(rounds_of(), can_overlap=True)
    assert found["sum_of_parts_ms"]["median"] == pytest.approx(17)
    assert found["hidden_ms"]["median"] == pytest.approx(17 - 3 - 12)
    assert "at the same time: 2.00 ms" in found["sentence"]
    in_turns = overlap(rounds_of(), can_overlap=False)["sentence"]
    assert "take turns, yet 2.00 ms" in in_turns
    assert "at the same time" not in in_turns
    assert "slow each other down: 1.00 ms" in overlap(rounds_of(no_env_no_loss=6.0), can_overlap=True)["sentence"]
    assert "No overlap" in overlap(rounds_of(no_env_no_loss=5.0), can_overlap=True)["sentence"]


def test_a_part_of_the_learner_is_named_beside_the_whole_learner() -> None:
    found = bottleneck(rounds_of(), can_overlap=True)
    assert (found["part"], found["then"]) == ("backward", None)
    assert "The backward pass costs most: 6.00 of 23.00 ms" in found["sentence"]
    assert "learner as a whole costs 12.00 ms" in found["sentence"]


def test_a_part_is_named_although_the_learner_costs_more_together() -> None:
    found = bottleneck(rounds_of(no_env=12.0), can_overlap=True)
    assert (found["part"], found["then"]) == ("env", "backward")
    assert found["sentence"].startswith("The envs cost most: 8.00 of 23.00 ms")
    assert "learner cost more together: 12.00 ms" in found["sentence"]


def test_the_learner_is_not_mentioned_where_it_costs_less() -> None:
    found = bottleneck(rounds_of(no_env=5.0), can_overlap=True)
    assert (found["part"], found["then"]) == ("env", None)
    assert "learner" not in found["sentence"]


def test_nothing_is_named_where_every_cost_may_be_noise() -> None:
    noise = [1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 0.0]
    rounds = {name: [20.0 + noise[(place * at) % 7] for at in range(7)] for place, name in enumerate(QUIET, start=1)}
    found = bottleneck(rounds, can_overlap=True)
    assert found["part"] is None
    assert "Nothing stands out" in found["sentence"]


def test_envs_and_learner_that_hide_each_other_come_before_a_cheaper_part() -> None:
    alike = dict.fromkeys(QUIET, 20.0) | {"no_env_no_loss": 2.0}
    rounds = {name: [ms] * 7 for name, ms in alike.items()}
    found = bottleneck(rounds, can_overlap=True)
    assert (found["part"], found["then"]) == (ENV_AND_LEARNER, None)
    assert "side by side for 18.00 of 20.00 ms" in found["sentence"]
    found = bottleneck(rounds | {"no_records": [19.9] * 7}, can_overlap=True)
    assert (found["part"], found["then"]) == (ENV_AND_LEARNER, "records")
    assert found["sentence"].endswith("records and monitor cost most: 0.10 of 20.00 ms per vector step (1 %).")
    assert bottleneck(rounds | {"no_records": [19.9] * 7}, can_overlap=False)["part"] == "records"


def test_four_rounds_are_too_few_for_a_verdict() -> None:
    few = {name: ms[:4] for name, ms in rounds_of().items()}
    assert bottleneck(few, can_overlap=True) == {
        "part": None,
        "then": None,
        "sentence": "Not judged: use --rounds 5 or more.",
    }
    assert "Overlap is not judged" in overlap(few, can_overlap=True)["sentence"]
    assert bottleneck({name: ms[:5] for name, ms in rounds_of().items()}, can_overlap=True)["part"] == "backward"
    assert "90 %" in low_high(5)
    assert "90 %" not in low_high(4)


def test_the_interval_of_a_median_leaves_out_few_rounds_at_either_end() -> None:
    found = median_of([float(value) for value in range(8)])  # P(at most one of 8 below) = 9 / 256, of two 37 / 256
    assert found == {"low": 1.0, "median": 3.5, "high": 6.0}
    assert median_of([7.0]) == {"low": 7.0, "median": 7.0, "high": 7.0}
