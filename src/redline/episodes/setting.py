"""The setting that all recordings of one invocation share: the env, its options, and the versions used."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any

import msgspec
from ale_py import roms

from redline.envs.atari import emulator_options
from redline.envs.atari_games import AtariGame
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.episodes.episode import RecordingError
from redline.runs.host import version

SETTING = 1  # kind of block
MAX_SETTING_BYTES = 256 * 1024
MISSING = "not installed"  # instead of a version
Text = Annotated[str, msgspec.Meta(max_length=200)]
Side = Annotated[int, msgspec.Meta(ge=1, le=1_024)]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
NEVER_ON = ("continuous", "episodic_life", "life_loss_info", "reward_clipping", "use_fire_reset")


class AtariOptions(msgspec.Struct, forbid_unknown_fields=True):
    """The options of an emulator, limited so that none can take all memory or emulate forever."""

    img_height: Side
    img_width: Side
    stack_num: Annotated[int, msgspec.Meta(ge=1, le=16)]
    frameskip: Annotated[int, msgspec.Meta(ge=1, le=60)]
    noop_max: Annotated[int, msgspec.Meta(ge=0, le=1_000)]
    max_num_frames_per_episode: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    repeat_action_probability: Probability
    continuous_action_threshold: Probability
    full_action_space: bool
    grayscale: bool
    maxpool: bool
    continuous: bool
    episodic_life: bool
    life_loss_info: bool
    reward_clipping: bool
    use_fire_reset: bool


class OtherOptions(msgspec.Struct, forbid_unknown_fields=True):
    """The options of another env."""

    max_episode_frames: Annotated[int, msgspec.Meta(ge=1, le=2**62)]


@dataclass(frozen=True)
class Setting:
    """Everything needed to make the env again from bare emulators or Gymnasium."""

    env_id: Text  # as Redline knows it
    gymnasium_id: Text
    game: Text | None  # the ROM, for Atari
    options: dict[str, Any]  # of the emulator; for other envs only `max_episode_frames`
    rom_sha256: Text | None
    versions: dict[Text, Text]  # of ale-py and Gymnasium
    num_actions: Annotated[int, msgspec.Meta(ge=1, le=2**32)]
    action_names: list[Text]
    values: Text | None = None  # kind of the recorded values: "q", "logits" or none

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
        name = "gymnasium" if self.game is None else "ale-py"
        if (was := self.versions.get(name)) != (now := version(name) or MISSING):
            told.append(f"recorded with {name} {was}, here it is {now}: episodes may go another way")
        return told


def describe(config: EnvConfig, *, num_actions: int, values: str | None) -> Setting:
    """Return the setting of an env on this machine."""
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
        versions={name: version(name) or MISSING for name in ("ale-py", "gymnasium")},
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
    """Refuse a forged setting, which could import a module, take all memory or emulate forever."""
    if setting.game is None:
        msgspec.convert(setting.options, OtherOptions)
        return
    if ":" in setting.gymnasium_id:
        raise ValueError(f"no game can be called {setting.gymnasium_id!r}")
    if setting.game not in roms.get_all_rom_ids():
        raise ValueError(f"the game {setting.game!r} is unknown here")
    msgspec.convert(setting.options, AtariOptions)
    if on := [name for name in NEVER_ON if setting.options[name]]:
        raise ValueError(f"options {', '.join(on)} are on")


@cache
def rom_sha256(game: str) -> str | None:
    """Return the checksum of a game's ROM, None where it is not installed."""
    path = roms.get_rom_path(game)
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
