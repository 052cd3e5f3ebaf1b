"""The names of algorithms and parts that a user can type; looked up once, at the command line's edge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redline.algorithms.dqn import DQN, DQN_CLASSIC
from redline.algorithms.parts import SAMPLINGS
from redline.algorithms.q_learning import QLearning
from redline.errors import unknown_name
from redline.networks import NETWORKS


@dataclass(frozen=True)
class Entry:
    """An algorithm as it starts on each domain."""

    atari: QLearning
    classic: QLearning  # vectors: CartPole and its like


ALGORITHMS: Mapping[str, Entry] = {"dqn": Entry(atari=DQN, classic=DQN_CLASSIC)}

# a field of an algorithm → the parts that can stand there, by name
PARTS: Mapping[str, Mapping[str, Any]] = {"network": NETWORKS, "sample": SAMPLINGS}


def find_algorithm(name: str) -> Entry:
    """Return the algorithm called `name`."""
    try:
        return ALGORITHMS[name.lower()]
    except KeyError:
        raise unknown_name("algorithm", name, ALGORITHMS) from None


def find_part(field: str, name: str) -> Any:
    """Return the part called `name` for the field `field`, with its default settings."""
    try:
        return PARTS[field][name.lower()]
    except KeyError:
        raise unknown_name(field, name, PARTS[field]) from None


def part_name(field: str, part: object) -> str:
    """Return the name under which a part of this kind is known."""
    return next(name for name, known in PARTS[field].items() if type(known) is type(part))
