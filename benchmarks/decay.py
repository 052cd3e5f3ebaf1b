"""Does a run stay as fast as it was? Updates/s and memory of a run directory, in each fifth of its learning time.

The longest invocation of the run counts, from its first reading after the first update (the warm-up is over, and the
replay memory has held a whole batch) to its stop. The last fifth is compared with the second: the first still sees
caches fill. Memory is compared as in `memory_flat.py`, from when the replay memory was full; where it never was, from
the second fifth on, and the record says so.
"""

import statistics
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_flat import MIN_ROWS, TOLERANCE, growth, rows_after_full
from recording import Measurement, finish, make_parser, say
from redline.errors import UserError
from redline.records import Row, read_records
from redline.runs.directory import read_run_json, slug
from redline_process import read_metrics
from run_reading import as_text, changed_settings, typed

FIFTHS = 5
SPEED_TOLERANCE = 0.05
REQUIRED_MINUTES = 20.0
BEGINS = ("start", "resume")


@dataclass(frozen=True)
class Memory:
    """How memory grew, and since when."""

    growth: dict[str, float]
    is_full: bool  # the replay memory, all the while
    since_minutes: float


def longest_invocation(metrics: Sequence[Row], events: Sequence[Row]) -> list[Row]:
    """Return the readings of the longest invocation, without the one that was taken after its processes had ended."""
    begins = [row["unix_s"] for row in events if row["event"] in BEGINS]
    invocations = []
    for begin, end in zip(begins, [*begins[1:], float("inf")], strict=True):
        stops = [row["unix_s"] for row in events if row["event"] == "stop" and begin <= row["unix_s"] < end]
        invocations.append([row for row in metrics if begin <= row["unix_s"] <= min([end, *stops])])
    return max(invocations, key=_duration_s, default=[])


def learning_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the readings since the first update."""
    return [row for row in rows if row["updates"] > 0]


def fifths(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the readings of each fifth of the time; where one ends, the next begins."""
    begin_s, share_s = rows[0]["time_s"], _duration_s(rows) / FIFTHS
    cuts = [
        next(place for place, row in enumerate(rows) if row["time_s"] >= begin_s + number * share_s)
        for number in range(FIFTHS)
    ]
    return [list(rows[begin : end + 1]) for begin, end in zip(cuts, [*cuts[1:], len(rows) - 1], strict=True)]


def read_fifth(rows: Sequence[Row]) -> Row:
    """Return what was done in one fifth, and the memory that it took."""
    first, last = rows[0], rows[-1]
    seconds = last["time_s"] - first["time_s"]
    roles = {role["role"] for row in rows for role in row["roles"]}
    return {
        "from_minutes": first["time_s"] / 60,
        "to_minutes": last["time_s"] / 60,
        "updates_per_s": (last["updates"] - first["updates"]) / seconds,
        "steps_per_s": (last["steps"] - first["steps"]) / seconds,
        "rss_bytes": statistics.median(row["rss_bytes"] for row in rows),
        "rss_bytes_by_role": {name: _rss_of(rows, name) for name in sorted(roles)},
        "replay_transitions": last["replay_transitions"],
        "load_average": statistics.median(row["load_average"] or 0.0 for row in rows),
    }


def read_memory(rows: Sequence[Row]) -> Memory:
    """Return how memory grew since the replay memory was full, or since the second fifth."""
    full = rows_after_full(rows)
    is_full = len(full) >= MIN_ROWS
    counted = full if is_full else [row for fifth in fifths(rows)[1:] for row in fifth]
    return Memory(growth([row["rss_bytes"] for row in counted]), is_full, counted[0]["time_s"] / 60)


