"""`redline train`: start a run and show it; `redline resume`: continue one. Several runs are a fleet: `several.py`."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import psutil
import tyro

from redline.cli.displays import Lines, LivePanel, describe_mean, describe_ratio, in_words, known, open_display
from redline.cli.flags import (
    ENV_COUNTS,
    HELP,
    TrainFlags,
    config_of,
    parse_train,
    refuse_auto,
    refuse_replay_flags,
    scan,
    train_help,
)
from redline.cli.main import DONE, RESUMABLE, failing
from redline.cli.output import command, give, print_json, typed_env
from redline.cli.parsing import Json, Plain, Run, parse
from redline.cli.play_videos import video_of_best
from redline.cli.process import StopRequest, output_error, spin_in_processes
from redline.envs.vector import EnvError
from redline.errors import CheckpointError, UserError
from redline.learner import NonFiniteError
from redline.recipes import find_recipe
from redline.replay import ReplayError
from redline.runs.locating import locate_run
from redline.runtime.config import Job, to_settings
from redline.runtime.evaluation import CONFIRMING_EPISODES
from redline.runtime.gauges import Display, Gauges
from redline.runtime.launch import AnySession, resume_run, start_run
from redline.runtime.processes.supervisor import LearnerLostError
from redline.runtime.resolve import reopened, share_out
from redline.runtime.resuming import read_run
from redline.runtime.session import Outcome, Solved, StoppedWhileResumingError
from redline.units import duration, energy, money, number, rate, size

TRAINING_ERRORS = (NonFiniteError, CheckpointError, EnvError, ReplayError)
# flags that decide the defaults of others when a run is resumed
DECIDE_OTHERS = {**ENV_COUNTS, "topology": "topology", "pacing": "pacing"}


def run(args: Sequence[str]) -> int:
    if not set(HELP).isdisjoint(args):
        print(train_help(args))
        return DONE
    with StopRequest() as stop:
        flags = parse_train(args)
        if flags.print_config:
            refuse_auto(args, "to get the settings as a file: redline plan speed --write speed.toml")
            settings = {"model": flags.algo, **to_settings(flags.job)}
            return give(settings, flags, lambda _, plain: print(config_of(flags), end=""))
        with open_display(title_of(flags), flags) as display:
            begin = partial(start, flags, display, args, begun_s=command_begun_s())
            return train(begin, display, stop, as_json=flags.json)


@dataclass(frozen=True)
class ResumeFlags:
    """Continue a run. The defaults shown are the run's own; docs/resume.md lists what may change."""

    run: Run
    job: Annotated[Job, tyro.conf.arg(name="")]
    """What the run does."""
    accept_changes: bool = False
    """Accept that somebody changed run.json since Redline wrote it."""
    plain: Plain = False
    json: Json = False


def run_resume(args: Sequence[str]) -> int:
    first = next((arg for arg in args if arg not in ("--plain", "--json")), "-")
    if first.startswith("-") and first not in ("-", "-h", "--help"):  # the run decides the defaults of the flags
        raise UserError(f"resume needs a run directory before its flags: redline resume last {first} …")
    if first.startswith("-"):  # prints the help, or asks for a run
        parse_resume(Job(), [arg for arg in args if arg in ("-h", "--help")])
    with StopRequest() as stop:
        saved = read_run(locate_run(first), accepts_changes="--accept-changes" in args)
        refuse_replay_flags(args, saved.job, saved.algorithm)
        flags = parse_resume(saved.job, args)
        title = f"redline · {saved.algorithm} on {flags.job.env.id} · seed {flags.job.seed}"
        with open_display(title, flags) as display:
            proceed = partial(resume_run, saved, flags.job, display, stop.reason, begun_s=command_begun_s())
            return train(proceed, display, stop, as_json=flags.json)


def parse_resume(saved: Job, args: Sequence[str]) -> ResumeFlags:
    """Return what the user changes about a run, or raise UserError in one line."""
    typed = scan(args, DECIDE_OTHERS)
    start = ResumeFlags(run=tyro.MISSING, job=reopened(saved, typed))
    flags = parse(ResumeFlags, args, default=start, prog="redline resume")
    return replace(flags, job=share_out(flags.job, typed))


def start(flags: TrainFlags, display: Display, args: Sequence[str] = (), *, begun_s: float | None = None) -> AnySession:
    """Begin the run that the flags ask for, typed as `args`; the user has waited since `begun_s`, or since now."""
    recipe = None if flags.recipe is None else find_recipe(flags.recipe)
    if recipe is not None:
        display.note(f"recipe {recipe.name}: {recipe.about}; departs from the usual protocol: {recipe.departs}")
    job, auto = flags.job, None
    if flags.auto:
        from redline.cli.plan.speed import choose_speed

        job, auto = choose_speed(flags, args, display.note)
    if job.topology == "async":  # said by a file, perhaps: nobody had read it when the spinning was chosen
        os.environ.update(spin_in_processes())
    return start_run(job, flags.algo, display, recipe=recipe, auto=auto, begun_s=begun_s)


def command_begun_s() -> float:
    """Return the monotonic time at which this process started, before Python's own start and all imports."""
    return time.monotonic() - max(0.0, time.time() - psutil.Process().create_time())


