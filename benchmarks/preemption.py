"""SIGTERM while the replay memory holds a million transitions: how long does a run take to save itself and come back?

An asynchronous run on Pong fills its memory by random play, learns for a moment, and gets SIGTERM; checkpoints come
as often as by default, so that the newest may be minutes old, as in life. Then the run is resumed for a while.
"""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from recording import Measurement, at_least, finish, make_parser, say
from redline.cli.main import DONE, RESUMABLE
from redline.jsonl import Row, read_records
from redline_process import Ending, WatchedProcess, find_run, read_metrics, redline_command
from run_reading import as_text

MILLION = 1_000_000
REQUIRED_S = 20.0
# of the transitions: old ones leave the memory in whole chunks of each lane
CHUNKS_SHARE = 0.01
SAY_EVERY_STEPS_SHARE = 0.05
FILL_S, STOP_S, START_S, RESUMED_S = 7_200.0, 600.0, 600.0, 1_800.0  # generous limits


@dataclass(frozen=True)
class Stopped:
    """A run when SIGTERM came, and what it left."""

    seconds_to_exit: float
    exit_code: int
    steps: int
    updates: int
    time_s: float
    replay_transitions: int
    checkpoint_age_s: float  # of the newest before, when SIGTERM came
    bytes_on_disk: int  # of checkpoints and replay memory


@dataclass(frozen=True)
class Resumed:
    """The same run after its resume."""

    exit_code: int
    learner_back_after_s: float  # since the process was started, with its replay memory
    steps_seen_after_s: float  # the same for new steps; late by 5 s at most, as often as there are readings
    replay_transitions: int  # in the first reading
    steps: int
    updates: int


def learning_since_s(rows: Sequence[Row], *, transitions: int) -> float | None:
    """Return the seconds of learning from a full memory, None while it is being filled."""
    full = transitions * (1 - CHUNKS_SHARE)
    learning = [row["time_s"] for row in rows if row["updates"] > 0 and row["replay_transitions"] >= full]
    return learning[-1] - learning[0] if learning else None


def read_stopped(ending: Ending, metrics: Sequence[Row], events: Sequence[Row], *, bytes_on_disk: int) -> Stopped:
    """Return what the records say of a run that was stopped."""
    last = metrics[-1]
    stop_unix_s = next(row["unix_s"] for row in reversed(events) if row["event"] == "stop")
    saved = [row["unix_s"] for row in events if row["event"] == "checkpoint" and row["unix_s"] < stop_unix_s]
    return Stopped(
        seconds_to_exit=ending.seconds,
        exit_code=ending.exit_code,
        steps=last["steps"],
        updates=last["updates"],
        time_s=last["time_s"],
        replay_transitions=last["replay_transitions"],
        checkpoint_age_s=stop_unix_s - saved[-1],
        bytes_on_disk=bytes_on_disk,
    )


def read_resumed(ending: Ending, stopped: Stopped, metrics: Sequence[Row], *, started_unix_s: float) -> Resumed:
    """Return what the records say of the run that went on."""
    rows = [row for row in metrics if row["unix_s"] > started_unix_s]
    if not rows:
        raise RuntimeError("the resumed run left no reading")
    first, moved = rows[0], next((row for row in rows if row["steps"] > stopped.steps), rows[-1])
    return Resumed(
        exit_code=ending.exit_code,
        # training time begins to count when the learner is ready
        learner_back_after_s=first["unix_s"] - (first["time_s"] - stopped.time_s) - started_unix_s,
        steps_seen_after_s=moved["unix_s"] - started_unix_s,
        replay_transitions=first["replay_transitions"],
        steps=rows[-1]["steps"],
        updates=rows[-1]["updates"],
    )


def find_faults(stopped: Stopped, resumed: Resumed, *, transitions: int, more_steps: int) -> list[str]:
    """Return every broken promise."""
    least = (1 - CHUNKS_SHARE) * stopped.replay_transitions
    claims = {
        f"the replay memory held only {stopped.replay_transitions:,} transitions": stopped.replay_transitions
        < (1 - CHUNKS_SHARE) * transitions,
        f"the exit code after SIGTERM was {stopped.exit_code}": stopped.exit_code != RESUMABLE,
        f"the end took {stopped.seconds_to_exit:.1f} s": stopped.seconds_to_exit >= REQUIRED_S,
        f"the exit code of the resume was {resumed.exit_code}": resumed.exit_code != DONE,
        f"{resumed.replay_transitions:,} transitions were brought back": resumed.replay_transitions < least,
        f"the resume ended at step {resumed.steps:,}": resumed.steps < stopped.steps + more_steps,
        "nothing was learnt after the resume": resumed.updates <= stopped.updates,
    }
    return [fault for fault, is_so in claims.items() if is_so]


