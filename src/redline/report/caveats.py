"""Which runs are compared, and what a comparison of them can't tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from redline.report.rows import members, part, setting
from redline.report.run_files import RunFiles
from redline.report.run_summary import RunSummary

SHORT_MINUTES = 5.0
FEW_EPISODES = 20
SHARED_CORES = 0.1  # used by others, of one core: more than a desktop's own noise
LENGTHS_DIFFER = 1.1
TELL_APART = frozenset({"batch_size", "learner.threads", "num_envs", "topology"})

# settings that change what is kept and when a run ends, but not what it learns
NOT_LEARNING = frozenset(
    {"max_steps", "max_frames", "max_episodes", "max_minutes", "target_return", "target_eval_return"}
    | {"log_dir", "track", "checkpoint_minutes", "monitor", "record", "record_values"}
)
NO_UPDATES, SAME_SEED = "it made no updates", "the same settings and seed as {}"

NameOf = Callable[[RunSummary], str | None]
# what can make runs differ beside what they are grouped by
OTHER_SETTINGS: Mapping[str, NameOf] = {
    "number of envs": lambda summary: None if summary.num_envs is None else str(summary.num_envs),
    "topology": lambda summary: summary.topology,
    "machine": lambda summary: summary.host,
}


@dataclass(frozen=True)
class LeftOut:
    """A run that is not compared with the others."""

    label: str
    why: str


def choose_runs(
    runs: Sequence[tuple[RunFiles, RunSummary]],
) -> tuple[list[tuple[RunFiles, RunSummary]], list[LeftOut]]:
    """Return the runs to compare, and the others: runs without updates, and all but the longest of one seed."""
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
    """Return what makes a run what it is: code, machine, algorithm, and settings that change what it learns."""
    run = files.run or {}
    settings = [part(run, "config"), *(part(resume, "changes") for resume in members(run, "resumes"))]
    learning = [
        {name: value for name, value in found.items() if name.partition(".")[0] not in NOT_LEARNING}
        for found in settings
    ]
    facts = [run.get("algorithm"), run.get("commit"), summary.host, *filter(None, learning)]
    return json.dumps(facts, sort_keys=True, default=str)


def caveats_of(
    summaries: Sequence[RunSummary], groupings: Mapping[str, NameOf], left_out: Sequence[LeftOut] = ()
) -> list[str]:
    """Return what is to be kept in mind, most important first."""
    known = [summary for summary in summaries if summary.env is not None]
    envs = sorted({summary.env for summary in known if summary.env is not None})
    told = [_how_many(summaries)]
    if left_out:
        told.append(f"Not compared: {_listed([f'{run.label} ({run.why})' for run in left_out])}.")
    if len(known) < len(summaries):
        names = ", ".join(summary.label for summary in summaries if summary.env is None)
        told.append(f"These runs do not tell their game, so they are in no group and no correlation: {names}.")
    if len(envs) > 1:
        names = ", ".join(envs)
        told.append(f"{len(envs)} games ({names}) are compared apart: their returns have no common scale.")
    for env in envs:
        runs = [summary for summary in known if summary.env == env]
        about = f"{env}: " if len(envs) > 1 else ""
        told += [f"{about}{sentence}" for sentence in _confounding(runs, groupings) + _seeds(runs, groupings)]
        told += [f"{about}{sentence}" for sentence in _lengths(runs) + _changes(runs)]
    return told + _quality(summaries)


def _how_many(summaries: Sequence[RunSummary]) -> str:
    number = "One run" if len(summaries) == 1 else f"{len(summaries)} runs"
    return f"{number}: a relation seen in so few is a hint, and does not say what causes what."


def _confounding(runs: Sequence[RunSummary], groupings: Mapping[str, NameOf]) -> list[str]:
    """Say for each grouping what else differs between its groups."""
    told = []
    for by, name_of in groupings.items():
        others = {what: of for what, of in {**groupings, **OTHER_SETTINGS}.items() if what != by}
        mixed = [what for what, of in others.items() if _differs_between(runs, name_of, of)]
        if mixed:
            told.append(
                f"groups by {by} also differ in {_listed(mixed)}, "
                f"so a difference between them need not come from the {by}."
            )
    return told


def _differs_between(runs: Sequence[RunSummary], group_of: NameOf, value_of: NameOf) -> bool:
    """Tell whether the groups do not all have the same values, each the same share of the runs."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        group = group_of(run)
        if group is not None:
            groups.setdefault(group, []).append(value_of(run) or "unknown")
    shares = {
        tuple(sorted((value, values.count(value) / len(values)) for value in set(values))) for values in groups.values()
    }
    return len(shares) > 1


def _seeds(runs: Sequence[RunSummary], groupings: Mapping[str, NameOf]) -> list[str]:
    told = []
    for by, name_of in groupings.items():
        seeds: dict[str, set[int | None]] = {}
        for run in runs:
            name = name_of(run)
            if name is not None:
                seeds.setdefault(name, set()).add(run.seed)
        single = [name for name, found in seeds.items() if len(found) == 1]
        if single and len(seeds) > 1:
            told.append(f"by {by}, one seed only: {_listed(single)}; how much another would differ is unknown.")
    return told


def _lengths(runs: Sequence[RunSummary]) -> list[str]:
    steps = [run.steps for run in runs if run.steps]
    if len(steps) < 2 or max(steps) <= LENGTHS_DIFFER * min(steps):
        return []
    return [
        f"runs are of different length ({min(steps):,} … {max(steps):,} steps), "
        "so their returns are not after equal learning."
    ]


def _changes(runs: Sequence[RunSummary]) -> list[str]:
    """Name the runs of which a resume changed what runs are told apart by."""
    named = []
    for run in runs:
        values = [f"{name} {value}" for name, value in (run.changed or {}).items() if name in TELL_APART]
        if values:
            named.append(f"{run.label} ({_listed(values)})")
    if not named:
        return []
    return [f"settings were changed at a resume, so these runs belong to none of the other groups: {_listed(named)}."]


def _quality(summaries: Sequence[RunSummary]) -> list[str]:
    others_cores = max((run.others_cpu_cores_used or 0.0 for run in summaries), default=0.0)
    known: list[tuple[Callable[[RunSummary], bool], str]] = [
        (
            lambda run: run.minutes is not None and run.minutes < SHORT_MINUTES,
            f"took less than {SHORT_MINUTES:g} minutes: speeds are rough, and learning has only begun",
        ),
        (
            lambda run: run.episodes < FEW_EPISODES,
            f"ended fewer than {FEW_EPISODES} episodes: their returns are mostly chance",
        ),
        (
            lambda run: (run.others_cpu_cores_used or 0.0) > SHARED_CORES,
            f"shared the machine with programs that used up to {others_cores:.1f} cores: "
            "speed and utilisation are not the runs' doing alone",
        ),
        (
            lambda run: run.cpu_s is None,
            "left no CPU seconds in hardware.jsonl: their utilisation is at best what metrics.jsonl tells",
        ),
    ]
    counted = [(sum(map(is_so, summaries)), what) for is_so, what in known]
    return [f"{count} of {len(summaries)} runs {what}." for count, what in counted if count]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
