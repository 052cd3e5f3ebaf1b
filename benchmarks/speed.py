"""Runs `redline bench train`, `learner`, `env` or `ladder` as a user does, and records what it shows.

Whatever else is typed goes on to that command: `speed.py ppo --rounds 7`. What must be shown stands in the result's
goals: for the median, and nine tenths of it for `low`, the lower end of the middle 90 % of the rounds.

With `--against COMMIT` whole trainings of this tree and of that commit take turns: `speed.py dqn-async --against
HEAD~3`. Each pair of turns gives one ratio; this tree is no slower if 1 or more lies within the middle 90 % of them.
"""

import json
import shlex
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
from arguments import at_least, make_parser
from episode_means import as_text
from recording import Measurement, finish, say
from redline.bench.measuring import rate_of
from redline.cli.main import DONE, FAILED
from redline.envs.catalog import resolve
from redline_process import redline_command
from training_window import train_for_window

PEER = "sb3"

Result = Mapping[str, Any]


def read_training(result: Result) -> Measurement:
    """Return what whole trainings show."""
    config, learning = result["config"], result["learning"]
    name, game, beside = config["algorithm"], resolve(config["env"]).name, list(result["peers"])
    contenders = ("redline", *beside)
    samples = " and ".join(f"{learning[key]['samples_per_step']['median']:.2f}" for key in contenders)
    returns = " and ".join(as_text(learning[key]["mean_return_in_windows"]) for key in contenders)
    ratios = "".join(f"{times(ratio)} {key}; " for key, ratio in result["ratio"].items())
    speeds = " against ".join(
        f"{rate['median']:.0f}" for rate in (result["steps_per_s"], *(result["peers"][key] for key in beside))
    )
    fair = "" if result["same_updates_per_step"] else "; the same number of updates was NOT done"
    return Measurement(
        name=f"{name}-speed-{game.replace('_', '-')}",
        title=f"{name.upper()} on {game.title()}, Nature CNN, {config['num_envs']} envs, {regime(config)}: "
        f"Redline beside {' and '.join((*beside, 'the limit'))}",
        headline=f"{ratios}{speeds} steps/s; {percent(result['limit_fraction'])} of the limit",
        learning=f"samples per step {samples}, mean return in the windows {returns}{fair}{busy(result)}",
        passed=verdict(result) if result["same_updates_per_step"] else False,
        config=config,
        repeats=result["rounds"],
        summary=without(result, "rounds"),
        packages=("stable_baselines3", "opencv-python-headless"),
    )


