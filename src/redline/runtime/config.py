"""A job: everything that decides what a run does, its round trip to plain data, and the limits that end it."""

import dataclasses
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from redline.algorithms.catalog import PARTS, find_part, part_name
from redline.algorithms.named.dqn import DQN
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.episodes.tracing import RecordingConfig
from redline.errors import UserError, check_range, check_seed, unknown_name
from redline.monitor.sampling import DEFAULT_HZ, MAX_HZ, MIN_HZ
from redline.runtime.counters import Counters, Scores

MAX_COUNT = 1024  # threads, or environments
COUNTS = f"1 to {MAX_COUNT:_}"
CHOSEN_OR_COUNTS = f"0 to let Redline choose, or {COUNTS}"
SMALLEST, LARGEST = 1e-15, 1e15  # of a number in a setting, unless its own limits are closer
MAX_ACTORS = 128  # the learner has a descriptor of each, and a new process is given 256 at most
SOLVED = "solved"  # the stop reason of a run that reached its target of evaluations

T = TypeVar("T")


@dataclass(frozen=True)
class ActorConfig:
    """Settings of each actor."""

    envs: int = 0
    """Environments of each actor (0: --num-envs shared out evenly)."""
    device: str | None = None
    """Where actors compute; if not given, with the learner (--topology inline) or on the CPU (--topology async)."""
    threads: int = 0
    """Threads that step native environments, in each actor (0: all cores, at most one per env)."""
    sync_steps: int = 32
    """Steps that an actor plays before it looks for newer weights again (--topology async)."""

    def __post_init__(self) -> None:
        check_range("actor.envs", self.envs, 0, MAX_COUNT, use=f"0 to share --num-envs out, or {COUNTS}")
        check_range("actor.threads", self.threads, 0, MAX_COUNT, use=CHOSEN_OR_COUNTS)
        check_range("actor.sync-steps", self.sync_steps, 1, 1_000_000)


@dataclass(frozen=True)
class LearnerConfig:
    """Settings of the learner."""

    device: str | None = None
    """Where the learner computes, if not where --device says."""
    threads: int = 0
    """Threads of the learner (0: all cores for pictures, 1 for vectors)."""
    precision: Literal["float32", "bf16", "auto"] = "float32"
    """Precision of the products in hidden layers; auto takes bf16 if a short measurement finds it faster here."""
    tf32: bool = False
    """Let a GPU round the inputs of float32 products to ten bits of mantissa (TF32), which is faster."""
    cuda_graph: bool = False
    """Let a GPU repeat the updates of a value learner from a CUDA graph."""

    def __post_init__(self) -> None:
        check_range("learner.threads", self.threads, 0, MAX_COUNT, use=CHOSEN_OR_COUNTS)


@dataclass(frozen=True)
class EvaluatorConfig:
    """How whole episodes are played without exploration while a run trains."""

    every_minutes: float | None = None
    """Minutes between two evaluations beside training (--topology async: 5 if not given, 0: none)."""
    episodes: int = 5
    """Episodes of each evaluation."""
    envs: int = 1
    """Environments that the evaluator plays side by side."""
    device: str | None = None
    """Where the evaluator computes; if not given, as for actors."""
    threads: int = 1
    """Threads of the evaluator, for its network and for native environments."""

    def __post_init__(self) -> None:
        every = self.every_minutes
        if every is not None and not (math.isfinite(every) and every >= 0.0):
            raise UserError(f"evaluator.every-minutes is {every}: use 0 for no evaluation, or a number above 0")
        check_range("evaluator.episodes", self.episodes, 1, 1_000_000)
        check_range("evaluator.envs", self.envs, 1, MAX_COUNT)
        check_range("evaluator.threads", self.threads, 1, MAX_COUNT)


@dataclass(frozen=True)
class MonitorConfig:
    """How the hardware is watched while a run trains."""

    hz: float = DEFAULT_HZ
    """Samples of the hardware per second, into hardware.jsonl (0: none)."""

    def __post_init__(self) -> None:
        if not (self.hz == 0 or (math.isfinite(self.hz) and MIN_HZ <= self.hz <= MAX_HZ)):
            raise UserError(f"monitor.hz is {self.hz:g}: use 0 for no monitor, or {MIN_HZ:g} to {MAX_HZ:g}")


