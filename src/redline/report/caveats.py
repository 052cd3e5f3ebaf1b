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
NOT_LEARNING = frozenset({"limits", "log_dir", "track", "checkpoint_minutes", "monitor", "recording"})
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
        first = longest.setdefault(_identity(files), summary)
        if first is not summary:
            left_out[summary.label] = SAME_SEED.format(first.label)
    chosen = [run for run in runs if run[1].label not in left_out]
    return chosen, [LeftOut(run.label, left_out[run.label]) for _, run in runs if run.label in left_out]


def _identity(files: RunFiles) -> str:
    """Return what makes a run what it is: algorithm, seed and all settings that change what it learns."""
    settings, *changes = [
        {
            name: value
            for name, value in found.items()
            if name.partition(".")[0] not in NOT_LEARNING and not name.startswith("max_")
        }
        for found in (
            part(files.run, "config"),
            *(part(resume, "changes") for resume in members(files.run or {}, "resumes")),
        )
    ]
    changes = [found for found in changes if found]
    return json.dumps([(files.run or {}).get("algorithm"), settings, changes], sort_keys=True, default=str)


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
    return f"{number}: a relation seen in so few is a hint and no law, and says nothing of what causes what."


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
    told = []
    short = [run.label for run in summaries if run.minutes is not None and run.minutes < SHORT_MINUTES]
    if short:
        told.append(
            f"{_of_runs(short, summaries)} shorter than {SHORT_MINUTES:g} minutes: "
            "speeds are rough, and learning has only begun."
        )
    few = [run.label for run in summaries if run.episodes < FEW_EPISODES]
    if few:
        told.append(
            f"{_of_runs(few, summaries)} with fewer than {FEW_EPISODES} episodes: their returns are mostly chance."
        )
    shared = [run for run in summaries if (run.others_cpu_cores_used or 0.0) > SHARED_CORES]
    if shared:
        most = max(run.others_cpu_cores_used or 0.0 for run in shared)
        told.append(
            f"{_of_runs([run.label for run in shared], summaries)} on a machine that others used too, "
            f"up to {most:.1f} cores: how busy and how fast it was is not the runs' doing alone."
        )
    unmeasured = [run.label for run in summaries if run.cpu_s is None]
    if unmeasured:
        told.append(
            f"{_of_runs(unmeasured, summaries)} without CPU seconds in hardware.jsonl: "
            "their utilisation is at best what metrics.jsonl tells."
        )
    return told


def _of_runs(labels: Sequence[str], summaries: Sequence[RunSummary]) -> str:
    return f"{len(labels)} of {len(summaries)} runs" if len(summaries) > 1 else "The run is one"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
