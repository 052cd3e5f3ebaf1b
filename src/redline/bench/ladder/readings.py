"""From turns to figures: rates, gains within each round, and whether the base is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from redline.bench.goals import why_not_judged
from redline.bench.ladder.contenders import Turn
from redline.bench.ladder.rounds import Measured
from redline.bench.ladder.rungs import PlacedRung
from redline.bench.measuring import rate_of

REQUIRED_RATIO = 0.95  # of the peer's steps/s, or the base is a strawman
NOT_LEARNT = "not measured (--learning-seeds 0)"


@dataclass(frozen=True)
class Learnt:
    """The mean return at the end of each training of a rung."""

    by_seed: Sequence[float | None] = ()  # None: no episode was over, or it failed
    reason: str | None = NOT_LEARNT  # why some or all are missing

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, with the mean over seeds."""
        known = [value for value in self.by_seed if value is not None]
        return {
            "mean_return": sum(known) / len(known) if known else None,
            "by_seed": list(self.by_seed),
            "reason": self.reason,
        }


def rung_readings(placed: PlacedRung, measured: Measured, learnt: Learnt, *, base: str) -> dict[str, Any]:
    """Return all that is known of a rung; None where it could not be measured."""
    turns = measured.turns
    own = turns.get(placed.name)
    missing = placed.missing or measured.failed.get(placed.name)
    facts = {
        "name": placed.name,
        "switches_on": placed.rung.switches_on,
        "over": placed.below,
        "missing": missing,
    }
    if own is None:
        names = ("gain", "gain_over_base", "steps_per_s", "updates_per_s", "samples_per_step", "cpu_share", "gpu_share")
        return {**facts, **dict.fromkeys(names), "learning": Learnt(reason=missing).as_dict()}
    return {
        **facts,
        "gain": None if placed.below is None else gain(own, turns.get(placed.below)),
        "gain_over_base": gain(own, turns[base]),
        **readings(own),
        "learning": learnt.as_dict(),
    }


def gain(own: Sequence[Turn], other: Sequence[Turn] | None) -> dict[str, float] | None:
    """Return the ratio of steps/s within each round; None if the other was not measured."""
    if other is None:
        return None
    return rate_of([a.steps_per_s / b.steps_per_s for a, b in zip(own, other, strict=True)]).as_dict()


def judge_base(measured: Measured, *, base: str, peers: Sequence[str], missing: str | None) -> dict[str, Any]:
    """Say whether the base keeps up with the fastest of the peers; `valid` is None if nobody can tell.

    The fastest by its median: the fastest of every round would be whoever noise had favoured in it.
    """
    turns = measured.turns
    facts = {"name": base, "peer": peers[0], "required_ratio": REQUIRED_RATIO}
    missing = missing or next((measured.failed[name] for name in peers if name in measured.failed), None)
    unknown = f"nobody can tell whether {base} keeps up with {peers[0]}"
    if missing is not None:
        reason = f"{unknown}: {missing}"
        return {**facts, "valid": None, "ratio": None, "reason": reason, "peer_steps_per_s": None, "peers": {}}
    fastest = turns[max(peers, key=lambda name: median(turn.steps_per_s for turn in turns[name]))]
    ratio = rate_of([a.steps_per_s / b.steps_per_s for a, b in zip(turns[base], fastest, strict=True)])
    is_valid = ratio.median >= REQUIRED_RATIO
    why_not = why_not_judged(rounds=len(fastest), others_percent=measured.others_percent)
    verdict = f"{base} {'keeps' if is_valid else 'does not keep'} up with {peers[0]}"
    said = verdict if why_not is None else f"{unknown}, {why_not}"
    return {
        **facts,
        "valid": is_valid if why_not is None else None,
        "ratio": ratio.as_dict(),
        "reason": f"{said}: {ratio.median:.2f} × its steps/s, {REQUIRED_RATIO:g} required",
        "peer_steps_per_s": rate_of([turn.steps_per_s for turn in fastest]).as_dict(),
        "peers": {name: readings(turns[name]) for name in peers},
    }


def readings(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the rates of one contender."""
    gpu = [turn.gpu_share for turn in turns if turn.gpu_share is not None]
    return {
        "steps_per_s": rate_of([turn.steps_per_s for turn in turns]).as_dict(),
        "updates_per_s": rate_of([turn.updates / turn.seconds for turn in turns]).as_dict(),
        "samples_per_step": rate_of([turn.samples / turn.steps for turn in turns]).as_dict(),
        "cpu_share": rate_of([turn.cpu_share for turn in turns]).as_dict(),
        "gpu_share": rate_of(gpu).as_dict() if gpu else None,
    }
