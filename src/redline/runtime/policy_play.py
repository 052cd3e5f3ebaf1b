"""`redline play RUN --policy`: the policy of a checkpoint plays afresh, and is recorded beside the run's episodes."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from redline.envs.factory import env_spec
from redline.envs.vector import Progress
from redline.errors import UserError
from redline.recordings.episode import EPISODE, Address, encode_episode
from redline.recordings.library import Entry, open_library, played_path
from redline.recordings.setting import SETTING
from redline.recordings.tracing import RecordingConfig
from redline.runs.blocks import BlockWriter
from redline.runs.errors import explain
from redline.runs.finding import NEWEST, find_checkpoint
from redline.runtime.actor import Episode
from redline.runtime.evaluating import EvaluationConfig, evaluate
from redline.runtime.job import Job
from redline.runtime.playing import RequestedStop
from redline.runtime.recording import recording_setting
from redline.runtime.resuming import read_run

POLICY = "policy"  # role


def play_policy(
    run: Path,
    config: EvaluationConfig,
    *,
    progress: Progress,
    requested_stop: RequestedStop,
    checkpoint: str = NEWEST,
    record_values: bool = True,
) -> list[Entry]:
    """Play whole episodes with the weights of a checkpoint, and return their recordings; the run is only read.

    The same seed plays the same games again: a new recording of them takes the place of the older one.
    """
    saved = read_run(run)
    found = find_checkpoint(run, checkpoint, with_replay=False)
    recording = RecordingConfig(record_values=record_values)
    evaluation = evaluate(saved, found, config, progress=progress, requested_stop=requested_stop, recording=recording)
    episodes = [played.episode for played in evaluation.played]
    try:
        _append(run, replace(saved.job, recording=recording), episodes, steps=found.steps)
    except OSError as error:
        raise UserError(f"what was played can't be recorded: {explain(error, played_path(run))}") from error
    library = open_library(run)
    addresses = [Address(POLICY, one.lane, one.key_seed, one.key_offset_steps) for one in episodes]
    return [entry for address in addresses if (entry := library.find(address)) is not None]


def _append(run: Path, job: Job, episodes: list[Episode], *, steps: int) -> None:
    path = played_path(run)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    setting = recording_setting(job, env_spec(job.env))
    with _alone(path), BlockWriter(path) as writer:
        writer.append(SETTING, steps, setting.encode())
        for episode in episodes:
            if episode.trace is not None:
                played = encode_episode(episode.trace, role=POLICY, weights_steps=steps, unix_s=time.time())
                writer.append(EPISODE, steps, played)
        writer.sync()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let no other process append meanwhile."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
