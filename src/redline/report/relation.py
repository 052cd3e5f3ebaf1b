"""How utilisation relates to learning across runs: groups with intervals, rank correlations, and their caveats.

It also decides which runs are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.report.rows import members, part, setting
from redline.report.run_files import RunFiles
from redline.report.run_summary import RunSummary
from redline.report.statistics import LEAST_PAIRS, PERFECT, correlate, mean_interval

UTILISATIONS = ("cpu_share_of_machine", "gpu_utilisation_percent")
OUTCOMES = ("steps_per_s", "updates_per_s", "final_return", "mean_return")
MAY_BE_NEGATIVE = ("final_return", "return_gained_per_cpu_minute")
MEASURES = (*UTILISATIONS, "steps_per_s", "updates_per_s", "cpu_s_per_1000_steps", *MAY_BE_NEGATIVE)
ALL_RUNS = "all runs"
MORE, LESS, NOTHING = "more with more use", "less with more use", "says nothing either way"
SEED = 0  # the same report from the same runs
SHORT_MINUTES = 5.0
FEW_EPISODES = 20
SHARED_CORES = 0.1  # used by others, of one core: more than a desktop's own noise
LENGTHS_DIFFER = 1.1

# settings that change what is recorded and when a run ends, but not what it learns
NOT_LEARNING = frozenset(
    {"max_steps", "max_frames", "max_episodes", "max_minutes", "target_return", "target_eval_return"}
    | {"log_dir", "track", "price_per_hour", "checkpoint_minutes", "monitor", "record", "record_values"}
)
NO_UPDATES, SAME_SEED = "it made no updates", "the same settings and seed as {}"

NameOf = Callable[[RunSummary], str | None]
Pair = tuple[RunFiles, RunSummary]


@dataclass(frozen=True)
class LeftOut:
    """A run that is not compared with the others."""

    label: str
    why: str


@dataclass(frozen=True)
class Estimate:
    """A mean over runs; without an interval for fewer than three."""

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
    estimates: dict[str, Estimate]  # by names of MEASURES that some run has


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of utilisation with an outcome, over settings tried in one game.

    Runs of the same settings count as one point, their mean: more seeds are not more settings.
    """

    env: str
    within: str  # "all runs", "algorithm dqn", …
    utilisation: str  # of UTILISATIONS
    outcome: str  # of OUTCOMES
    n: int  # settings whose runs have both values
    runs: int  # that have both values
    rho: float | None  # None for fewer than four, or where one side is constant
    interval: tuple[float, float] | None  # 90 % bootstrap; None for a perfect order, whose resamples are all perfect
    by_chance: float | None  # share of random orders with a |rho| as large
    verdict: str  # MORE, LESS or NOTHING


@dataclass(frozen=True)
class Relation:
    """The comparison across runs, and its caveats."""

    groups: list[Group]
    correlations: list[Correlation]
    caveats: list[str]
    left_out: list[LeftOut]  # runs that are not compared


def _valued(setting: str, field: str) -> NameOf:
    """Return a function that names a run by a setting: by all its values if a resume changed it."""

    def name_of(summary: RunSummary) -> str | None:
        value = getattr(summary, field)
        return (summary.changed or {}).get(setting) or (None if value is None else str(value))

    return name_of


def _threads(summary: RunSummary) -> str | None:
    threads = SETTINGS["learner.threads"](summary)
    return None if threads is None or summary.usable_cores is None else f"{threads} of {summary.usable_cores}"


_PRECISION = _valued("learner.precision", "learner_precision")
# runs that agree in algorithm and all of these differ only by seed
SETTINGS: Mapping[str, NameOf] = {
    "batch_size": _valued("batch_size", "batch_size"),
    "learner.threads": _valued("learner.threads", "learner_threads"),
    "learner.precision": lambda summary: _PRECISION(summary) or "float32",  # of runs from before there was a choice
    "num_envs": _valued("num_envs", "num_envs"),
    "topology": _valued("topology", "topology"),
}
# grouping → the name of a run's group
GROUPINGS: Mapping[str, NameOf] = {
    "algorithm": lambda summary: summary.algorithm,
    "batch size": SETTINGS["batch_size"],
    "threads / cores": _threads,
}
# other possible causes of differences between runs
OTHERS: Mapping[str, NameOf] = {
    "number of envs": lambda summary: None if summary.num_envs is None else str(summary.num_envs),
    "topology": lambda summary: summary.topology,
    "machine": lambda summary: summary.host,
}


