"""What a million transitions really take: a memory filled to its capacity by inserting played frames again and again.

Each game in a process of its own. Counted is how far the process grows: its share of mapped pages, and pages that are
reserved but not touched yet, from before the memory exists until it is full and has evicted for a while.
"""

import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from arguments import at_least, make_parser
from process_memory import memory_use
from recording import Measurement, finish, say
from redline.bench.measuring import alternate
from redline.bench.our_memory import Sampling
from redline.bench.played_games import LANES, STACK, play_game
from redline.envs.config import EnvConfig
from redline.experience import ReplayLayout, ReplayMemory, with_budget
from redline.runtime.replay_sizing import MEASURED_STEPS, measure_codecs

MILLION = 1_000_000
GOAL_BYTES = {"pong": 0.15e9, "yars_revenge": 1.4e9}  # for a million; the second is the worst game


def fill(options: Namespace) -> dict[str, Any]:
    """Fill a memory in this process and return what it took."""
    game = options.child
    played = play_game(game, num_transitions=options.transitions, seed=options.seed)
    measured = measure_codecs(EnvConfig(id=game), ("zstd",), steps=MEASURED_STEPS, num_envs=LANES)["zstd"]
    layout = with_budget(
        ReplayLayout(
            capacity=options.capacity,
            frame_shape=played.frames.shape[2:],
            frame_dtype=str(played.frames.dtype),
            stack=STACK,
            lanes=LANES,
        ),
        measured.bytes_per_frame * measured.frames_per_transition,  # as `redline train` does
    )
    before = memory_use()
    memory = ReplayMemory(layout)
    inserted, begin_s = 0, time.perf_counter()
    while inserted < options.capacity + played.num_transitions:  # beyond it, so that old ones have left
        played.put_into(memory)
        inserted += played.num_transitions
    insert_s = time.perf_counter() - begin_s
    after = memory_use()
    rounds = alternate({"zstd": Sampling(memory, prioritized=False, prefetch=0)}, rounds=3, turn_s=0.5)["zstd"]
    return {
        "game": game,
        "grown_bytes": after.num_bytes - before.num_bytes,
        "pss_grown_bytes": after.pss_bytes - before.pss_bytes,
        "unmapped_bytes": after.unmapped_bytes - before.unmapped_bytes,
        "used_bytes": memory.used_bytes,
        "reserved_bytes": memory.frames.reserved_bytes,
        "budget_bytes": layout.budget_bytes,
        "bytes_per_frame_by_short_play": measured.bytes_per_frame,
        "transitions": memory.num_transitions,
        "sampleable": memory.num_sampleable,
        "full_at_transitions_by_bytes": memory.full_at,
        "insert_steps_per_s": inserted / insert_s,
        "batches_per_s": sorted(rounds)[1],
    }


def fill_in_child(game: str, options: Namespace) -> dict[str, Any]:
    """Fill a memory in a process of its own."""
    say(f"{game}: playing {options.transitions:,} transitions and inserting them until {options.capacity:,} are held")
    command = [sys.executable, __file__, "--child", game, "--capacity", str(options.capacity)]
    command += ["--transitions", str(options.transitions), "--seed", str(options.seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"replay_million: the process for {game} ended with {done.returncode}")
    row: dict[str, Any] = json.loads(done.stdout)
    say(f"  {row['grown_bytes'] / 1e9:.3f} GB for {row['transitions']:,} transitions")
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """Fill one memory after the other, and record."""
    options = parse(argv)
    if options.child:
        print(json.dumps(fill(options)))
        return 0
    rows = [fill_in_child(game, options) for game in options.games.split(",")]
    return finish(measurement(options, rows), as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, rows: list[dict[str, Any]]) -> Measurement:
    """Return what the fills show."""
    shown = [f"{row['game']} {row['grown_bytes'] / 1e9:.3f} GB ({row['transitions']:,} held)" for row in rows]
    known = [row for row in rows if row["game"] in GOAL_BYTES]
    share = options.capacity / MILLION
    is_met = [
        row["grown_bytes"] <= GOAL_BYTES[row["game"]] * share and row["transitions"] >= 0.99 * options.capacity
        for row in known
    ]
    speeds = ", ".join(f"{row['game']} {row['batches_per_s']:,.0f}" for row in rows)
    return Measurement(
        name="replay-million" if options.capacity == MILLION else "replay-million-tried",
        title=f"{options.capacity:,} transitions with zstd: memory used in all",
        headline="; ".join(shown),
        learning=f"sampled from full memories at batches/s: {speeds}; nothing is trained",
        passed=all(is_met) if is_met and options.capacity == MILLION else None,
        config={
            "capacity": options.capacity,
            "played_transitions_per_game": options.transitions,
            "lanes": LANES,
            "seed": options.seed,
            "goal_bytes_for_a_million": GOAL_BYTES,
        },
        repeats=rows,
        summary={row["game"]: {"grown_bytes": row["grown_bytes"], "transitions": row["transitions"]} for row in rows},
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--games", default=",".join(GOAL_BYTES), help="games with commas between them")
    parser.add_argument("--capacity", type=at_least(10_000), default=MILLION, help="transitions of a full memory")
    parser.add_argument("--transitions", type=at_least(1_000), default=20_000, help="transitions played of each game")
    parser.add_argument("--seed", type=int, default=1, help="seed of the games")
    parser.add_argument("--child", default="", help="fill with this game in this process; used by the script itself")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
