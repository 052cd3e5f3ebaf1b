"""How long training stands still for a checkpoint when the replay memory holds a million transitions.

A real run on Pong is started; its memory is filled by inserting played frames again and again; then it saves. The
first checkpoint writes everything, later ones only what was added: as much as is played between two checkpoints.
"""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, say, spread
from redline.algorithms.named.dqn import DQN
from redline.bench.played_games import LANES, PlayedGame, play_game
from redline.envs.config import EnvConfig
from redline.experience import ReplayConfig, ReplayMemory
from redline.records import read_records
from redline.runtime.building import settle
from redline.runtime.gauges import Gauges
from redline.runtime.job import Job
from redline.runtime.session import Session
from redline.runtime.starting import start_inline

FIRST_GOAL_S, LATER_GOAL_S = 5.0, 1.0


class Silent:
    """Watches without a word."""

    def note(self, text: str) -> None:
        """Ignore it."""

    def show(self, gauges: Gauges) -> None:
        """Ignore it."""


def memory_of(session: Session) -> ReplayMemory:
    """Return the run's replay memory."""
    memory = session.trainer.source.memory
    if memory is None:
        raise ValueError("the run has no replay memory: measure a replay algorithm")
    return memory


def insert(session: Session, played: PlayedGame, count: int) -> None:
    """Append at least `count` transitions to the run's memory."""
    for _ in range(-(-count // played.num_transitions)):
        played.put_into(memory_of(session))


def stalls(session: Session) -> list[float]:
    """Return how long each checkpoint of the run took."""
    session.run.sync_records()
    rows = read_records(session.run.path / "events.jsonl")
    return [row["stalled_s"] for row in rows if row["event"] == "checkpoint"]


def measure(options: Namespace, folder: Path) -> list[dict[str, Any]]:
    """Save once when full, and several times later; return a row per checkpoint."""
    played = play_game("pong", num_transitions=options.transitions, seed=1)
    replay = ReplayConfig(capacity=options.capacity, codec=options.codec)
    job = Job(env=EnvConfig("pong"), algorithm=replace(DQN, replay=replay), num_envs=LANES, log_dir=folder)
    with start_inline(settle(job), "dqn", Silent()) as session:
        session.run.open_records()
        say(f"filling a memory of {options.capacity:,} transitions")
        insert(session, played, options.capacity + played.num_transitions)
        rows = []
        for number in range(options.later + 1):
            if number:
                insert(session, played, options.between)
            session.trainer.counters.steps += options.between  # another folder
            session.checkpoint(is_last=True)
            rows.append({"checkpoint": number, "stalled_s": stalls(session)[-1]})
            say(f"checkpoint {number}: {rows[-1]['stalled_s']:.2f} s")
        rows[0]["transitions"] = memory_of(session).num_transitions
        segments = session.run.path / "replay"
        rows[-1]["segment_bytes"] = sum(path.stat().st_size for path in segments.iterdir())
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and record."""
    options = parse(argv)
    with tempfile.TemporaryDirectory(dir=options.path) as folder:
        rows = measure(options, Path(folder))
    first, later = rows[0]["stalled_s"], spread([row["stalled_s"] for row in rows[1:]])
    is_full = options.capacity >= 1_000_000
    result = Measurement(
        name="replay-checkpoint" if is_full else "replay-checkpoint-tried",
        title=f"checkpoint of a run on Pong with {rows[0]['transitions']:,} transitions ({options.codec})",
        headline=f"training stands still for {first:.2f} s the first time, {later['median']:.2f} s later",
        learning=f"{options.between:,} transitions were added between two; nothing is trained",
        passed=first < FIRST_GOAL_S and later["max"] < LATER_GOAL_S if is_full else None,
        config={"capacity": options.capacity, "between": options.between, "codec": options.codec, "lanes": LANES},
        repeats=rows,
        summary={"first_s": first, "later_s": later},
    )
    return finish(result, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--capacity", type=at_least(10_000), default=1_000_000, help="transitions of a full memory")
    parser.add_argument("--transitions", type=at_least(1_000), default=20_000, help="transitions played")
    parser.add_argument("--between", type=at_least(1_000), default=60_000, help="transitions between two checkpoints")
    parser.add_argument("--later", type=at_least(3), default=5, help="checkpoints after the first")
    parser.add_argument("--codec", default="zstd", help="how frames are kept")
    parser.add_argument("--path", default=".", help="folder on the disk to write to")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
