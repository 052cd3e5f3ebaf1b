"""`redline eval RUN`: how well an agent plays, over whole episodes without exploration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Annotated, Any

import tyro

from redline.cli.main import failing
from redline.cli.output import give, is_plain, print_facts, progress_bar, warn
from redline.cli.parsing import Json, Plain, Run, RunEnv, parse
from redline.cli.process import StopRequest
from redline.envs.reference_scores import normalise, reference_of
from redline.envs.vector import EnvError
from redline.report.statistics import LEVEL, bootstrap_interval
from redline.runs.locating import locate_run
from redline.runs.manifest import NEWEST, Checkpoint, find_checkpoint
from redline.runtime.actor import StoppedWhileEvaluatingError
from redline.runtime.playing import Evaluation, EvaluationConfig, evaluate
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


def run(args: Sequence[str]) -> int:
    flags = parse(EvalFlags, args, prog="redline eval")
    saved = read_run(locate_run(flags.run))
    check_env(saved, flags.env)
    checkpoint = find_checkpoint(saved.path, flags.checkpoint, with_replay=False)
    warn(checkpoint.skipped)
    what = f"playing {flags.config.episodes} episodes"
    # the episodes that ended before a stop are the shorter ones: their mean would be biased
    stopped = failing(StoppedWhileEvaluatingError, after=": nothing is reported, the run is unchanged")
    with StopRequest() as stop, failing(EnvError), stopped, progress_bar(what, plain=is_plain(flags)) as progress:
        evaluation = evaluate(saved.job, checkpoint, flags.config, progress=progress, requested_stop=stop.reason)
    return give(facts_of(saved, checkpoint, flags.config, evaluation), flags, show)


def facts_of(
    saved: SavedRun, checkpoint: Checkpoint, config: EvaluationConfig, evaluation: Evaluation
) -> dict[str, Any]:
    episodes = evaluation.played
    returns = [episode.total_reward for episode in episodes]
    lengths_steps = [episode.length_steps for episode in episodes]
    reference = reference_of(saved.job.env.id)
    mean = fmean(returns)
    low, high = bootstrap_interval(returns, seed=config.seed) or (None, None)  # of a single episode
    return {
        "run": saved.path,
        "algorithm": saved.algorithm,
        "env": saved.job.env.id,
        "checkpoint_steps": checkpoint.steps,
        "skipped": list(checkpoint.skipped),
        "episodes": len(episodes),
        "mean_return": mean,
        "interval": {"low": low, "high": high, "level": LEVEL},
        "min_return": min(returns),
        "median_return": median(returns),
        "max_return": max(returns),
        "mean_length_steps": fmean(lengths_steps),
        "mean_length_frames": fmean(lengths_steps) * evaluation.frames_per_step,
        "truncated": sum(episode.is_truncated for episode in episodes),
        "human_normalised": None if reference is None else normalise(mean, reference),
        "reference": reference,
        "acting": "sampled" if config.sample else "greedy",
        "epsilon": evaluation.epsilon,
        "protocol": evaluation.protocol,
        "seed": config.seed,
        "num_envs": evaluation.num_envs,
        "device": str(evaluation.device),
        "duration_s": evaluation.duration_s,
        "returns": returns,
        "lengths_steps": lengths_steps,
        "key_seeds": [episode.reset_seed for episode in episodes],
    }


def show(facts: Mapping[str, Any], *, plain: bool) -> None:
    print(f"{facts['run']}: {facts['algorithm']} on {facts['env']} at step {facts['checkpoint_steps']:,}")
    cut = f", {facts['truncated']:,} of them truncated" if facts["truncated"] else ""
    spread = ", ".join(number(facts[name], 1) for name in ("min_return", "median_return", "max_return"))
    length = f"{facts['mean_length_steps']:,.1f} steps, {facts['mean_length_frames']:,.0f} frames"
    print_facts(
        [
            ("mean return", f"{number(facts['mean_return'])}  {describe_interval(facts['interval'])}"),
            ("min, median, max", spread),
            ("human-normalised", describe_normalised(facts)),
            ("episodes", f"{facts['episodes']:,}{cut}, in {duration(facts['duration_s'])}"),
            ("mean length", length),
            ("acting", describe_acting(facts)),
            ("protocol", facts["protocol"]),
        ],
        plain=plain,
    )


def describe_interval(interval: Mapping[str, Any]) -> str:
    if interval["low"] is None:
        return "(one episode has no spread)"
    return f"({interval['level']:.0%} interval {number(interval['low'])} to {number(interval['high'])})"


def describe_normalised(facts: Mapping[str, Any]) -> str:
    """Compare the mean with random play and a human."""
    reference = facts["reference"]
    if reference is None:
        return f"no reference for {facts['env']}"
    random, human = number(reference["random"], 1), number(reference["human"], 1)
    score = number(facts["human_normalised"], 3)
    return f"{score} (random {random}, human {human}: no-op starts, Mnih 2015, Wang 2016)"


def describe_acting(facts: Mapping[str, Any]) -> str:
    if facts["acting"] == "sampled":
        return f"sampled from the policy, seed {facts['seed']}"
    how = f"ε-greedy, ε = {facts['epsilon']:g}" if facts["epsilon"] else "greedy"
    return f"{how}, noisy layers off, seed {facts['seed']}"