def choose_runs(runs: Sequence[Pair]) -> tuple[list[Pair], list[LeftOut]]:
    """Return the runs to compare and those left out: runs without updates, and all but the longest of equal seeds."""
    left_out = {summary.label: NO_UPDATES for _, summary in runs if summary.updates == 0}
    longest: dict[str, RunSummary] = {}
    for files, summary in sorted(runs, key=lambda run: -(run[1].steps or 0)):
        if summary.label in left_out or setting(files.run, "seed") is None:
            continue
        first = longest.setdefault(_identity(files, summary), summary)
        if first is not summary:
            left_out[summary.label] = SAME_SEED.format(first.label)
    chosen = [run for run in runs if run[1].label not in left_out]
    return chosen, [LeftOut(run.label, left_out[run.label]) for _, run in runs if run.label in left_out]


def _identity(files: RunFiles, summary: RunSummary) -> str:
    """Return what identifies a run: code, machine, algorithm, and settings that change what it learns."""
    run = files.run or {}
    settings = [part(run, "config"), *(part(resume, "changes") for resume in members(run, "resumes"))]
    learning = [
        {name: value for name, value in found.items() if name.partition(".")[0] not in NOT_LEARNING}
        for found in settings
    ]
    facts = [run.get("algorithm"), run.get("commit"), summary.host, *filter(None, learning)]
    return json.dumps(facts, sort_keys=True, default=str)


def relate(summaries: Sequence[RunSummary], left_out: Sequence[LeftOut] = ()) -> Relation:
    """Compare runs. Games are never mixed; a run of an unknown game is in no group.

    `left_out` are the runs that `choose_runs` left out of `summaries`.
    """
    groups: list[Group] = []
    correlations: list[Correlation] = []
    games: dict[str, list[RunSummary]] = {}
    for summary in summaries:
        if summary.env is not None:
            games.setdefault(summary.env, []).append(summary)
    for env, runs in sorted(games.items()):
        correlations += _correlations(env, ALL_RUNS, runs)
        for by, name_of in GROUPINGS.items():
            parts = split(runs, name_of)
            groups += [_group(env, by, name, found) for name, found in parts.items()]
            if len(parts) > 1:  # a single group is all runs again
                for name, found in parts.items():
                    correlations += _correlations(env, f"{by} {name}", found)
    caveats = _caveats(summaries, dict(sorted(games.items())), left_out)
    return Relation(groups, correlations, [*caveats, *_on_correlations(correlations)], list(left_out))


def split(runs: Sequence[RunSummary], name_of: NameOf) -> dict[str, list[RunSummary]]:
    """Return the runs of each group, in numerical order, without runs whose group is unknown."""
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        if (name := name_of(run)) is not None:
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
    found = [_correlation(env, within, runs, use, outcome) for use in UTILISATIONS for outcome in OUTCOMES]
    return [correlation for correlation in found if correlation.n >= LEAST_PAIRS]


def _correlation(env: str, within: str, runs: Sequence[RunSummary], utilisation: str, outcome: str) -> Correlation:
    told: dict[tuple[str | None, ...], list[tuple[float, float]]] = {}
    for run in runs:
        x, y = getattr(run, utilisation), getattr(run, outcome)
        if x is not None and y is not None:
            key = (run.algorithm, *(name_of(run) for name_of in SETTINGS.values()))
            told.setdefault(key, []).append((x, y))
    sides = [[fmean(pair[side] for pair in pairs) for pairs in told.values()] for side in (0, 1)]
    counts = (len(told), sum(map(len, told.values())))
    found = correlate(*sides, seed=SEED)
    if found is None:
        return Correlation(env, within, utilisation, outcome, *counts, None, None, None, NOTHING)
    verdict = (MORE if found.rho > 0 else LESS) if found.is_clear else NOTHING
    return Correlation(env, within, utilisation, outcome, *counts, found.rho, found.interval, found.by_chance, verdict)


def _caveats(
    summaries: Sequence[RunSummary], games: Mapping[str, Sequence[RunSummary]], left_out: Sequence[LeftOut]
) -> list[str]:
    """Return the caveats, the most important first."""
    number = "One run" if len(summaries) == 1 else f"{len(summaries)} runs"
    told = [f"{number}: a relation among so few is a hint, and says nothing about causes."]
    if left_out:
        told.append(f"Not compared: {_listed([f'{run.label} ({run.why})' for run in left_out])}.")
    if unknown := [summary.label for summary in summaries if summary.env is None]:
        names = ", ".join(unknown)
        told.append(f"The files of these runs name no game, so they are in no group and no correlation: {names}.")
    if len(games) > 1:
        told.append(f"{len(games)} games ({', '.join(games)}) are compared apart: their returns have no common scale.")
    for env, runs in games.items():
        about = f"{env}: " if len(games) > 1 else ""
        told += [f"{about}{sentence}" for sentence in (*_confounding(runs), *_seeds(runs), *_differences(runs))]
    return told + _quality(summaries)


