"""`redline eval RUN`: how well an agent plays, by whole episodes without exploration."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Annotated

import tyro

from redline.cli.atari_scores import REFERENCES, Reference
from redline.cli.main import DONE, FAILED, refuse
from redline.cli.parsing import parse, split_run
from redline.cli.stopping import StopRequest
from redline.cli.tables import is_plain, print_facts, progress_bar
from redline.cli.wording import duration, number
from redline.envs.atari_games import find_game
from redline.envs.vector import EnvError
from redline.report.statistics import LEVEL, Interval, bootstrap_interval
from redline.runs.finding import NEWEST, find_checkpoint
from redline.runs.manifest import Checkpoint
from redline.runtime.evaluation import Evaluation, EvaluationConfig, StoppedWhileEvaluatingError, evaluate
from redline.runtime.resuming import SavedRun, check_env, read_run

PROGRAM = "redline eval RUN"


@dataclass(frozen=True)
class EvalFlags:
    """Evaluate a run: whole episodes, unclipped, greedy, noise off. The run is only read."""

    config: Annotated[EvaluationConfig, tyro.conf.arg(name="")] = field(default_factory=EvaluationConfig)
    """How it is evaluated."""
    checkpoint: str = NEWEST
    """Checkpoint to load: newest, best (by the mean return of its last 100 episodes) or its steps."""
    env: str | None = None
    """Env of the run, to be typed again if it names a module (mypkg:MyEnv-v0): no file has one imported."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print the result as one JSON object on stdout, and nothing else there."""


@dataclass(frozen=True)
class Result:
    """What was found out, ready to be told."""

    saved: SavedRun
    checkpoint: Checkpoint
    config: EvaluationConfig
    evaluation: Evaluation
    interval: Interval | None
    reference: Reference | None

    @property
    def returns(self) -> list[float]:
        """Unclipped return of each episode."""
        return [played.episode.total_reward for played in self.evaluation.played]

    @property
    def lengths_steps(self) -> list[int]:
        """Length of each episode."""
        return [played.episode.length_steps for played in self.evaluation.played]

    @property
    def num_truncated(self) -> int:
        """Episodes cut by a limit, of frames or of the env's own."""
        return sum(played.is_truncated for played in self.evaluation.played)

    @property
    def human_normalised(self) -> float | None:
        """0 for random play, 1 for a human; None where nobody has measured both."""
        return None if self.reference is None else self.reference.normalise(fmean(self.returns))


def run(args: Sequence[str]) -> int:
    """Evaluate as the flags say and return the exit code."""
    if "--help" in args[:1] or "-h" in args[:1]:
        parse(EvalFlags, args, default=EvalFlags(), prog=PROGRAM)
    path, rest = split_run(args, "eval")
    flags = parse(EvalFlags, rest, default=EvalFlags(), prog=PROGRAM)
    saved = read_run(path)
    check_env(saved, flags.env)
    checkpoint = find_checkpoint(saved.path, flags.checkpoint, with_replay=False)
    for reason in checkpoint.skipped:
        print(f"redline: warning: {reason}", file=sys.stderr)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    try:
        with StopRequest() as stop, progress_bar(f"playing {flags.config.episodes} episodes", plain=plain) as progress:
            evaluation = evaluate(saved.job, checkpoint, flags.config, progress=progress, requested_stop=stop.reason)
    except StoppedWhileEvaluatingError as stopped:
        # those that ended are the shorter ones: their mean would be biased
        return refuse(f"{stopped}: nothing is reported, the run is as it was", as_json=flags.json, code=FAILED)
    except EnvError as error:
        return refuse(str(error), as_json=flags.json, code=FAILED)
    returns = [played.episode.total_reward for played in evaluation.played]
    game = find_game(saved.job.env.id)
    result = Result(
        saved=saved,
        checkpoint=checkpoint,
        config=flags.config,
        evaluation=evaluation,
        interval=bootstrap_interval(returns, seed=flags.config.seed),
        reference=None if game is None else REFERENCES.get(game.game),
    )
    if flags.json:
        print(json.dumps(to_json(result)))
    else:
        show(result, plain=plain)
    return DONE


def to_json(result: Result) -> dict[str, object]:
    """Return everything as one plain object."""
    evaluation, interval = result.evaluation, result.interval
    return {
        "schema": 1,
        "run": str(result.saved.path),
        "algorithm": result.saved.algorithm,
        "env": result.saved.job.env.id,
        "checkpoint_steps": result.checkpoint.steps,
        "skipped": list(result.checkpoint.skipped),
        "episodes": len(result.returns),
        "mean_return": fmean(result.returns),
        "interval": {"low": None, "high": None, "level": LEVEL} if interval is None else asdict(interval),
        "min_return": min(result.returns),
        "median_return": median(result.returns),
        "max_return": max(result.returns),
        "mean_length_steps": fmean(result.lengths_steps),
        "mean_length_frames": fmean(result.lengths_steps) * evaluation.frames_per_step,
        "truncated": result.num_truncated,
        "human_normalised": result.human_normalised,
        "reference": None if result.reference is None else asdict(result.reference),
        "acting": "sampled" if result.config.sample else "greedy",
        "epsilon": evaluation.epsilon,
        "protocol": evaluation.protocol,
        "seed": result.config.seed,
        "num_envs": evaluation.num_envs,
        "device": str(evaluation.device),
        "duration_s": evaluation.duration_s,
        "returns": result.returns,
        "lengths_steps": result.lengths_steps,
        "key_seeds": [played.episode.key_seed for played in evaluation.played],
    }


def show(result: Result, *, plain: bool) -> None:
    """Print the result."""
    job, evaluation = result.saved.job, result.evaluation
    print(f"{result.saved.path}: {result.saved.algorithm} on {job.env.id} at step {result.checkpoint.steps:,}")
    returns = result.returns
    steps = fmean(result.lengths_steps)
    cut = f", {result.num_truncated:,} of them truncated" if result.num_truncated else ""
    facts = [
        ("mean return", f"{number(fmean(returns))}  {describe_interval(result.interval)}"),
        ("min, median, max", ", ".join(number(value, 1) for value in (min(returns), median(returns), max(returns)))),
        ("human-normalised", describe_normalised(result)),
        ("episodes", f"{len(returns):,}{cut}, in {duration(evaluation.duration_s)}"),
        ("mean length", f"{steps:,.1f} steps, {steps * evaluation.frames_per_step:,.0f} frames"),
        ("acting", describe_acting(result)),
        ("protocol", evaluation.protocol),
    ]
    print_facts(facts, plain=plain)


def describe_interval(interval: Interval | None) -> str:
    """Say between what the mean lies."""
    if interval is None:
        return "(one episode tells nothing of its spread)"
    return f"({interval.level:.0%} interval {number(interval.low)} to {number(interval.high)})"


def describe_normalised(result: Result) -> str:
    """Say how the mean compares with random play and a human."""
    if result.reference is None:
        return f"no reference for {result.saved.job.env.id}"
    random, human = number(result.reference.random, 1), number(result.reference.human, 1)
    return f"{number(result.human_normalised, 3)} (random {random}, human {human}: no-op starts, Mnih 2015, Wang 2016)"


def describe_acting(result: Result) -> str:
    """Say how actions were chosen."""
    if result.config.sample:
        return f"drawn from the policy, seed {result.config.seed}"
    return f"greedy with ε {result.evaluation.epsilon:g}, noise off, seed {result.config.seed}"
