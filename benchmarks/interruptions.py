"""Interrupts runs on CartPole at random moments, and compares the time that this took with what `plan time` prints.

One run is interrupted by SIGTERM, after which it saves itself, the other by SIGKILL, by turns. Moments are as random as
a preemptible machine's: the time to the next one is exponential. Each goes on until it has kept as much training as was
planned. What an interruption took is measured by the wall clock: saving, the training since the newest checkpoint, and
the time until the next process trains. Every sixth restart is not counted: those tell how long one takes, and as they
lie between the others, a machine that gets slower or faster changes both.

Each life of a process is a row in benchmarks/interruptions.jsonl: a script that was stopped goes on where it was,
unless Redline has changed since.
"""

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from kill_resume import ENDLESS_STEPS, FLAGS
from recording import RECORDS, Measurement, finish, make_parser, say
from redline.jsonl import RecordWriter, Row, read_records
from redline.runs.host import commit
from redline.runs.manifest import CHECKPOINTS, checkpoint_folders
from redline_process import WatchedProcess, find_run, redline_command, run_redline

WAYS = {"sigterm": True, "kill": False}  # whether notice is given
START_S = 600.0  # a generous limit
ENOUGH = 100  # interruptions of both runs, for a verdict
CALIBRATE_EVERY, CALIBRATE_S = 6, 1.0  # counted lives for each that tells a restart, and how long that one trains
ROWS = RECORDS.parent / "interruptions.jsonl"


@dataclass(frozen=True)
class Life:
    """One process of a run, from its start to its interruption."""

    starting_s: float  # until it trained
    kept_s: float  # of training
    lost_s: float  # of training, since the newest checkpoint
    saving_s: float  # from SIGTERM to the end of the process

    @property
    def restart_s(self) -> float:
        """What an interruption takes beside the work that it undoes."""
        return self.starting_s + self.saving_s

    @classmethod
    def at(cls, *, started_s: float, trains_s: float, saved_s: float, asked_s: float, ended_s: float) -> "Life":
        """Read the moments of a process; a checkpoint after it was asked to end keeps all that it trained."""
        kept_s = min(max(saved_s - trains_s, 0.0), asked_s - trains_s)
        return cls(trains_s - started_s, kept_s, asked_s - trains_s - kept_s, ended_s - asked_s)


class Victim:
    """A run that is interrupted again and again."""

    def __init__(self, options: Namespace, folder: Path, *, has_notice: bool) -> None:
        """Begin the run; its first start is no restart."""
        self._folder, self._has_notice = folder, has_notice
        self.log = folder / "said.log"
        flags = [*FLAGS["cartpole"], "--seed", str(options.seed), "--log-dir", str(folder)]
        flags += ["--checkpoint-minutes", str(options.checkpoint_minutes), "--max-steps", str(ENDLESS_STEPS)]
        self._live(redline_command("train", *flags, "--json"), trains_for_s=CALIBRATE_S)

    @property
    def run(self) -> Path:
        """The run directory."""
        if (run := find_run(self._folder)) is None:
            raise RuntimeError("the run directory is gone")
        return run

    def resume(self, trains_for_s: float) -> Life:
        """Let the run go on, and interrupt it after so many seconds of training."""
        return self._live(redline_command("resume", str(self.run), "--json"), trains_for_s=trains_for_s)

    def _live(self, command: Sequence[str], *, trains_for_s: float) -> Life:
        begun = len(begins(find_run(self._folder)))
        with WatchedProcess(command, self.log) as process:
            process.wait_for(lambda: len(begins(find_run(self._folder))) > begun or None, timeout_s=START_S)
            trains_s = begins(self.run)[-1]
            time.sleep(max(trains_s + trains_for_s - time.time(), 0.0))
            asked_s = time.time()
            ending = process.stop() if self._has_notice else process.kill()
        return Life.at(
            started_s=process.started_unix_s,
            trains_s=trains_s,
            saved_s=checkpoint_folders(self.run / CHECKPOINTS)[0].stat().st_mtime,
            asked_s=asked_s,
            ended_s=asked_s + (ending.seconds if self._has_notice else 0.0),
        )


def begins(run: Path | None) -> list[float]:
    """Return when each process of a run began to train."""
    path = None if run is None else run / "events.jsonl"
    rows = read_records(path) if path is not None and path.exists() else []
    return [row["unix_s"] for row in rows if row["event"] in ("start", "resume")]


def next_life(rows: Sequence[Row], options: Namespace, *, way: str) -> tuple[float, bool] | None:
    """Return how long the next process of a run trains and whether it counts; None if nothing interrupts the rest."""
    counted = [row for row in rows if row["counts"]]
    if len(rows) - len(counted) <= len(counted) // CALIBRATE_EVERY:
        return CALIBRATE_S, False
    rng = np.random.default_rng([options.seed, WAYS[way], len(counted)])
    gap_s = float(rng.exponential(options.gap_seconds))
    left_s = options.work_minutes * 60 - sum(row["kept_s"] for row in counted)
    return None if gap_s >= left_s else (gap_s, True)


