"""Fleets made by hand: their list, their runs and their leases, with numbers that can be checked by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from made_runs import T0, facts, write_run

from redline.fleet.lease import Lease, Watcher
from redline.fleet.listing import Listing, Part, Slot, Wishes, make_slots, new_listing, write_listing
from redline.fleet.slots import RUNS

STEPS_PER_S = 100


def make_fleet(
    folder: Path,
    games: Sequence[str] = ("pong",),
    algorithms: Sequence[str] = ("dqn",),
    seeds: Sequence[int] = (1, 2, 3),
    *,
    price: float | None = None,
) -> Listing:
    """Write the list of a fleet that has not begun."""
    slots = make_slots([Part(tuple(games), tuple(algorithms), tuple(seeds), {"max-minutes": 2})])
    listing = new_listing("made", Wishes(price_per_hour=price), slots, "redline fleet start fleet.toml")
    folder.mkdir(parents=True, exist_ok=True)
    write_listing(folder, listing)
    return listing


def run_folder(folder: Path, slot: Slot) -> Path:
    """Return where the run of a slot lies."""
    return folder / RUNS / slot.name / "game" / "algorithm" / f"20260101-000000-s{slot.seed}"


def add_run(
    folder: Path,
    slot: Slot,
    returns: Sequence[float],
    *,
    seconds: float = 100.0,
    begin_s: float = 0.0,
    updates: int = 1_000,
    greedy: Sequence[float] = (),
    config: dict[str, Any] | None = None,
    **end: Any,
) -> Path:
    """Write a run whose episodes end at equal distances, the last one with the run, and a lease that is over."""
    run = facts(env={"id": slot.game}, seed=slot.seed, **(config or {}))
    run |= {"algorithm": slot.algorithm, "created_unix_s": T0 + begin_s}

    def row(at_s: float, **more: Any) -> dict[str, Any]:
        return {"time_s": at_s, "unix_s": T0 + begin_s + at_s, "steps": int(STEPS_PER_S * at_s), **more}

    ends = [seconds * (place + 1) / len(returns) for place in range(len(returns))]
    episodes = [row(at_s, role="actor", lane=0, **{"return": value}) for at_s, value in zip(ends, returns, strict=True)]
    for lane, value in enumerate(greedy):
        episodes.append(row(seconds, role="greedy", evaluation=1, lane=lane, **{"return": value}))
    counts = [int(updates * share) for share in (0.1, 0.5, 1.0)]
    metrics = [row(seconds * share, updates=count) for share, count in zip((0.1, 0.5, 1.0), counts, strict=True)]
    path = write_run(run_folder(folder, slot), run, metrics=metrics, episodes=episodes, events=[])
    end_lease(folder, slot, path, **end)
    return path


def end_lease(folder: Path, slot: Slot, run: Path | None, *, attempt: int = 1, **end: Any) -> None:
    """Write a lease of an attempt that is over."""
    where = "" if run is None else str(run.relative_to(folder))
    lease = Lease.take(folder, slot.name, watcher=Watcher(folder), run=where, attempt=attempt)
    lease.end(**{"exit_code": 0, "reason": "max-minutes reached", **end})
