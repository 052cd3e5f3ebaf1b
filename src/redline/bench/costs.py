"""What each part of a training costs, what overlaps, which part is the bottleneck, and which flags help against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import comb
from statistics import median
from typing import Any, NamedTuple

import torch

from redline.algorithms.q_learning import QLearning
from redline.bench.knockouts import FULL
from redline.bench.measuring import COVERAGE, Rate
from redline.envs.atari_games import find_game
from redline.errors import UserError
from redline.networks import Nature
from redline.replay.sampler import Prioritized
from redline.runs.host import usable_cores
from redline.runtime.config import Job, flag_of, from_settings
from redline.runtime.resolve import check_topology, place_roles, resolve_roles

Rounds = Mapping[str, Sequence[float]]  # variant → milliseconds per vector step, round by round
Cost = dict[str, Rate]


@dataclass(frozen=True)
class Part:
    """A cost of a training: the difference between two variants."""

    words: str
    dearer: str  # the variant with it
    cheaper: str  # the variant without it
    is_plural: bool = False


FEWEST_ROUNDS = 5  # their extremes are a 90 % interval of the median
NOT_JUDGED = f"not judged: use --rounds {FEWEST_ROUNDS} or more."
ENV_AND_LEARNER = "env_and_learner"  # in place of a part where these two overlap

LEARNER_PARTS: Mapping[str, Part] = {
    "forward": Part("forward passes and loss", "no_backward", "no_loss", is_plural=True),
    "backward": Part("the backward pass", "no_optimiser", "no_backward"),
    "optimiser": Part("the optimiser's step", FULL, "no_optimiser"),
}
OTHER_PARTS: Mapping[str, Part] = {
    "sampling": Part("sampling batches", FULL, "constant_batch"),
    "env": Part("the envs", FULL, "no_env", is_plural=True),
    "acting": Part("acting", FULL, "no_acting"),
    "records": Part("records and monitor", FULL, "no_records", is_plural=True),
}
PARTS = {**LEARNER_PARTS, **OTHER_PARTS}
WHOLE_LEARNER = Part("the learner", FULL, "no_loss")
BOTH = Part("envs and learner", FULL, "no_env_no_loss", is_plural=True)


def median_of(rounds: Sequence[float]) -> Rate:
    """Return the median of the rounds and its 90 % interval, for any distribution of noise.

    Each round lies below the true median with probability 1/2, so a binomial tells how likely the k-th round from
    either end bounds it. With fewer than `FEWEST_ROUNDS`, low and high are the extremes.
    """
    ordered, count = sorted(rounds), len(rounds)
    below = accumulate(comb(count, place) / 2**count for place in range(count))  # P(at most `place` rounds are below)
    place = max(sum(chance <= (1 - COVERAGE) / 2 for chance in below) - 1, 0)
    return {"median": median(ordered), "low": ordered[place], "high": ordered[count - 1 - place]}


def low_high(rounds: int) -> str:
    """Return what `low` and `high` mean for this number of rounds."""
    return "90 % interval of the median" if rounds >= FEWEST_ROUNDS else "least and most of the rounds"


def cost_rounds(rounds: Rounds, part: Part) -> list[float]:
    """Return the cost of a part in each round, in milliseconds per vector step."""
    return [more - less for more, less in zip(rounds[part.dearer], rounds[part.cheaper], strict=True)]


def cost_of(rounds: Rounds, part: Part) -> Cost:
    """Return the cost of a part, in milliseconds per vector step and as a share of the whole."""
    spent_ms = cost_rounds(rounds, part)
    shares = [spent / whole for spent, whole in zip(spent_ms, rounds[FULL], strict=True)]
    return {"ms_per_vector_step": median_of(spent_ms), "share": median_of(shares)}


def hidden_by_each_other(rounds: Rounds) -> Rate:
    """Return the milliseconds per vector step that are saved only if both envs and learner are left out."""
    spent = (cost_rounds(rounds, part) for part in (BOTH, OTHER_PARTS["env"], WHOLE_LEARNER))
    return median_of([both - env - learner for both, env, learner in zip(*spent, strict=True)])


def overlap(rounds: Rounds, *, can_overlap: bool) -> dict[str, Any]:
    """Compare the sum of the parts with the whole, and say how much envs and learner overlap."""
    costs = [cost_rounds(rounds, part) for part in PARTS.values()]
    total = median_of([sum(spent) for spent in zip(*costs, strict=True)])
    hidden, whole = hidden_by_each_other(rounds), median_of(rounds[FULL])
    found = _about_hidden(hidden, can_overlap=can_overlap) if is_judged(rounds) else f"Overlap is {NOT_JUDGED}"
    return {
        "sum_of_parts_ms": total,
        "whole_ms": whole,
        "env_and_learner_ms": median_of(cost_rounds(rounds, BOTH)),
        "hidden_ms": hidden,
        "sentence": f"The parts sum to {total['median']:.2f} of {whole['median']:.2f} ms. {found} The whole also "
        "includes what no variant leaves out, such as storing transitions and counting.",
    }


def is_judged(rounds: Rounds) -> bool:
    """Tell whether there are enough rounds to tell a difference from noise."""
    return len(rounds[FULL]) >= FEWEST_ROUNDS


def _about_hidden(hidden: Rate, *, can_overlap: bool) -> str:
    middle = hidden["median"]
    if hidden["low"] > 0:
        how = "work at the same time:" if can_overlap else "take turns, yet"
        return (
            f"Envs and learner {how} {middle:.2f} ms are saved only by leaving out both, so neither cost includes them."
        )
    if hidden["high"] < 0:
        return (
            f"Envs and learner slow each other down: {-middle:.2f} ms are saved by leaving out either, so both costs "
            "include them."
        )
    return (
        "No overlap of envs and learner stands out from the noise: leaving out both saves the sum of the two "
        f"(within {max(-hidden['low'], hidden['high']):.2f} ms)."
    )


def bottleneck(rounds: Rounds, *, can_overlap: bool) -> dict[str, Any]:
    """Name the dearest part among those with a certain cost, or envs and learner where they overlap.

    If the parts of the learner together cost more than that part, the sentence says so.
    """
    if not is_judged(rounds):
        return {"part": None, "then": None, "sentence": NOT_JUDGED.capitalize()}
    costs = {name: cost_of(rounds, part) for name, part in PARTS.items()}
    learner, hidden, whole = cost_of(rounds, WHOLE_LEARNER), hidden_by_each_other(rounds), median_of(rounds[FULL])
    certain = {name: cost for name, cost in costs.items() if _is_certain(cost)}
    part = _dearest(certain)
    most = "" if part is None else _costs_most(PARTS[part], costs[part], whole)
    dearest_ms = max([_ms(cost) for cost in (*certain.values(), learner) if _is_certain(cost)], default=0.0)
    if can_overlap and hidden["low"] > 0 and hidden["median"] > dearest_ms:
        sentence = (
            f"No part alone holds the rest up: envs and learner work side by side for {hidden['median']:.2f} of "
            f"{whole['median']:.2f} ms per vector step. Making one of them cheaper does not help: both must become "
            f"cheaper.{f' Of the rest, {most}' if most else ''}"
        )
        return {"part": ENV_AND_LEARNER, "then": part, "sentence": sentence}
    if part is None:
        sentence = "Nothing stands out: no part costs more than the noise of this machine; try more --rounds."
        return {"part": None, "then": None, "sentence": sentence}
    sentence, then = most[0].upper() + most[1:], None
    words = f"{_ms(learner):.2f} ms ({_share(learner)})"
    if part in LEARNER_PARTS:
        sentence += f" The learner as a whole costs {words}."
    elif _ms(learner) > _ms(costs[part]):
        then = _dearest({name: costs[name] for name in LEARNER_PARTS})
        sentence += f" The parts of the learner cost more together: {words}."
    return {"part": part, "then": then, "sentence": sentence}


def _costs_most(part: Part, cost: Cost, whole: Rate) -> str:
    verb = "cost" if part.is_plural else "costs"
    return f"{part.words} {verb} most: {_ms(cost):.2f} of {whole['median']:.2f} ms per vector step ({_share(cost)})."


def _dearest(costs: Mapping[str, Cost]) -> str | None:
    return max(costs, key=lambda name: _ms(costs[name]), default=None)


def _is_certain(cost: Cost) -> bool:
    return cost["ms_per_vector_step"]["low"] > 0


def _ms(cost: Cost) -> float:
    return cost["ms_per_vector_step"]["median"]


def _share(cost: Cost) -> str:
    return percent(cost["share"]["median"])


def percent(share: float) -> str:
    """Return a share in words."""
    return f"{round(100 * share)} %".replace("-", "−")


# Flags that help

GOOD_BATCH = 128  # beyond this many rows, a CPU's cache no longer holds an update
MOST_ENVS = 64
LEARNER = (*LEARNER_PARTS, ENV_AND_LEARNER)  # a cheaper learner leaves cores for the envs
CHANGES_LEARNING = "changes what is learnt, so compare the returns"


class Remedy(NamedTuple):
    """A setting that may help against a bottleneck."""

    parts: tuple[str, ...]  # against these bottlenecks
    key: str
    value: Any
    why: str


def advise(job: Job, *parts: str | None, asked: Job) -> list[dict[str, str]]:
    """Return the settings that may help where these parts of a resolved job cost most, the most likely first.

    Only settings that the job that the user `asked` for can have are advised.
    """
    known = list(remedies(job))
    found = {remedy[1:3]: remedy for part in parts for remedy in known if part in remedy.parts}
    return [
        {"flag": f"{flag_of(key)} {f'{value:g}' if isinstance(value, float) else value}", "why": why}
        for _, key, value, why in found.values()
        if _is_possible(asked, key, value)
    ]


def _is_possible(asked: Job, key: str, value: Any) -> bool:
    role, _, name = key.rpartition(".")
    try:
        job = from_settings(asked, {role: {name: value}} if role else {name: value})
        check_topology(job)
        resolve_roles(place_roles(job), is_image=False)
    except UserError:
        return False
    return job != asked


def remedies(job: Job) -> Iterator[Remedy]:
    """Yield the settings that would change a resolved job, the most likely to help first."""
    algorithm, cores = job.algorithm, usable_cores()
    if job.learner.device == "cpu" and torch.cuda.is_available():
        yield Remedy((*LEARNER, "acting"), "device", "cuda", "a GPU is there, and the network is computed on the CPU")
    if not algorithm.network.reads_vectors() and job.learner.threads < cores:
        why = "the learner uses fewer threads than there are cores"
        yield Remedy(("forward", "backward"), "learner.threads", cores, why)
    size, rollout_steps = algorithm.batch_size, algorithm.paces().get("rollout_steps", 0)
    if algorithm.replay is not None and 4 * size <= GOOD_BATCH:
        why = f"fewer and larger updates at the same replay ratio: each row costs less; {CHANGES_LEARNING}"
        yield Remedy(LEARNER, "batch_size", 4 * size, why)
    if 2 * size <= rollout_steps * job.num_envs:
        why = f"half as many updates of twice the rows; {CHANGES_LEARNING}"
        yield Remedy(("optimiser",), "batch_size", 2 * size, why)
    smaller = f"the 2013 network needs a third of the arithmetic; {CHANGES_LEARNING}"
    if isinstance(algorithm.network, Nature):
        yield Remedy(("forward", "backward", ENV_AND_LEARNER), "network", "small", smaller)
    yield from _remedies_of_sampling(job)
    yield from _remedies_of_playing(job)
    if isinstance(algorithm.network, Nature):
        yield Remedy(("acting",), "network", "small", smaller)
    if job.monitor.hz:
        yield Remedy(("records",), "monitor.hz", 0.0, "without the hardware monitor")


def _remedies_of_sampling(job: Job) -> Iterator[Remedy]:
    algorithm, replay, paces = job.algorithm, job.algorithm.replay, job.algorithm.paces()
    if replay is not None and replay.prefetch == 0 and usable_cores() > 1:
        why = "a thread gathers the next batch while the learner uses this one"
        yield Remedy(("sampling",), "replay.prefetch", 1, why)
    if replay is not None and not algorithm.network.reads_vectors() and replay.codec != "raw":
        faster = {"zstd": "lz4", "lz4": "raw"}[replay.codec]
        yield Remedy(("sampling",), "replay.codec", faster, "frames are decoded faster, and take more memory")
    if isinstance(algorithm, QLearning) and isinstance(algorithm.sample, Prioritized):
        why = f"no priorities to draw by and to update; {CHANGES_LEARNING}"
        yield Remedy(("sampling",), "sample", "uniform", why)
    less: tuple[str, float] | None = None
    if "samples_per_step" in paces:
        less = "samples_per_step", paces["samples_per_step"] / 2
    elif paces["epochs"] > 1:
        less = "epochs", int(paces["epochs"]) // 2
    if less is not None:
        yield Remedy((*LEARNER, "sampling"), *less, f"a lower replay ratio; {CHANGES_LEARNING}")


def _remedies_of_playing(job: Job) -> Iterator[Remedy]:
    is_threaded, threads = find_game(job.env.id) is not None, min(usable_cores(), job.num_envs)
    if is_threaded and job.actor.threads < threads:
        why = "the emulators run on fewer threads than they could use"
        yield Remedy(("env", ENV_AND_LEARNER), "actor.threads", threads, why)
    if usable_cores() > 1:
        yield Remedy(("env", "acting"), "topology", "async", "one process plays while another learns")
    if 2 * job.num_envs <= MOST_ENVS:
        if is_threaded:
            why = f"a thread that has finished takes the next env; {CHANGES_LEARNING}"
            yield Remedy(("env",), "num_envs", 2 * job.num_envs, why)
        yield Remedy(
            ("acting",), "num_envs", 2 * job.num_envs, f"one forward pass serves more envs; {CHANGES_LEARNING}"
        )


def can_overlap(job: Job) -> bool:
    """Tell whether envs step while the learner learns."""
    return job.algorithm.replay is not None and find_game(job.env.id) is not None


def what_runs_beside_what(job: Job) -> str:
    """Say which parts of this job run at the same time."""
    replay = job.algorithm.replay
    if replay is None:
        return "Nothing runs beside the envs: the learner uses a full rollout before they step again."
    if can_overlap(job):
        said = "The envs step while the learner samples batches and learns."
    else:
        said = "Nothing runs beside the envs: they step when all updates that are due are done."
    gathers = f" A thread gathers batches beside the learner (--replay.prefetch {replay.prefetch})."
    return said + gathers if replay.prefetch else said


def remarks(job: Job, *, keeps_features: bool) -> list[str]:
    """Say what the costs of this job include and exclude."""
    nested = (
        "The learner's parts are left out one after the other: first the optimiser, then also the backward pass, then "
        "also forward passes and loss. So they sum to the learner"
    )
    if can_overlap(job):
        nested += ", and the forward passes, the last to go, lack what the envs hide"
    said = [f"{nested}."]
    if job.algorithm.optimizer.max_norm() is not None:
        said.append("The backward pass includes the clipping of its gradients.")
    if keeps_features:
        said.append(
            "The learner reuses the forward pass of acting. Without acting it computes its own, so the cost of acting "
            "does not include that pass."
        )
    said.append("Records went to a temporary folder, not to --log-dir: a slower disk makes them cost more.")
    return said
