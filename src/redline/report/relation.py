"""How utilisation relates to learning across runs: groups with intervals, and rank correlations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.report.caveats import LeftOut, caveats_of
from redline.report.run_summary import RunSummary
from redline.report.statistics import LEAST_PAIRS, PERFECT, correlate, mean_interval

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
MAY_BE_NEGATIVE = frozenset({"final_return", "return_gained_per_cpu_minute"})
ALL_RUNS = "all runs"
MORE, LESS, NOTHING = "more with more use", "less with more use", "says nothing either way"
SEED = 0  # the same report from the same runs


@dataclass(frozen=True)
class Estimate:
    """A mean over runs; the interval is None for fewer than three."""

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
    """Spearman's rank correlation of utilisation with an outcome, over settings tried in one game.

    Runs of the same settings are one point, their mean: seeds do not tell settings apart, so they are no more evidence.
    """

    env: str
    within: str  # "all runs", "algorithm dqn", …
    utilisation: str  # of UTILISATIONS
    outcome: str  # of OUTCOMES
    n: int  # different settings of which runs tell both
    runs: int  # that tell both
    rho: float | None  # None for fewer than four, or where one of both is the same in all
    interval: tuple[float, float] | None  # 90 % bootstrap; None for a perfect order, whose resamples are all perfect
    by_chance: float | None  # share of random orders that give a |rho| as large
    verdict: str  # MORE, LESS or NOTHING


@dataclass(frozen=True)
class Relation:
    """The comparison across runs, and its caveats."""

    groups: list[Group]
    correlations: list[Correlation]
    caveats: list[str]
    left_out: list[LeftOut]  # runs that are not compared


def _valued(setting: str, field: str) -> Callable[[RunSummary], str | None]:
    """Return how to name a run by a setting: by all values that it had, where a resume changed it."""

    def name_of(summary: RunSummary) -> str | None:
        value = getattr(summary, field)
        return (summary.changed or {}).get(setting) or (None if value is None else str(value))

    return name_of


def _threads(summary: RunSummary) -> str | None:
    threads = THREADS(summary)
    return None if threads is None or summary.usable_cores is None else f"{threads} of {summary.usable_cores}"


BATCH_SIZE = _valued("batch_size", "batch_size")
THREADS = _valued("learner.threads", "learner_threads")
# runs that agree in all of these differ by their seed alone
SETTINGS = (
    lambda summary: summary.algorithm,
    BATCH_SIZE,
    THREADS,
    _valued("num_envs", "num_envs"),
    _valued("topology", "topology"),
)


# what runs are grouped by → the name of a run's group
GROUPINGS: Mapping[str, Callable[[RunSummary], str | None]] = {
    "algorithm": lambda summary: summary.algorithm,
    "batch size": BATCH_SIZE,
    "threads / cores": _threads,
}


def relate(summaries: Sequence[RunSummary], left_out: Sequence[LeftOut] = ()) -> Relation:
    """Compare runs; games are never mixed, and a run that does not tell its game is in no group.

    `left_out` names the runs that are not among `summaries`, as `caveats.choose_runs` tells them.
    """
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
    caveats = caveats_of(summaries, GROUPINGS, left_out)
    return Relation(groups, correlations, [*caveats, *_on_correlations(correlations)], list(left_out))


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
            floor = None if measure in MAY_BE_NEGATIVE else 0.0
            estimates[measure] = Estimate(len(values), fmean(values), mean_interval(values, floor=floor))
    return Group(env, by, name, tuple(run.label for run in runs), estimates)


def _correlations(env: str, within: str, runs: Sequence[RunSummary]) -> list[Correlation]:
    if len(runs) < LEAST_PAIRS:
        return []
    pairs = [(utilisation, outcome) for utilisation in UTILISATIONS for outcome in OUTCOMES]
    found = [_correlation(env, within, runs, utilisation, outcome) for utilisation, outcome in pairs]
    return [correlation for correlation in found if correlation.n >= LEAST_PAIRS]


def _correlation(env: str, within: str, runs: Sequence[RunSummary], utilisation: str, outcome: str) -> Correlation:
    told: dict[tuple[str | None, ...], list[tuple[float, float]]] = {}
    for run in runs:
        x, y = getattr(run, utilisation), getattr(run, outcome)
        if x is not None and y is not None:
            told.setdefault(tuple(name_of(run) for name_of in SETTINGS), []).append((x, y))
    sides = [[fmean(pair[side] for pair in pairs) for pairs in told.values()] for side in (0, 1)]
    counts = (len(told), sum(map(len, told.values())))
    found = correlate(*sides, seed=SEED)
    if found is None:
        return Correlation(env, within, utilisation, outcome, *counts, None, None, None, NOTHING)
    verdict = (MORE if found.rho > 0 else LESS) if found.is_clear else NOTHING
    return Correlation(env, within, utilisation, outcome, *counts, found.rho, found.interval, found.by_chance, verdict)


def _on_correlations(correlations: Sequence[Correlation]) -> list[str]:
    if not correlations:
        return [
            f"No rank correlation: it takes {LEAST_PAIRS} different settings of one game whose runs tell both sides; "
            "runs that differ by their seed alone count as one."
        ]
    told = []
    tried = [correlation for correlation in correlations if correlation.rho is not None]
    if any(correlation.n < correlation.runs for correlation in correlations):
        told.append(
            "Rank correlations are over settings (algorithm, batch size, threads, envs, topology), each by the mean "
            "of its runs: more seeds make a point surer, and are no further points."
        )
    open_ones = sum(correlation.verdict == NOTHING for correlation in correlations)
    if open_ones:
        told.append(
            f"{open_ones} of {len(correlations)} rank correlations say nothing either way: the 90 % interval contains "
            "0, random orders give as much in at least 1 of 10 cases, or one side is the same for all settings."
        )
    if len(tried) > 1:
        told.append(
            f"{len(tried)} rank correlations were tried: of as many without any relation, about one in ten would "
            "still look clear."
        )
    if any(abs(correlation.rho or 0.0) >= PERFECT for correlation in tried):
        told.append(
            "A perfect order (ρ = ±1) has no bootstrap interval and is not certain for that: look at how many settings "
            "it is over and at the share by chance."
        )
    if tried and min(correlation.n for correlation in tried) < 10:
        told.append("Intervals of correlations over fewer than 10 settings are rough.")
    return told