def _confounding(runs: Sequence[RunSummary]) -> list[str]:
    """Name the other settings that differ between the groups of each grouping."""
    told = []
    for by, name_of in GROUPINGS.items():
        others = {what: of for what, of in {**GROUPINGS, **OTHERS}.items() if what != by}
        mixed = [what for what, of in others.items() if _differs_between(runs, name_of, of)]
        if mixed:
            told.append(
                f"groups by {by} also differ in {_listed(mixed)}, "
                f"so a difference between them may have other causes than the {by}."
            )
    return told


def _differs_between(runs: Sequence[RunSummary], group_of: NameOf, value_of: NameOf) -> bool:
    """Tell whether the distribution of values differs between groups."""
    shares = set()
    for found in split(runs, group_of).values():
        values = [value_of(run) or "unknown" for run in found]
        shares.add(tuple(sorted((value, values.count(value) / len(values)) for value in set(values))))
    return len(shares) > 1


def _seeds(runs: Sequence[RunSummary]) -> list[str]:
    told = []
    for by, name_of in GROUPINGS.items():
        groups = split(runs, name_of)
        single = [name for name, found in groups.items() if len({run.seed for run in found}) == 1]
        if single and len(groups) > 1:
            told.append(f"by {by}, one seed only: {_listed(single)}; the spread over seeds is unknown.")
    return told


def _differences(runs: Sequence[RunSummary]) -> list[str]:
    """Say if runs differ in length, and name those whose grouping settings a resume changed."""
    told = []
    steps = [run.steps for run in runs if run.steps]
    if steps and max(steps) > LENGTHS_DIFFER * min(steps):
        told.append(
            f"runs are of different length ({min(steps):,} … {max(steps):,} steps), "
            "so their returns follow unequal amounts of learning."
        )
    changes = [
        (run.label, [f"{name} {value}" for name, value in (run.changed or {}).items() if name in SETTINGS])
        for run in runs
    ]
    if named := [f"{label} ({_listed(values)})" for label, values in changes if values]:
        told.append(
            f"settings were changed at a resume, so these runs belong to none of the other groups: {_listed(named)}."
        )
    return told


def _quality(summaries: Sequence[RunSummary]) -> list[str]:
    others = [run.others_cpu_cores_used or 0.0 for run in summaries]
    counts = {
        f"took less than {SHORT_MINUTES:g} minutes: speeds are rough, and learning has only begun": sum(
            run.minutes is not None and run.minutes < SHORT_MINUTES for run in summaries
        ),
        f"ended fewer than {FEW_EPISODES} episodes: their returns are mostly noise": sum(
            run.episodes < FEW_EPISODES for run in summaries
        ),
        f"shared the machine with programs that used up to {max(others, default=0.0):.1f} cores: "
        "this affects speed and utilisation": sum(cores > SHARED_CORES for cores in others),
        "left no CPU seconds in hardware.jsonl: their utilisation is known only from metrics.jsonl, if at all": sum(
            run.cpu_s is None for run in summaries
        ),
    }
    return [f"{count} of {len(summaries)} runs {what}." for what, count in counts.items() if count]


def _on_correlations(correlations: Sequence[Correlation]) -> list[str]:
    if not correlations:
        return [
            f"No rank correlation: it takes {LEAST_PAIRS} different settings in one game; "
            "runs that differ only by seed count as one."
        ]
    told = []
    tried = [correlation for correlation in correlations if correlation.rho is not None]
    if any(correlation.n < correlation.runs for correlation in correlations):
        told.append(
            "Rank correlations are over settings (algorithm, batch size, threads, envs, topology), each by the mean "
            "of its runs: more seeds make a point more certain, but add no points."
        )
    if open_ones := sum(correlation.verdict == NOTHING for correlation in correlations):
        told.append(
            f"{open_ones} of {len(correlations)} rank correlations are unclear: the 90 % interval contains 0, random "
            "orders give as much in at least 1 of 10 cases, or one side is the same for all settings."
        )
    if len(tried) > 1:
        told.append(
            f"{len(tried)} rank correlations were tried: of as many without any relation, about one in ten would "
            "still look clear."
        )
    if any(abs(correlation.rho or 0.0) >= PERFECT for correlation in tried):
        told.append(
            "A perfect order (ρ = ±1) has no bootstrap interval, which does not make it certain: look at the number "
            "of settings and at the share by chance."
        )
    if tried and min(correlation.n for correlation in tried) < 10:
        told.append("Intervals of correlations over fewer than 10 settings are rough.")
    return told


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