def read_learner(result: Result) -> Measurement:
    """Return what the learner alone shows."""
    config, limit = result["config"], result["limit"]
    ratios = "".join(f"; {times(ratio)} {key}" for key, ratio in result["ratio"].items())
    is_shared = config["includes_forward_of_acting"]
    shared = ", the forward pass that a training shares with acting included" if is_shared else ""
    is_usual = (config["algo"], config["batch_size"]) == ("dqn", 32)
    return Measurement(
        name="learner-speed" if is_usual else f"learner-speed-{config['algo']}-{config['batch_size']}",
        title=f"updates of {config['algo'].upper()} alone, Nature CNN, batches of {config['batch_size']}, "
        f"{config['threads']} threads",
        headline=f"{percent(result['limit_fraction'])} of the limit, {result['updates_per_s']['median']:.1f} updates/s "
        f"at {limit['sgemm_gflops']:.0f} GFLOP/s of sgemm{ratios}",
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


def read_ladder(result: Result) -> Measurement:
    """Return what the ladder shows; it holds if its base is worth climbing from."""
    measured = [rung for rung in result["rungs"] if rung["gain_over_base"] is not None]
    best = max(measured, key=lambda rung: rung["gain_over_base"]["median"])
    returns = [mean for rung in measured if (mean := rung["learning"]["mean_return"]) is not None]
    learnt = f"mean return {as_text(min(returns))} … {as_text(max(returns))}" if returns else "nothing was trained"
    return Measurement(
        name="ladder",
        title=f"the ladder: {len(measured)} rungs from the textbook loop, {result['config']['regime']}",
        headline=f"up to {times(best['gain_over_base'])} the base, with {best['name']}; {result['base']['reason']}",
        learning=learnt,
        passed=result["base"]["valid"],
        config=result["config"],
        repeats=result["rungs"],
        summary={"base": result["base"], "duration_s": result["duration_s"]},
        packages=("stable_baselines3",),
    )


@dataclass(frozen=True)
class Subject:
    """A measurement: the command, and how its object is read."""

    arguments: tuple[str, ...]
    read: Callable[[Result], Measurement]


# what is trained against another commit
AGAINST = {
    "dqn": ("--algo", "dqn", "--warmup-steps", "2000", "--replay.capacity", "20000"),
    "dqn-async": (
        *("--algo", "dqn", "--warmup-steps", "2000", "--replay.capacity", "20000"),
        *("--topology", "async", "--evaluator.every-minutes", "0"),
    ),
    "ppo": ("--algo", "ppo"),
    "a2c": ("--algo", "a2c"),
}


def measure_against(subject: str, commit: str, *, pairs: int, seconds: float) -> Measurement:
    """Let this tree and a commit train by turns, in an order that alternates."""
    named = subprocess.run(["git", "rev-parse", "--short", commit], capture_output=True, text=True, check=False)
    if named.returncode:
        raise SystemExit(f"speed: {commit} is no commit of this repository: use one that git log shows")
    flags, repeats = ("--env", "pong", *AGAINST[subject]), []
    with tempfile.TemporaryDirectory() as name:
        archive = subprocess.run(["git", "archive", commit, "src"], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", name], input=archive, check=True)
        sources = {"here": Path(redline.__file__).parents[1], "there": Path(name) / "src"}
        for number in range(pairs):
            order = list(sources)[:: 1 if number % 2 == 0 else -1]
            seeded = (*flags, "--seed", str(number + 1))
            row = {side: train_for_window(seeded, seconds=seconds, source=sources[side]) for side in order}
            ratio = row["here"]["steps_per_s"] / row["there"]["steps_per_s"]
            say(f"pair {number + 1} of {pairs}: {ratio:.3f}")
            repeats.append({"order": order, **row, "ratio": ratio})
    spread = rate_of([row["ratio"] for row in repeats]).as_dict()
    speeds = " against ".join(f"{median(row[side]['steps_per_s'] for row in repeats):.0f}" for side in sources)
    samples = " and ".join(f"{median(row[side]['samples_per_step'] for row in repeats):.2f}" for side in sources)
    return Measurement(
        name=f"{subject}-against-commit",
        title=f"{subject} on Pong: this commit ÷ {named.stdout.strip()}",
        headline=f"{times(spread)}; {speeds} steps/s",
        learning=f"samples per step {samples}",
        passed=spread["high"] >= 1.0,
        config={"flags": shlex.join(flags), "against": named.stdout.strip(), "pairs": pairs, "window_seconds": seconds},
        repeats=repeats,
        summary={"ratio": spread},
    )


SUBJECTS = {
    **{name: Subject(("train", "--algo", name, "--against", PEER), read_training) for name in ("dqn", "ppo", "a2c")},
    "learner": Subject(("learner",), read_learner),
    "env": Subject(("env",), read_env),
    "ladder": Subject(("ladder",), read_ladder),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure in a process of its own, and record."""
    options, passed_on = parse(argv)
    if options.against not in (None, PEER):
        if passed_on or options.subject not in AGAINST:
            raise SystemExit(f"speed: --against takes one of {', '.join(AGAINST)}, --pairs and --window-seconds alone")
        compared = measure_against(
            options.subject, options.against, pairs=options.pairs, seconds=options.window_seconds
        )
        return finish(compared, as_json=options.json, keep=not options.no_record)
    subject = SUBJECTS[options.subject]
    result = run_bench([*subject.arguments, *passed_on])
    return finish(subject.read(result), as_json=options.json, keep=not options.no_record)


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


def regime(config: Mapping[str, Any]) -> str:
    """Return what is learnt per step, in words."""
    if "steps_per_update" in config:
        return f"one update of {config['batch_size']} per {config['steps_per_update']} steps"
    batches = config["num_envs"] * config["rollout_steps"] // config["batch_size"]
    return f"{config['rollout_steps']} steps each, {config['epochs']} × {batches} updates of {config['batch_size']}"


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
    names = tuple(dict.fromkeys((*SUBJECTS, *AGAINST)))
    parser.add_argument("subject", choices=names, help="what is measured; dqn if it is not named")
    parser.add_argument("--against", metavar="COMMIT", help="let this tree and a commit train by turns")
    parser.add_argument("--pairs", type=at_least(1), default=5, help="of turns, with --against")
    parser.add_argument("--window-seconds", type=float, default=15.0, help="of each turn, with --against")
    typed = list(sys.argv[1:] if argv is None else argv)
    is_named = bool(typed) and not typed[0].startswith("-")
    return parser.parse_known_args(typed if is_named else ["dqn", *typed])


if __name__ == "__main__":
    sys.exit(main())
