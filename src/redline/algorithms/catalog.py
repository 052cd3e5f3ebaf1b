"""The names of algorithms and parts that a user can type; looked up once, at the command line's edge.

An algorithm is known as soon as its file stands in `algorithms/named/`, and so are the parts that only it uses.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from redline.algorithms import bootstraps, named, objectives, optimizers, predictions, samplings
from redline.algorithms.entry import Entry
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.errors import kind_name, unknown_name
from redline.exploration import EpsilonGreedy, Greedy, Sampled
from redline.networks import Dueling, Gru, Memoryless, Mlp, Nature, Noisy, Normed, Plain, Single, Small, Strided, Twin

Parts = Mapping[str, Mapping[str, Any]]

# a field of an algorithm → the parts that can stand there
OWN_PARTS: Mapping[str, tuple[Any, ...]] = {
    "network": (Nature(), Small(), Strided(), Mlp(), Twin()),
    "layers": (Plain(), Noisy(), Normed()),
    "core": (Memoryless(), Gru()),
    "streams": (Single(), Dueling()),
    "predict": (predictions.Expected(), predictions.Categorical(), predictions.Quantiles()),
    "bootstrap": (bootstraps.TargetChooses(), bootstraps.OnlineChooses()),
    "objective": (objectives.PolicyGradient(), objectives.Clipped(), objectives.QLambda()),
    "explore": (EpsilonGreedy(), Greedy(), Sampled()),
    "sample": (samplings.Uniform(), samplings.Prioritized()),
    "optimizer": (optimizers.Adam(), optimizers.Rmsprop(), optimizers.Radam()),
}


def part_name(part: object) -> str:
    """Return the name under which a part of this kind is known."""
    return kind_name(type(part))


def part_fields(algorithm: QLearning | OnPolicy) -> list[str]:
    """Return the fields of an algorithm that hold parts."""
    return [field.name for field in dataclasses.fields(algorithm) if field.name in OWN_PARTS]


def _find_algorithms() -> Iterator[tuple[str, Entry]]:
    for module in iter_modules(named.__path__):
        entry = import_module(f"{named.__name__}.{module.name}").ENTRY
        yield module.name.replace("_", "-"), entry


def _find_parts(algorithms: Iterable[QLearning | OnPolicy], own: Mapping[str, tuple[Any, ...]]) -> Parts:
    """Collect parts by field and name; the first of its kind decides with which settings it starts."""
    parts: dict[str, dict[str, Any]] = {field: {} for field in OWN_PARTS}
    for field, known in own.items():
        parts[field] |= {part_name(part): part for part in known}
    for algorithm in algorithms:
        for field in part_fields(algorithm):
            part = getattr(algorithm, field)
            parts[field].setdefault(part_name(part), part)
    return parts


ALGORITHMS: Mapping[str, Entry] = dict(_find_algorithms())
PARTS: Parts = _find_parts(
    [preset.algorithm for entry in ALGORITHMS.values() for preset in (entry.atari, entry.classic)], OWN_PARTS
)
# where vectors are seen, rewards are not clipped and runs are short: parts start there as those algorithms have them
VECTOR_PARTS: Parts = _find_parts([entry.classic.algorithm for entry in ALGORITHMS.values()], {})


def find_algorithm(name: str) -> Entry:
    """Return the algorithm called `name`."""
    try:
        return ALGORITHMS[canonical_name(name)]
    except KeyError:
        raise unknown_name("algorithm", name, ALGORITHMS) from None


def canonical_name(name: str) -> str:
    """Return an algorithm's name as the catalog has it, whatever the user's spelling."""
    return name.lower().replace("_", "-")


def find_part(field: str, name: str, *, sees_pictures: bool = True) -> Any:
    """Return the part called `name` for the field `field`, with its default settings on a domain."""
    try:
        part = PARTS[field][name.lower()]
        return part if sees_pictures else VECTOR_PARTS[field].get(name.lower(), part)
    except KeyError:
        raise unknown_name(field, name, PARTS[field]) from None
