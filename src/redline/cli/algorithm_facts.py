"""What `redline algos` tells of each algorithm: its parts, paper and defaults, and the newest record of each kind."""

import inspect
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from redline.algorithms import named
from redline.algorithms.catalog import (
    ALGORITHMS,
    canonical_name,
    find_algorithm,
    foreign_algorithms,
    part_fields,
    part_name,
)
from redline.algorithms.entry import Preset
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.errors import UserError

FAMILIES = (QLearning.family, OnPolicy.family)  # in the order in which they are listed
RECORDS = Path("benchmarks", "records")
MAX_RECORD_BYTES = 64_000_000
# what is measured → how the names of its records begin
KINDS: Mapping[str, str] = {
    "cartpole": "algorithms-cartpole-v1-",
    "catch": "algorithms-catch-",
    "pong_speed": "algorithms-pong-speed-",
    "pong_score": "algorithms-pong-score-",
}


@dataclass(frozen=True)
class Defaults:
    """How an algorithm starts on a domain."""

    source: str
    parts: Mapping[str, str]  # field → name
    numbers: Mapping[str, float]

    def summary(self) -> str:
        """Return the numbers that matter most in one line."""
        found = self.numbers
        if "rollout_steps" in found:
            epochs = f"{found['epochs']} epoch{'' if found['epochs'] == 1 else 's'}"
            pace, returns = f"{found['rollout_steps']} steps × {epochs}", f"λ {found['lambda']:g}"
        else:
            pace, returns = f"{found['samples_per_step']:g} per step", f"n {found['n']}"
        return (
            f"lr {found['lr']:g}, batch {found['batch_size']}, {pace}, {found['num_envs']} envs, "
            f"{returns}, γ {found['gamma']:g}"
        )


@dataclass(frozen=True)
class AlgorithmCard:
    """What a user may want to know of an algorithm."""

    name: str
    family: str
    changes: str
    paper: str
    about: str  # what its file says of it, departures from the paper included
    atari: Defaults
    classic: Defaults
    own_parts: tuple[str, ...]  # the fields whose part on Atari is not the family's usual one

    def to_json(self) -> dict[str, object]:
        """Return everything as plain data."""
        return {
            "family": self.family,
            "changes": self.changes,
            "paper": self.paper,
            "about": self.about,
            "parts": dict(self.atari.parts),
            "own_parts": list(self.own_parts),
            "defaults": {
                domain: {"source": defaults.source, "parts": dict(defaults.parts), **defaults.numbers}
                for domain, defaults in (("atari", self.atari), ("classic", self.classic))
            },
        }


def all_cards() -> list[AlgorithmCard]:
    """Return a card for each algorithm, by family and name."""
    cards = [read_card(name) for name in ALGORITHMS]
    for name in foreign_algorithms():
        with suppress(UserError):  # a package that can't be loaded; who asks for it is told
            cards.append(read_card(name))
    return sorted(cards, key=lambda card: (FAMILIES.index(card.family), card.name))


def read_card(name: str) -> AlgorithmCard:
    """Return what is known of the algorithm called `name`."""
    entry, name = find_algorithm(name), canonical_name(name)
    algorithm = entry.atari.algorithm
    usual = type(algorithm)()
    about = entry.changes
    if name in ALGORITHMS:
        about = import_module(f"{named.__name__}.{name.replace('-', '_')}").__doc__ or ""
    return AlgorithmCard(
        name=name,
        family=algorithm.family,
        changes=entry.changes,
        paper=entry.paper,
        about=inspect.cleandoc(about),
        atari=_defaults(entry.atari),
        classic=_defaults(entry.classic),
        own_parts=tuple(
            part
            for part in part_fields(algorithm)
            if part_name(getattr(algorithm, part)) != part_name(getattr(usual, part))
        ),
    )


def _defaults(preset: Preset) -> Defaults:
    algorithm = preset.algorithm
    return Defaults(
        source=preset.source,
        parts={part: part_name(getattr(algorithm, part)) for part in part_fields(algorithm)},
        numbers={
            "num_envs": preset.num_envs,
            "lr": algorithm.optimizer.lr_at(0),
            "batch_size": algorithm.batch_size,
            **algorithm.paces(),
            "gamma": algorithm.returns.gamma,
            "evaluation_epsilon": algorithm.explore.evaluation_epsilon(),
        },
    )


@dataclass(frozen=True)
class Finding:
    """What one record says of one algorithm."""

    record: str  # its file's name
    unix_s: float
    values: Mapping[str, Any]

    def number(self, key: str) -> float | None:
        """Return a number that was measured, None where there is none."""
        return _as_number(self.values.get(key))

    def to_json(self) -> dict[str, Any]:
        """Return the values with the record they come from."""
        return {**self.values, "record": self.record, "unix_s": self.unix_s}


@dataclass
class Findings:
    """All that the records of a folder say."""

    folder: Path | None
    by_kind: dict[str, dict[str, Finding]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    unreadable: list[str] = field(default_factory=list)  # records that were left out, and why

    def of(self, kind: str, algorithm: str) -> Finding | None:
        """Return what was last measured of an algorithm."""
        return self.by_kind[kind].get(algorithm)


def find_records(start: Path) -> Path | None:
    """Return the records of the repository in which `start` lies: an installed package has none."""
    places = (folder / RECORDS for folder in (start.absolute(), *start.absolute().parents))
    return next((place for place in places if place.is_dir()), None)


def read_findings(folder: Path | None) -> Findings:
    """Read the records of a folder; where there is none, nothing was measured."""
    findings = Findings(folder)
    if folder is None:
        return findings
    if not folder.is_dir():
        raise UserError(f"records {folder} is no folder: use the benchmarks/records of a copy of the repository")
    for kind, start in KINDS.items():
        newest = findings.by_kind[kind]
        for path in sorted(folder.glob(f"{start}*.json")):
            try:
                found = _read_record(path)
            except (OSError, ValueError, RecursionError) as error:
                findings.unreadable.append(f"{path.name} is left out: {error}")
                continue
            for name, finding in found.items():
                if name not in newest or finding.unix_s >= newest[name].unix_s:
                    newest[name] = finding
    return findings


def _read_record(path: Path) -> dict[str, Finding]:
    """Return what a record says of each algorithm."""
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise ValueError(f"it is larger than {MAX_RECORD_BYTES:_} bytes")
    record = json.loads(path.read_text(encoding="utf-8"))
    try:
        unix_s, algorithms = _as_number(record["unix_s"]), record["summary"]["algorithms"]
    except (KeyError, TypeError):
        unix_s, algorithms = None, None
    if unix_s is None or not isinstance(algorithms, Mapping):
        raise ValueError("it lacks unix_s or summary.algorithms")
    return {
        name: Finding(path.name, unix_s, values) for name, values in algorithms.items() if isinstance(values, Mapping)
    }


def _as_number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None  # type: ignore[return-value]
