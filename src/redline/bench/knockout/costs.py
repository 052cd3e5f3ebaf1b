"""From rounds of measured variants to what each part costs, what overlaps, and which part to look at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Any

from redline.bench.knockout.variants import FULL
from redline.bench.measuring import COVERAGE, Rate

Rounds = Mapping[str, Sequence[float]]  # variant → milliseconds per vector step, round by round
Cost = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Part:
    """Something that a training spends time on: what one variant takes more than another."""

    words: str
    dearer: str  # the variant with it
    cheaper: str  # the variant without it
    is_plural: bool = False

    @property
    def cost(self) -> str:
        """The verb that follows its words."""
        return "cost" if self.is_plural else "costs"


LOW_HIGH = "90 % interval of the median, over the rounds"

LEARNER_PARTS: Mapping[str, Part] = {
    "forward": Part("forward passes and loss", "no_backward", "no_loss", is_plural=True),
    "backward": Part("the backward pass", "no_optimiser", "no_backward"),
    "optimiser": Part("the optimiser's step", FULL, "no_optimiser"),
}
OTHER_PARTS: Mapping[str, Part] = {
    "sampling": Part("making batches", FULL, "constant_batch"),
    "env": Part("the envs", FULL, "no_env", is_plural=True),
    "acting": Part("acting", FULL, "no_acting"),
    "records": Part("records and monitor", FULL, "no_records", is_plural=True),
}
PARTS = {**LEARNER_PARTS, **OTHER_PARTS}
WHOLE_LEARNER = Part("the learner", FULL, "no_loss")
ENV_AND_LEARNER = Part("envs and learner", FULL, "no_env_no_loss", is_plural=True)


def median_of(rounds: Sequence[float]) -> Rate:
    """Return the median of the rounds, and an interval that holds the true one with 90 %, whatever the noise is like.

    Each round lies below the true median with probability 1/2, so the k-th from either end is its bound with the
    probability that a binomial gives. Fewer than five rounds are too few: then their extremes are given.
    """
    ordered, count = sorted(rounds), len(rounds)
    outside = 0.0  # probability that the true median lies beyond the bound at one end
    place = -1
    while outside + comb(count, place + 1) / 2**count <= (1 - COVERAGE) / 2:
        place += 1
        outside += comb(count, place) / 2**count
    place = max(place, 0)
    return Rate(median=median(ordered), low=ordered[place], high=ordered[count - 1 - place])


def cost_rounds(rounds: Rounds, part: Part) -> list[float]:
    """Return what a part cost in each round, in milliseconds per vector step."""
    return [more - less for more, less in zip(rounds[part.dearer], rounds[part.cheaper], strict=True)]


def cost_of(rounds: Rounds, part: Part) -> Cost:
    """Return what a part costs, in milliseconds per vector step and as share of the whole."""
    spent_ms = cost_rounds(rounds, part)
    shares = [spent / whole for spent, whole in zip(spent_ms, rounds[FULL], strict=True)]
    return {"ms_per_vector_step": median_of(spent_ms).as_dict(), "share": median_of(shares).as_dict()}


def overlap(rounds: Rounds) -> dict[str, Any]:
    """Return the sum of the parts beside the whole, what envs and learner hide of each other, and why."""
    costs = {name: cost_rounds(rounds, part) for name, part in PARTS.items()}
    total = median_of([sum(spent) for spent in zip(*costs.values(), strict=True)])
    both, learner = cost_rounds(rounds, ENV_AND_LEARNER), cost_rounds(rounds, WHOLE_LEARNER)
    hidden = median_of([b - e - ln for b, e, ln in zip(both, costs["env"], learner, strict=True)])
    whole = median_of(rounds[FULL])
    return {
        "sum_of_parts_ms": total.as_dict(),
        "whole_ms": whole.as_dict(),
        "env_and_learner_ms": median_of(both).as_dict(),
        "hidden_ms": hidden.as_dict(),
        "sentence": f"The parts sum to {total.median:.2f} of {whole.median:.2f} ms. {_about_hidden(hidden)} What "
        "no variant leaves out (keeping what was played, counting) is in the whole and in no part.",
    }


def _about_hidden(hidden: Rate) -> str:
    if hidden.low > 0:
        return (
            f"Envs and learner work at the same time: {hidden.median:.2f} ms are saved only by leaving out both, so "
            "they are in neither cost."
        )
    if hidden.high < 0:
        return (
            f"Envs and learner slow each other down: {-hidden.median:.2f} ms are saved by leaving out either, so they "
            "are in both costs."
        )
    return (
        "No overlap of envs and learner stands out from the noise: leaving out both saves what each saves alone "
        f"(within {max(-hidden.low, hidden.high):.2f} ms)."
    )


def bottleneck(rounds: Rounds) -> dict[str, Any]:
    """Name the part that costs most of those whose cost is beyond doubt, and the learner if it costs more together."""
    costs = {name: cost_of(rounds, part) for name, part in PARTS.items()}
    part = _dearest({name: cost for name, cost in costs.items() if cost["ms_per_vector_step"]["low"] > 0})
    if part is None:
        return {"part": None, "then": None, "sentence": _nothing_stands_out(overlap(rounds)["hidden_ms"])}
    learner, then = cost_of(rounds, WHOLE_LEARNER), None
    whole_ms = median_of(rounds[FULL]).median
    spent = f"{_milliseconds(costs[part]):.2f} of {whole_ms:.2f} ms per vector step ({_share(costs[part])})"
    together = f"{_milliseconds(learner):.2f} ms ({_share(learner)})"
    sentence = f"{_capital(PARTS[part].words)} {PARTS[part].cost} most: {spent}."
    if part in LEARNER_PARTS:
        sentence += f" The learner as a whole costs {together}."
    elif _milliseconds(learner) > _milliseconds(costs[part]):
        then = _dearest({name: costs[name] for name in LEARNER_PARTS})
        sentence += f" The parts of the learner cost more together: {together}."
    return {"part": part, "then": then, "sentence": sentence}


def _dearest(costs: Mapping[str, Cost]) -> str | None:
    return max(costs, key=lambda name: _milliseconds(costs[name]), default=None)


def _milliseconds(cost: Cost) -> float:
    return cost["ms_per_vector_step"]["median"]


def _share(cost: Cost) -> str:
    return percent(cost["share"]["median"])


def _nothing_stands_out(hidden: Mapping[str, float]) -> str:
    if hidden["low"] > 0:
        return (
            f"No part alone holds the rest up: envs and learner work side by side for {hidden['median']:.2f} ms of "
            "each vector step, and leaving out one leaves the other."
        )
    return "Nothing stands out: no part's cost is beyond the noise of this machine; more --rounds may tell."


def percent(share: float) -> str:
    """Return a share in words."""
    return f"{round(100 * share)} %".replace("-", "−")


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