@dataclass(frozen=True)
class Limits:
    """Whichever is reached first ends the run; steps, frames and episodes are totals over all resumes."""

    max_steps: int | None = 10_000_000
    """Steps (decisions of the agent) in total."""
    max_frames: int | None = None
    """Emulator frames in total (steps × frame skip)."""
    max_episodes: int | None = None
    """Episodes in total."""
    max_minutes: float | None = None
    """Minutes of this invocation."""
    target_return: float | None = None
    """Stop when the mean return of the last 100 episodes reaches this."""
    target_eval_return: float | None = None
    """Evaluate while training, and stop when the mean of 10 episodes reaches this and 30 further ones confirm it."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_frames", "max_episodes", "max_minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"{name.replace('_', '-')} is {value}, but a limit is above 0 (or None for no limit)")
        for name in ("target_return", "target_eval_return"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UserError(f"{name.replace('_', '-')} is {value}: use a finite number, or None for no target")

    def reached(self, counters: Counters, scores: Scores, *, frames_per_step: int, invocation_s: float) -> str | None:
        """Return which limit a run has reached, in words, if any."""
        if self.is_solved(scores):
            return SOLVED
        if self.target_return is not None and scores.reached(self.target_return):
            return f"target-return {self.target_return:g} reached"
        for name, limit, done in (
            ("max-steps", self.max_steps, counters.steps),
            ("max-frames", self.max_frames, counters.steps * frames_per_step),
            ("max-episodes", self.max_episodes, counters.episodes),
        ):
            if limit is not None and done >= limit:
                return f"{name} {limit:,} reached"
        if self.max_minutes is not None and invocation_s >= self.max_minutes * 60:
            return f"max-minutes {self.max_minutes:g} reached"
        return None

    def is_solved(self, scores: Scores) -> bool:
        """Tell whether evaluations reached and confirmed the target."""
        target, met = self.target_eval_return, scores.solved_target
        return target is not None and met is not None and met >= target

    def total_steps(self, *, frames_per_step: int) -> int | None:
        """Return the steps after which `max_steps` or `max_frames` ends the run."""
        totals = [self.max_steps, -(-self.max_frames // frames_per_step) if self.max_frames is not None else None]
        return min((total for total in totals if total is not None), default=None)


@dataclass(frozen=True)
class Job:
    """What to train, on what, and until when."""

    env: EnvConfig = field(default_factory=EnvConfig)
    """The environment."""
    algorithm: Annotated[QLearning | OnPolicy, tyro.conf.arg(name="")] = DQN
    """The algorithm and its parts."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)
    """When to stop."""
    topology: Literal["inline", "async"] = "inline"
    """inline: everything in one process; async: actors, learner and evaluator in processes of their own."""
    actors: int = 1
    """Processes that play (--topology async)."""
    actor: ActorConfig = field(default_factory=ActorConfig)
    """Each process that plays."""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """The process that learns."""
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    """The process that plays without exploration."""
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    """The process that watches the hardware."""
    recording: Annotated[RecordingConfig, tyro.conf.arg(name="")] = field(default_factory=RecordingConfig)
    """What is kept of every episode."""
    push: Literal["step", "chunk", "episode"] = "step"
    """What an actor hands over at once: each step, a chunk of steps or a whole episode (--topology async)."""
    pacing: Literal["held", "lockstep", "free"] = "held"
    """How actors and learner wait for each other: held keeps samples-per-step, lockstep takes turns, free never."""
    num_envs: int = 8
    """Environments played side by side, those of all actors together."""
    evaluate_every_steps: int = 0
    """Steps between two evaluations by the training process itself (0: none; --topology inline)."""
    anneal_at_return: float | None = None
    """Mean return of ten episodes at which learning rate and entropy weight begin to fall, before their after-steps."""
    seed: int = 1
    """Seed of the run: the same seed on the same host gives the same weights, bit for bit."""
    device: str = "auto"
    """Where the learner computes if it has no device of its own, and inline all roles: auto, cpu, cuda or cuda:i."""
    log_dir: Path = Path("runs")
    """Folder that holds the run directories."""
    track: tuple[str, ...] = ()
    """Trackers that get the same rows as the run's files: wandb, trackio, or those of installed packages."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; one is also written at the start and at the end."""
    price_per_hour: float = 0.0
    """Price of an hour of this machine: shows what the run has cost and what the rest will cost (0: no money shown)."""

    def __post_init__(self) -> None:
        check_range("num-envs", self.num_envs, 1, MAX_COUNT)
        check_range("actors", self.actors, 1, MAX_ACTORS, use=f"1 to {MAX_ACTORS}, and more --actor.envs")
        check_range("evaluate-every-steps", self.evaluate_every_steps, 0, use="0 for none, or 1 or more")
        if self.anneal_at_return is not None and not math.isfinite(self.anneal_at_return):
            raise UserError(f"anneal-at-return is {self.anneal_at_return}: use a finite number")
        check_seed(self.seed)
        if not self.checkpoint_minutes > 0.0:
            raise UserError(f"checkpoint-minutes is {self.checkpoint_minutes}: use a number above 0")
        if not (math.isfinite(self.price_per_hour) and self.price_per_hour >= 0.0):
            raise UserError(f"price-per-hour is {self.price_per_hour:g}: use 0 for no price, or a number above 0")
        for key, value in flatten(to_settings(self)):
            _require_plausible(key, value)


