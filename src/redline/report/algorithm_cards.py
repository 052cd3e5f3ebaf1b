"""What the catalog holds of each algorithm, as plain facts: its parts, its paper and its defaults."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module

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
            field
            for field in part_fields(algorithm)
            if part_name(getattr(algorithm, field)) != part_name(getattr(usual, field))
        ),
    )


def _defaults(preset: Preset) -> Defaults:
    algorithm = preset.algorithm
    return Defaults(
        source=preset.source,
        parts={field: part_name(getattr(algorithm, field)) for field in part_fields(algorithm)},
        numbers={
            "num_envs": preset.num_envs,
            "lr": algorithm.optimizer.lr_at(0),
            "batch_size": algorithm.batch_size,
            **algorithm.paces(),
            "gamma": algorithm.returns.gamma,
            "evaluation_epsilon": algorithm.explore.evaluation_epsilon(),
        },
    )
