"""What all recordings of one invocation share: the env, its options, and the versions that played it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import msgspec
from ale_py import roms

from redline.envs.atari import emulator_options
from redline.envs.atari_games import AtariGame
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.episodes.episode import RecordingError

SETTING = 1  # kind of block
MAX_SETTING_BYTES = 256 * 1024
Text = Annotated[str, msgspec.Meta(max_length=200)]
OPTION_LIMITS: Mapping[str, tuple[float, float]] = {
    "img_height": (1, 1_024),
    "img_width": (1, 1_024),
    "stack_num": (1, 16),
    "frameskip": (1, 60),
    "noop_max": (0, 1_000),
    "max_num_frames_per_episode": (0, 2**31 - 1),
    "repeat_action_probability": (0, 1),
    "continuous_action_threshold": (0, 1),
}
FRACTIONS = frozenset({"repeat_action_probability", "continuous_action_threshold"})
NEVER_ON = frozenset({"continuous", "episodic_life", "life_loss_info", "reward_clipping", "use_fire_reset"})
SWITCHES = NEVER_ON | {"full_action_space", "grayscale", "maxpool"}


@dataclass(frozen=True)
class Setting:
    """All that a bare emulator, or Gymnasium, needs to make the env again."""

    env_id: Text  # as Redline knows it
    gymnasium_id: Text
    game: Text | None  # the ROM, for Atari
    options: dict[str, Any]  # of the emulator; of another env only `max_episode_frames`
    rom_sha256: Text | None
    versions: dict[Text, Text]  # of ale-py and Gymnasium
    num_actions: Annotated[int, msgspec.Meta(ge=1, le=2**32)]
    action_names: list[Text]
    values: Text | None = None  # what a recorded value is: "q" or "logits"; None if none are recorded

    def encode(self) -> bytes:
        """Return the payload of a block."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False).encode()

    def differences(self) -> list[str]:
        """Return one line for each difference between this machine and the one that recorded."""
        told = []
        if self.game is not None:
            here = rom_sha256(self.game)
            if here is None:
                told.append(f"the ROM of {self.game} is not here")
            elif here != self.rom_sha256:
                told.append(f"the ROM of {self.game} differs: recorded with {self.rom_sha256}, here it is {here}")
        packages = ("ale-py",) if self.game is not None else ("gymnasium",)
        for name in packages:
            if (was := self.versions.get(name)) != (now := _version(name)):
                told.append(f"recorded with {name} {was}, here it is {now}: episodes may go another way")
        return told


def describe(config: EnvConfig, *, num_actions: int, values: str | None) -> Setting:
    """Return the setting of an env as it is played here."""
    kind = resolve(config.id)
    game = kind.game if isinstance(kind, AtariGame) else None
    options: dict[str, Any] = {"max_episode_frames": config.max_episode_frames}
    if isinstance(kind, AtariGame):
        options = emulator_options(kind.protocol, config)
    return Setting(
        env_id=config.id,
        gymnasium_id=kind.gymnasium_id,
        game=game,
        options=options,
        rom_sha256=None if game is None else rom_sha256(game),
        versions={name: _version(name) for name in ("ale-py", "gymnasium")},
        num_actions=num_actions,
        action_names=list(kind.action_names(num_actions)),
        values=values,
    )


def decode_setting(payload: bytes) -> Setting:
    """Return the setting of a block; fields of a later version are ignored."""
    try:
        if len(payload) > MAX_SETTING_BYTES:
            raise ValueError(f"{len(payload)} bytes")
        setting = msgspec.json.decode(payload, type=Setting)
        _check(setting)
    except (ValueError, TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise RecordingError(f"no setting of recordings: {error}") from error
    return setting


def _check(setting: Setting) -> None:
    """Refuse a setting that no run has: it could import a module, take all memory, or emulate for ever."""
    if ":" in setting.gymnasium_id and setting.game is not None:
        raise ValueError(f"no game can be called {setting.gymnasium_id!r}")
    if setting.game is None:
        _check_options(setting.options, {"max_episode_frames": (1, 2**62)})
    elif setting.game not in roms.get_all_rom_ids():
        raise ValueError(f"the game {setting.game!r} is unknown here")
    else:
        _check_options(setting.options, {**OPTION_LIMITS, **dict.fromkeys(SWITCHES, (0, 1))})


def _check_options(options: dict[str, Any], limits: Mapping[str, tuple[float, float]]) -> None:
    if options.keys() != limits.keys():
        raise ValueError(f"options {', '.join(sorted(map(str, options.keys() ^ limits.keys())))}: unknown or missing")
    for name, (lowest, highest) in limits.items():
        value = options[name]
        is_whole = isinstance(value, int) or name in FRACTIONS
        if isinstance(value, bool) != (name in SWITCHES) or not isinstance(value, int | float) or not is_whole:
            raise TypeError(f"{name} is {value!r}")
        if not lowest <= value <= highest or (name in NEVER_ON and value):
            raise ValueError(f"{name} is {value!r}, not within {lowest} … {highest}")


@cache
def rom_sha256(game: str) -> str | None:
    """Return the checksum of a game's ROM, None where it is not installed."""
    path = roms.get_rom_path(game)
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
