"""Does memory stay flat? The process's RSS over many steps after the replay memory is full.

The tolerance is 2 %: between two readings RSS moves by about one per cent without a trend (arenas of the allocator,
a checkpoint under way). Of some 500 MB that is 10 MB, so over 50,000 steps a leak of 200 bytes per step would show.
"""

import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, say, spread
from redline.jsonl import Row, read_records
from redline_process import run_redline
from run_reading import as_text

TOLERANCE = 0.02
MIN_ROWS = 10  # a tenth must hold at least one reading
# checkpoints come before the replay is full too: the room they need once must not look like growth
CHECKPOINT_MINUTES = 0.25


def rows_after_full(rows: Sequence[Row]) -> list[Row]:
    """Return the readings since the replay was full: every step adds one transition, so after `capacity` steps."""
    full = [row for row in rows if row["steps"] >= row["replay_capacity_transitions"]]
    # a little below capacity is full: the memory gives up old transitions in blocks
    if any(row["replay_transitions"] < 0.9 * row["replay_capacity_transitions"] for row in full):
        raise RuntimeError("the replay memory is not full after as many steps as it holds transitions")
    return full


def growth(rss_bytes: Sequence[int]) -> dict[str, float]:
    """Compare the medians of the first and of the last tenth."""
    tenth = max(1, len(rss_bytes) // 10)
    first, last = statistics.median(rss_bytes[:tenth]), statistics.median(rss_bytes[-tenth:])
    return {"first_tenth_bytes": first, "last_tenth_bytes": last, "growth": last / first - 1}


def main(argv: Sequence[str] | None = None) -> int:
    """Train, read the run's metrics, and record the growth."""
    options = parse(argv)
    total_steps = options.capacity + options.steps
    flags = ["--env", options.env, "--seed", str(options.seed), "--max-steps", str(total_steps)]
    flags += ["--replay.capacity", str(options.capacity), "--warmup-steps", str(options.warmup_steps)]
    flags += ["--checkpoint-minutes", str(CHECKPOINT_MINUTES)]
    flags += ["--network", options.network] if options.network else []
    say(f"training {total_steps:,} steps; readings come every 5 s")
    with tempfile.TemporaryDirectory() as folder:
        summary = run_redline(["train", *flags, "--log-dir", folder], Path(folder) / "log")
        rows = rows_after_full(read_records(Path(summary["run"]) / "metrics.jsonl"))
    if len(rows) < MIN_ROWS:
        raise SystemExit(
            f"only {len(rows)} readings after the replay was full, {MIN_ROWS} are needed: use more --steps"
        )
    return finish(measurement(options, rows, summary), as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, rows: list[Row], summary: dict[str, Any]) -> Measurement:
    """Return what the readings show."""
    change = growth([row["rss_bytes"] for row in rows])
    steps = rows[-1]["steps"] - rows[0]["steps"]
    return Measurement(
        name=f"memory-flat-{options.env.lower().replace('/', '-')}",
        title=f"memory over {steps:,} steps of {options.env} after the replay is full",
        headline=f"RSS {change['first_tenth_bytes'] / 1e6:,.0f} → {change['last_tenth_bytes'] / 1e6:,.0f} MB "
        f"({change['growth']:+.2%})".replace("-", "−"),
        learning=f"{summary['samples_per_step']:.1f} samples per step, mean-100 {as_text(summary['mean_return_100'])}",
        passed=change["growth"] <= TOLERANCE,
        config={
            "env": options.env,
            "network": options.network or "default",
            "replay_capacity_transitions": options.capacity,
            "warmup_steps": options.warmup_steps,
            "checkpoint_minutes": CHECKPOINT_MINUTES,
            "seed": options.seed,
            "tolerance": TOLERANCE,
        },
        repeats=[{key: row[key] for key in ("steps", "time_s", "rss_bytes", "replay_bytes")} for row in rows],
        summary={**change, "steps_after_full": steps, "rss_bytes": spread([row["rss_bytes"] for row in rows])},
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--env", default="pong", help="env")
    parser.add_argument("--network", default=None, help="network by name; small on Atari, Redline's default elsewhere")
    parser.add_argument("--capacity", type=at_least(1), default=10_000, help="transitions the replay memory holds")
    parser.add_argument("--warmup-steps", type=at_least(1), default=1_000, help="steps before the first update")
    parser.add_argument("--steps", type=at_least(1), default=50_000, help="steps after the replay is full")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run")
    options = parser.parse_args(argv)
    options.network = options.network or ("small" if options.env == "pong" else None)
    return options


if __name__ == "__main__":
    sys.exit(main())
