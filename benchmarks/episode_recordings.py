"""Recorded episodes of real trainings: are they exact, how large are they, what do they cost, do they survive a kill?

`exactness` trains briefly on many games, with both protocols and both topologies, and lets `redline play --verify` play
everything again. `overhead` adds up the CPU time that recording takes within a training. `crash` kills a training again
and again, checks the recordings after each kill, and resumes it.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recording import Measurement, at_least, finish, make_parser, say
from redline.cli.flags import parse_train
from redline.episodes import tracing
from redline.episodes.library import open_library, recordings_path
from redline.jsonl import read_records
from redline.runtime import actor
from redline.runtime.gauges import NoDisplay
from redline.runtime.launch import start_run
from redline.runtime.run_log import RunLog
from redline_process import redline_command

GAMES = (
    *("alien", "assault", "asteroids", "beam_rider", "boxing", "breakout"),
    *("ms_pacman", "pong", "qbert", "seaquest", "space_invaders", "yars_revenge"),
)
EPISODES_REQUIRED, GAMES_REQUIRED, KILLS_REQUIRED = 200, 10, 50
MOST_BYTES = {"pong": 3_000, "breakout": 3_000}  # of an episode, on average
OVERHEAD_REQUIRED = 0.01
START_S, LONGEST_TRAINING_S = 120.0, 5.0  # until a training has begun; until it is killed
QUICK = (
    *("--network", "small", "--warmup-steps", "400", "--samples-per-step", "1"),
    *("--replay.capacity", "20_000", "--num-envs", "4"),
)
ASYNC = ("--topology", "async", "--actors", "2", "--evaluator.every-minutes", "0.1", "--evaluator.episodes", "2")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure one of the three, and record it."""
    options = parse(argv)
    with tempfile.TemporaryDirectory(prefix="recordings-") as folder:
        found = {"exactness": measure_exactness, "overhead": measure_overhead, "crash": measure_crash}[options.what](
            Path(folder), options
        )
    return finish(found, as_json=options.json, keep=not options.no_record)


def redline(*args: object) -> "subprocess.CompletedProcess[str]":
    """Run the program to its end."""
    return subprocess.run(redline_command(*map(str, args)), capture_output=True, text=True, check=False)


def verify(run: Path) -> dict[str, Any]:
    """Return what `redline play --verify` says."""
    done = redline("play", run, "--verify", "--json")
    result: dict[str, Any] = json.loads(done.stdout)
    return result | {"exit_code": done.returncode}


