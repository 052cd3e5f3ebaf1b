"""How long should a chunk of compressed frames be? Bytes per transition, sampling and inserting for 4, 8 and 16 frames.

Longer chunks are smaller, since more frames share what repeats, and slower to sample, since whole chunks are decoded.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from arguments import at_least, make_parser
from recording import Measurement, finish, say, spread
from redline.bench.measuring import Contender, alternate
from redline.bench.our_memory import Sampling, bytes_per_transition, filled_memory, inserting
from redline.bench.played_games import play_game
from redline.experience.layout import PACKED_CHUNK_FRAMES

GAMES = "pong,breakout,seaquest,krull,yars_revenge"
CHUNKS = (4, 8, 16)
INSERTED_STEPS = 250


def measure_game(game: str, options: Namespace) -> list[dict[str, Any]]:
    """Return one row for each chunk length, all measured by turns on the same frames."""
    say(f"playing {game}")
    played = play_game(game, num_transitions=options.transitions, seed=options.seed)
    memories = {chunk: filled_memory(played, codec="zstd", chunk_frames=chunk) for chunk in CHUNKS}
    sampled: dict[str, Contender] = {}
    inserted: dict[str, Contender] = {}
    sizes = {chunk: bytes_per_transition(memory) for chunk, memory in memories.items()}
    for chunk, memory in memories.items():
        sampled[str(chunk)] = Sampling(memory, prioritized=False, prefetch=0)
        inserted[str(chunk)] = inserting(memory, played, INSERTED_STEPS)
    batches = alternate(sampled, rounds=options.rounds, turn_s=options.turn_seconds)
    inserts = alternate(inserted, rounds=options.rounds, turn_s=options.turn_seconds)
    rows: list[dict[str, Any]] = []
    for chunk, memory in memories.items():
        steps = [INSERTED_STEPS * played.lanes * value for value in inserts[str(chunk)]]
        rows.append(
            {
                "game": game,
                "chunk_frames": chunk,
                "bytes_per_transition": sizes[chunk],
                "batches_per_s": spread(batches[str(chunk)]),
                "insert_steps_per_s": spread(steps),
            }
        )
        memory.close()
        say(f"  {chunk:>2} frames: {sizes[chunk]:.0f} bytes, {rows[-1]['batches_per_s']['median']:.0f} batches/s")
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure each game, and record."""
    options = parse(argv)
    rows = [row for game in options.games.split(",") for row in measure_game(game, options)]
    return finish(measurement(options, rows), as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, rows: list[dict[str, Any]]) -> Measurement:
    """Return what the rows show."""
    by_chunk = {}
    for chunk in CHUNKS:
        mine = [row for row in rows if row["chunk_frames"] == chunk]
        sizes, rates = [row["bytes_per_transition"] for row in mine], [row["batches_per_s"]["median"] for row in mine]
        by_chunk[str(chunk)] = {
            "mean_bytes_per_transition": sum(sizes) / len(sizes),
            "worst_bytes_per_transition": max(sizes),
            "mean_batches_per_s": sum(rates) / len(rates),
            "worst_batches_per_s": min(rates),
        }
    shown = "; ".join(
        f"{chunk}: {found['mean_bytes_per_transition']:.0f} bytes, {found['mean_batches_per_s']:,.0f} batches/s "
        f"(worst {found['worst_batches_per_s']:,.0f})"
        for chunk, found in by_chunk.items()
    )
    return Measurement(
        name="replay-chunks",
        title=f"frames per compressed chunk, means over {options.games.replace(',', ', ')}",
        headline=shown,
        learning=f"the default is {PACKED_CHUNK_FRAMES}; nothing is trained",
        passed=None,
        config={
            "games": options.games.split(","),
            "transitions_per_game": options.transitions,
            "codec": "zstd",
            "rounds": options.rounds,
            "turn_s": options.turn_seconds,
            "seed": options.seed,
        },
        repeats=rows,
        summary=by_chunk,
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--games", default=GAMES, help="games with commas between them")
    parser.add_argument("--transitions", type=at_least(4_000), default=20_000, help="transitions of each game")
    parser.add_argument("--rounds", type=at_least(1), default=7, help="rounds")
    parser.add_argument("--turn-seconds", type=float, default=0.4, help="seconds of each turn")
    parser.add_argument("--seed", type=int, default=1, help="seed of the games")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
