"""Atari games: their ids, the protocols by which they are played, and their facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ale_py import ALEInterface, LoggerMode, roms

from redline.envs.atari import AtariVectorEnv
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.types import Adjustment, EnvSpec

NO_SINGLE_PLAYER = frozenset({"combat", "joust", "maze_craze", "warlords"})


@dataclass(frozen=True)
class AtariProtocol:
    """Rules of play and evaluation; scores under different protocols can't be compared."""

    name: str
    sticky: float  # probability that the emulator repeats the last action instead
    life_loss_ends_return: bool
    noop_max: int  # a game begins with 0 … noop_max − 1 no-ops, with none if 0

    def __str__(self) -> str:
        sticky = f"sticky actions {self.sticky:g}" if self.sticky else "no sticky actions"
        life = "losing a life " + ("counts as terminal for learning" if self.life_loss_ends_return else "ends nothing")
        noops = f"0–{self.noop_max - 1} no-ops at the start" if self.noop_max else "no no-ops at the start"
        return f"{self.name}: {sticky}, {life}, {noops}"


# Neither presses FIRE at a reset: it would help once per game and never after a lost life, the 2015 agents had to
# find it themselves, and it would take one of the no-ops.
DQN_2015 = AtariProtocol("NoFrameskip-v4 (DQN, 2015)", sticky=0.0, life_loss_ends_return=True, noop_max=30)
MACHADO_2018 = AtariProtocol("ALE v5 (Machado et al., 2018)", sticky=0.25, life_loss_ends_return=False, noop_max=0)

# What a user may type, its protocol, the folder's name, the canonical id.
_FORMS = (
    (r"([\w-]+)", DQN_2015, "{}", "{}NoFrameskip-v4"),
    (r"(\w+)NoFrameskip-v4", DQN_2015, "{}", "{}NoFrameskip-v4"),
    (r"ALE/(\w+)-v5", MACHADO_2018, "{}-v5", "ALE/{}-v5"),
)


@dataclass(frozen=True)
class AtariGame:
    """A game and the protocol by which it is played."""

    name: str
    gymnasium_id: str
    game: str  # the ROM
    protocol: AtariProtocol
    frame_skip: int = 4

    @property
    def rules(self) -> str:
        """The rules in training."""
        return f"{self.game} by {self.protocol}"

    @property
    def evaluation_rules(self) -> str:
        """The rules in evaluation, where losing a life ends nothing."""
        return f"{self.game} by {replace(self.protocol, life_loss_ends_return=False)}"

    def spec(self, config: EnvConfig) -> EnvSpec:
        """Return what a network and a replay memory must know."""
        return EnvSpec(
            name=self.name,
            frame_shape=(config.size, config.size),
            frame_dtype="uint8",
            stack=config.stack,
            num_actions=len(_joystick(self.game)),
            frames_per_step=config.skip,
        )

    def effective(self, config: EnvConfig) -> tuple[EnvConfig, list[Adjustment]]:
        """Return the settings: all of them apply."""
        return config, []

    def presets(self, algorithm: str) -> Mapping[str, Any]:
        """Return nothing: the algorithms' own defaults are for Atari."""
        return {}

    def action_names(self, num_actions: int) -> Sequence[str]:
        """Return the joystick's moves."""
        return _joystick(self.game)

    def make_vector(
        self, config: EnvConfig, *, num_envs: int, seed: int, threads: int, seed_interval_steps: int
    ) -> AtariVectorEnv:
        """Return N emulators on `threads`."""
        return AtariVectorEnv(
            self, config, num_envs=num_envs, seed=seed, threads=threads, seed_interval_steps=seed_interval_steps
        )


def find_game(env_id: str) -> AtariGame | None:
    """Return the game of an id in any spelling; None if it names none."""
    for pattern, protocol, name, gymnasium_id in _FORMS:
        match = re.fullmatch(pattern, env_id)
        game = _games_by_letters().get(_letters(match[1])) if match else None
        if game in NO_SINGLE_PLAYER:
            raise UserError(f"game {game!r} has no single-player mode: choose another, such as pong")
        if game is not None:
            return AtariGame(
                name=name.format(game), gymnasium_id=gymnasium_id.format(pascal(game)), game=game, protocol=protocol
            )
    return None


def atari_games() -> list[str]:
    """Return the games with a single-player mode, in snake_case."""
    return sorted(set(roms.get_all_rom_ids()) - NO_SINGLE_PLAYER)


def atari_ids() -> list[str]:
    """Return every id of a game, in its canonical spellings."""
    games = atari_games()
    return [*games, *(form.format(pascal(game)) for game in games for _, _, _, form in _FORMS[1:])]


def pascal(game: str) -> str:
    """Return a game's name as Gymnasium's ids have it."""
    return game.title().replace("_", "")


@cache
def _joystick(game: str) -> tuple[str, ...]:
    """Return the names of a game's actions."""
    return tuple(action.name for action in _load_rom(game).getMinimalActionSet())


@cache
def screen_size(game: str) -> tuple[int, int]:
    """Return height and width of a game's own screen."""
    height, width = _load_rom(game).getScreenDims()
    return int(height), int(width)


def _load_rom(game: str) -> ALEInterface:
    rom = roms.get_rom_path(game)
    if rom is None:
        raise UserError(f"the ROM of {game} is not here: install ale-py with its ROMs")
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.loadROM(rom)
    return emulator


@cache
def _games_by_letters() -> dict[str, str]:
    return {_letters(game): game for game in roms.get_all_rom_ids()}


def _letters(name: str) -> str:
    return re.sub(r"[-_]", "", name).lower()
