"""Run directories with a few short episodes, played at random and recorded as a run does it."""

from pathlib import Path

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv as Emulator
from gymnasium.vector import AutoresetMode
from recorded_runs import append_episode, play_at_random, row_of

from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.episodes.episode import Trace
from redline.episodes.setting import SETTING, describe
from redline.episodes.tracing import RecordingConfig
from redline.jsonl import RecordWriter
from redline.runs.blocks import BlockWriter
from redline.types import Array


def record_run(
    folder: Path,
    config: EnvConfig,
    *,
    episodes: int = 3,
    num_envs: int = 1,
    seed: int = 1,
    values: str | None = None,
) -> list[Trace]:
    """Play, write the run and return what was recorded."""
    recording = RecordingConfig(record_values=values is not None)
    played = play_at_random(config, recording, episodes=episodes, num_envs=num_envs, seed=seed)
    write_run(folder, config, played, values=values)
    return [trace for _, trace in played]


def write_run(folder: Path, config: EnvConfig, played: list[tuple[int, Trace]], *, values: str | None = None) -> None:
    """Write rows and recordings of episodes."""
    folder.mkdir(parents=True, exist_ok=True)
    setting = describe(config, num_actions=env_spec(config).num_actions, values=values)
    with RecordWriter(folder / "episodes.jsonl") as rows, BlockWriter(folder / "recordings" / "episodes.rec") as blocks:
        blocks.append(SETTING, 0, setting.encode())
        for steps, trace in played:
            rows.write(row_of(steps, trace))
            append_episode(blocks, steps, trace)


def screens_of_a_bare_emulator(trace: Trace, *, game: str, sticky: float, max_frames: int = 400) -> list[Array]:
    """Play an episode that begins at its seeded reset with nothing but the emulator's own interface."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.setInt("random_seed", trace.reset_seed)
    emulator.setFloat("repeat_action_probability", sticky)
    emulator.setInt("max_num_frames_per_episode", max_frames)
    emulator.loadROM(roms.get_rom_path(game))
    emulator.reset_game()
    actions = emulator.getMinimalActionSet()
    screens = [emulator.getScreenRGB()]
    for action in trace.actions.tolist():
        for _ in range(4):
            emulator.act(actions[action])
            if emulator.game_over():
                break
        screens.append(emulator.getScreenRGB())
    return screens


def screens_of_a_bare_vector(traces: list[Trace], *, max_frames: int) -> list[list[Array]]:
    """Play episodes of Pong that follow each other from one key on, with the emulator's own vector env."""
    emulator = Emulator(
        "pong",
        1,
        batch_size=1,
        num_threads=1,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        max_num_frames_per_episode=max_frames,
        repeat_action_probability=0.0,
        full_action_space=False,
        img_height=210,
        img_width=160,
        grayscale=False,
        stack_num=1,
        frameskip=4,
        maxpool=False,
        noop_max=30,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=False,
    )
    first, _ = emulator.reset(seed=np.array([traces[0].reset_seed]))
    films = []
    for trace in traces:
        film = [np.array(first[0, 0])]
        for action in trace.actions.tolist():
            film.append(np.array(emulator.step(np.array([action]))[0][0, 0]))
        first = emulator.step(np.array([0]))[0]  # the step after an end ignores its action and begins anew
        films.append(film)
    emulator.close()
    return films
