"""The names of algorithms and parts that a user can type.

Each file in `algorithms/named/` is an algorithm; the parts that only it uses are known with it. Others come from
installed packages, by entry point, or are registered by a script.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any

from redline.algorithms import named, on_policy, optimizers, predictions
from redline.algorithms.named import Entry
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.errors import UserError, kind_name, unknown_name
from redline.exploration import EpsilonGreedy, Greedy, Sampled
from redline.networks import Dueling, Gru, Memoryless, Mlp, Nature, Noisy, Normed, Plain, Single, Small, Strided, Twin
from redline.replay.sampler import Prioritized, Uniform

Parts = Mapping[str, Mapping[str, Any]]

ALGORITHM_POINTS = "redline.algorithms"  # group of entry points: each names an Entry
PART_POINTS = "redline.parts"  # each is called field.name, as network.wide, and names a part

# a field of an algorithm → the parts that can stand there
OWN_PARTS: Mapping[str, tuple[Any, ...]] = {
    "network": (Nature(), Small(), Strided(), Mlp(), Twin()),
    "layers": (Plain(), Noisy(), Normed()),
    "core": (Memoryless(), Gru()),
    "streams": (Single(), Dueling()),
    "predict": (predictions.Expected(), predictions.Categorical(), predictions.Quantiles()),
    "bootstrap": (predictions.TargetChooses(), predictions.OnlineChooses()),
    "objective": (on_policy.PolicyGradient(), on_policy.Clipped(), on_policy.QLambda()),
    "explore": (EpsilonGreedy(), Greedy(), Sampled()),
    "sample": (Uniform(), Prioritized()),
    "optimizer": (optimizers.Adam(), optimizers.Rmsprop(), optimizers.Radam()),
}


def part_name(part: object) -> str:
    """Return the name of a part."""
    return kind_name(type(part))


def part_fields(algorithm: QLearning | OnPolicy) -> list[str]:
    """Return the fields of an algorithm that hold parts."""
    return [field.name for field in dataclasses.fields(algorithm) if field.name in OWN_PARTS]


def _find_algorithms() -> Iterator[tuple[str, Entry]]:
    for module in iter_modules(named.__path__):
        entry = import_module(f"{named.__name__}.{module.name}").ENTRY
        yield module.name.replace("_", "-"), entry


def _find_parts(algorithms: Iterable[QLearning | OnPolicy], own: Mapping[str, tuple[Any, ...]]) -> Parts:
    """Collect parts by field and name; the first of its kind gives the default settings."""
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
# for vectors, where rewards are not clipped and runs are short: parts with the defaults of those algorithms
VECTOR_PARTS: Parts = _find_parts([entry.classic.algorithm for entry in ALGORITHMS.values()], {})


_foreign_algorithms: dict[str, Entry] = {}
_foreign_parts: dict[str, dict[str, Any]] = {field: {} for field in OWN_PARTS}


def register_algorithm(name: str, entry: Entry) -> None:
    """Make an algorithm and the parts that only it uses known in this process."""
    known = canonical_name(name)
    if known in ALGORITHMS:
        raise UserError(f"algorithm {known} is Redline's own: choose another name")
    _foreign_algorithms[known] = entry
    for preset in (entry.atari, entry.classic):
        for field in part_fields(preset.algorithm):
            part = getattr(preset.algorithm, field)
            if type(part) is not type(PARTS[field].get(part_name(part))):
                register_part(field, part)


def register_part(field: str, part: Any) -> None:
    """Make a part known for a field, by the name of its class, with these default settings."""
    if field not in OWN_PARTS:
        raise unknown_name("field of an algorithm", field, OWN_PARTS)
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        raise UserError(f"a part is an instance of a dataclass, not {part!r}")
    if part_name(part) in PARTS[field]:
        raise UserError(f"{field} {part_name(part)} is Redline's own: give the class another name")
    _foreign_parts[field][part_name(part)] = part


def find_algorithm(name: str) -> Entry:
    """Return the algorithm called `name`."""
    known = canonical_name(name)
    if known in ALGORITHMS:
        return ALGORITHMS[known]
    if known not in _foreign_algorithms and known in _points(ALGORITHM_POINTS):
        entry = _load(ALGORITHM_POINTS, known)
        if not isinstance(entry, Entry):
            raise UserError(f"algorithm {known}: {_points(ALGORITHM_POINTS)[known].value} is not an Entry")
        register_algorithm(known, entry)
    if known not in _foreign_algorithms:
        raise unknown_name("algorithm", name, [*ALGORITHMS, *foreign_algorithms()])
    return _foreign_algorithms[known]


def foreign_algorithms() -> list[str]:
    """Return the names of algorithms from packages and scripts."""
    return sorted({*_foreign_algorithms, *_points(ALGORITHM_POINTS)})


def canonical_name(name: str) -> str:
    """Return an algorithm's name in the catalog's spelling."""
    return name.lower().replace("_", "-")


def find_part(field: str, name: str, *, sees_pictures: bool = True) -> Any:
    """Return the part called `name` for the field `field`, with its default settings on a domain."""
    known = name.lower()
    if known in PARTS[field]:
        part = PARTS[field][known]
        return part if sees_pictures else VECTOR_PARTS[field].get(known, part)
    foreign, point = _foreign_parts[field], f"{field}.{known}"
    if known not in foreign and point in _points(PART_POINTS):
        register_part(field, _load(PART_POINTS, point))
    if known not in foreign:
        raise unknown_name(field, name, [*PARTS[field], *foreign])
    return foreign[known]


@cache
def _points(group: str) -> Mapping[str, EntryPoint]:
    return {canonical_name(point.name): point for point in entry_points(group=group)}


def _load(group: str, name: str) -> Any:
    point = _points(group)[name]
    try:
        return point.load()
    except Exception as error:  # of foreign code
        raise UserError(f"{name} can't be loaded from {point.value}: {error!r}") from error
