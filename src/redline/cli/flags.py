"""The flags of `redline train` → a job: names are looked up first, then tyro parses with their values as defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.algorithms.catalog import (
    PARTS,
    canonical_name,
    find_algorithm,
    find_part,
    part_fields,
    part_name,
)
from redline.cli.parsing import help_text, help_with, parse
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.recipes import find_recipe, read_toml, to_toml, without_table
from redline.runs.manifest import RUN_JSON
from redline.runtime.config import NONE, Job, flatten, from_settings, to_settings
from redline.runtime.resolve import share_out
from redline.runtime.resuming import read_run

# settings that a new optimiser takes over from the one that it replaces
TAKEN_OVER = ("clip_norm", "anneal_steps", "anneal_after_steps", "final_share")
ALL = "all"  # as an algorithm: every one, one after the other
HELP = ("-h", "--help", "--help-all")
SEEDS = {"seed": "seed", "seeds": "seeds"}
# flags whose values decide the defaults of all others, in every spelling
NAMES = {
    "algo": "algo",
    "model": "algo",
    "env": "env",
    "env.id": "env",
    "config": "config",
    "recipe": "recipe",
    **{part: part for part in PARTS},
}
# flags for the number of envs; those that the user typed decide the others
ENV_COUNTS = {name: name for name in ("num-envs", "actors", "actor.envs")}


# the flags that --help shows; --help-all shows all
MAIN_FLAGS = frozenset(
    {
        *("--help", "--env", "--model", "--recipe", "--config", "--seed", "--seeds", "--topology", "--num-envs"),
        *("--batch-size", "--optimizer.lr", "--returns.gamma", "--max-steps", "--max-minutes", "--target-eval-return"),
        *("--auto", "--log-dir", "--plain", "--json"),
    }
)


@dataclass(frozen=True)
class TrainFlags:
    """Train an agent. The defaults shown are those of the chosen algorithm on the chosen env.

    --lr and --gamma are short for --optimizer.lr and --returns.gamma. --help-all shows every flag.
    """

    job: Annotated[Job, tyro.conf.arg(name="")]
    """What to train."""
    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = "dqn"
    """Algorithm, by name (redline algos lists them), or all: a fleet with one run of each."""
    network: str | None = None
    """Network: nature, small (of 2013), strided (for small images), mlp or twin (for vectors)."""
    layers: str | None = None
    """Kind of its layers: plain, noisy or normed."""
    core: str | None = None
    """Its memory: memoryless or gru."""
    streams: str | None = None
    """Its head: single or dueling."""
    predict: str | None = None
    """What it predicts for each action: expected, categorical or quantiles."""
    bootstrap: str | None = None
    """How the next state is valued: target-chooses or online-chooses."""
    objective: str | None = None
    """Loss on rollouts: policy-gradient, clipped or q-lambda."""
    explore: str | None = None
    """How the actor explores: epsilon-greedy, greedy or sampled."""
    sample: str | None = None
    """How transitions are sampled from the replay memory: uniform or prioritized."""
    optimizer: str | None = None
    """Optimizer: adam, rmsprop or radam."""
    recipe: str | None = None
    """Settings that are known to work, by name (redline recipes lists them); flags override them."""
    config: Path | None = None
    """TOML file of settings with the names of these flags, or the run.json of a run; flags override it."""
    seeds: str | None = None
    """Several seeds instead of --seed: a fleet with one run of each. 1-3 or 1,5,8."""
    auto: bool = False
    """Measure for up to two minutes which threads, prefetch and codec are fastest here, then train with them."""
    print_config: bool = False
    """Print all settings as a TOML file for --config, and train nothing."""
    plain: bool = False
    """Plain lines instead of the live panel."""
    json: bool = False
    """Print one JSON object on stdout, and nothing else there."""


def parse_train(args: Sequence[str]) -> TrainFlags:
    """Return what the user asked for, or raise UserError in one line."""
    default = train_defaults(args)
    refuse_replay_flags(args, default.job, default.algo)
    return as_typed(parse(TrainFlags, args, default=default, prog="redline train"), args)


def as_typed(flags: TrainFlags, args: Sequence[str]) -> TrainFlags:
    """Return parsed flags with the algorithm's canonical name, and with the numbers of envs as typed."""
    return replace(flags, algo=canonical_name(flags.algo), job=share_out(flags.job, scan(args, ENV_COUNTS)))


