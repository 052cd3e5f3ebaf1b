"""`redline bench SUBJECT`: the flags of each subject, how it is measured, and how its result is printed."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.bench.env_speed import EnvBench
from redline.bench.learner_speed import LearnerBench
from redline.bench.replay_speed import GAMES, ReplayBench
from redline.bench.training_speed import ALGORITHMS, TrainBench
from redline.cli.main import DONE, FAILED, FailureError, failing
from redline.cli.output import give, print_table
from redline.cli.parsing import Json, Plain, parse, run_subject
from redline.cli.process import ended_by_signals
from redline.cli.train import TRAINING_ERRORS
from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.envs.atari_games import DQN_2015, AtariGame
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.errors import UserError, check_range, check_seed, unknown_name
from redline.files import explained, reason_of
from redline.jsonl import as_json_value
from redline.runtime.precision import can_bf16
from redline.runtime.resolve import find_device
from redline.types import Precision
from redline.units import duration, number


@dataclass(frozen=True)
class OutputFlags:
    """Where a result goes."""

    out: Path | None = None
    """File for the JSON object."""
    plain: Plain = False
    json: Json = False

    def __post_init__(self) -> None:
        if self.out is not None:
            check_out(self.out)


@dataclass(frozen=True)
class TurnFlags:
    """How long is measured, and by which seed."""

    rounds: int
    """Rounds in which all are measured by turns."""
    turn_seconds: float
    """Seconds that each of them works in each round."""
    seed: int = 1
    """Seed of everything random."""

    def __post_init__(self) -> None:
        check_range("rounds", self.rounds, 1, 1_000)
        check_range("turn-seconds", self.turn_seconds, 0.001, 60)
        check_seed(self.seed)


PrecisionFlag = Annotated[Precision, tyro.conf.arg(name="learner.precision")]
Output = Annotated[OutputFlags, tyro.conf.arg(name="")]
Turns = Annotated[TurnFlags, tyro.conf.arg(name="")]


def run(args: Sequence[str]) -> int:
    return run_subject("bench", args, SUBJECTS)


def run_bench(subject: str, args: Sequence[str]) -> int:
    """Measure and print; 1 if a training did not do the updates per step that its settings ask for."""
    (kind, make, show), command = KINDS[subject], f"redline bench {subject}"
    flags = parse(kind, args, default=kind(), prog=command)
    bench = make(flags)
    with explained(FailureError, getattr(flags, "path", Path()), before="the bench stopped: "):
        result = measure(bench.run)
    code = give_out(result, flags.output, command=command, args=args, show=show)
    return code if result.get("same_updates_per_step", True) else FAILED


def check_out(out: Path, flag: str = "out") -> None:
    """Refuse a file that can't be written before the measurement begins."""
    folder = out.absolute().parent
    if out.is_dir():
        raise UserError(f"{flag} {out} is a folder: name a file in it")
    if not folder.is_dir():
        raise UserError(f"{flag} {out} lies in no folder: create {out.parent} first")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise UserError(f"{flag} {out} can't be written: you may not write there, so name another file")


def tell(text: str) -> None:
    """Print progress to stderr, away from the result."""
    print(text, file=sys.stderr, flush=True)


