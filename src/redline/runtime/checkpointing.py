"""A trainer as the files of a checkpoint, and back."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as encode_arrays
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save as encode_tensors

from redline.envs.vector import Progress
from redline.errors import UserError
from redline.experience import restore_memory, take_snapshot, without_damage
from redline.learner import NonFiniteError
from redline.runs.checkpoints import CheckpointStore
from redline.runs.manifest import Checkpoint
from redline.runtime.counters import counters_from_json, counters_to_json
from redline.runtime.inline import InlineTrainer
from redline.types import Array, Draw, Handles

LEARNER_FILES = ("weights", "target", "optimizer")


def save_checkpoint(trainer: InlineTrainer, store: CheckpointStore) -> Path:
    """Write a checkpoint of everything that decides what comes next."""
    bad = trainer.learner.non_finite_weights()
    if bad:
        raise NonFiniteError(
            f"weights {', '.join(bad)} are not finite at step {trainer.counters.steps:,}: no checkpoint is written"
        )
    files = {f"{part}.safetensors": encode_tensors(values) for part, values in trainer.learner.state().items()}
    replay = take_snapshot(trainer.memory, store.segments.append)
    arrays = {
        **_prefixed("actor", trainer.actor.state()),
        **_prefixed("env", trainer.env.state()),
        **_prefixed("replay", replay.arrays),
        **_prefixed("sampler", trainer.sampler.state()),
        **_prefixed("draws", _draws_to_arrays(trainer.loader.pending)),
    }
    files["arrays.safetensors"] = encode_arrays({key: np.ascontiguousarray(value) for key, value in arrays.items()})
    path = store.save(
        steps=trainer.counters.steps,
        files=files,
        state={
            **counters_to_json(trainer.counters, trainer.scores),
            "env_seed": trainer.env_seed,
            "num_envs": trainer.env.num_envs,
        },
        replay=replay.manifest,
        score=trainer.scores.mean if trainer.scores.is_full else None,
    )
    store.prune()
    return path


def restore_checkpoint(
    trainer: InlineTrainer, checkpoint: Checkpoint, store: CheckpointStore, progress: Progress | None = None
) -> list[str]:
    """Bring a fresh trainer to where a checkpoint was taken; return what could not be brought back exactly."""
    lost: list[str] = []
    trainer.counters, trainer.scores = counters_from_json(checkpoint.state)
    learner = {part: load_tensors(checkpoint.files[f"{part}.safetensors"]) for part in LEARNER_FILES}
    trainer.learner.load_state(learner, updates=trainer.counters.updates)
    arrays = load_arrays(checkpoint.files["arrays.safetensors"])
    if checkpoint.replay is None:
        raise UserError(f"{checkpoint.path} holds no replay memory: it is not a checkpoint of a training run")
    replay, num_damaged = without_damage(checkpoint.replay, checkpoint.damaged_replay)
    if num_damaged:
        lost.append(f"{num_damaged:,} transitions of the saved replay are damaged, or older than such, and left out")
    restore_memory(trainer.memory, replay, _part("replay", arrays), store.segments.read)
    trainer.sampler.load_state(_part("sampler", arrays))
    lost += _restore_world(trainer, arrays, progress)
    layout, saved = trainer.memory.layout, checkpoint.replay
    frame_bytes = trainer.memory.frames.budget_bytes
    same_size = (saved["capacity"], saved["codec"], saved["frame_budget_bytes"]) == (
        layout.capacity,
        layout.effective_codec,
        frame_bytes,
    )
    if saved["budget_bytes"] == layout.budget_bytes and saved["frame_budget_bytes"] != frame_bytes:
        lost.append("the machine had less memory to spare for the replay than now, or more")
    lost += _restore_draws(trainer, _part("draws", arrays), same_size=same_size)
    return lost


def _restore_world(trainer: InlineTrainer, arrays: dict[str, Array], progress: Progress | None) -> list[str]:
    num_envs = len(arrays["actor.return"])
    if num_envs != trainer.env.num_envs:
        trainer.begin()
        return [f"{num_envs} envs became {trainer.env.num_envs}: the episodes under way are cut, all envs start anew"]
    if trainer.env.restore(_part("env", arrays), progress):
        trainer.actor.load_state(_part("actor", arrays))
        return []
    trainer.memory.cut(trainer.memory.lanes)
    trainer.memory.begin(trainer.memory.lanes, trainer.env.frames)
    trainer.actor.begin(trainer.env.frames)
    return [f"{trainer.env.spec.name} did not come back as it was: the episodes under way are cut, all envs start anew"]


def _restore_draws(trainer: InlineTrainer, arrays: dict[str, Array], *, same_size: bool) -> list[str]:
    draws = [
        Draw(Handles(lane, number), weight)
        for lane, number, weight in zip(arrays["lane"], arrays["number"], arrays["weight"], strict=True)
    ]
    algorithm = trainer.job.algorithm
    as_configured = len(draws) in (0, algorithm.replay.prefetch) and all(
        len(draw.weight) == algorithm.batch_size for draw in draws
    )
    as_configured &= same_size or not draws  # a smaller memory may evict a row before its turn
    if as_configured and all(trainer.memory.is_resident(draw.handles).all() for draw in draws):
        for draw in draws:
            trainer.loader.submit(draw)
        return []
    return [f"{len(draws)} batches drawn ahead are drawn anew"]


def _draws_to_arrays(draws: list[Draw]) -> dict[str, Array]:
    def stacked(rows: list[Array], dtype: str) -> Array:
        return np.stack(rows) if rows else np.zeros((0, 0), dtype=dtype)

    return {
        "lane": stacked([draw.handles.lane for draw in draws], "int64"),
        "number": stacked([draw.handles.number for draw in draws], "int64"),
        "weight": stacked([draw.weight for draw in draws], "float32"),
    }


def _prefixed(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {f"{prefix}.{key}": value for key, value in arrays.items()}


def _part(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
