"""What several plans ask for alike: an env as it will be, free space, and a training with its speed, measured here."""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path

from redline.cli.flags import TrainFlags, as_typed, is_several, refuse_auto, refuse_replay_flags, train_defaults
from redline.cli.plan.speed import environ_of
from redline.cli.process import ended_by_signals
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.files import explained, free_bytes
from redline.plan.pinned import Pinned, measure_pinned

ENV_NAMES = {"env": "env", "env.id": "env"}


def effective_env(asked: EnvConfig, usual: EnvConfig) -> tuple[EnvConfig, set[str]]:
    """Return the env as it will be, and the settings that have no effect; name those that the user typed."""
    env, adjustments = resolve(asked.id).effective(asked)
    for adjustment in adjustments:
        if adjustment.setting != "env.size" or asked.size != usual.size:
            print(f"requested → effective: {adjustment}", file=sys.stderr)
    return env, {adjustment.setting for adjustment in adjustments}


def free_at(path: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    with explained(UserError, path, before="path ", after=": use another --path"):
        place = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
        if not place.is_dir():
            raise UserError(f"path {path} is no folder: name a folder on the disk that is meant")
        return free_bytes(place)


def env_flags(env: EnvConfig, usual: EnvConfig, *, ignored: Collection[str]) -> list[str]:
    """Return the flags with which `redline train` plays the same env, without those that have no effect."""
    flags = ["--env", env.id]
    for setting in fields(env):
        value = getattr(env, setting.name)
        if setting.name != "id" and f"env.{setting.name}" not in ignored and value != getattr(usual, setting.name):
            flags += [f"--env.{setting.name.replace('_', '-')}", str(value)]
    return flags


def refuse_empty(args: Sequence[str], **lists: Sequence[str]) -> None:
    """Refuse a flag that takes several values and was typed without any."""
    for name, values in lists.items():
        if f"--{name.rstrip('_')}" in args and not any(values):
            raise UserError(f"--{name.rstrip('_')} names nothing: write what it is to read, or leave it out")


# A training


def training_defaults(args: Sequence[str]) -> TrainFlags:
    """Return the defaults of the flags of one training; refuse several."""
    if is_several(args):
        raise UserError("one training is planned at a time: use --model with one name (see redline algos) and --seed")
    refuse_auto(args, "a plan trains nothing, so leave it out")
    default = train_defaults(args)
    refuse_replay_flags(args, default.job, default.algo)
    return default


def asked_training(flags: TrainFlags, args: Sequence[str]) -> TrainFlags:
    """Return parsed flags as they were typed; refuse those that would do nothing."""
    if flags.print_config:
        raise UserError("--print-config prints settings and plans nothing: use redline train --print-config")
    return as_typed(flags, args)


def measure_training(
    asked: TrainFlags,
    *,
    counts: Sequence[int],
    rounds: int,
    window_s: float,
    progress: Callable[[str], None],
    on_cpu: bool = False,
) -> Pinned:
    """Measure the training with each count of cores; its processes end with this one."""
    job = replace(asked.job, device="cpu") if on_cpu else asked.job
    with ended_by_signals():
        return measure_pinned(
            job, asked.algo, counts=counts, rounds=rounds, window_s=window_s, environ=environ_of, progress=progress
        )
