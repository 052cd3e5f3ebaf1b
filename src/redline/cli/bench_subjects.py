"""The subjects of `redline bench`: the flags of each, how it is run, and how its result is printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.bench.env_speed import EnvBench
from redline.bench.learner_speed import LearnerBench
from redline.bench.replay_speed import GAMES, ReplayBench
from redline.bench.training_speed import ALGORITHMS, TrainBench
from redline.cli.bench import (
    OutputFlags,
    check_seed,
    check_turns,
    ended_by_signals,
    give_out,
    print_verdict,
    rate_text,
    tell,
)
from redline.cli.main import FAILED, refuse
from redline.cli.output import print_table
from redline.cli.parsing import parse
from redline.cli.train import TRAINING_ERRORS
from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.envs.atari_games import DQN_2015, AtariGame
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError
from redline.errors import UserError, unknown_name
from redline.files import explain
from redline.replay import ReplayError
from redline.units import number

Output = Annotated[OutputFlags, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class BenchEnvFlags:
    """Measure steps per second through Redline's env layer, beside the bare emulators with the same options."""

    env: str = "pong"
    """Atari game."""
    num_envs: int = EnvBench.num_envs
    """Environments played side by side."""
    threads: int = EnvBench.threads
    """Threads that step them (0: all cores, at most one per env)."""
    rounds: int = EnvBench.rounds
    """Rounds in which both are measured by turns."""
    turn_seconds: float = EnvBench.turn_s
    """Seconds that each of them steps in each round."""
    seed: int = EnvBench.seed
    """Seed of the games and of the actions."""
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        check_turns(rounds=self.rounds, turn_seconds=self.turn_seconds)
        check_seed(self.seed)


def run_env(args: Sequence[str]) -> int:
    """Measure the env layer, and print."""
    flags = parse(BenchEnvFlags, args, default=BenchEnvFlags(), prog="redline bench env")
    bench = EnvBench(
        env=EnvConfig(id=flags.env),
        num_envs=flags.num_envs,
        threads=flags.threads,
        rounds=flags.rounds,
        turn_s=flags.turn_seconds,
        seed=flags.seed,
    )
    try:
        result = bench.run(tell)
    except EnvError as error:
        return refuse(str(error), as_json=flags.output.json, code=FAILED)
    return give_out(result, flags.output, command="redline bench env", args=args, show=show_env)


def show_env(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as a table."""
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
    rounds: int = LearnerBench.rounds
    """Rounds in which learner and matrix products are measured by turns."""
    turn_seconds: float = LearnerBench.turn_s
    """Seconds that each of them works in each round."""
    seed: int = LearnerBench.seed
    """Seed of the weights and of the batches."""
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        check_turns(rounds=self.rounds, turn_seconds=self.turn_seconds)
        check_seed(self.seed)


def run_learner(args: Sequence[str]) -> int:
    """Measure updates, and print."""
    flags = parse(BenchLearnerFlags, args, default=BenchLearnerFlags(), prog="redline bench learner")
    bench = LearnerBench(
        algo=flags.algo,
        batch_size=flags.batch_size,
        threads=flags.threads,
        rounds=flags.rounds,
        turn_s=flags.turn_seconds,
        seed=flags.seed,
    )
    return give_out(bench.run(tell), flags.output, command="redline bench learner", args=args, show=show_learner)


def show_learner(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as a table."""
    config, limit = result["config"], result["limit"]
    print(f"{config['algo']}, batches of {config['batch_size']}, {config['threads']} threads")
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
    rounds: int = ReplayBench.rounds
    """Rounds in which all are measured by turns."""
    turn_seconds: float = ReplayBench.turn_s
    """Seconds that each of them works in each round."""
    path: Path = ReplayBench.path
    """Folder on the disk that is measured."""
    seed: int = ReplayBench.seed
    """Seed of the games and of the actions."""
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        check_turns(rounds=self.rounds, turn_seconds=self.turn_seconds)
        check_seed(self.seed)


def run_replay(args: Sequence[str]) -> int:
    """Measure the replay memory, and print."""
    flags = parse(BenchReplayFlags, args, default=BenchReplayFlags(), prog="redline bench replay")
    bench = ReplayBench(
        games=[_replay_game(name.strip()) for name in flags.games.split(",") if name.strip()],
        transitions=flags.transitions,
        rounds=flags.rounds,
        turn_s=flags.turn_seconds,
        path=flags.path,
        seed=flags.seed,
    )
    try:
        result = bench.run(tell)
    except (EnvError, ReplayError) as error:
        return refuse(str(error), as_json=flags.output.json, code=FAILED)
    except OSError as error:
        return refuse(f"the bench stopped: {explain(error, flags.path)}", as_json=flags.output.json, code=FAILED)
    return give_out(result, flags.output, command="redline bench replay", args=args, show=show_replay)


def _replay_game(name: str) -> str:
    game = resolve(name)
    if not isinstance(game, AtariGame):
        raise UserError(f"{name!r} is no Atari game: use names such as pong,breakout")
    return game.name


def show_replay(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as tables."""
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
    output: Output = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= 1_000:
            raise UserError(f"rounds is {self.rounds}: use 1 to 1000")
        if not 0.0 < self.seconds <= 3_600.0:
            raise UserError(f"seconds is {self.seconds:g}: use more than 0 and at most 3600")
        if self.warmup_steps is not None and not 100 <= self.warmup_steps <= 1_000_000:
            raise UserError(f"warmup-steps is {self.warmup_steps}: use 100 to 1_000_000")


def run_train(args: Sequence[str]) -> int:
    """Measure a training, and print; 1 if it did not do the updates per step that its settings ask for."""
    flags = parse(BenchTrainFlags, args, default=BenchTrainFlags(), prog="redline bench train")
    if flags.algo.lower() not in ALGORITHMS:
        raise unknown_name("algorithm of this bench", flags.algo, ALGORITHMS)
    bench = TrainBench(
        algorithm=flags.algo.lower(),
        env=_training_game(flags.env),
        rounds=flags.rounds,
        seconds=flags.seconds,
        warmup_steps=flags.warmup_steps,
    )
    try:
        with ended_by_signals():
            result = bench.run(tell)
    except TRAINING_ERRORS as error:
        return refuse(str(error), as_json=flags.output.json, code=FAILED)
    code = give_out(result, flags.output, command="redline bench train", args=args, show=show_train)
    return code if result["same_updates_per_step"] else FAILED


def _training_game(name: str) -> str:
    game = resolve(name)
    if not isinstance(game, AtariGame) or game.protocol is not DQN_2015:
        raise UserError(f"env {name!r} is no Atari game by the rules of 2015: use one such as pong")
    return game.gymnasium_id


def show_train(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as a table."""
    config, limit, learning = result["config"], result["limit"], result["learning"]["redline"]
    print(
        f"{config['algorithm']} on {config['env']['id']}, {config['num_envs']} envs, updates of {config['batch_size']}"
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
