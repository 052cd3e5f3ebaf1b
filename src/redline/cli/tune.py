"""`redline tune`: search for better settings, and check the winner on unused seeds."""

import os
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from redline.algorithms.catalog import canonical_name
from redline.cli.displays import open_display
from redline.cli.flags import scan, train_defaults
from redline.cli.main import BAD_INPUT, DONE, RESUMABLE, FailureError, failing, refuse
from redline.cli.output import command, give, typed_env
from redline.cli.parsing import Json, parse
from redline.cli.process import StopRequest
from redline.envs.atari_games import find_game
from redline.errors import UserError, check_range
from redline.files import check_replaceable, explained, make_folder
from redline.recipes import read_toml, to_toml, write_settings
from redline.runs.directory import slug
from redline.runs.host import usable_cores
from redline.runtime.config import Job, flatten, to_settings
from redline.runtime.counters import WINDOW_EPISODES
from redline.runtime.resolve import check_topology
from redline.tune.goals import parse_goal
from redline.tune.space import (
    SettingsCheck,
    Space,
    canonical_key,
    check_space,
    parse_space,
    shipped_space,
)
from redline.tune.study import REPORT, StudyFolder, StudySettings, read_settings
from redline.tune.training import Launch

if TYPE_CHECKING:
    from redline.tune.search import Found

USUAL_MINUTES_PER_TRIAL = 5.0
USUAL_TURNS = 5  # trials one after the other that fit into a short search
ATARI_WINDOW_EPISODES = 10  # a short run has fewer than a hundred episodes
MISSING = "redline tune needs Optuna: pip install 'optuna>=5,<6'"


@dataclass(frozen=True)
class TuneFlags:
    """Search for better settings of an algorithm on an env. Trials are runs: report, watch and play work on them."""

    env: str = "pong"
    """Environment, as for redline train."""
    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = "dqn"
    """Algorithm, as for redline train."""
    goal: str = "return-at-minutes"
    """minutes-to-return:R, steps-to-return:R, return-at-minutes or return-at-steps:N."""
    space: Path | None = None
    """TOML file of the settings that vary. By default the one that Redline ships for the algorithm and env."""
    minutes_per_trial: float | None = None
    """Most minutes of training for each run of a trial (5, or less in a short search)."""
    hours: float | None = None
    """Hours of the search; the check of the winner comes after it."""
    minutes: float | None = None
    """Minutes of the search, instead of --hours."""
    trials: int | None = None
    """Most trials of the search."""
    seeds_per_trial: int = 2
    """Runs of each trial, each with its own seed; their mean counts."""
    final_seeds: int = 3
    """Seeds for the final check of winner and defaults; the search never uses them."""
    side_by_side: int = 0
    """Trials at the same time, each with its share of the cores (0: one per core)."""
    pruning: Literal["halving", "off"] = "halving"
    """halving ends the worse half of the trials at 25 % and 50 % of the first run and after each seed."""
    window: int = 0
    """Episodes over which a return is averaged (0: 10 on Atari, 100 elsewhere)."""
    seed: int = 1
    """Seed of the sampler."""
    study: Path | None = None
    """Folder of the study. By default studies/<env>-<algorithm>-<goal>; the same command continues in it."""
    resume: Path | None = None
    """Continue the study in this folder with its own settings."""
    write_recipe: Path | None = None
    """TOML file for the winner's settings, for redline train --config."""
    plain: bool = False
    """Plain lines instead of the live table."""
    json: Json = False


WITH_RESUME = ("resume", "write_recipe", "plain", "json", "env")  # --env: to allow the module that it names


@dataclass(frozen=True)
class Plan:
    """A search that can begin: all names are known, all settings valid."""

    settings: StudySettings
    space: Space
    folder: Path
    base: Mapping[str, Any]  # algorithm, env and the fixed settings of the space
    defaults: Mapping[str, Any]  # of every setting, by its flag's name
    adjustment: str = ""  # requested → effective


def run(args: Sequence[str]) -> int:
    """Search as the flags say and return the exit code."""
    flags = parse(TuneFlags, args, prog="redline tune")
    if find_spec("optuna") is None:
        raise UserError(MISSING)
    plan = new_plan(flags) if flags.resume is None else resumed_plan(flags.resume, args)
    if flags.write_recipe is not None:
        require_writable(flags.write_recipe)
    with StopRequest() as stop, StudyFolder(plan.folder, plan.settings, ["redline tune", *args]) as folder:
        return search_and_check(plan, folder, flags, stop)


def require_writable(recipe: Path) -> None:
    """Refuse a recipe that can't be written, before the search."""
    if recipe.is_dir():
        raise UserError(f"{recipe} is a folder: use --write-recipe {recipe / 'best.toml'}")
    check_replaceable(recipe)
    before = f"--write-recipe {recipe} can't be written: "
    with explained(UserError, recipe.parent, before=before, after="; use another folder"):
        make_folder(recipe.parent)
        tempfile.TemporaryFile(dir=recipe.parent).close()


