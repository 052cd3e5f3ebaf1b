"""How utilisation relates to learning across runs: groups with intervals, rank correlations, and what they can't tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redline.report.run_summary import RunSummary

OUTCOMES = ("steps_per_s", "updates_per_s", "final_return", "mean_return")
MEASURES = (
    "cpu_share_of_machine",
    "gpu_utilisation_percent",
    "steps_per_s",
    "updates_per_s",
    "cpu_s_per_1000_steps",
    "final_return",
    "return_gained_per_cpu_minute",
)


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
    utilisation: str  # "cpu_share_of_machine" or "gpu_utilisation_percent"
    outcome: str  # of OUTCOMES
    n: int
    rho: float | None  # None where one of both is the same in all runs
    interval: tuple[float, float] | None  # 90 % bootstrap; None where it has no width to tell
    by_chance: float | None  # share of random orders that give a |rho| as large
    verdict: str  # "more with more use", "less with more use", "says nothing either way"


@dataclass(frozen=True)
class Relation:
    """The comparison across runs, and its caveats."""

    groups: list[Group]
    correlations: list[Correlation]
    caveats: list[str]


def relate(summaries: Sequence[RunSummary]) -> Relation:
    """Compare runs; different games are never mixed."""
    raise NotImplementedError