def measure_exactness(folder: Path, options: Namespace) -> Measurement:
    """Train on every game with both protocols, each in the other topology, and verify all."""
    rows = []
    for number, game in enumerate(options.games):
        version_5 = f"ALE/{game.title().replace('_', '')}-v5"
        for place, env in enumerate((game, version_5)):
            is_async = (number + place) % 2 == 1
            log_dir = folder / f"{game}-{place}"
            flags = [*QUICK, *(ASYNC if is_async else ("--evaluate-every-steps", options.steps // 2))]
            flags += ["--evaluator.episodes", "2"] if not is_async else []
            redline("train", "--env", env, *flags, "--max-steps", options.steps, "--log-dir", log_dir, "--plain")
            (run,) = log_dir.glob("*/*/*")
            rows.append(read_run(run, game, env=env, topology="async" if is_async else "inline"))
            say(f"{env} {rows[-1]['topology']}: {rows[-1]['verified']} of {rows[-1]['episodes']} episodes come back")
    episodes, verified = (sum(row[key] for row in rows) for key in ("episodes", "verified"))
    sizes = {
        game: sum(r["bytes"] for r in rows if r["game"] == game)
        / max(1, sum(r["episodes"] for r in rows if r["game"] == game))
        for game in options.games
    }
    is_small = all(sizes[game] <= most for game, most in MOST_BYTES.items() if game in sizes)
    enough = episodes >= EPISODES_REQUIRED and len(options.games) >= GAMES_REQUIRED
    largest = max(sizes, key=lambda game: sizes[game])
    return Measurement(
        name="recordings-exactness",
        title="recorded episodes that come back bit for bit: real trainings, both protocols, both topologies",
        headline=f"{verified} of {episodes} over {len(options.games)} games; "
        + ", ".join(f"{game} {sizes[game]:.0f} bytes per episode" for game in MOST_BYTES if game in sizes)
        + f", most {sizes[largest]:.0f} ({largest})",
        learning=f"{options.steps:,} steps each, played almost at random",
        passed=verified == episodes and enough and is_small,
        config={"games": list(options.games), "steps": options.steps, "flags": [*QUICK]},
        repeats=rows,
        summary={"episodes": episodes, "verified": verified, "bytes_per_episode": sizes},
    )


def read_run(run: Path, game: str, *, env: str, topology: str) -> dict[str, Any]:
    """Verify a run, and return what it recorded."""
    result, library = verify(run), open_library(run)
    roles = {role: sum(e.address.role == role for e in library.entries) for role in ("actor", "greedy")}
    return {
        "env": env,
        "game": game,
        "topology": topology,
        **{key: result[key] for key in ("episodes", "verified", "exit_code", "mismatches")},
        **roles,
        "bytes": recordings_path(run).stat().st_size if library.entries else 0,
    }


def measure_overhead(folder: Path, options: Namespace) -> Measurement:
    """Train in this process, and time everything that recording does."""
    rows = []
    for algorithm in options.algorithms:
        args = ["--env", "pong", "--algo", algorithm, "--warmup-steps", "1000", "--replay.capacity", "20_000"]
        args = args[:4] if algorithm in ("ppo", "a2c", "pqn") else args
        flags = parse_train([*args, "--max-minutes", str(options.minutes), "--log-dir", str(folder)])
        clock = Clock()
        with clock.around_recording():
            session = start_run(flags.job, flags.algo, NoDisplay())
            with session:
                begun_s = time.process_time()
                clock.spent_s = 0.0
                outcome = session.train(lambda: None)
                whole_s = time.process_time() - begun_s
        row = {"algorithm": algorithm, "cpu_s": whole_s, "recording_cpu_s": clock.spent_s}
        rows.append({**row, "share": clock.spent_s / whole_s, "steps": outcome.gauges.steps})
        say(f"{algorithm}: {rows[-1]['share']:.2%} of {whole_s:.0f} s of CPU time")
    return Measurement(
        name="recordings-overhead",
        title="CPU time of recording every episode, of that of the whole training (Pong)",
        headline=", ".join(f"{row['algorithm']} {row['share']:.2%}" for row in rows),
        learning=", ".join(f"{row['algorithm']} {row['steps']:,} steps" for row in rows),
        passed=all(row["share"] < OVERHEAD_REQUIRED for row in rows),
        config={"minutes": options.minutes, "clock": "thread time around each call, the clock itself included"},
        repeats=rows,
        summary={row["algorithm"]: row["share"] for row in rows},
    )


class Clock:
    """Adds up the CPU time of some functions."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with the clock around it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            begun_s = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent_s += time.thread_time() - begun_s

        return call

    def around_recording(self) -> "Replaced":
        """Return a context in which all that recording does is timed."""
        places: list[tuple[Any, str]] = [(tracing.Tracer, "acted"), (tracing.Tracer, "stepped")]
        places += [(actor, "encode_trace"), (RunLog, "_recording")]
        return Replaced({place: self.timed(getattr(*place)) for place in places})


class Replaced:
    """Functions that are replaced for a while."""

    def __init__(self, functions: Mapping[tuple[Any, str], Callable[..., Any]]) -> None:
        self._functions = functions
        self._before = {place: getattr(*place) for place in functions}

    def __enter__(self) -> None:
        for (owner, name), function in self._functions.items():
            setattr(owner, name, function)

    def __exit__(self, *_: object) -> None:
        for (owner, name), function in self._before.items():
            setattr(owner, name, function)


def measure_crash(folder: Path, options: Namespace) -> Measurement:
    """Kill trainings of both topologies at random moments, check what is left, resume, and verify all at the end."""
    rng, rows = np.random.default_rng(1), []
    for topology in ("inline", "async"):
        log_dir, torn, killed = folder / topology, 0, 0
        flags = ["--env", "breakout", *QUICK, "--checkpoint-minutes", "0.03", "--log-dir", log_dir, "--plain"]
        command: list[object] = ["train", *flags, *(ASYNC if topology == "async" else ())]
        while killed < options.kills // 2:
            kill_while_training(command, log_dir, rng.uniform(0.0, LONGEST_TRAINING_S))
            killed += 1
            runs = list(log_dir.glob("*/*/*"))
            library = open_library(runs[0])
            torn += library.torn_tail is not None
            if library.damages:
                say(f"{topology}: {library.damages[0]}")
            command = ["resume", runs[0], "--plain"]
            say(f"{topology}: kill {killed}, {len(library.entries)} episodes")
        redline("resume", runs[0], "--max-minutes", "0.05", "--plain")
        result = verify(runs[0])
        rows.append(
            {"topology": topology, "kills": killed, "torn_tails": torn}
            | {key: result[key] for key in ("episodes", "verified", "damages", "exit_code")}
        )
    counted = ("kills", "episodes", "verified", "torn_tails")
    kills, episodes, verified, torn_tails = (sum(row[key] for row in rows) for key in counted)
    return Measurement(
        name="recordings-crash",
        title="kill -9 during training, again and again: recordings that are readable and come back",
        headline=f"{verified} of {episodes} episodes after {kills} kills, {torn_tails} torn tails",
        learning="Breakout, played almost at random",
        passed=verified == episodes > 0 and kills >= KILLS_REQUIRED and not any(row["damages"] for row in rows),
        config={"kills": options.kills, "flags": [*QUICK]},
        repeats=rows,
        summary={"kills": kills, "episodes": episodes, "verified": verified},
    )


def kill_while_training(command: Sequence[object], log_dir: Path, seconds: float) -> None:
    """Start the program, and kill it and all its processes when it has trained for a while."""
    words = redline_command(*map(str, command))
    before = num_invocations(log_dir)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    end_s = time.monotonic() + START_S
    while num_invocations(log_dir) == before and time.monotonic() < end_s and process.poll() is None:
        time.sleep(0.05)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # processes with a session of their own end when they notice


def num_invocations(log_dir: Path) -> int:
    """Return how often a run was started or resumed."""
    events = [row for path in log_dir.glob("*/*/*/events.jsonl") for row in read_records(path)]
    return sum(row["event"] == "process" and row["role"] in ("inline", "actor-0") for row in events)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=("exactness", "overhead", "crash"), help="what is measured")
    parser.add_argument("--games", nargs="+", default=GAMES, help="of exactness")
    parser.add_argument("--steps", type=at_least(100), default=10_000, help="of each training of exactness")
    parser.add_argument("--algorithms", nargs="+", default=("dqn", "ppo", "a2c"), help="of overhead")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each training of overhead")
    parser.add_argument("--kills", type=at_least(2), default=KILLS_REQUIRED, help="of both topologies together")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
