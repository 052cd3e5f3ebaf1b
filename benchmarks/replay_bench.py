"""Runs `redline bench replay` as a user does and records what it prints: bytes and speed of the replay memory, beside
other libraries' on the same data."""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arguments import at_least, make_parser
from recording import Measurement, finish, say
from redline.bench.replay_peers import PEERS
from redline_process import run_redline

MAX_DURATION_S = 480.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure in a process of its own, and record."""
    options = parse(argv)
    flags = ["--transitions", str(options.transitions), "--rounds", str(options.rounds)]
    flags += ["--games", options.games] if options.games else []
    say("redline bench replay: this takes some minutes")
    with tempfile.TemporaryDirectory() as folder:
        result = run_redline(["bench", "replay", *flags], Path(folder) / "log")
    return finish(measurement(result), as_json=options.json, keep=not options.no_record)


def measurement(result: dict[str, Any]) -> Measurement:
    """Return what the object says."""
    sizes, rates, goals = result["bytes_per_transition"], result["batches_per_s"], result["goals"]
    is_met = [goal["met"] for goal in goals.values()] + [result["duration_s"] < MAX_DURATION_S]
    raw, zstd = (rates[codec]["uniform"]["off"]["median"] for codec in ("raw", "zstd"))
    worst = result["batches_per_s_worst_game"]
    fastest = (
        max((peer["batches_per_s"]["median"], name) for name, peer in result["peers"].items() if peer["batches_per_s"])
        if result["ratio"]
        else None
    )
    beside = f"fastest peer {fastest[1]} {fastest[0]:,.0f}" if fastest else "no peer is installed"
    return Measurement(
        name="replay-bench",
        title=f"replay memory: {len(result['config']['games'])} games of "
        f"{result['config']['transitions_per_game']:,} transitions; batches of {result['config']['batch_size']}",
        headline=f"{sizes['mean']:.0f} bytes per transition (pong {sizes.get('pong', 0):.0f}, worst "
        f"{sizes['worst']:.0f}); batches/s: raw {raw:,.0f}, zstd {zstd:,.0f}, zstd on {worst['game']} "
        f"{worst['zstd']['uniform']['off']['median']:,.0f}",
        learning=f"{beside} batches/s; sum tree {result['sum_tree']['ratio_to_pure_python']:.1f} × pure Python; "
        f"all in {result['duration_s'] / 60:.1f} min; nothing is trained",
        passed=None if None in is_met else all(is_met),
        config=result["config"],
        repeats=[{key: value for key, value in result.items() if key not in ("host", "versions", "commit", "config")}],
        summary={"goals": goals, "ratio": result["ratio"], "duration_s": result["duration_s"]},
        packages=tuple(sorted({peer.package for peer in PEERS.values()})),
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--games", default="", help="games with commas between them; all by default")
    parser.add_argument("--transitions", type=at_least(1_000), default=20_000, help="transitions of each game")
    parser.add_argument("--rounds", type=at_least(1), default=7, help="rounds")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
