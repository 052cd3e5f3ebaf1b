"""From an id to envs: an Atari game with its protocol, an env of Gymnasium, or one that a package or a script brings.

A module is imported only where an installed package names it as an entry point, or where a user has typed it. An id
from a file, a run's or any other, imports nothing.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from redline.envs import small
from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.envs.atari_games import AtariGame, atari_ids, find_game, pascal
from redline.envs.classic import Draw, GymEnv, GymnasiumEnv, MakeEnv, MakeVector, Presets, gymnasium_env
from redline.envs.config import EnvConfig
from redline.envs.vector import VectorEnv
from redline.errors import UserError, nearest, unknown_name
from redline.types import EnvSpec

small.register()

EnvKind = AtariGame | GymnasiumEnv  # the env of an id: how to make it, its presets, its rules
ENTRY_POINTS = "redline.envs"  # group: each names a Suite, and its name stands before the slash of an id

_registered: dict[str, EnvKind] = {}  # by scripts, for this process
_typed: set[str] = set()  # ids whose module may be imported


def resolve(env_id: str) -> EnvKind:
    """Return the env of an id, or raise UserError with the nearest names."""
    if env_id in _registered:
        return _registered[env_id]
    if ":" in env_id:
        return _find_in_module(env_id)
    if env_id.partition("/")[0] in _suite_points() and "/" in env_id:
        return _find_in_suite(env_id)
    return find_game(env_id) or _find_in_gymnasium(env_id)


def make_vector_env(
    config: EnvConfig, *, num_envs: int, seed: int, threads: int, seed_interval_steps: int = SEED_INTERVAL_STEPS
) -> VectorEnv:
    """Return N lanes of the env.

    `threads` run the emulators of an Atari game; other envs need none. With `seed_interval_steps` 0 every Atari episode
    has a seed of its own, as evaluation needs it; episodes of other envs always have.
    """
    return resolve(config.id).make_vector(
        config, num_envs=num_envs, seed=seed, threads=threads, seed_interval_steps=seed_interval_steps
    )


def env_spec(config: EnvConfig) -> EnvSpec:
    """Return what a network must know, without making a vector of envs."""
    return resolve(config.id).spec(config)


@cache  # each is made once to read its spaces
def _find_in_gymnasium(env_id: str) -> EnvKind:
    try:
        spec = gymnasium.spec(env_id)
    except gymnasium.error.Error:
        raise unknown_name("env", env_id, [*atari_ids(), *other_ids(), *foreign_ids(env_id)]) from None
    if spec.entry_point == "ale_py.env:AtariEnv":
        game = pascal(spec.kwargs["game"])
        raise UserError(f"env {env_id!r} follows no known protocol: use {game}NoFrameskip-v4 or ALE/{game}-v5")
    return gymnasium_env(env_id)


def other_ids() -> list[str]:
    """Return Gymnasium's ids besides Atari's, the newest version of each."""
    newest: dict[str, GymnasiumSpec] = {}
    for spec in gymnasium.registry.values():
        if spec.entry_point == "ale_py.env:AtariEnv":
            continue
        stem = f"{spec.namespace}/{spec.name}"
        if stem not in newest or (spec.version or 0) > (newest[stem].version or 0):
            newest[stem] = spec
    return [spec.id for spec in newest.values()]


@dataclass(frozen=True)
class Suite:
    """Envs that a package brings. With the entry point `minatar`, its env `breakout` is --env minatar/breakout."""

    names: Sequence[str]  # of its envs
    make: Callable[..., GymEnv]  # one env by its name; takes options of Gymnasium too, such as render_mode
    presets: Presets = field(default_factory=dict)  # settings that an algorithm starts with, or `any` of them
    draw: Draw | None = None  # a picture [H, W, 3] of an env's state, instead of what it renders
    vector: Callable[..., Any] | None = None  # a vector of envs by name, instead of copies stepped one by one


def register_env(
    env_id: str,
    make: MakeEnv,
    *,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    draw: Draw | None = None,
    vector: MakeVector | None = None,
) -> None:
    """Make an env known under an id, for this process.

    `make` returns one env with Gymnasium's interface. A run that was trained on it can be resumed once it is registered
    again. Other processes (topology async) don't know it: they need `module:id`, or an entry point.
    """
    if not env_id or ":" in env_id:
        raise UserError(f"an env can't be registered as {env_id!r}: use an id without a colon, such as my/Env-v0")
    _registered[env_id] = GymnasiumEnv(env_id, make, presets or {}, draw=draw, vector=vector)


def is_registered(env_id: str) -> bool:
    """Tell whether a script has registered an env, so that only this process knows it."""
    return env_id in _registered


def allow_module(env_id: str) -> None:
    """Allow the import of the module in an id that a user has typed."""
    if ":" in env_id:
        _typed.add(env_id)


@cache
def _find_in_suite(env_id: str) -> EnvKind:
    prefix, _, name = env_id.partition("/")
    suite = load_suite(prefix)
    if name not in suite.names:
        raise unknown_name("env", env_id, [f"{prefix}/{known}" for known in suite.names])
    vector = None if suite.vector is None else partial(suite.vector, name)
    return GymnasiumEnv(env_id, partial(suite.make, name), suite.presets, draw=suite.draw, vector=vector)


def suite_names() -> list[str]:
    """Return the prefixes of the suites of installed packages."""
    return sorted(_suite_points())


def foreign_ids(like: str) -> list[str]:
    """Return ids of registered envs, and of suites whose prefix resembles `like`: others are not imported."""
    ids = list(_registered)
    for prefix in nearest(like.partition("/")[0], suite_names()):
        with suppress(UserError):  # a suite that can't be loaded has no ids to suggest
            ids += [f"{prefix}/{name}" for name in load_suite(prefix).names]
    return ids


@cache
def load_suite(prefix: str) -> Suite:
    """Import an installed suite."""
    point = _suite_points()[prefix]
    try:
        suite = point.load()
    except Exception as error:  # of foreign code
        raise UserError(f"suite {prefix!r} can't be loaded from {point.value}: {error!r}") from error
    if not isinstance(suite, Suite):
        raise UserError(f"suite {prefix!r}: {point.value} is no redline.Suite")
    return suite


@cache
def _suite_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


@cache
def _find_in_module(env_id: str) -> EnvKind:
    """Import a module, which registers its envs with Gymnasium, and return the one of this id."""
    module, _, name = env_id.partition(":")
    if env_id not in _typed and module not in sys.modules:
        raise UserError(
            f"env {env_id!r} names a module, which is not imported because a file says so: type --env {env_id},"
            f" or import {module} in a script first"
        )
    try:
        import_module(module)
    except (Exception, SystemExit) as error:  # of foreign code
        raise UserError(f"env {env_id!r}: module {module} can't be imported: {error!r}") from error
    if name not in gymnasium.registry:
        raise unknown_name("env", name, gymnasium.registry)
    return GymnasiumEnv(env_id, gymnasium_env(name).make)
