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
from redline.envs.atari_games import find_game
from redline.envs.vector import EnvError
from redline.report.statistics import LEVEL, bootstrap_interval
from redline.runs.locating import locate_run
from redline.runs.manifest import NEWEST, Checkpoint, find_checkpoint
from redline.runtime.actor import StoppedWhileEvaluatingError
from redline.runtime.playing import Evaluation, EvaluationConfig, evaluate
from redline.runtime.resuming import SavedRun, check_env, read_run
from redline.units import duration, number

# Unclipped mean returns of random play and of a human in games that start with up to 30 no-ops: Mnih et al. 2015
# (Nature 518, extended data table 2), completed to 57 games by Wang et al. 2016 (arXiv:1511.06581, appendix).
SCORES = """
alien 227.8 7127.7                    | amidar 5.8 1719.5                     | assault 222.4 742.0
asterix 210.0 8503.3                  | asteroids 719.1 47388.7               | atlantis 12850.0 29028.1
bank_heist 14.2 753.1                 | battle_zone 2360.0 37187.5            | beam_rider 363.9 16926.5
berzerk 123.7 2630.4                  | bowling 23.1 160.7                    | boxing 0.1 12.1
breakout 1.7 30.5                     | centipede 2090.9 12017.0              | chopper_command 811.0 7387.8
crazy_climber 10780.5 35829.4         | defender 2874.5 18688.9               | demon_attack 152.1 1971.0
double_dunk -18.6 -16.4               | enduro 0.0 860.5                      | fishing_derby -91.7 -38.7
freeway 0.0 29.6                      | frostbite 65.2 4334.7                 | gopher 257.6 2412.5
gravitar 173.0 3351.4                 | hero 1027.0 30826.4                   | ice_hockey -11.2 0.9
jamesbond 29.0 302.8                  | kangaroo 52.0 3035.0                  | krull 1598.0 2665.5
kung_fu_master 258.5 22736.3          | montezuma_revenge 0.0 4753.3          | ms_pacman 307.3 6951.6
name_this_game 2292.3 8049.0          | phoenix 761.4 7242.6                  | pitfall -229.4 6463.7
pong -20.7 14.6                       | private_eye 24.9 69571.3              | qbert 163.9 13455.0
riverraid 1338.5 17118.0              | road_runner 11.5 7845.0               | robotank 2.2 11.9
seaquest 68.4 42054.7                 | skiing -17098.1 -4336.9               | solaris 1236.3 12326.7
space_invaders 148.0 1668.7           | star_gunner 664.0 10250.0             | surround -10.0 6.5
tennis -23.8 -8.3                     | time_pilot 3568.0 5229.2              | tutankham 11.4 167.6
up_n_down 533.4 11693.2               | venture 0.0 1187.5                    | video_pinball 16256.9 17667.9
wizard_of_wor 563.5 4756.5            | yars_revenge 3092.9 54576.9           | zaxxon 32.5 9173.3
"""
REFERENCES: Mapping[str, Mapping[str, float]] = {
    game: {"random": float(random), "human": float(human)}
    for game, random, human in (cell.split() for cell in SCORES.replace("\n", "|").split("|") if cell.strip())
}


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
    game = find_game(saved.job.env.id)
    reference = None if game is None else REFERENCES.get(game.game)
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


def normalise(score: float, reference: Mapping[str, float]) -> float:
    """Return 0 for what random play reaches and 1 for what a human does."""
    return (score - reference["random"]) / (reference["human"] - reference["random"])


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
