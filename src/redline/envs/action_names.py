"""What the actions of an env mean, where the env can say it."""

from __future__ import annotations

from collections.abc import Sequence

from ale_py import ALEInterface, LoggerMode, roms

from redline.envs.catalog import resolve


def action_names(env_id: str, num_actions: int) -> Sequence[str]:
    """Return a name for each action: the joystick's for an Atari game, numbers elsewhere."""
    game = resolve(env_id).game
    rom = roms.get_rom_path(game) if game is not None else None
    if rom is None:
        return [str(action) for action in range(num_actions)]
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.loadROM(rom)
    return [action.name for action in emulator.getMinimalActionSet()]
