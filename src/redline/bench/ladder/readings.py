"""From turns to figures: rates, gains within each round, and whether the base is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redline.bench.ladder.contenders import Turn
from redline.bench.ladder.rungs import PlacedRung
from redline.bench.measuring import rate_of

REQUIRED_RATIO = 0.95  # of the peer's steps/s, or the base is a strawman
NOT_LEARNT = "not measured (--learning-seeds 0)"


def rung_readings(
    placed: PlacedRung, turns: Mapping[str, Sequence[Turn]], learnt: Sequence[float | None] | None, *, base: str
) -> dict[str, Any]:
    """Return all that is known of a rung; None where it could not be measured."""
    own = turns.get(placed.name)
    facts = {
        "name": placed.name,
        "switches_on": placed.rung.switches_on,
        "over": placed.below,
        "missing": placed.missing,
    }
    if own is None:
        names = ("gain", "gain_over_base", "steps_per_s", "updates_per_s", "samples_per_step", "cpu_share", "gpu_share")
        return {**facts, **dict.fromkeys(names), "learning": learning(None, reason=placed.missing)}
    return {
        **facts,
        "gain": None if placed.below is None else gain(own, turns.get(placed.below)),
        "gain_over_base": gain(own, turns[base]),
        **readings(own),
        "learning": learning(learnt, reason=None if learnt else NOT_LEARNT),
    }


def gain(own: Sequence[Turn], other: Sequence[Turn] | None) -> dict[str, float] | None:
    """Return the ratio of steps/s within each round; None if the other was not measured."""
    if other is None:
        return None
    return rate_of([a.steps_per_s / b.steps_per_s for a, b in zip(own, other, strict=True)]).as_dict()


def learning(returns: Sequence[float | None] | None, *, reason: str | None) -> dict[str, Any]:
    """Return what was learnt: the mean over seeds of the mean return at the end."""
    known = [value for value in returns or () if value is not None]
    return {
        "mean_return": sum(known) / len(known) if known else None,
        "by_seed": list(returns or ()),
        "reason": reason,
    }


def judge_base(
    turns: Mapping[str, Sequence[Turn]], *, base: str, peers: Sequence[str], missing: str | None
) -> dict[str, Any]:
    """Say whether the base keeps up with the fastest of the peers in each round; None where there are none."""
    facts = {"name": base, "peer": peers[0], "required_ratio": REQUIRED_RATIO}
    if missing is not None:
        reason = f"nothing to compare it with: {missing}"
        return {**facts, "valid": None, "ratio": None, "reason": reason, "peer_steps_per_s": None, "peers": {}}
    fastest = [
        max(row, key=lambda turn: turn.steps_per_s) for row in zip(*(turns[name] for name in peers), strict=True)
    ]
    ratio = rate_of([a.steps_per_s / b.steps_per_s for a, b in zip(turns[base], fastest, strict=True)])
    is_valid = ratio.median >= REQUIRED_RATIO
    verb = "keeps up with" if is_valid else "does not keep up with"
    return {
        **facts,
        "valid": is_valid,
        "ratio": ratio.as_dict(),
        "reason": f"{base} {verb} {peers[0]}: {ratio.median:.2f} × its steps/s, {REQUIRED_RATIO:g} required",
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
