"""How utilisation relates to learning across runs: groups with intervals, and rank correlations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.report.caveats import caveats_of
from redline.report.intervals import mean_interval
from redline.report.rank_correlation import LEAST_PAIRS, correlate
from redline.report.run_summary import RunSummary

UTILISATIONS = ("cpu_share_of_machine", "gpu_utilisation_percent")
OUTCOMES = ("steps_per_s", "updates_per_s", "final_return", "mean_return")
MEASURES = (
    *UTILISATIONS,
    "steps_per_s",
    "updates_per_s",
    "cpu_s_per_1000_steps",
    "final_return",
    "return_gained_per_cpu_minute",
)
ALL_RUNS = "all runs"
MORE, LESS, NOTHING = "more with more use", "less with more use", "says nothing either way"
SEED = 0  # the same report from the same runs


@dataclass(frozen=True)
class Estimate:
    """A mean over runs; the interval is None for a single run."""

    n: int
    mean: float
    interval: tuple[float, float] | None  # 90 %, Student's t


@dataclass(frozen=True)
class Group:
    """Runs of one game that share a setting."""

    env: str
    by: str  # "algorithm", "batch size", "threads / cores"
    name: str  # "dqn", "32", "1 of 2"
    labels: tuple[str, ...]  # of its runs
    estimates: dict[str, Estimate]  # by names of MEASURES; a measure that no run has is missing


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of utilisation with an outcome, over runs of one game."""

    env: str
    within: str  # "all runs", "algorithm dqn", …
    utilisation: str  # of UTILISATIONS
    outcome: str  # of OUTCOMES
    n: int  # runs that tell both
    rho: float | None  # None for fewer than four, or where one of both is the same in all runs
    interval: tuple[float, float] | None  # 90 % bootstrap; None for a perfect order, which has no width to tell
    by_chance: float | None  # share of random orders that give a |rho| as large
    verdict: str  # MORE, LESS or NOTHING


@dataclass(frozen=True)
class Relation:
    """The comparison across runs, and its caveats."""

    groups: list[Group]
    correlations: list[Correlation]
    caveats: list[str]


def _threads(summary: RunSummary) -> str | None:
    if summary.learner_threads is None or summary.usable_cores is None:
        return None
    return f"{summary.learner_threads} of {summary.usable_cores}"


# what runs are grouped by → the name of a run's group
GROUPINGS: Mapping[str, Callable[[RunSummary], str | None]] = {
    "algorithm": lambda summary: summary.algorithm,
    "batch size": lambda summary: None if summary.batch_size is None else str(summary.batch_size),
    "threads / cores": _threads,
}


def relate(summaries: Sequence[RunSummary]) -> Relation:
    """Compare runs; different games are never mixed, and a run that does not tell its game is left out."""
    groups: list[Group] = []
    correlations: list[Correlation] = []
    for env in sorted({summary.env for summary in summaries if summary.env is not None}):
        runs = [summary for summary in summaries if summary.env == env]
        correlations += _correlations(env, ALL_RUNS, runs)
        for by in GROUPINGS:
            parts = split(runs, by)
            groups += [_group(env, by, name, members) for name, members in parts.items()]
            if len(parts) > 1:  # one group alone is all runs once more
                for name, members in parts.items():
                    correlations += _correlations(env, f"{by} {name}", members)
    caveats = caveats_of(summaries, GROUPINGS)
    return Relation(groups, correlations, [*caveats, *_on_correlations(correlations)])


def split(runs: Sequence[RunSummary], by: str) -> dict[str, list[RunSummary]]:
    """Return the runs of each group, without those that do not tell theirs; numbers are in their order."""
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        name = GROUPINGS[by](run)
        if name is not None:
            found.setdefault(name, []).append(run)
    return dict(sorted(found.items(), key=lambda item: _by_number(item[0])))


def _by_number(name: str) -> tuple[list[int], str]:
    return [int(word) for word in name.split() if word.isdecimal()], name


def _group(env: str, by: str, name: str, runs: Sequence[RunSummary]) -> Group:
    estimates = {}
    for measure in MEASURES:
        values = [value for run in runs if (value := getattr(run, measure)) is not None]
        if values:
            estimates[measure] = Estimate(len(values), fmean(values), mean_interval(values))
    return Group(env, by, name, tuple(run.label for run in runs), estimates)


def _correlations(env: str, within: str, runs: Sequence[RunSummary]) -> list[Correlation]:
    if len(runs) < LEAST_PAIRS:
        return []
    pairs = [(utilisation, outcome) for utilisation in UTILISATIONS for outcome in OUTCOMES]
    found = [_correlation(env, within, runs, utilisation, outcome) for utilisation, outcome in pairs]
    return [correlation for correlation in found if correlation.n >= LEAST_PAIRS]


def _correlation(env: str, within: str, runs: Sequence[RunSummary], utilisation: str, outcome: str) -> Correlation:
    points = [(getattr(run, utilisation), getattr(run, outcome)) for run in runs]
    told = [(x, y) for x, y in points if x is not None and y is not None]
    found = correlate([x for x, _ in told], [y for _, y in told], seed=SEED)
    if found is None:
        return Correlation(env, within, utilisation, outcome, len(told), None, None, None, NOTHING)
    verdict = (MORE if found.rho > 0 else LESS) if found.is_clear else NOTHING
    return Correlation(
        env, within, utilisation, outcome, len(told), found.rho, found.interval, found.by_chance, verdict
    )


def _on_correlations(correlations: Sequence[Correlation]) -> list[str]:
    if not correlations:
        return [f"No rank correlation: it takes {LEAST_PAIRS} runs of one game that tell both sides."]
    told = []
    tried = [correlation for correlation in correlations if correlation.rho is not None]
    open_ones = sum(correlation.verdict == NOTHING for correlation in correlations)
    if open_ones:
        told.append(
            f"{open_ones} of {len(correlations)} rank correlations say nothing either way: the 90 % interval contains "
            "0, random orders give as much in at least 1 of 10 cases, or one side is the same in all runs."
        )
    if len(tried) > 1:
        told.append(
            f"{len(tried)} rank correlations were tried: of as many without any relation, about one in ten would "
            "still look clear."
        )
    if any(correlation.rho is not None and correlation.interval is None for correlation in correlations):
        told.append("A perfect order has no bootstrap interval: look at its number of runs and at the share by chance.")
    if tried and min(correlation.n for correlation in tried) < 10:
        told.append("Intervals of correlations over fewer than 10 runs are rough.")
    return told
