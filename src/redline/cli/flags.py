"""Flags → a job: names are looked up in the catalog first, then tyro parses with those values as defaults."""

import contextlib
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from redline.algorithms.catalog import PARTS, find_algorithm, find_part, part_name
from redline.envs import catalog as env_catalog
from redline.envs.config import EnvConfig
from redline.envs.factory import env_spec
from redline.errors import UserError
from redline.runtime.job import Job
from redline.runtime.settings import from_settings

T = TypeVar("T")

NOT_PARSED = re.compile(r"Error parsing (\S+): no type matching (\S+) could be instantiated from \['(.*?)'\]")
MAX_CONFIG_BYTES = 1_000_000
# flags whose values decide the defaults of all others, by every spelling
NAMES = {
    "algo": "algo",
    "model": "algo",
    "env": "env",
    "env.id": "env",
    "network": "network",
    "sample": "sample",
    "config": "config",
}


@dataclass(frozen=True)
class TrainFlags:
    """Train an agent. The defaults shown are those of the chosen algorithm on the chosen env."""

    job: Annotated[Job, tyro.conf.arg(name="")]
    """What to train."""
    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = "dqn"
    """Algorithm, by name."""
    network: str = "nature"
    """Network, by name: nature, small (the 2013 net) or mlp."""
    sample: str = "uniform"
    """Which transitions are learnt from, by name: uniform or prioritized, which has flags of its own."""
    config: Path | None = None
    """TOML file with settings named as these flags are; flags override it."""
    plain: bool = False
    """Plain lines instead of the live panel."""
    json: bool = False
    """Print the summary as one JSON object on stdout, and nothing else there."""


def parse_train(args: Sequence[str]) -> TrainFlags:
    """Return what the user asked for, or raise UserError in one line."""
    typed = scan(args, NAMES)
    config = Path(typed["config"]) if "config" in typed else None
    settings = read_config(config) if config else {}
    algo = typed.get("algo", str(settings.pop("algo", settings.pop("model", "dqn"))))
    env_id = typed.get("env", _env_id_in(settings))
    job = from_settings(default_job(algo, env_id), settings)
    named = {part: find_part(part, typed[part]) for part in PARTS if part in typed}
    job = replace(job, algorithm=replace(job.algorithm, **named))
    names = {part: part_name(part, getattr(job.algorithm, part)) for part in PARTS}
    flags = TrainFlags(job=job, algo=algo, network=names["network"], sample=names["sample"], config=config)
    return parse(TrainFlags, args, default=flags, prog="redline train")


def default_job(algo: str, env_id: str) -> Job:
    """Return the job that `algo` starts from on `env_id`."""
    entry = find_algorithm(algo)
    kind = env_catalog.resolve(env_id)
    if kind.is_atari:
        return Job(env=EnvConfig(id=env_id), algorithm=entry.atari)
    if env_spec(EnvConfig(id=env_id)).is_image:
        return Job(env=EnvConfig(id=env_id, skip=1), algorithm=entry.atari)
    return Job(env=EnvConfig(id=env_id, stack=1, skip=1), algorithm=entry.classic)


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise UserError(f"config file {path} is larger than {MAX_CONFIG_BYTES} bytes: is it the right file?")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"config file {path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"config file {path} is not TOML: {error}") from None


def scan(args: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Find the values of some flags before the whole line can be parsed; the last one typed counts.

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


def parse(kind: type[T], args: Sequence[str], *, default: T, prog: str) -> T:
    """Let tyro parse, and say what it does not like in one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                args=list(args),
                default=default,
                prog=prog,
                config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_line(complaint.getvalue(), prog)) from None


def _one_line(complaint: str, prog: str) -> str:
    """Condense tyro's boxed message: its first section, and the flag it suggests."""
    sections: list[list[str]] = [[]]
    for line in complaint.splitlines():
        if re.fullmatch(r"[│\s]*[─-]{10,}[│\s]*", line):
            sections.append([])
        elif (text := line.strip("│ ")) and not text.startswith(("╭", "╰")):
            sections[-1].append(text)
    if not complaint.startswith("╭"):  # where the terminal has no box characters, the title is a section of its own
        sections = sections[1:] or sections
    message = " ".join(sections[0])
    if found := NOT_PARSED.match(message):  # of several types, none fits
        return f"{found[1]} is {found[3]!r}, but it takes {found[2].replace('{None}|', '')}: see {prog} --help"
    flags = [text.split()[0].rstrip(",") for section in sections for text in section if text.startswith("--")]
    is_suggestion = any(text.startswith("Perhaps you meant") for section in sections for text in section)
    remedy = f"did you mean {flags[0]}?" if is_suggestion and flags else f"see {prog} --help"
    return f"{message[:300].rstrip('.')}: {remedy}"


def _env_id_in(settings: Mapping[str, Any]) -> str:
    env = settings.get("env", "pong")
    return str(env.get("id", "pong")) if isinstance(env, Mapping) else str(env)