def measurement(facts: Row, metrics: Sequence[Row], events: Sequence[Row], *, required_minutes: float) -> Measurement:
    """Return what the run's records show."""
    rows = learning_rows(longest_invocation(metrics, events))
    minutes = _duration_s(rows) / 60
    if minutes < required_minutes:
        raise UserError(f"{minutes:.1f} minutes of learning in one go, {required_minutes:g} are needed: train longer")
    if len(rows) < MIN_ROWS:
        raise UserError(f"{len(rows)} readings of learning in one go, {MIN_ROWS} are needed: train longer")
    parts, memory = [read_fifth(fifth) for fifth in fifths(rows)], read_memory(rows)
    speed = parts[-1]["updates_per_s"] / parts[1]["updates_per_s"] - 1
    settings, fill = changed_settings(facts), rows[-1]["replay_transitions"] / rows[-1]["replay_capacity_transitions"]
    topology = settings.get("topology", "inline")
    where = f"replay full since minute {memory.since_minutes:.0f}" if memory.is_full else f"replay NOT full: {fill:.0%}"
    own = [slug(facts["config"]["env"]["id"]).replace("_", "-"), facts["algorithm"], topology]
    return Measurement(
        name="-".join(["decay", *own, *(["tried"] * (required_minutes < REQUIRED_MINUTES))]),
        title=f"{facts['algorithm'].upper()} on {facts['config']['env']['id']}, {topology}, {minutes:.0f} minutes: "
        "updates/s in the last fifth against the second",
        headline=f"{parts[1]['updates_per_s']:.1f} → {parts[-1]['updates_per_s']:.1f} updates/s ({speed:+.1%}); "
        f"RSS {memory.growth['first_tenth_bytes'] / 1e6:,.0f} → {memory.growth['last_tenth_bytes'] / 1e6:,.0f} MB "
        f"({memory.growth['growth']:+.2%}, {where})".replace("-", "−"),
        learning=f"{as_text(rows[-1]['samples_per_step'])} samples per step, {rows[-1]['steps']:,} steps, "
        f"mean-100 {as_text(rows[-1]['mean_return_100'])}; load average of the machine "
        f"{parts[1]['load_average']:.1f} → {parts[-1]['load_average']:.1f}",
        passed=abs(speed) <= SPEED_TOLERANCE and memory.growth["growth"] <= TOLERANCE,
        config={
            "settings": settings,
            "flags": typed(settings),
            "speed_tolerance": SPEED_TOLERANCE,
            "memory_tolerance": TOLERANCE,
        },
        repeats=parts,
        summary={
            "minutes": minutes,
            "updates_per_s_change": speed,
            "memory": memory.growth,
            "memory_since_minutes": memory.since_minutes,
            "replay_was_full": memory.is_full,
            "replay_fill": fill,
            "resumes": len(facts["resumes"]),
            "run_commit": facts["commit"],
            "run_host": facts["host"],
        },
    )


def _duration_s(rows: Sequence[Row]) -> float:
    return float(rows[-1]["time_s"] - rows[0]["time_s"]) if rows else 0.0


def _rss_of(rows: Sequence[Row], name: str) -> float | None:
    sizes = [role["rss_bytes"] for row in rows for role in row["roles"] if role["role"] == name and role["rss_bytes"]]
    return statistics.median(sizes) if sizes else None


def main(argv: Sequence[str] | None = None) -> int:
    """Read the run, and record."""
    options = parse(argv)
    try:
        facts, events = read_run_json(options.run), read_records(options.run / "events.jsonl")
        result = measurement(facts, read_metrics(options.run), events, required_minutes=options.min_minutes)
    except (UserError, OSError, RuntimeError) as error:
        raise SystemExit(f"decay: {error}") from None
    for number, part in enumerate(result.repeats, start=1):
        memory_and_load = f"RSS {part['rss_bytes'] / 1e6:,.0f} MB, load average {part['load_average']:.1f}"
        say(f"fifth {number}: {part['updates_per_s']:.2f} updates/s, {memory_and_load}")
    return finish(result, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--min-minutes", type=float, default=REQUIRED_MINUTES, help="learning in one go that is needed")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