def measure(bench: Callable[[Callable[[str], None]], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Measure and tell the progress; an error of the training ends the command in one line."""
    with failing(*TRAINING_ERRORS), ended_by_signals():
        return bench(tell)


def give_out(
    result: Mapping[str, Any], flags: OutputFlags, *, command: str, args: Sequence[str], show: Callable[..., None]
) -> int:
    """Print the result as JSON or in words, and write the file of --out; return 1 if that failed."""
    whole: Any = as_json_value({**result, "command": shlex.join([*command.split(), *args])})
    give(whole, flags, show)
    if flags.out is not None:
        try:
            flags.out.write_text(json.dumps(whole, allow_nan=False) + "\n", encoding="utf-8")
        except OSError as error:  # the result is printed all the same
            tell(f"redline: out {flags.out} can't be written: {reason_of(error)}")
            return FAILED
    return DONE


def rate_text(rate: Mapping[str, float], digits: int = 0) -> str:
    """Return a rate with the range that holds 90 % of the rounds."""
    return f"{rate['median']:,.{digits}f} ({rate['low']:,.{digits}f}–{rate['high']:,.{digits}f})"


def print_verdict(result: Mapping[str, Any]) -> None:
    """Print each goal and whether it was met, or why it was not judged, and how long the bench took."""
    if result.get("is_busy"):
        print(f"others used up to {result['others_percent']:.0f} % of the CPU: measure again on a machine that is free")
    words = {True: "met", False: "NOT met", None: "not judged"}
    for name, goal in result["goals"].items():
        low = f" (low {goal['low']:.3f})" if "low" in goal else ""
        reason = f", because: {goal['reason']}" if goal.get("reason") else ""
        print(f"{name}: {goal['value']:,.3f}{low}, goal {goal['goal']:,}: {words[goal['met']]}{reason}")
    print(f"measured in {duration(result['duration_s'])}")


@dataclass(frozen=True)
class BenchEnvFlags:
    """Measure steps per second through Redline's env layer, beside the bare emulators with the same options."""

    env: str = "pong"
    """Atari game."""
    num_envs: int = EnvBench.num_envs
    """Environments played side by side."""
    threads: int = EnvBench.threads
    """Threads that step them (0: all cores, at most one per env)."""
    turns: Turns = TurnFlags(EnvBench.rounds, EnvBench.turn_s)
    """How long it takes."""
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""


def show_env(result: Mapping[str, Any], *, plain: bool) -> None:
    config = result["config"]
    print(f"{config['env']}, {config['num_envs']} envs on {config['threads']} threads, random actions")
    rows = [
        ("through Redline's env layer", rate_text(result["steps_per_s"])),
        ("bare emulators", rate_text(result["peers"]["bare"])),
        ("ratio of pairs, without seeded resets", rate_text(result["ratio"]["bare"], digits=3)),
        ("ratio of the means", f"{result['ratio_of_means']:.3f}"),
    ]
    print_table(("", "steps/s, median (90 %)"), rows, plain=plain, numeric=(1,))
    print(
        f"a seeded reset, once in {SEED_INTERVAL_STEPS:,} steps of a lane, takes "
        f"{result['seeded_reset_s'] * 1e3:.0f} ms: {result['key_share']:.1%} of the time at this speed, "
        f"which leaves {rate_text(result['ratio_with_keys']['bare'], 3)} of the bare emulators' speed"
    )
    print_verdict(result)


@dataclass(frozen=True)
class BenchLearnerFlags:
    """Measure updates per second, beside what the machine's arithmetic allows."""

    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = LearnerBench.algo
    """Algorithm, by name, with its settings for Atari."""
    batch_size: int | None = None
    """Transitions in one update; the algorithm's own if not given."""
    threads: int = LearnerBench.threads
    """Threads of the learner (0: as a training chooses)."""
    learner_precision: PrecisionFlag = LearnerBench.precision
    """Precision of the products in hidden layers."""
    device: str = LearnerBench.device
    """Where the learner computes: cpu, cuda or cuda:i."""
    turns: Turns = TurnFlags(LearnerBench.rounds, LearnerBench.turn_s)
    """How long it takes."""
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""


def make_learner(flags: BenchLearnerFlags) -> LearnerBench:
    precision = possible_precision(flags.learner_precision, flags.device)
    return LearnerBench(flags.algo, flags.batch_size, flags.threads, precision, flags.device, **by_turns(flags.turns))


def possible_precision(asked: Precision, device: str = "cpu") -> Precision:
    """Refuse a precision that can't be measured on a device: a training would take another one."""
    if asked == "bf16" and not can_bf16(find_device(device)):
        raise UserError(f"learner.precision bf16 can't be measured: this {device} has no instructions for it")
    return asked


def show_learner(result: Mapping[str, Any], *, plain: bool) -> None:
    config, limit = result["config"], result["limit"]
    print(f"{config['algo']}, batches of {config['batch_size']}, {config['threads']} threads, {config['precision']}")
    rows = [
        ("Redline", rate_text(result["updates_per_s"], 1), rate_text(result["steps_per_s"])),
        ("limit", f"{limit['updates_per_s']:.1f}", ""),
    ]
    print_table(("learner", "updates/s, median (90 %)", "steps/s they allow"), rows, plain=plain, numeric=(1, 2))
    print(
        f"limit: {limit['flop_per_update'] / 1e9:.2f} GFLOP per update at {limit['sgemm_gflops']:.0f} GFLOP/s, "
        f"the best sgemm of this run; reached {rate_text(result['limit_fraction'], 3)} of it"
    )
    if config["includes_forward_of_acting"]:
        print("an update here includes the forward pass that a training shares with acting")
    print_verdict(result)


@dataclass(frozen=True)
class BenchReplayFlags:
    """Measure the bytes of a transition, and how fast the replay memory samples and inserts."""

    games: str = ",".join(GAMES)
    """Atari games to play at random, with commas between them."""
    transitions: int = ReplayBench.transitions
    """Transitions to play of each game."""
    path: Path = ReplayBench.path
    """Folder on the disk that is measured."""
    turns: Turns = TurnFlags(ReplayBench.rounds, ReplayBench.turn_s)
    """How long it takes."""
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""


def make_replay(flags: BenchReplayFlags) -> ReplayBench:
    games = [_game(name.strip()).name for name in flags.games.split(",") if name.strip()]
    return ReplayBench(games, flags.transitions, path=flags.path, **by_turns(flags.turns))


def by_turns(turns: TurnFlags) -> dict[str, Any]:
    """Return the settings that all benches with turns share."""
    return {"rounds": turns.rounds, "turn_s": turns.turn_seconds, "seed": turns.seed}


def _game(name: str) -> AtariGame:
    game = resolve(name)
    if not isinstance(game, AtariGame):
        raise UserError(f"env {name!r} is not an Atari game: use one such as pong")
    return game


def show_replay(result: Mapping[str, Any], *, plain: bool) -> None:
    staging = f"{result['staging_bytes'] / 1e6:.2f} MB once"
    print(f"bytes per transition with zstd, including everything stored beside the frames; staging buffers {staging}")
    sizes = [(name, f"{size:,.0f}") for name, size in result["bytes_per_transition"].items()]
    print_table(("game", "bytes"), sizes, plain=plain, numeric=(1,))
    print(f"batches of {result['config']['batch_size']} per second on {result['config']['sampled_game']}")
    worst = result["batches_per_s_worst_game"]
    memories = {**result["batches_per_s"], f"zstd, {worst['game']}": worst["zstd"]}
    rates = [
        (memory, sampler, rate_text(by_prefetch["off"]), rate_text(by_prefetch["on"]))
        for memory, samplers in memories.items()
        for sampler, by_prefetch in samplers.items()
    ]
    print_table(("frames", "sampler", "prefetch off", "prefetch on"), rates, plain=plain, numeric=(2, 3))
    inserts = [(name, rate_text(rate)) for name, rate in result["insert_steps_per_s"].items()]
    print_table(("frames", "steps inserted per second"), inserts, plain=plain, numeric=(1,))
    print_verdict(result)


@dataclass(frozen=True)
class BenchTrainFlags:
    """Measure a whole training beside the machine's limit."""

    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = TrainBench.algorithm
    """What to train: dqn, ppo or a2c."""
    env: str = "pong"
    """Atari game, by the rules of 2015."""
    rounds: int = TrainBench.rounds
    """Rounds in which the limit and the training are measured by turns."""
    seconds: float = TrainBench.seconds
    """Seconds of training in each round; PPO and A2C go on to the end of a rollout."""
    warmup_steps: int | None = None
    """Steps before the first round; about one game of each env if not given."""
    learner_precision: PrecisionFlag = TrainBench.precision
    """Precision of the products in hidden layers."""
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        check_range("rounds", self.rounds, 1, 1_000)
        check_range("seconds", self.seconds, 0.001, 3_600)
        if self.warmup_steps is not None:
            check_range("warmup-steps", self.warmup_steps, 100, 1_000_000)


def make_train(flags: BenchTrainFlags) -> TrainBench:
    algorithm, game = flags.algo.lower(), _game(flags.env)
    if algorithm not in ALGORITHMS:
        raise unknown_name("algorithm of this bench", flags.algo, ALGORITHMS)
    if game.protocol is not DQN_2015:
        raise UserError(f"env {flags.env!r} is not an Atari game by the rules of 2015: use one such as pong")
    precision = possible_precision(flags.learner_precision)
    return TrainBench(algorithm, game.gymnasium_id, flags.rounds, flags.seconds, flags.warmup_steps, precision)


def show_train(result: Mapping[str, Any], *, plain: bool) -> None:
    config, limit, learning = result["config"], result["limit"], result["learning"]["redline"]
    print(
        f"{config['algorithm']} on {config['env']['id']}, {config['num_envs']} envs, "
        f"updates of {config['batch_size']}, {config['learner']['precision']}"
    )
    rows = [
        (
            "redline",
            rate_text(result["steps_per_s"]),
            f"{learning['samples_per_step']['median']:.2f}",
            f"{learning['cores_used']['median']:.2f}",
            f"{number(learning['mean_return_in_windows'], 1)} of {learning['episodes_in_windows']}",
        ),
        ("limit", f"{limit['steps_per_s']:,.0f}", "", "", ""),
    ]
    head = ("", "steps/s, median (90 %)", "replay ratio", "cores used", "mean return of episodes")
    print_table(head, rows, plain=plain, numeric=(1, 2, 3, 4))
    print(
        f"limit: {limit['flop_per_step'] / 1e6:.0f} MFLOP per step at {limit['sgemm_gflops']:.0f} GFLOP/s and "
        f"{limit['env_s_per_step'] * 1e3:.2f} ms of emulation; reached {rate_text(result['limit_fraction'], 3)} of it"
    )
    if not result["same_updates_per_step"]:
        print("the training did NOT do the updates per step that its settings ask for: the figures do not count")
    print_verdict(result)


KINDS: dict[str, tuple[type[Any], Callable[[Any], Any], Callable[..., None]]] = {
    "replay": (BenchReplayFlags, make_replay, show_replay),
    "env": (
        BenchEnvFlags,
        lambda flags: EnvBench(EnvConfig(id=flags.env), flags.num_envs, flags.threads, **by_turns(flags.turns)),
        show_env,
    ),
    "learner": (
        BenchLearnerFlags,
        make_learner,
        show_learner,
    ),
    "train": (BenchTrainFlags, make_train, show_train),
}
SUBJECTS = {name: (partial(run_bench, name), str(kind.__doc__)) for name, (kind, _, _) in KINDS.items()}