def refuse_replay_flags(args: Sequence[str], job: Job, algo: str) -> None:
    """Refuse flags of the replay memory if the algorithm has none."""
    typed = next((arg.partition("=")[0] for arg in args if arg.startswith("--replay.")), None)
    if typed is not None and job.algorithm.replay is None:
        raise UserError(f"{algo} has no replay memory: leave {typed} out")


def refuse_auto(args: Sequence[str], remedy: str) -> None:
    """Refuse --auto where nothing would be measured for one run that trains."""
    if "--auto" in args:
        raise UserError(f"--auto measures for one run that trains; {remedy}")


def train_help(args: Sequence[str]) -> str:
    """Return the help on the main flags, or on all, with the defaults of the algorithm and env that `args` name."""
    others = [arg for arg in args if arg not in HELP]
    algorithm = ["--algo", "dqn"] if requested_algorithm(others) == ALL else []
    whole = help_text(TrainFlags, prog="redline train", default=train_defaults([*others, *algorithm]))
    return whole if "--help-all" in args else help_with(MAIN_FLAGS, whole)


def train_defaults(args: Sequence[str], given: Mapping[str, Any] | None = None) -> TrainFlags:
    """Return the defaults of the flags: those of the algorithm, env and parts that `args` name, then a file's.

    `given` has settings in the form of a file; they override the file's.
    """
    typed = scan(args, NAMES)
    settings = merged(_settings_of(typed), given or {})
    algo = canonical_name(typed.get("algo", str(settings.pop("algo", settings.pop("model", "dqn")))))
    env_id = typed.get("env", _env_id_in(settings))
    in_file_alone, settings = settings, merged(resolve(env_id).presets(algo), settings)
    in_file = _parts_in(settings)
    replaced = [part for part in in_file if typed.get(part, in_file[part]) != in_file[part]]
    try:
        job = with_parts(default_job(algo, env_id), in_file | typed, algo)
        job = from_settings(job, {key: value for key, value in settings.items() if key not in replaced})
    except UserError as error:
        recipe = find_recipe(typed["recipe"]) if "recipe" in typed else None
        if recipe is None or recipe.algorithm == algo:
            raise
        raise UserError(f"{error}; recipe {recipe.name} is for {recipe.algorithm}, not for {algo}") from None
    job = share_out(job, [key.replace("_", "-") for key, _ in flatten(in_file_alone)])
    names = {part: part_name(getattr(job.algorithm, part)) for part in part_fields(job.algorithm)}
    config = Path(typed["config"]) if "config" in typed else None
    flags = TrainFlags(job=job, algo=algo, config=config, recipe=typed.get("recipe"))
    return replace(flags, **names)  # type: ignore[arg-type]


