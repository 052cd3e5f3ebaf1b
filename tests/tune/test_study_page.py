"""The page of a study: every seed is on it, failures too, and nothing that a file says becomes markup."""

from pathlib import Path

import pytest

from redline.tune.goals import RunResult, Verdict
from redline.tune.space import Choices, Range, Space
from redline.tune.study import StudyFolder, StudySettings
from redline.tune.study_page import build_page
from redline.tune.trials import TrialRecord

HOSTILE = "<script>alert(1)</script>"
SPACE = Space("s.toml", {"optimizer.lr": Range(1e-4, 1e-2), "layers": Choices((f'"{HOSTILE}"',))}, {"env.x": HOSTILE})


def result(seed: int, steps: int | None, failure: str = "") -> RunResult:
    return RunResult(seed=seed, run=f"trials/{HOSTILE}", reached_steps=steps, best_mean_return=3.0, failure=failure)


def trial(number: int, state: str, results: list[RunResult], score: float | None) -> TrialRecord:
    settings = {"optimizer.lr": 1e-3 * (number + 1), "layers": HOSTILE}
    return TrialRecord(number, state, settings, tuple(results), score, why=HOSTILE if state == "failed" else "")


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    asked = StudySettings(
        env=HOSTILE,
        algo="dqn",
        goal="steps-to-return:400",
        window=100,
        minutes_per_trial=1.0,
        search_minutes=10.0,
        trials=None,
        seeds_per_trial=1,
        final_seeds=2,
        side_by_side=2,
        threads=1,
        pruning="off",
        seed=1,
        space_name="s.toml",
        space=SPACE.to_plain(),
    )
    return StudyFolder(tmp_path / "study", asked, [])


def test_the_page_lists_every_seed_and_failure_as_text(folder: StudyFolder) -> None:
    trials = [trial(n, "done", [result(1_000_000 + n, 5_000 + n)], 1 / (5_001 + n)) for n in range(6)]
    trials.append(trial(6, "failed", [result(1_000_006, None, failure=HOSTILE)], None))
    verdict = Verdict(
        trial=3,
        settings={"optimizer.lr": 1e-3},
        winner=(result(2_000_000, 4_000), result(2_000_001, None)),
        default=(result(2_000_000, 8_000), result(2_000_001, None, failure=HOSTILE)),
        repeated=(f"winner with seed 2000000: {HOSTILE}",),
    )
    page = build_page(folder, SPACE, trials, {"optimizer.lr": 0.75, HOSTILE: 0.25}, verdict, unix_s=0.0)
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page
    for number in (*range(1_000_000, 1_000_007), 2_000_000, 2_000_001):
        assert str(number) in page
    assert "trial 6, seed 1000006" in page
    assert "1 of 2 reached 400" in page
    assert "winner with seed 2000000: &lt;script" in page
    assert page.count('<figure class="card') == 3  # history, importance, and the one number that varies


def test_a_study_without_trials_has_a_page_that_says_so(folder: StudyFolder) -> None:
    page = build_page(folder, SPACE, [], {}, None, unix_s=0.0)
    assert "It has not been made yet." in page
    assert "No trial has a value yet." in page
    assert "steps-to-return:400" in page