def _require_plausible(key: str, value: object) -> None:
    """Refuse what no setting can mean, wherever it comes from: a flag, a file or run.json."""
    if isinstance(value, str) and not value.isprintable():
        raise UserError(f"{flag_of(key)} is {value!r}: it holds characters that can't be printed")
    if isinstance(value, int | float) and value != 0 and not SMALLEST <= abs(value) <= LARGEST:  # false for NaN
        raise UserError(f"{flag_of(key)} is {value}: use 0, or a number of a size between {SMALLEST:g} and {LARGEST:g}")


# Jobs as plain data and back: what `run.json` holds and what a configuration file may say

NONE = "none"  # in a file, for a setting that may be None: TOML has no word for it

# these parts of a job have no prefix on the command line, and so none in a file
FLAT = ("algorithm", "limits", "recording")


def to_settings(job: Job) -> dict[str, Any]:
    """Return the job as nested plain data, keyed as on the command line."""
    settings: dict[str, Any] = _to_plain(job)
    for name in FLAT:
        settings |= settings.pop(name)
    return settings


def from_settings(job: Job, settings: Mapping[str, Any]) -> Job:
    """Return `job` changed as `settings` say; unknown keys and wrong types are a `UserError`."""
    rest: dict[str, Any] = {}
    for key, value in settings.items():
        if _key(key) in rest:
            raise UserError(f"setting {key} is given twice, as {_key(key)} too: keep one")
        rest[_key(key)] = value
    if isinstance(rest.get("env"), str):  # `env = "pong"` as on the command line
        rest["env"] = {"id": rest["env"]}
    known_keys = [key for key, _ in flatten(to_settings(job))]
    flat: dict[str, dict[str, Any]] = {}
    for name in FLAT:
        if name in rest:
            raise unknown_name("setting", name, known_keys)
        known = {field.name for field in dataclasses.fields(getattr(job, name))}
        if found := {key: rest.pop(key) for key in list(rest) if key in known}:
            flat[name] = found
    return _replace(job, rest | flat, path="", known=known_keys)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walk nested settings as (dotted key, value)."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield prefix + key, value.get("name")
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def flag_of(key: str) -> str:
    """Return the flag that sets a dotted key."""
    return f"--{key.replace('_', '-')}"


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        plain = {}
        for field in dataclasses.fields(value):
            part = getattr(value, field.name)
            plain[field.name] = _to_plain(part)
            if field.name in PARTS:
                plain[field.name] = {"name": part_name(part), **plain[field.name]}
        return plain
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _key(key: str) -> str:
    return key.replace("-", "_")


def _replace(value: T, settings: Mapping[str, Any], *, path: str, known: list[str]) -> T:
    hints = get_type_hints(type(value))
    names = {field.name for field in dataclasses.fields(value)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for given, wanted in settings.items():
        key, setting = _key(given), wanted
        if key not in names:
            raise unknown_name("setting", path + given, known)
        current = getattr(value, key)
        if key in PARTS and isinstance(setting, str):
            setting = {"name": setting}
        if key in PARTS and isinstance(setting, Mapping) and "name" in setting:
            found = find_part(key, str(setting["name"]))
            current = current if type(found) is type(current) else found
            setting = {k: v for k, v in setting.items() if k != "name"}
        if dataclasses.is_dataclass(current) and isinstance(setting, Mapping):
            inner = path if key in FLAT and not path else f"{path}{key}."
            changes[key] = _replace(current, setting, path=inner, known=known)
        else:
            changes[key] = _convert(setting, hints[key], key=path + key)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]


def _convert(value: Any, hint: Any, *, key: str) -> Any:
    """Check a plain value against a field's type, widening int → float and str (`record = 3`) and list → tuple."""
    if get_origin(hint) in (Union, types.UnionType):
        if value in (None, NONE) and type(None) in get_args(hint):
            return None
        (hint,) = (option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UserError(f"setting {key} is {value!r}: use {' or '.join(map(str, get_args(hint)))}")
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint in (float, str) and isinstance(value, int) and not isinstance(value, bool):
        return hint(value)
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(_convert(item, get_args(hint)[0], key=key) for item in value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise UserError(f"setting {key} is {value!r}, but it takes a value of type {wanted}")
