"""Every countable thing that a user sees carries its unit: in its name, or in its help where the name is given."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_type_hints

import pytest

from redline.algorithms.catalog import ALGORITHMS, PARTS
from redline.cli.flags import TrainFlags
from redline.monitor.processes import Usage
from redline.runtime.actor import Episode
from redline.runtime.config import Job
from redline.runtime.counters import Counters
from redline.runtime.gauges import Gauges, RoleGauges
from redline.types import EnvSpec

UNITS = {
    *("steps", "frames", "updates", "samples", "episodes", "batches", "transitions", "envs", "threads", "actions"),
    *("bytes", "s", "h", "minutes", "percent", "processes", "nats", "evaluations", "restarts", "hz"),
    *("w", "j", "cost", "price"),  # money is in the currency of the user's price
}
# names that the command line has from its users: their help must name the unit instead
UNIT_IN_HELP = {
    "env.size": "pixels",
    "env.stack": "frames",
    "env.skip": "frames",
    "batch_size": "Transitions",
    "replay.capacity": "Transitions",
    "replay.prefetch": "Updates",
    "returns.n": "Steps",
    "actors": "Processes",
    "network.width": "Units",
    "network.widths": "Units",
    "core.width": "Units",
    "predict.atoms": "Atoms",
    "predict.quantiles": "Quantiles",
    "epochs": "Passes",
    "explore.epsilon.start": "step",
    "explore.epsilon.end": "over-steps",
    "explore.evaluation": "ε",
    "sample.beta.start": "step",
    "sample.beta.end": "over-steps",
}
# ratios, identities and quantities in units of the reward
NO_UNIT = {
    "replay.path",
    *("actor.device", "learner.device", "evaluator.device"),
    *("seed", "seeds", "device", "log_dir", "lane", "reset_seed", "progress", "epsilon", "loss", "stack"),
    *(
        "optimizer.lr",
        "optimizer.final_share",
        "optimizer.eps",
        "optimizer.decay",
        "optimizer.clip_norm",
        "layers.sigma",
    ),
    *("learner.tf32", "learner.cuda_graph", "sample.late"),
    *("returns.gamma", "returns.trace", "returns.clip_rewards", "sample.alpha", "sample.epsilon"),
    *("predict.huber_delta", "predict.kappa", "predict.low", "predict.high"),
    *("objective.clip", "objective.entropy_weight", "objective.value_weight"),
    *("target_return", "target_eval_return", "anneal_at_return", "total_reward"),
    *("mean_return_100", "best_return", "greedy_return"),
    *("learning_rate", "gradient_norm", "td_error", "mean_q", "largest_q", "clip_fraction", "explained_variance"),
    "track",
    *("load_average", "pid", "waiting", "busy", "recording.record_values", "print_config"),
}


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Walk a configuration as (dotted name, value, help)."""
    help_texts = help_of(type(value))
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        flat = field.name in ("algorithm", "limits", "job")
        name = prefix if flat else f"{prefix}{field.name}"
        if dataclasses.is_dataclass(inner):
            yield from leaves(inner, name if flat else f"{name}.")
        else:
            yield name, inner, help_texts.get(field.name, "")


def help_of(kind: type) -> dict[str, str]:
    """Return the sentence under each field of a dataclass, or of one that it inherits from."""
    bases = [base for base in reversed(kind.__mro__) if dataclasses.is_dataclass(base)]
    bodies = [ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body for base in bases]  # type: ignore[attr-defined]
    return {
        field.target.id: text.value.value
        for body in bodies
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def carries_unit(name: str) -> bool:
    return bool(UNITS & set(name.replace(".", "_").split("_")))


@pytest.mark.parametrize("domain", ["atari", "classic"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_flag_carries_its_unit_and_a_sentence(name: str, domain: str) -> None:
    job = Job(algorithm=getattr(ALGORITHMS[name], domain).algorithm)
    for flag, value, text in leaves(TrainFlags(job=job)):
        assert text, f"--{flag} has no help"
        if isinstance(value, str) or flag in NO_UNIT or flag in (*PARTS, "config", "recipe", "auto", "plain", "json"):
            continue
        if flag in UNIT_IN_HELP:
            assert UNIT_IN_HELP[flag] in text, f"the help of --{flag} does not name its unit"
        else:
            assert carries_unit(flag), f"--{flag} counts something, but does not say what"


def test_every_part_that_can_be_named_has_a_sentence_for_each_setting() -> None:
    for field, parts in PARTS.items():
        for name, part in parts.items():
            for flag, _, text in leaves(part):
                assert text, f"--{field}.{flag} of {name} has no help"


@pytest.mark.parametrize("kind", [Gauges, RoleGauges, Counters, Episode, Usage, EnvSpec])
def test_every_public_number_carries_its_unit(kind: type) -> None:
    for name, hint in get_type_hints(kind).items():
        if any(number in str(hint) for number in ("int", "float")) and name not in NO_UNIT | {"frame_shape"}:
            assert carries_unit(name), f"{kind.__name__}.{name} counts something, but does not say what"
