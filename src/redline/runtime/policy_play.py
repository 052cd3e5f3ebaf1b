"""`redline play RUN --policy`: the policy of a checkpoint plays afresh, and is recorded beside the run's episodes."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from redline.envs.catalog import env_spec
from redline.envs.vector import Progress
from redline.errors import UserError
from redline.recordings.episode import EPISODE, Address, encode_episode
from redline.recordings.library import POLICY, Entry, open_library, played_path
from redline.recordings.setting import SETTING, Setting
from redline.recordings.tracing import RecordingConfig
from redline.runs.blocks import BlockWriter
from redline.runs.errors import explain
from redline.runs.finding import NEWEST, find_checkpoint
from redline.runtime.actor import Episode
from redline.runtime.evaluation import EvaluationConfig, RequestedStop, StoppedWhileEvaluatingError, evaluate
from redline.runtime.recording import setting_of
from redline.runtime.resuming import read_run

PATIENCE_S = 0.2  # between two looks at a lock that another process has


def play_policy(
    run: Path,
    config: EvaluationConfig,
    *,
    progress: Progress,
    requested_stop: RequestedStop,
    checkpoint: str = NEWEST,
    record_values: bool = True,
) -> list[Entry]:
    """Play whole episodes with the weights of a checkpoint, and return their recordings, beside those of the run.

    The same seed plays the same games again: a new recording of them takes the place of the older one.
    """
    saved = read_run(run)
    found = find_checkpoint(run, checkpoint, with_replay=False)
    recording = RecordingConfig(record_values=record_values)
    try:
        with _alone(run, requested_stop):  # what can't be written is refused before anything is played
            pass
        evaluation = evaluate(
            saved.job, found, config, progress=progress, requested_stop=requested_stop, recording=recording
        )
        episodes = [played.episode for played in evaluation.played]
        setting = setting_of(replace(saved.job, recording=recording), env_spec(saved.job.env))
        with _alone(run, requested_stop), BlockWriter(played_path(run)) as writer:
            _append(writer, setting, episodes, steps=found.steps)
    except OSError as error:
        raise UserError(f"what is played can't be recorded: {explain(error, played_path(run))}") from error
    library = open_library(run)
    addresses = [Address(POLICY, one.lane, one.reset_seed, one.seed_offset_steps) for one in episodes]
    return [entry for address in addresses if (entry := library.find(address)) is not None]


def _append(writer: BlockWriter, setting: Setting, episodes: list[Episode], *, steps: int) -> None:
    writer.append(SETTING, steps, setting.encode())
    for episode in episodes:
        if episode.trace is not None:
            played = encode_episode(episode.trace, role=POLICY, weights_steps=steps, unix_s=time.time())
            writer.append(EPISODE, steps, played)
    writer.sync()


@contextmanager
def _alone(run: Path, requested_stop: RequestedStop) -> Iterator[None]:
    """Let no other process append meanwhile."""
    path = played_path(run)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(path.with_name(f".{path.name}.lock"), flags, 0o600)
    try:
        while not _takes(lock):
            if reason := requested_stop():
                raise StoppedWhileEvaluatingError(f"{reason} while another process records")
            time.sleep(PATIENCE_S)
        yield
    finally:
        os.close(lock)


def _takes(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
