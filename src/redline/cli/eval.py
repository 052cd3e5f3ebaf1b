"""`redline eval RUN`: how well an agent plays, over whole episodes without exploration."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Annotated

import tyro

from redline.cli.main import DONE, FAILED, refuse
from redline.cli.output import is_plain, print_facts, print_json, progress_bar, warn
from redline.cli.parsing import Json, Plain, Run, RunEnv, parse
from redline.cli.stopping import StopRequest
from redline.envs.atari_games import find_game
from redline.envs.vector import EnvError
from redline.report.scores import LEVEL, REFERENCES, Interval, Reference, bootstrap_interval
from redline.runs.finding import NEWEST, find_checkpoint
from redline.runs.locating import locate_run
from redline.runs.manifest import Checkpoint
from redline.runtime.evaluation import Evaluation, EvaluationConfig, StoppedWhileEvaluatingError, evaluate
from redline.runtime.resuming import SavedRun, check_env, read_run
from redline.units import duration, number


@dataclass(frozen=True)
class EvalFlags:
    """Evaluate a run: whole episodes, unclipped returns, greedy actions, noise off. The run is only read."""

    run: Run
    config: Annotated[EvaluationConfig, tyro.conf.arg(name="")] = field(default_factory=EvaluationConfig)
    """How it is evaluated."""
    checkpoint: str = NEWEST
    """Checkpoint to load: newest, best (by the mean return of its last 100 episodes) or its steps."""
    env: RunEnv = None
    plain: Plain = False
    json: Json = False


@dataclass(frozen=True)
class Result:
    """What an evaluation found."""

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
        """Episodes cut by a limit of frames, or by the env's own."""
        return sum(played.is_truncated for played in self.evaluation.played)

    @property
    def human_normalised(self) -> float | None:
        """0 for random play, 1 for a human; None if there is no reference."""
        return None if self.reference is None else self.reference.normalise(fmean(self.returns))


def run(args: Sequence[str]) -> int:
    """Evaluate as the flags say and return the exit code."""
    flags = parse(EvalFlags, args, prog="redline eval")
    saved = read_run(locate_run(flags.run))
    check_env(saved, flags.env)
    checkpoint = find_checkpoint(saved.path, flags.checkpoint, with_replay=False)
    warn(checkpoint.skipped)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    try:
        with StopRequest() as stop, progress_bar(f"playing {flags.config.episodes} episodes", plain=plain) as progress:
            evaluation = evaluate(saved.job, checkpoint, flags.config, progress=progress, requested_stop=stop.reason)
    except StoppedWhileEvaluatingError as stopped:
        # the episodes that ended are the shorter ones: their mean would be biased
        return refuse(f"{stopped}: nothing is reported, the run is unchanged", as_json=flags.json, code=FAILED)
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
        print_json(to_json(result))
    else:
        show(result, plain=plain)
    return DONE


def to_json(result: Result) -> dict[str, object]:
    """Return everything as one plain object."""
    evaluation, interval = result.evaluation, result.interval
    return {
        "run": result.saved.path,
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
    """Tell the confidence interval of the mean."""
    if interval is None:
        return "(one episode has no spread)"
    return f"({interval.level:.0%} interval {number(interval.low)} to {number(interval.high)})"


def describe_normalised(result: Result) -> str:
    """Compare the mean with random play and a human."""
    if result.reference is None:
        return f"no reference for {result.saved.job.env.id}"
    random, human = number(result.reference.random, 1), number(result.reference.human, 1)
    return f"{number(result.human_normalised, 3)} (random {random}, human {human}: no-op starts, Mnih 2015, Wang 2016)"


def describe_acting(result: Result) -> str:
    """Tell how actions were chosen."""
    epsilon, seed = result.evaluation.epsilon, result.config.seed
    if result.config.sample:
        return f"sampled from the policy, seed {seed}"
    return f"{f'ε-greedy, ε = {epsilon:g}' if epsilon else 'greedy'}, noisy layers off, seed {seed}"
