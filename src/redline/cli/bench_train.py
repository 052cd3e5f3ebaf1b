"""`redline bench train`: measure whole trainings here, against the machine's limit and other libraries."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import tyro

from redline.bench.training.bench import TrainBench, with_window
from redline.bench.training.settings import SETTINGS
from redline.bench.training.workers import WorkerError
from redline.cli.bench_learner import split_names
from redline.cli.bench_printing import OutputFlags, ended_by_signals, give_out, print_verdict, rate_text, tell
from redline.cli.main import FAILED, refuse
from redline.cli.output import print_table
from redline.cli.parsing import parse
from redline.cli.spinning import SHORT_SPIN
from redline.envs.atari_games import DQN_2015, AtariGame
from redline.envs.catalog import resolve
from redline.errors import UserError, unknown_name
from redline.units import number


@dataclass(frozen=True)
class BenchTrainFlags:
    """Measure whole trainings beside the machine's limit, and beside other libraries at the same work, by turns."""

    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = "dqn"
    """What all train: dqn, ppo or a2c."""
    against: str = ""
    """Libraries to compare with, commas between them: sb3. None: Redline beside the limit."""
    env: str = "pong"
    """Atari game, by the rules of 2015."""
    rounds: int = 9
    """Rounds in which all train by turns."""
    seconds: float = 6.0
    """Seconds that each trains in each round; to the end of a rollout where there are such."""
    warmup_steps: int | None = None
    """Steps before the first round; about one game of each env if not given."""
    peer_vec_env: Literal["auto", "dummy", "subproc"] = "auto"
    """Vector env of Stable-Baselines3; auto tries both and takes the faster."""
    peer_same_openmp: bool = False
    """Give the others Redline's OpenMP settings too."""
    output: Annotated[OutputFlags, tyro.conf.arg(name="")] = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= 1_000:
            raise UserError(f"rounds is {self.rounds}: use 1 to 1000")
        if not 0.0 < self.seconds <= 3_600.0:
            raise UserError(f"seconds is {self.seconds:g}: use more than 0 and at most 3600")
        if self.warmup_steps is not None and not 100 <= self.warmup_steps <= 1_000_000:
            raise UserError(f"warmup-steps is {self.warmup_steps}: use 100 to 1_000_000")


def run(args: Sequence[str]) -> int:
    """Measure, print; 1 if a library did not do the same updates, because then nothing is compared."""
    flags = parse(BenchTrainFlags, args, default=BenchTrainFlags(), prog="redline bench train")
    name = flags.algo.lower()
    if name not in SETTINGS:
        raise unknown_name("algorithm of this bench", flags.algo, SETTINGS)
    setting = with_window(SETTINGS[name], seconds=flags.seconds, warmup_steps=flags.warmup_steps)
    openmp = {name: os.environ[name] for name in SHORT_SPIN if name in os.environ}  # as for `redline train`
    bench = TrainBench(
        setting=replace(setting, env=_game(flags.env)),
        against=split_names(flags.against),
        rounds=flags.rounds,
        peer_vec_env=flags.peer_vec_env,
        own_environ=openmp,
        peer_environ=openmp if flags.peer_same_openmp else {},
    )
    try:
        with ended_by_signals():
            result = bench.run(tell)
    except WorkerError as error:
        return refuse(str(error), as_json=flags.output.json, code=FAILED)
    code = give_out(result, flags.output, subject="train", args=args, show=show)
    return code if result["same_updates_per_step"] else FAILED


def _game(name: str) -> str:
    game = resolve(name)
    if not isinstance(game, AtariGame) or game.protocol is not DQN_2015:
        raise UserError(f"env {name!r} is no Atari game by the rules of 2015: use one such as pong")
    return game.gymnasium_id


def show(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as a table."""
    config, limit = result["config"], result["limit"]
    print(f"{config['algorithm']} on {config['env']}, {config['num_envs']} envs, updates of {config['batch_size']}")
    speeds = {"redline": result["steps_per_s"], **result["peers"]}
    rows = []
    for name, speed in speeds.items():
        learnt = result["learning"][name]
        samples, cores = learnt["samples_per_step"]["median"], learnt["cores_used"]["median"]
        returns = f"{number(learnt['mean_return_in_windows'], 1)} of {learnt['episodes_in_windows']}"
        rows.append((name, rate_text(speed), f"{samples:.2f}", f"{cores:.2f}", returns))
    rows.append(("limit", f"{limit['steps_per_s']:,.0f}", "", "", ""))
    head = ("", "steps/s, median (90 %)", "samples/step", "cores used", "mean return of episodes")
    print_table(head, rows, plain=plain, numeric=(1, 2, 3, 4))
    print(
        f"limit: {limit['flop_per_step'] / 1e6:.0f} MFLOP per step at {limit['sgemm_gflops']:.0f} GFLOP/s and "
        f"{limit['env_s_per_step'] * 1e3:.2f} ms of emulation; reached {rate_text(result['limit_fraction'], 3)} of it"
    )
    for name, ratio in result["ratio"].items():
        print(f"Redline ÷ {name}: {rate_text(ratio, 2)}")
    for name, reason in result["missing"].items():
        print(f"left out: {name}: {reason}")
    if not result["same_updates_per_step"]:
        print("the contenders did NOT do the same number of updates per step: nothing is compared")
    print_verdict(result)
