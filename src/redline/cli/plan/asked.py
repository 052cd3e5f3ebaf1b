"""What several plans ask for alike: an env, as it will be, and the free space at a folder."""

import sys
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.files import explained, free_bytes

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