def interrupt_all(options: Namespace, rows: list[Row], writer: RecordWriter) -> None:
    """Add the lives that are missing, by turns of the ways."""
    known = settings_of(options)
    with tempfile.TemporaryDirectory() as name:
        victims: dict[str, Victim] = {}
        while due := {way: new for way in WAYS if (new := next_life(of_way(rows, way), options, way=way))}:
            for way, (trains_for_s, counts) in due.items():
                if way not in victims:
                    (folder := Path(name) / way).mkdir()
                    victims[way] = Victim(options, folder, has_notice=WAYS[way])
                life = victims[way].resume(trains_for_s)
                rows.append({"way": way, "counts": counts, **asdict(life), **known})
                writer.write(rows[-1])
                say(f"{way} {len(of_way(rows, way))}: {life}")


def settings_of(options: Namespace) -> Row:
    """Return what must be alike in rows that are judged together."""
    names = ("gap_seconds", "checkpoint_minutes", "work_minutes", "seed")
    return {"commit": commit(), **{name: getattr(options, name) for name in names}}


def read_done(options: Namespace) -> list[Row]:
    """Return the lives of this version of Redline with these flags."""
    known = settings_of(options)
    rows = read_records(options.rows) if options.rows.exists() else []
    return [row for row in rows if known.items() <= row.items()]


def of_way(rows: Sequence[Row], way: str) -> list[Row]:
    """Return the rows of one way of interrupting."""
    return [row for row in rows if row["way"] == way]


def judge(rows: Sequence[Row], options: Namespace, *, way: str, log: Path) -> dict[str, Any]:
    """Return what the interruptions took, and the interval that the plan prints for them."""
    names = Life.__dataclass_fields__
    lives = {
        counts: [Life(**{name: row[name] for name in names}) for row in rows if row["counts"] is counts]
        for counts in (True, False)
    }
    restart_s = fmean(life.restart_s for life in lives[False])
    arguments = ["--games", "CartPole-v1", "--rate", "1000"]  # which stands for any
    arguments += ["--steps", str(round(options.work_minutes * 60_000)), "--restart-s", str(restart_s)]
    arguments += ["--interruptions-per-hour", str(3_600 / options.gap_seconds)]
    if not WAYS[way]:
        arguments += ["--without-notice", "--checkpoint-minutes", str(options.checkpoint_minutes)]
    total = run_redline(["plan", "time", *arguments], log)["total"]
    return {
        "interruptions": len(lives[True]),
        "extra_s": sum(life.restart_s + life.lost_s for life in lives[True]),
        "restart_s": restart_s,
        **{f"{end}_s": total[f"lost_{end}"] * 3_600 for end in ("hours", "low", "high")},
    }


def measurement(options: Namespace, rows: Sequence[Row], seen: dict[str, dict[str, Any]]) -> Measurement:
    """Return what was seen as a measurement."""
    inside = [found["low_s"] <= found["extra_s"] <= found["high_s"] for found in seen.values()]
    is_enough = sum(found["interruptions"] for found in seen.values()) >= ENOUGH
    told = [
        f"{way}: {found['interruptions']} took {found['extra_s']:.0f} s, printed {found['low_s']:.0f}–"
        f"{found['high_s']:.0f} s"
        for way, found in seen.items()
    ]
    return Measurement(
        name="interruptions" if is_enough else "interruptions-tried",
        title="what random interruptions of a run on CartPole took, and the 90 % interval of redline plan time",
        headline="; ".join(told),
        learning=f"{options.work_minutes:g} minutes of training kept in each way",
        passed=all(inside) if is_enough else None,
        config=settings_of(options),
        repeats=rows,
        summary=seen,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Interrupt a run in every way, and record what it took."""
    options = parse(argv)
    rows = read_done(options)
    say(f"{len(rows)} lives are done already")
    with RecordWriter(options.rows) as writer:
        interrupt_all(options, rows, writer)
    with tempfile.TemporaryDirectory() as name:
        seen = {way: judge(of_way(rows, way), options, way=way, log=Path(name) / "log") for way in WAYS}
    return finish(measurement(options, rows, seen), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--work-minutes", type=float, default=6.0, help="of training that each run is to keep")
    parser.add_argument("--gap-seconds", type=float, default=6.0, help="mean seconds of training to an interruption")
    parser.add_argument("--checkpoint-minutes", type=float, default=0.02, help="minutes between checkpoints")
    parser.add_argument("--seed", type=int, default=1, help="seed of the runs and of the moments")
    parser.add_argument("--rows", type=Path, default=ROWS, metavar="FILE", help="JSON Lines of lives that are done")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
