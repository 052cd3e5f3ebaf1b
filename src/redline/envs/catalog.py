"""What an id names: an Atari game with its protocol, or a Gymnasium env."""

import re
from dataclasses import dataclass, replace
from functools import cache

import gymnasium
from ale_py import roms
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from redline.envs import probe
from redline.envs.config import EnvConfig
from redline.errors import UserError, unknown_name
from redline.types import Adjustment

NO_SINGLE_PLAYER = frozenset({"combat", "joust", "maze_craze", "warlords"})

probe.register()


@dataclass(frozen=True)
class AtariProtocol:
    """The rules by which Atari games are played and compared; scores of two protocols do not compare."""

    name: str
    sticky: float  # probability that the emulator repeats the last action instead
    life_loss_ends_return: bool
    noop_max: int  # a game begins with 0 … noop_max − 1 no-ops, with none if 0

    def __str__(self) -> str:
        sticky = f"sticky actions {self.sticky:g}" if self.sticky else "no sticky actions"
        life = "a life lost ends the return" if self.life_loss_ends_return else "a life lost ends nothing"
        noops = f"0–{self.noop_max - 1} no-ops at the start" if self.noop_max else "no no-ops at the start"
        return f"{self.name}: {sticky}, {life}, {noops}"


# Neither presses FIRE at a reset: it would help once per game and never after a lost life, the 2015 agents had to
# find it themselves, and it would make the no-ops one fewer.
DQN_2015 = AtariProtocol("NoFrameskip-v4 (DQN, 2015)", sticky=0.0, life_loss_ends_return=True, noop_max=30)
MACHADO_2018 = AtariProtocol("ALE v5 (Machado et al., 2018)", sticky=0.25, life_loss_ends_return=False, noop_max=0)

# What a user may type, its protocol, the folder's name, the canonical id.
_ATARI_FORMS = (
    (r"([\w-]+)", DQN_2015, "{}", "{}NoFrameskip-v4"),
    (r"(\w+)NoFrameskip-v4", DQN_2015, "{}", "{}NoFrameskip-v4"),
    (r"ALE/(\w+)-v5", MACHADO_2018, "{}-v5", "ALE/{}-v5"),
)


@dataclass(frozen=True)
class EnvKind:
    """What an id stands for: a game and its protocol, or else an id that Gymnasium can make."""

    name: str  # short and safe as a folder's name
    gymnasium_id: str
    game: str | None = None  # the ROM, for Atari
    protocol: AtariProtocol | None = None

    @property
    def is_atari(self) -> bool:
        """Whether it runs on the emulator."""
        return self.protocol is not None


def resolve(env_id: str) -> EnvKind:
    """Return what the id stands for, or raise UserError with the nearest names."""
    if kind := _resolve_atari(env_id):
        return kind
    if ":" in env_id:  # Gymnasium would import what stands before the colon, and an id may come from a file
        raise UserError(f"env {env_id!r} names a module: use an id that Gymnasium knows by itself")
    try:
        spec = gymnasium.spec(env_id)
    except gymnasium.error.Error:
        raise unknown_name("env", env_id, _known_ids()) from None
    if spec.entry_point == "ale_py.env:AtariEnv":
        game = _pascal(spec.kwargs["game"])
        raise UserError(f"env {env_id!r} follows no known protocol: use {game}NoFrameskip-v4 or ALE/{game}-v5")
    name = re.sub(r"[^a-z0-9._-]+", "-", env_id.lower())
    return EnvKind(name=name, gymnasium_id=env_id)


def effective(config: EnvConfig) -> tuple[EnvConfig, list[Adjustment]]:
    """Return the settings as they will act, and each one that does not act as it was asked."""
    if resolve(config.id).is_atari:
        return config, []
    adjustments = [
        Adjustment("env.size", str(config.size), "native", "only Atari pictures are scaled"),
    ]
    if config.skip != 1:
        why = "only Atari games repeat an action"
        adjustments.append(Adjustment("env.skip", str(config.skip), "1", why))
    return replace(config, skip=1), adjustments


def atari_games() -> list[str]:
    """Return the games one player can play, in snake_case."""
    return sorted(set(roms.get_all_rom_ids()) - NO_SINGLE_PLAYER)


def _resolve_atari(env_id: str) -> EnvKind | None:
    for pattern, protocol, name, gymnasium_id in _ATARI_FORMS:
        match = re.fullmatch(pattern, env_id)
        game = _games_by_letters().get(_letters(match[1])) if match else None
        if game in NO_SINGLE_PLAYER:
            raise UserError(f"game {game!r} has no single-player mode: choose another, such as pong")
        if game is not None:
            return EnvKind(
                name=name.format(game),
                gymnasium_id=gymnasium_id.format(_pascal(game)),
                game=game,
                protocol=protocol,
            )
    return None


@cache
def _games_by_letters() -> dict[str, str]:
    return {_letters(game): game for game in roms.get_all_rom_ids()}


def _letters(name: str) -> str:
    return re.sub(r"[-_]", "", name).lower()


def _pascal(game: str) -> str:
    return game.title().replace("_", "")


def other_ids() -> list[str]:
    """Return the ids that Gymnasium knows besides Atari's, the newest version of each."""
    newest: dict[str, GymnasiumSpec] = {}
    for spec in gymnasium.registry.values():
        if spec.entry_point == "ale_py.env:AtariEnv":
            continue
        stem = f"{spec.namespace}/{spec.name}"
        if stem not in newest or (spec.version or 0) > (newest[stem].version or 0):
            newest[stem] = spec
    return [spec.id for spec in newest.values()]


def _known_ids() -> list[str]:
    games = atari_games()
    atari = [form.format(_pascal(game)) for game in games for _, _, _, form in _ATARI_FORMS[1:]]
    return [*games, *atari, *other_ids()]