def search_and_check(plan: Plan, folder: StudyFolder, flags: TuneFlags, stop: StopRequest) -> int:
    """Search, check the winner, print the result, and return the exit code."""
    from redline.cli.tune_display import TuneDisplay, opening_lines  # loads Optuna
    from redline.tune.search import SearchFailedError, tune

    asked = plan.settings
    title = f"redline tune · {asked.algo} on {asked.env} · {asked.goal}"
    program = (sys.executable, "-m", "redline.cli.tune_trial", str(os.getpid()))
    report = folder.path / REPORT
    with open_display(title, flags) as shown:
        display = TuneDisplay(shown, title)
        for line in opening_lines(folder, plan.space):
            display.note(line)
        if plan.adjustment:
            display.note(f"requested → effective: {plan.adjustment}")
        with failing(SearchFailedError, after=f"; see {report}"):
            found = tune(
                folder,
                plan.space,
                Launch(program=program, settings=plan.base),
                defaults=plan.defaults,
                display=display,
                stop=lambda: stop.reason() or ("output closed" if shown.is_closed else None),
            )
        if found.stopped is not None:
            resume = command("tune", "--resume", folder.path, *typed_env(plan.settings.env))
            display.note(f"stopped: {found.stopped}; continue with: {resume}")
        elif found.best is None:
            raise FailureError(f"no trial is done: {found.why}; see {report}")
    return close(plan, folder, found, flags)


def close(plan: Plan, folder: StudyFolder, found: "Found", flags: TuneFlags) -> int:
    """Write the recipe, print the result, and return the exit code."""
    from redline.cli.tune_display import recipe_comment, show_result, to_json  # loads Optuna

    recipe, failure = flags.write_recipe, ""
    if recipe is not None and found.verdict is not None:
        settings = {**plan.base, **found.verdict.settings}
        try:
            write_settings(recipe, settings, recipe_comment(folder, found.verdict))
        except UserError as error:  # the result is printed all the same
            recipe, failure = None, str(error)
    give(to_json(folder, found, recipe), flags, lambda _, plain: show_result(folder, found, recipe, plain=plain))
    if failure:
        return refuse(failure, as_json=False, code=BAD_INPUT)
    return DONE if found.stopped is None else RESUMABLE


def new_plan(flags: TuneFlags) -> Plan:
    """Return the checked plan of a new study."""
    if flags.hours is not None and flags.minutes is not None:
        raise UserError("--hours and --minutes both say how long to search: keep one of them")
    search_minutes = flags.minutes if flags.hours is None else flags.hours * 60
    check_range("--side-by-side", flags.side_by_side, 0, use="0 for the usual, or 1 or more")
    check_range("--window", flags.window, 0, use="0 for the usual, or 1 or more")
    goal, algo, cores = parse_goal(flags.goal), canonical_name(flags.algo), usable_cores()
    job = checked_job({"algo": algo, "env": flags.env})
    sees_pictures = not job.algorithm.network.reads_vectors()
    name, content = (
        (flags.space.name, read_toml(flags.space, "search space"))
        if flags.space is not None
        else shipped_space(job.algorithm.search_space(), sees_pictures=sees_pictures)
    )
    side_by_side = flags.side_by_side or cores
    minutes_per_trial, adjustment = minutes_of_trial(flags, search_minutes)
    settings = StudySettings(
        env=flags.env,
        algo=algo,
        goal=str(goal),
        window=flags.window or (WINDOW_EPISODES if find_game(flags.env) is None else ATARI_WINDOW_EPISODES),
        minutes_per_trial=minutes_per_trial,
        search_minutes=search_minutes,
        trials=flags.trials,
        seeds_per_trial=flags.seeds_per_trial,
        final_seeds=flags.final_seeds,
        side_by_side=side_by_side,
        threads=max(1, cores // side_by_side) if sees_pictures else 1,  # a small network gains nothing by more
        pruning=flags.pruning,
        seed=flags.seed,
        space_name=name,
        space=parse_space(name, content).to_plain(),
    )
    plan = as_plan(settings, flags.study or Path("studies") / slug(f"{flags.env}-{algo}-{goal}"))
    return replace(plan, adjustment=adjustment)


def minutes_of_trial(flags: TuneFlags, search_minutes: float | None) -> tuple[float, str]:
    """Return the minutes of each run, and a note if they are fewer than usual because the search is short."""
    if flags.minutes_per_trial is not None:
        return flags.minutes_per_trial, ""
    usual, seeds = USUAL_MINUTES_PER_TRIAL, max(1, flags.seeds_per_trial)
    if search_minutes is None or search_minutes >= usual * seeds * USUAL_TURNS:
        return usual, ""
    minutes = search_minutes / (seeds * USUAL_TURNS)
    return minutes, f"--minutes-per-trial {usual:g} → {minutes:g}: the search is short"


def resumed_plan(folder: Path, args: Sequence[str]) -> Plan:
    """Return the plan of a study that continues, checked again."""
    decided = ["model", *(field.name.replace("_", "-") for field in fields(TuneFlags) if field.name not in WITH_RESUME)]
    if typed := scan(args, {name: name for name in decided}):
        raise UserError(f"--resume continues a study with its own settings: leave --{min(typed)} out")
    settings = read_settings(folder)
    if scan(args, {"env": "env"}).get("env", settings.env) != settings.env:
        raise UserError(f"--resume continues a study of env {settings.env}: leave --env out, or type that one")
    return as_plan(settings, folder)


def as_plan(settings: StudySettings, folder: Path) -> Plan:
    """Look up and try everything that the settings of a study name."""
    base = {"algo": settings.algo, "env": settings.env}
    space = check_space(parse_space(settings.space_name, settings.space), checker(base))
    base |= space.fixed
    job = checked_job(base)
    defaults = {canonical_key(key): value for key, value in flatten(to_settings(job))}
    return Plan(settings=settings, space=space, folder=folder, base=base, defaults=defaults)


def checker(base: Mapping[str, Any]) -> SettingsCheck:
    """Return a function that raises UserError for settings that no run could have."""
    return lambda settings: checked_job({**base, **settings})


def checked_job(settings: Mapping[str, Any]) -> Job:
    """Build the job of a run as the run itself does: from the TOML of its settings."""
    job = train_defaults([], tomllib.loads(to_toml(settings))).job
    check_topology(job)
    return job
