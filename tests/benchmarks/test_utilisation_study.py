"""The study trains what it says, and its pictures and curves are those of its rows."""

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.report.run_series import Series
from utilisation_study import BATCH_SIZES, CURVE_POINTS, STUDIES, sparse, trainings


def flag(flags: tuple[str, ...], name: str) -> str:
    return flags[flags.index(name) + 1]


@pytest.mark.parametrize("name", ["catch", "pong"])
def test_every_algorithm_is_trained_for_the_same_steps_on_one_game(name: str) -> None:
    study = STUDIES[name]
    runs = trainings(name, study, list(ALGORITHMS))
    assert len(runs) == len(ALGORITHMS) * len(study.seeds)
    assert {run.algorithm for run in runs} == set(ALGORITHMS)
    assert {flag(run.flags, "--max-steps") for run in runs} == {str(study.steps)}
    assert len({flag(run.flags, "--env") for run in runs}) == 1
    assert {flag(run.flags, "--learner.threads") for run in runs} == {"2"}


def test_the_sweep_changes_batch_size_and_threads_and_nothing_else() -> None:
    runs = trainings("sweep", STUDIES["sweep"], ["dqn"])
    found = {(flag(run.flags, "--batch-size"), flag(run.flags, "--learner.threads")) for run in runs}
    assert found == {(str(size), threads) for size in BATCH_SIZES for threads in ("1", "2")}
    rest = set()
    for run in runs:
        words = list(run.flags)
        for name in ("--batch-size", "--learner.threads"):
            at = words.index(name)
            del words[at : at + 2]
        rest.add(tuple(words))
    assert len(rest) == 1


def test_a_curve_is_made_sparse_by_means() -> None:
    assert sparse(Series([1.0, 2.0], [3.0, 4.0])) == Series([1.0, 2.0], [3.0, 4.0])
    long = sparse(Series([float(x) for x in range(2 * CURVE_POINTS)], [1.0, 3.0] * CURVE_POINTS))
    assert long == Series([2 * x + 0.5 for x in range(CURVE_POINTS)], [2.0] * CURVE_POINTS)
    assert sparse(Series([], [])) == Series([], [])


def test_a_sweep_is_a_line_for_each_number_of_threads() -> None:
    from pictures import charts_of_sweep

    summary = {"cpu_cores_used": 1.0, "steps_per_s": 2.0, "updates_per_s": 3.0, "final_return": 0.5}
    runs = [
        {"summary": {**summary, "batch_size": size, "learner_threads": threads}}
        for size in (32, 16)
        for threads in (1, 2)
    ]
    cores = charts_of_sweep(runs)[0]
    assert [(line.label, line.x) for line in cores.lines if line.in_legend] == [  # type: ignore[union-attr]
        ("1 thread", [16, 32]),
        ("2 threads", [16, 32]),
    ]
