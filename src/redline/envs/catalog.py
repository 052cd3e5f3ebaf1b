"""What an id names: an Atari game with its protocol, an env of Gymnasium, or one from elsewhere."""

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from redline.envs import probe
from redline.envs.atari_games import atari_ids, find_game, pascal
from redline.envs.classic import gymnasium_env
from redline.envs.suites import find_foreign, foreign_ids
from redline.envs.vector import EnvKind
from redline.errors import UserError, unknown_name

probe.register()

_gymnasium_envs: dict[str, EnvKind] = {}  # that were asked for: each is made once to learn what it shows


def resolve(env_id: str) -> EnvKind:
    """Return what the id stands for, or raise UserError with the nearest names."""
    return find_foreign(env_id) or find_game(env_id) or _find_in_gymnasium(env_id)


def _find_in_gymnasium(env_id: str) -> EnvKind:
    if env_id in _gymnasium_envs:
        return _gymnasium_envs[env_id]
    try:
        spec = gymnasium.spec(env_id)
    except gymnasium.error.Error:
        raise unknown_name("env", env_id, [*atari_ids(), *other_ids(), *foreign_ids(env_id)]) from None
    if spec.entry_point == "ale_py.env:AtariEnv":
        game = pascal(spec.kwargs["game"])
        raise UserError(f"env {env_id!r} follows no known protocol: use {game}NoFrameskip-v4 or ALE/{game}-v5")
    return _gymnasium_envs.setdefault(env_id, gymnasium_env(env_id))


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