def merged(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings, overridden by those given, with dashes or underscores in either.

    A table merges with another unless they name different parts: the settings of one part don't fit another.
    """
    result = dict(settings)
    spelled = {key.replace("-", "_"): key for key in settings}
    for name, item in given.items():
        key = spelled.get(name.replace("-", "_"), name)
        before = result.get(key)
        value = {"id": item} if key == "env" and isinstance(item, str) and isinstance(before, Mapping) else item
        is_same = isinstance(value, Mapping) and isinstance(before, Mapping) and _is_same_part(before, value)
        result[key] = merged(before, value) if is_same else value  # type: ignore[arg-type]
    return result


def _is_same_part(before: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    return bool(given.get("name", before.get("name")) == before.get("name"))


def _settings_of(typed: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the recipe or the file that a command line names."""
    if "recipe" in typed and "config" in typed:
        raise UserError("--recipe and --config are both files of settings: use one, and flags beside it")
    if "recipe" in typed:
        return dict(find_recipe(typed["recipe"]).settings)
    return read_config(Path(typed["config"])) if "config" in typed else {}


def _taking_over(part: Any, replaced: Any) -> Any:
    """Return a part with the settings that it takes over from the one that it replaces."""
    kept = {name: getattr(replaced, name) for name in TAKEN_OVER if hasattr(part, name) and hasattr(replaced, name)}
    return replace(part, **kept) if kept else part


def requested_algorithm(args: Sequence[str]) -> str:
    """Return the algorithm that the command line or its configuration file names; it may be `all`."""
    typed = scan(args, NAMES)
    if "algo" in typed:
        return typed["algo"].lower()
    settings = _settings_of(typed)
    return str(settings.get("algo", settings.get("model", "dqn"))).lower()


def is_several(args: Sequence[str]) -> bool:
    """Tell whether a command line asks for more than one run: all algorithms, or several seeds."""
    return requested_algorithm(args) == ALL or "seeds" in scan(args, SEEDS)


def with_parts(job: Job, typed: Mapping[str, str], algo: str) -> Job:
    """Return the job with the named parts instead of its algorithm's own."""
    known = part_fields(job.algorithm)
    sees_pictures = not job.algorithm.network.reads_vectors()
    changes = {}
    for field in PARTS:
        if field not in typed:
            continue
        part = find_part(field, typed[field], sees_pictures=sees_pictures)
        if field not in known:
            raise UserError(f"{algo} has no part {field}: its parts are {', '.join(known)}")
        replaced = getattr(job.algorithm, field)
        if type(part) is not type(replaced):  # else the algorithm's own settings of that part stay
            changes[field] = _taking_over(part, replaced)
    return replace(job, algorithm=replace(job.algorithm, **changes))


def default_job(algo: str, env_id: str) -> Job:
    entry = find_algorithm(algo)
    kind = resolve(env_id)
    is_image = kind.spec(EnvConfig(id=env_id)).is_image
    preset = entry.atari if is_image else entry.classic
    env = EnvConfig(id=env_id, stack=preset.stack if is_image else 1, skip=kind.frame_skip)
    return Job(env=env, algorithm=preset.algorithm, num_envs=preset.num_envs)


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings, or the settings of a run."""
    if path.name == RUN_JSON:
        saved = read_run(path.parent)
        return {"model": saved.algorithm, **to_settings(saved.job)}
    return without_table(read_toml(path, "config file"))[0]


def config_of(flags: TrainFlags) -> str:
    """Return all settings as TOML that `read_config` reads."""
    found = dict(flatten(to_settings(flags.job)))
    settings = {
        key: NONE if value is None else value
        for key, value in found.items()
        # a part's name is the value of the part's own key; a table that is no part has no value
        if not key.endswith(".name") and (value is not None or not any(other.startswith(f"{key}.") for other in found))
    }
    return to_toml({"model": flags.algo, **settings})


def scan(args: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Find the values of some flags before the whole line can be parsed; the last of several counts.

    `names` maps each spelling to the name under which its value is returned.
    """
    found: dict[str, str] = {}
    for position, arg in enumerate(args):
        flag, equals, value = arg.partition("=")
        name = flag.removeprefix("--").replace("_", "-")
        if not flag.startswith("--") or name not in names:
            continue
        if equals:
            found[names[name]] = value
        elif position + 1 < len(args):
            found[names[name]] = args[position + 1]
    return found


def _parts_in(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts that a file names, as `predict = "quantiles"` or as a table with a `name`."""
    found = {field: settings.get(field) for field in PARTS}
    names = {field: part.get("name") if isinstance(part, Mapping) else part for field, part in found.items()}
    return {field: name for field, name in names.items() if isinstance(name, str)}


def _env_id_in(settings: Mapping[str, Any]) -> str:
    env = settings.get("env", "pong")
    return str(env.get("id", "pong")) if isinstance(env, Mapping) else str(env)