def show_progress(transitions: int) -> Callable[[Sequence[Row]], None]:
    """Return a function that tells now and then how full the memory is."""
    next_steps = 0.0

    def show(rows: Sequence[Row]) -> None:
        nonlocal next_steps
        if rows and rows[-1]["steps"] >= next_steps:
            row = rows[-1]
            next_steps = row["steps"] + SAY_EVERY_STEPS_SHARE * transitions
            say(
                f"{row['time_s']:5.0f} s: {row['replay_transitions']:,} of {transitions:,} transitions, "
                f"{row['steps_per_s']:,.0f} steps/s, {row['updates']:,} updates"
            )

    return show


def fill_and_stop(flags: Sequence[str], folder: Path, *, transitions: int, learn_seconds: float) -> Stopped:
    """Train until the memory is full and some was learnt, then send SIGTERM."""
    show = show_progress(transitions)
    command = redline_command("train", *flags, "--log-dir", str(folder), "--json")
    with WatchedProcess(command, folder / "train.log") as process:
        run = process.wait_for(lambda: find_run(folder), timeout_s=START_S)

        def has_learnt() -> bool | None:
            rows = read_metrics(run)
            show(rows)
            learnt_s = learning_since_s(rows, transitions=transitions)
            return True if learnt_s is not None and learnt_s >= learn_seconds else None

        process.wait_for(has_learnt, timeout_s=FILL_S)
        say("SIGTERM")
        ending = process.stop(timeout_s=STOP_S)
    say(f"exit code {ending.exit_code} after {ending.seconds:.2f} s")
    files = [path for part in ("checkpoints", "replay") for path in (run / part).rglob("*") if path.is_file()]
    return read_stopped(
        ending,
        read_metrics(run),
        read_records(run / "events.jsonl"),
        bytes_on_disk=sum(path.stat().st_size for path in files),
    )


def resume(folder: Path, stopped: Stopped, *, more_steps: int) -> Resumed:
    """Let the run go on for a while."""
    run = find_run(folder)
    if run is None:
        raise RuntimeError("the run directory is gone")
    say(f"resuming at step {stopped.steps:,} for {more_steps:,} more")
    command = redline_command("resume", str(run), "--max-steps", str(stopped.steps + more_steps), "--json")
    with WatchedProcess(command, folder / "resume.log") as process:
        ending = process.wait(timeout_s=RESUMED_S)
    return read_resumed(ending, stopped, read_metrics(run), started_unix_s=process.started_unix_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Fill, stop, resume, record."""
    options = parse(argv)
    count = str(options.transitions)
    flags = ["--env", "pong", "--topology", "async", "--replay.capacity", count, "--warmup-steps", count]
    flags += ["--seed", str(options.seed)]
    say(f"filling a replay memory of {options.transitions:,} transitions by random play; this takes minutes")
    with tempfile.TemporaryDirectory(dir=options.path) as name:
        folder = Path(name)
        stopped = fill_and_stop(flags, folder, transitions=options.transitions, learn_seconds=options.learn_seconds)
        resumed = resume(folder, stopped, more_steps=options.more_steps)
    result = measurement(options, flags, stopped, resumed)
    return finish(result, as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, flags: Sequence[str], stopped: Stopped, resumed: Resumed) -> Measurement:
    """Return what was seen as a measurement."""
    faults = find_faults(stopped, resumed, transitions=options.transitions, more_steps=options.more_steps)
    for fault in faults:
        say(f"FAULT: {fault}")
    is_full = options.transitions >= MILLION
    return Measurement(
        name="preemption" if is_full else "preemption-tried",
        title=f"SIGTERM on an asynchronous run of Pong with {stopped.replay_transitions:,} transitions in its replay "
        "memory, then a resume",
        headline=f"exit code {stopped.exit_code} after {stopped.seconds_to_exit:.1f} s; learner and replay back after "
        f"{resumed.learner_back_after_s:.1f} s, exit code {resumed.exit_code}"
        + (f"; {len(faults)} FAULTS" if faults else ""),
        learning=f"{stopped.updates:,} updates before, {resumed.updates - stopped.updates:,} after in "
        f"{resumed.steps - stopped.steps:,} steps; {resumed.replay_transitions:,} transitions brought back, "
        f"{stopped.bytes_on_disk / 1e6:,.0f} MB on disk; the newest checkpoint was "
        f"{as_text(stopped.checkpoint_age_s)} s old",
        passed=not faults if is_full else None,
        config={
            "flags": list(flags),
            "transitions": options.transitions,
            "learn_seconds": options.learn_seconds,
            "more_steps": options.more_steps,
            "required_seconds": REQUIRED_S,
        },
        repeats=[{"stopped": asdict(stopped), "resumed": asdict(resumed)}],
        summary={**asdict(stopped), "resumed": asdict(resumed), "faults": faults},
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--transitions", type=at_least(1_000), default=MILLION, help="of a full replay memory")
    parser.add_argument("--learn-seconds", type=float, default=10.0, help="learning before SIGTERM")
    parser.add_argument("--more-steps", type=at_least(8), default=2_000, help="steps of the resumed run")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run")
    parser.add_argument("--path", default=".", help="folder on the disk to write to")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
