"""How fast does Redline train? Beside the machine's limit, beside an earlier commit, or beside Stable-Baselines3.

`speed.py ppo` runs `redline bench train` as a user does and records its result; `learner` and `env` are other benches.
Whatever else is typed goes on to that command: `speed.py ppo --rounds 7`.

With `--against COMMIT` or `--against sb3`, whole trainings of this tree and of the other side take turns, each in a
process of its own. Each pair of turns gives one ratio. Against a commit, this tree is no slower if 1 or more lies
within the middle 90 % of the ratios. Stable-Baselines3 has the same settings, all threads, PyTorch's own OpenMP
settings and the faster of its vector envs; the goals are for the median, and nine tenths of them for `low`.
"""

import json
import shlex
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import redline
from recording import Measurement, at_least, finish, make_parser, say
from redline.bench.measuring import goal, rate_of, why_not_judged
from redline.bench.training_speed import UPDATES_TOLERANCE
from redline.cli.main import DONE, FAILED
from redline.envs.catalog import resolve
from redline.jsonl import Row
from redline.runs.host import has_bf16
from redline.types import Precision
from redline_process import redline_command, take_turns, train_for_window
from run_reading import as_text
from sb3_training import SPEED_PEERS, VEC_ENVS, WARMUP_STEPS, sb3_window

SB3 = "sb3"
GOAL_RATIOS: Mapping[Precision, Mapping[str, float]] = {  # of the steps/s of Stable-Baselines3, as it is
    "float32": {"dqn": 1.6, "ppo": 1.8, "a2c": 1.9},
    "bf16": {"dqn": 2.0, "ppo": 2.2, "a2c": 2.1},
}
TRIAL_SECONDS = 5.0  # of each vector env of Stable-Baselines3, to find the faster

Result = Mapping[str, Any]


def read_training(result: Result) -> Measurement:
    """Return what a whole training shows."""
    config, learning = result["config"], result["learning"]["redline"]
    name, game = config["algorithm"], resolve(config["env"]["id"]).name
    is_fair = result["same_updates_per_step"]
    samples, returns = learning["samples_per_step"]["median"], as_text(learning["mean_return_in_windows"])
    fair = "" if is_fair else "; the number of updates that its settings ask for was NOT done"
    return Measurement(
        name=f"{name}-speed-{game.replace('_', '-')}",
        title=f"{name.upper()} on {game.title()}, Nature CNN, {config['num_envs']} envs, updates of "
        f"{config['batch_size']}: Redline beside the limit",
        headline=f"{result['steps_per_s']['median']:.0f} steps/s; {percent(result['limit_fraction'])} of the limit",
        learning=f"replay ratio {samples:.2f}, mean return in the windows {returns}{fair}{busy(result)}",
        passed=verdict(result) if is_fair else False,
        config=config,
        repeats=result["rounds"],
        summary=without(result, "rounds"),
    )


def read_learner(result: Result) -> Measurement:
    """Return what the learner alone shows."""
    config, limit = result["config"], result["limit"]
    is_shared = config["includes_forward_of_acting"]
    shared = ", the forward pass that a training shares with acting included" if is_shared else ""
    is_usual = (config["algo"], config["batch_size"]) == ("dqn", 32)
    return Measurement(
        name="learner-speed" if is_usual else f"learner-speed-{config['algo']}-{config['batch_size']}",
        title=f"updates of {config['algo'].upper()} alone, Nature CNN, batches of {config['batch_size']}, "
        f"{config['threads']} threads",
        headline=f"{percent(result['limit_fraction'])} of the limit, {result['updates_per_s']['median']:.1f} updates/s "
        f"at {limit['sgemm_gflops']:.0f} GFLOP/s of sgemm",
        learning=f"{limit['flop_per_update'] / 1e9:.2f} GFLOP per update{shared}; nothing is played{busy(result)}",
        passed=verdict(result),
        config=config,
        repeats=result["rounds"],
        summary=without(result, "rounds"),
    )


def read_env(result: Result) -> Measurement:
    """Return what the env layer alone shows."""
    config, with_keys = result["config"], result["ratio_with_keys"]["bare"]
    return Measurement(
        name="env-speed",
        title=f"{config['env']}, {config['num_envs']} envs at random: Redline's env layer ÷ bare emulators",
        headline=f"{times(result['ratio']['bare'])} the bare emulators, {with_keys['median']:.2f} with seeded resets; "
        f"{result['steps_per_s']['median']:,.0f} against {result['peers']['bare']['median']:,.0f} steps/s",
        learning=f"seeded resets, which the ratio leaves out, take {result['key_share']:.1%} of the time: with them "
        f"{times(with_keys)}; ratio of the means {result['ratio_of_means']:.2f}; nothing is trained{busy(result)}",
        passed=verdict(result),
        config=config,
        repeats=result["rounds"],
        summary=without(result, "rounds"),
    )