def title_of(flags: TrainFlags) -> str:
    recipe = "" if flags.recipe is None else f" · recipe {flags.recipe}"
    return f"redline · {flags.algo} on {flags.job.env.id}{recipe} · seed {flags.job.seed}"


def train(
    open_session: Callable[[], AnySession], display: LivePanel | Lines, stop: StopRequest, *, as_json: bool
) -> int:
    """Open a session, train to its end, tell how it ended, and return the exit code."""
    unchanged = " before the run was back; its checkpoint is unchanged"
    with (
        failing(*TRAINING_ERRORS),
        failing(LearnerLostError, code=RESUMABLE),
        failing(StoppedWhileResumingError, after=unchanged, code=RESUMABLE),
    ):
        outcome = train_to_end(open_session, display, stop)
    display.finish()
    if not as_json:
        for line in _closing_lines(outcome):
            display.note(line)
    video = None if outcome.solved is None else _video(outcome, display, stop)
    if as_json:
        print_json(summary(outcome) | ({} if video is None else {"video": video}))
    elif outcome.solved is not None:
        for line in _next_lines(outcome, video):
            display.note(line)
    return exit_code(outcome)


def _video(outcome: Outcome, display: LivePanel | Lines, stop: StopRequest) -> Path | None:
    """Make a video of the best episode of a run that solved its game, or note why there is none."""
    try:
        return video_of_best(outcome.run, plain=isinstance(display, Lines), requested_stop=stop.reason)
    except UserError as error:
        display.note(f"no video of the best episode: {error}")
        return None


def train_to_end(open_session: Callable[[], AnySession], display: LivePanel | Lines, stop: StopRequest) -> Outcome:
    """Open a session and train to its end; record an error on the way in the run's events."""
    with open_session() as session:
        told = False

        def requested_stop() -> str | None:
            nonlocal told
            if not told and (lost := output_error()) is not None:
                told = True
                session.event("warning", message=f"lines of the display are lost: {lost.strerror}")
            return stop.reason() or ("output closed" if display.is_closed else None)

        try:
            return session.train(requested_stop)
        except (*TRAINING_ERRORS, LearnerLostError) as error:
            session.event("error", message=str(error))
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; continue with: {command('resume', session.run.path)}") from None


def exit_code(outcome: Outcome) -> int:
    """Return 0 if a run is done, 75 if it was stopped from outside."""
    return RESUMABLE if outcome.reason in ("SIGTERM", "SIGHUP", "output closed") else DONE


def summary(outcome: Outcome) -> dict[str, object]:
    return {
        "schema": 1,
        "reason": outcome.reason,
        "run": str(outcome.run),
        "checkpoint": str(outcome.checkpoint),
        "learning_steps_per_s": outcome.learning_steps_per_s,
        "solved": None if outcome.solved is None else asdict(outcome.solved),
        **outcome.gauges.row(),
    }


def _next_lines(outcome: Outcome, video: Path | None) -> list[str]:
    typed = typed_env(outcome.env_id)
    return [
        *([] if video is None else [f"video of the best episode: {video}"]),
        "next:",
        f"  {command('play', outcome.run, '--policy', '--overlay', *typed)}    watch it play, with its action values",
        f"  {command('report', outcome.run)}    charts of this run",
        f"  {command('recipes')}    settings for other games",
    ]


def _closing_lines(outcome: Outcome) -> list[str]:
    last, solved = outcome.gauges, outcome.solved
    learning, warmup, greedy = outcome.learning_steps_per_s, last.warmup_steps_per_s, last.greedy_return
    speed = "no updates yet" if learning is None else f"{rate(learning)} steps/s while learning"
    if warmup is not None:
        speed += f" ({rate(warmup)} in the warm-up)"
    scores = f"{describe_mean(last)}, best {number(last.best_return, 1)}"
    if greedy is not None:
        scores += f", eval {number(greedy)} at step {last.greedy_at_steps:,}"
    further = [] if solved is None else ["--target-eval-return", "None"]
    resume = command("resume", outcome.run, *typed_env(outcome.env_id), *further)
    return [
        f"stopped: {outcome.reason}" if solved is None else _solved_line(solved),
        f"{last.steps:,} steps, {last.frames:,} frames, {last.updates:,} updates, {last.episodes:,} episodes in "
        f"{duration(last.time_s)}: {speed}, {describe_ratio(last)}",
        f"{scores}, memory {size(last.rss_bytes)}",
        *_cost_lines(last),
        f"run {outcome.run}",
        f"continue with: {resume}",
    ]


def _cost_lines(last: Gauges) -> list[str]:
    """Return what the run has cost, in money and energy, as far as that is known."""
    facts = known(
        ("cost {}", in_words(money, last.cost)),
        ("{} per million steps of learning", in_words(money, last.cost_per_million_steps)),
        ("energy {}", in_words(energy, last.energy_j)),
    )
    return [", ".join(facts)] if facts else []


def _solved_line(solved: Solved) -> str:
    means = f"mean {number(solved.mean_return)} of {CONFIRMING_EPISODES} episodes ({solved.how})"
    if solved.argmax_return is not None:
        means += f", {number(solved.argmax_return)} by greedy play"
    return f"solved in {solved.elapsed_s / 60:.1f} minutes: {means}"
