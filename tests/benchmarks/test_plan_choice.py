"""The sweep against a choice: which pairs are tried, which rows count, and when a choice is good."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import plan_choice
from plan_choice import CASES, measurement, promising_pairs, read_done
from redline.cli.flags import parse_train
from redline.jsonl import RecordWriter
from redline.plan.candidate_pool import CandidatePool
from redline.plan.knobs import Asked
from redline.plan.speed import CandidateLostError, Window
from redline.runs.host import commit

THREADS, AHEAD, RAW = {"learner.threads": 1}, {"replay.prefetch": 1}, {"replay.codec": "raw"}
SINGLE = {"--learner.threads 1": THREADS, "--replay.prefetch 1": AHEAD, "--replay.codec raw": RAW}


def test_pairs_that_should_reach_the_choice_are_tried_the_likeliest_first() -> None:
    # the choice is one thread, 1.25 × as fast as the default
    ratios = {"default": 0.8, "--replay.prefetch 1": 0.8, "--replay.codec raw": 0.88}
    assert list(promising_pairs(SINGLE, ratios, THREADS)) == [
        "--learner.threads 1 --replay.codec raw",  # 1 × 0.88 / 0.8
        "--learner.threads 1 --replay.prefetch 1",  # 1 × 0.8 / 0.8
    ]  # prefetch and raw together: 0.8 × 0.88 / 0.8 is below 0.9


def test_pairs_of_a_way_that_was_not_measured_or_of_one_knob_are_left_out() -> None:
    ratios = {"--learner.threads 1": 1.0, "--learner.threads 2": 1.0}
    single = {**SINGLE, "--learner.threads 2": {"learner.threads": 2}}
    assert promising_pairs(single, ratios, {}) == {}


def row(case: str, *, is_good: bool = True, **facts: Any) -> dict[str, Any]:
    base = {"case": case, "commit": commit(), "seconds": 115.0, "took_s": 100.0, "is_good": is_good, "better": {}}
    return {**base, "unmeasured": [], "unmeasured_pairs": [], "lost": {}, **facts}


def test_only_rows_of_this_version_and_budget_count_as_done(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert read_done(path, seconds=115.0) == {}
    with RecordWriter(path) as rows:
        for found in (row("tiny"), row("pong", commit="another"), row("load", seconds=60.0)):
            rows.write(found)
    assert list(read_done(path, seconds=115.0)) == ["tiny"]


@pytest.mark.parametrize(("bad", "passed"), [(1, True), (2, False)])
def test_nine_of_ten_choices_must_be_good(bad: int, passed: bool) -> None:
    rows = [row(case, is_good=number >= bad) for number, case in enumerate(CASES)]
    assert measurement(rows, seconds=115.0, rounds=10).passed is passed
    assert measurement(rows[:3], seconds=115.0, rounds=10).passed is None


def test_the_headline_names_what_was_better_and_what_nobody_knows() -> None:
    facts = {"better": {"a": {}}, "unmeasured": ["b"], "unmeasured_pairs": ["b c"], "lost": {"d": "it failed"}}
    found = measurement([row("tiny"), row("pong", is_good=False, **facts)], seconds=115.0, rounds=10)
    assert found.headline == (
        "1 of 2 choices are beaten by nothing beyond 1.05 ×, in at most 100 s; "
        "pong: better is a, 2 undecided (b | b c), 1 lost (d)"
    )


class PlantedPool(CandidatePool):
    """Candidates with known speeds in each round: the choice has 100 steps/s. After the last round time is over."""

    def __init__(self, speeds: Mapping[str, Sequence[int]], ends_s: float) -> None:
        self._speeds = {name: iter(rounds) for name, rounds in speeds.items()}
        self._ends_s = ends_s

    @property
    def ready(self) -> list[str]:
        return list(self._speeds)

    def start(self, *_: object, **__: object) -> None: ...

    def wait_ready(self, *_: object) -> None: ...

    def end(self, name: str) -> None: ...

    def window(self, name: str, seconds: float, deadline_s: float) -> Window:
        steps = 100 if name == plan_choice.CHOSEN else next(self._speeds[name], None)
        if steps is None:
            time.sleep(max(self._ends_s - time.monotonic(), 0.0))
            raise CandidateLostError("it did not finish a window in time")
        return Window(steps=steps, updates=1, seconds=1.0)


@pytest.mark.parametrize(("rounds", "undecided"), [(3, []), (10, ["--replay.prefetch 1"])])
def test_a_way_that_may_be_better_is_measured_in_all_rounds_or_counts_as_undecided(
    rounds: int, undecided: list[str], tmp_path: Path
) -> None:
    parsed, ends_s = parse_train(["--env", "CartPole-v1", "--model", "dqn"]), time.monotonic() + 1.0
    speeds = {"--replay.prefetch 1": (100, 121, 110), "--learner.threads 1": (90, 91, 90)}
    pool = PlantedPool(speeds, ends_s)
    sweep = plan_choice.Sweep(Asked(parsed.job, parsed.algo), {}, pool, tmp_path, ends_s=ends_s)
    assert sweep._measure({name: SINGLE[name] for name in speeds}, rounds) == undecided
    assert list(sweep.gains) == list(speeds)


def test_the_cases_are_ten() -> None:
    assert len(CASES) == 10
    assert plan_choice.CASE_S == 2 * plan_choice.CHOICE_S
