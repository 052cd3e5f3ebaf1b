"""Redline's replay memory beside those of other libraries, by turns on the same played frames.

Runs `redline bench replay` as a user does, then samples batches of 32 from our raw memory and from the peers.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, say
from redline.bench.measuring import Contender, alternate, rate_of
from redline.bench.replay_speed import BATCH_SIZE, SAMPLED_GAME, PlayedGame, Sampling, filled_memory, play_game
from redline.replay import available_bytes
from redline_process import run_redline
from replay_memories import PEERS, Peer, PeerMemory

KEPT_FREE_BYTES = 512 * 1024**2
TURN_S = 0.4


def measure_peers(played: PlayedGame, *, rounds: int) -> dict[str, dict[str, Any]]:
    """Sample from our raw memory and from all peers by turns; a peer that can't be measured has a reason instead."""
    found: dict[str, dict[str, Any]] = {}
    memories: dict[str, PeerMemory] = {}
    for name, peer in PEERS.items():
        found[name] = {"how": peer.how, "batches_per_s": None, "bytes_per_transition": None}
        reason = peer.missing or _does_not_fit(peer, played)
        if reason is not None:
            say(f"left out: {name}: {reason}")
            found[name]["reason"] = reason
            continue
        say(f"filling {name}")
        memories[name] = peer.fill(played)
    with closing(filled_memory(played, codec="raw")) as memory:
        contenders: dict[str, Contender] = {"redline": Sampling(memory, prioritized=False, prefetch=0)}
        contenders |= {name: _sampling(peer_memory) for name, peer_memory in memories.items()}
        measured = alternate(contenders, rounds=rounds, turn_s=TURN_S, progress=say)
    for name, peer_memory in memories.items():
        ratios = [ours / theirs for ours, theirs in zip(measured["redline"], measured[name], strict=True)]
        found[name] |= {
            "batches_per_s": rate_of(measured[name]),
            "bytes_per_transition": peer_memory.num_bytes / played.num_transitions,
            "ours_raw_over_it": rate_of(ratios),
        }
    return found


def _sampling(memory: PeerMemory) -> Contender:
    def sample(count: int) -> None:
        for _ in range(count):
            memory.sample(BATCH_SIZE)

    return sample


def _does_not_fit(peer: Peer, played: PlayedGame) -> str | None:
    frames_bytes = sum(step.frames.nbytes for step in played.steps)
    needed = peer.frames_per_transition * frames_bytes + KEPT_FREE_BYTES
    free = available_bytes()
    return None if needed <= free else f"needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB is free"


def measurement(result: Mapping[str, Any], peers: Mapping[str, Mapping[str, Any]]) -> Measurement:
    """Return what both show: it holds if all goals are met and our raw memory is faster than every peer."""
    sizes, rates, worst = result["bytes_per_transition"], result["batches_per_s"], result["batches_per_s_worst_game"]
    raw, zstd = (rates[codec]["uniform"]["off"]["median"] for codec in ("raw", "zstd"))
    ratios = {name: peer["ours_raw_over_it"]["median"] for name, peer in peers.items() if peer["batches_per_s"]}
    fastest = min(ratios, key=lambda name: ratios[name], default=None)
    beside = f"raw ÷ {fastest}, the fastest peer: {ratios[fastest]:.2f} ×" if fastest else "no peer is installed"
    is_met = [goal["met"] for goal in result["goals"].values()]
    is_met.append(min(ratios.values()) > 1 if len(ratios) == len(peers) else None)
    elsewhere = ("host", "versions", "commit", "config")
    return Measurement(
        name="replay-bench",
        title=f"replay memory: {len(result['config']['games'])} games of "
        f"{result['config']['transitions_per_game']:,} transitions; batches of {result['config']['batch_size']}",
        headline=f"{sizes['mean']:.0f} bytes per transition (pong {sizes.get('pong', 0):.0f}, worst "
        f"{sizes['worst']:.0f}); batches/s: raw {raw:,.0f}, zstd {zstd:,.0f}, zstd on {worst['game']} "
        f"{worst['zstd']['uniform']['off']['median']:,.0f}",
        learning=f"{beside}; nothing is trained",
        passed=None if None in is_met else all(is_met),
        config=result["config"],
        repeats=[{key: value for key, value in result.items() if key not in elsewhere} | {"peers": peers}],
        summary={"goals": result["goals"], "ratio": ratios, "duration_s": result["duration_s"]},
        packages=tuple(sorted({peer.package for peer in PEERS.values()})),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and record."""
    options = parse(argv)
    flags = ["--transitions", str(options.transitions), "--rounds", str(options.rounds)]
    flags += ["--games", options.games] if options.games else []
    say("redline bench replay: this takes some minutes")
    with tempfile.TemporaryDirectory() as folder:
        result = run_redline(["bench", "replay", *flags], Path(folder) / "log")
    played = play_game(SAMPLED_GAME, num_transitions=options.transitions, seed=1)
    found = measurement(result, measure_peers(played, rounds=options.rounds))
    return finish(found, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--games", default="", help="games with commas between them; all by default")
    parser.add_argument("--transitions", type=at_least(1_000), default=20_000, help="transitions of each game")
    parser.add_argument("--rounds", type=at_least(1), default=7, help="rounds")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