@dataclass(frozen=True)
class Subject:
    """A bench: its command, and how its object is read."""

    arguments: tuple[str, ...]
    read: Callable[[Result], Measurement]


SUBJECTS = {
    **{name: Subject(("train", "--algo", name), read_training) for name in ("dqn", "ppo", "a2c")},
    "learner": Subject(("learner",), read_learner),
    "env": Subject(("env",), read_env),
}

DQN = ("--algo", "dqn", "--warmup-steps", str(WARMUP_STEPS), "--replay.capacity", "20000")
# what is trained by turns
PAIRED = {
    "dqn": DQN,
    "dqn-async": (*DQN, "--topology", "async", "--evaluator.every-minutes", "0"),
    "ppo": ("--algo", "ppo"),
    "a2c": ("--algo", "a2c"),
}
LIKE_SB3 = {"dqn": ("--explore.epsilon.over-steps", str(WARMUP_STEPS))}  # more flags beside SB3


def against_commit(subject: str, commit: str, *, pairs: int, seconds: float) -> Measurement:
    """Let this tree and a commit train by turns."""
    named = subprocess.run(["git", "rev-parse", "--short", commit], capture_output=True, text=True, check=False)
    if named.returncode:
        raise SystemExit(f"speed: {commit} is no commit of this repository: use {SB3}, or one that git log shows")
    there = named.stdout.strip()
    flags = ("--env", "pong", *PAIRED[subject])
    with tempfile.TemporaryDirectory() as name:
        archive = subprocess.run(["git", "archive", commit, "src"], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", name], input=archive, check=True)

        def side(source: Path) -> Callable[[int], Row]:
            return lambda seed: train_for_window((*flags, "--seed", str(seed)), seconds=seconds, source=source)

        sides = {"here": side(Path(redline.__file__).parents[1]), "there": side(Path(name) / "src")}
        rows = take_turns(sides, rounds=pairs)
    found = read_pairs(rows, "here", "there")
    return Measurement(
        name=f"{subject}-against-commit",
        title=f"{subject} on Pong: this commit ÷ {there}",
        headline=found["headline"],
        learning=found["learning"],
        passed=found["ratio"]["high"] >= 1.0,
        config={"flags": shlex.join(flags), "against": there, "pairs": pairs, "window_seconds": seconds},
        repeats=found["rows"],
        summary={"ratio": found["ratio"]},
    )


def against_sb3(subject: str, *, precision: Precision, pairs: int, seconds: float) -> Measurement:
    """Let Redline and Stable-Baselines3 train by turns with the same settings, but for the precision of products."""
    if precision == "bf16" and not has_bf16():
        raise SystemExit("speed: this processor has no instructions for bf16: not measured")
    flags = ("--env", "pong", *PAIRED[subject], *LIKE_SB3.get(subject, ()), "--learner.precision", precision)
    tried = {kind: sb3_window(subject, seconds=TRIAL_SECONDS, seed=1, vec_env=kind)["steps_per_s"] for kind in VEC_ENVS}
    vec_env = max(tried, key=lambda kind: tried[kind])
    say(f"{SB3} on its {vec_env} vector env: " + ", ".join(f"{kind} {rate:.0f}" for kind, rate in tried.items()))
    rows = take_turns(
        {
            "redline": lambda seed: train_for_window((*flags, "--seed", str(seed)), seconds=seconds),
            SB3: lambda seed: sb3_window(subject, seconds=seconds, seed=seed, vec_env=vec_env),
        },
        rounds=pairs,
    )
    found = read_pairs(rows, "redline", SB3)
    why_not = why_not_judged(rounds=pairs, others_percent=max(row["busy_percent_before"] for row in rows))
    judged = goal(rate_of([row["ratio"] for row in found["rows"]]), GOAL_RATIOS[precision][subject], why_not=why_not)
    return Measurement(
        name=f"{subject}-against-sb3" if precision == "float32" else f"{subject}-{precision}-against-sb3",
        title=f"{subject.upper()} on Pong, Nature CNN, the same settings: Redline in {precision} ÷ Stable-Baselines3",
        headline=found["headline"],
        learning=found["learning"],
        passed=judged["met"] if found["is_fair"] else False,
        config={
            "flags": shlex.join(flags),
            "sb3": SPEED_PEERS[subject].settings(),
            "sb3_vec_envs_tried_steps_per_s": tried,
            "pairs": pairs,
            "window_seconds": seconds,
        },
        repeats=found["rows"],
        summary={
            "ratio": {SB3: found["ratio"]},
            "steps_per_s": found["steps_per_s"]["redline"],
            "peers": {SB3: found["steps_per_s"][SB3]},
            "goal": judged,
        },
        packages=("stable_baselines3", "opencv-python-headless"),
    )


def read_pairs(rows: Sequence[Row], ours: str, theirs: str) -> dict[str, Any]:
    """Return the ratios of pairs, and whether both sides had the same replay ratio."""
    rows = [row | {"ratio": row[ours]["steps_per_s"] / row[theirs]["steps_per_s"]} for row in rows]
    ratio = rate_of([row["ratio"] for row in rows])
    rates = {side: rate_of([row[side]["steps_per_s"] for row in rows]) for side in (ours, theirs)}
    speeds = " against ".join(f"{rate['median']:.0f}" for rate in rates.values())
    samples = [median(row[side]["samples_per_step"] for row in rows) for side in (ours, theirs)]
    is_fair = abs(samples[0] / samples[1] - 1) <= UPDATES_TOLERANCE
    told = " and ".join(f"{value:.2f}" for value in samples)
    return {
        "rows": rows,
        "ratio": ratio,
        "steps_per_s": rates,
        "headline": f"{times(ratio)}; {speeds} steps/s",
        "learning": f"samples per step {told}" + ("" if is_fair else ", NOT the same"),
        "is_fair": is_fair,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and record."""
    options, passed_on = parse(argv)
    if options.precision != "float32" and options.against != SB3:
        raise SystemExit(f"speed: --precision goes with --against {SB3}; a bench takes --learner.precision")
    if options.against is None:
        subject = SUBJECTS.get(options.subject)
        if subject is None:
            raise SystemExit(f"speed: {options.subject} needs --against COMMIT")
        found = subject.read(run_bench([*subject.arguments, *passed_on]))
    elif passed_on:
        raise SystemExit(f"speed: {passed_on[0]} does not go with --against, only --pairs and --window-seconds do")
    elif options.against == SB3:
        goals = GOAL_RATIOS[options.precision]
        if options.subject not in goals:
            raise SystemExit(f"speed: --against {SB3} takes one of {', '.join(goals)}")
        how = {"pairs": options.pairs, "seconds": options.window_seconds}
        found = against_sb3(options.subject, precision=options.precision, **how)
    else:
        if options.subject not in PAIRED:
            raise SystemExit(f"speed: --against COMMIT takes one of {', '.join(PAIRED)}")
        found = against_commit(options.subject, options.against, pairs=options.pairs, seconds=options.window_seconds)
    return finish(found, as_json=options.json, keep=not options.no_record)


def run_bench(arguments: Sequence[str]) -> Result:
    """Return the object that the command prints; a check that failed is in it."""
    command = redline_command("bench", *arguments, "--json")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (DONE, FAILED):
        raise SystemExit(done.returncode)
    try:
        result: Result = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"speed: {' '.join(command[2:])} ended with {done.returncode} and no result") from None
    if "error" in result:
        raise SystemExit(done.returncode)
    return result


def verdict(result: Result) -> bool | None:
    """Return whether all goals are met, None if one can't be judged."""
    met = [goal["met"] for goal in result["goals"].values()]
    return None if None in met or not met else all(met)


def busy(result: Result) -> str:
    """Return what others did meanwhile, if it was much."""
    return f"; others used up to {result['others_percent']:.0f} % of the CPU" if result["is_busy"] else ""


def times(rate: Mapping[str, float]) -> str:
    """Return a ratio with what 90 % of the rounds lie between."""
    return f"{rate['median']:.2f} × ({rate['low']:.2f}–{rate['high']:.2f})"


def percent(rate: Mapping[str, float]) -> str:
    """Return a share in the same way."""
    return f"{100 * rate['median']:.0f} % ({100 * rate['low']:.0f}–{100 * rate['high']:.0f})"


def without(result: Result, *names: str) -> dict[str, Any]:
    """Return the figures, without what a record has elsewhere."""
    elsewhere = {"schema", "command", "commit", "host", "versions", "config", *names}
    return {key: value for key, value in result.items() if key not in elsewhere}


def parse(argv: Sequence[str] | None) -> tuple[Namespace, list[str]]:
    """Read the flags; those that are not ours go on."""
    parser = make_parser(__doc__)
    names = tuple(dict.fromkeys((*SUBJECTS, *PAIRED)))
    parser.add_argument("subject", choices=names, help="what is measured; dqn if it is not named")
    parser.add_argument("--against", metavar=f"COMMIT|{SB3}", help="train by turns with a commit, or with SB3")
    parser.add_argument("--pairs", type=at_least(1), default=5, help="of turns, with --against")
    parser.add_argument("--precision", choices=tuple(GOAL_RATIOS), default="float32", help="beside SB3")
    parser.add_argument("--window-seconds", type=float, default=15.0, help="of each turn, with --against")
    typed = list(sys.argv[1:] if argv is None else argv)
    is_named = bool(typed) and not typed[0].startswith("-")
    return parser.parse_known_args(typed if is_named else ["dqn", *typed])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the trainings end with it
    sys.exit(main())
