"""The names of algorithms and parts that a user can type; looked up once, at the command line's edge.

An algorithm is known as soon as its file stands in `algorithms/named/`, and so are the parts that only it uses.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from redline.algorithms import bootstraps, named, objectives, optimizers, predictions, samplings
from redline.algorithms.entry import Entry
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.errors import unknown_name
from redline.exploration import EpsilonGreedy, Greedy, Sampled
from redline.networks import Dueling, Gru, Memoryless, Mlp, Nature, Noisy, Normed, Plain, Single, Small

# a field of an algorithm → the parts that can stand there
OWN_PARTS: Mapping[str, tuple[Any, ...]] = {
    "network": (Nature(), Small(), Mlp()),
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

# parts that start otherwise where vectors are seen: rewards are not clipped there, and networks are small
FOR_VECTORS: Mapping[type, Any] = {
    predictions.Categorical: predictions.Categorical(low=-100.0, high=100.0),
    predictions.Quantiles: predictions.Quantiles(quantiles=21),
}


def part_name(part: object) -> str:
    """Return the name under which a part of this kind is known: `OnlineChooses` is online-chooses."""
    return re.sub(r"(?<=[A-Za-z0-9])(?=[A-Z])", "-", type(part).__name__).lower()


def part_fields(algorithm: QLearning | OnPolicy) -> list[str]:
    """Return the fields of an algorithm that hold parts."""
    return [field.name for field in dataclasses.fields(algorithm) if field.name in OWN_PARTS]


def _find_algorithms() -> Iterator[tuple[str, Entry]]:
    for module in iter_modules(named.__path__):
        entry = import_module(f"{named.__name__}.{module.name}").ENTRY
        yield module.name.replace("_", "-"), entry


def _find_parts(entries: Mapping[str, Entry]) -> dict[str, dict[str, Any]]:
    parts = {field: {part_name(part): part for part in known} for field, known in OWN_PARTS.items()}
    for entry in entries.values():
        for preset in (entry.atari, entry.classic):
            for field in part_fields(preset.algorithm):
                part = getattr(preset.algorithm, field)
                parts[field].setdefault(part_name(part), part)
    return parts


ALGORITHMS: Mapping[str, Entry] = dict(_find_algorithms())
PARTS: Mapping[str, Mapping[str, Any]] = _find_parts(ALGORITHMS)


def find_algorithm(name: str) -> Entry:
    """Return the algorithm called `name`."""
    try:
        return ALGORITHMS[name.lower().replace("_", "-")]
    except KeyError:
        raise unknown_name("algorithm", name, ALGORITHMS) from None


def find_part(field: str, name: str, *, sees_pictures: bool = True) -> Any:
    """Return the part called `name` for the field `field`, with its default settings on a domain."""
    try:
        part = PARTS[field][name.lower()]
        return part if sees_pictures else FOR_VECTORS.get(type(part), part)
    except KeyError:
        raise unknown_name(field, name, PARTS[field]) from None
