"""A hundred processes of a run killed or stopped at random, and fifty supervisors: nothing hangs, leaks or tears."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "processes"))

from chaos import decapitate, harass

SEED = 5


@pytest.mark.slow
def test_a_hundred_random_kills_and_stops_leave_whole_rows_and_true_counts(tmp_path: Path) -> None:
    toll = harass(tmp_path, strikes=100, seed=SEED)
    assert toll.count >= 100
    assert {strike.partition(" ")[0] for strike in toll.strikes} == {"actor", "evaluator", "learner"}
    assert toll.resumes == toll.strikes["learner SIGKILL"] + toll.strikes["learner SIGSTOP"] > 3
    assert max(toll.replaced_s) < 30.0  # on a saturated machine
    assert max(toll.ended_s) < 30.0
    assert toll.rows > 10_000


@pytest.mark.slow
def test_fifty_supervisors_killed_at_random_moments_leave_nothing_behind(tmp_path: Path) -> None:
    found = decapitate(tmp_path, kills=50, seed=SEED)
    assert len(found.lived_s) == 50
    assert max(found.gone_s) < 5.0
    assert min(found.processes) == 1  # nothing was started yet
    assert max(found.processes) == 9  # supervisor, tracker, fork server, learner, 3 actors, evaluator, monitor
    assert found.resumed >= 5
