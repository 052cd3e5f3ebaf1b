"""A trainer as the files of a checkpoint, and back."""

from pathlib import Path

from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as encode_arrays
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save as encode_tensors

from redline.envs.vector import Progress
from redline.learner import NonFiniteError
from redline.runs.checkpoints import CheckpointStore
from redline.runs.manifest import Checkpoint
from redline.runtime.counters import counters_from_json, counters_to_json
from redline.runtime.training import Trainer


def save_checkpoint(trainer: Trainer, store: CheckpointStore) -> Path:
    """Write a checkpoint of everything that decides how the run goes on."""
    bad = trainer.learner.non_finite_weights()
    if bad:
        raise NonFiniteError(
            f"weights {', '.join(bad)} are not finite at step {trainer.counters.steps:,}: no checkpoint is written"
        )
    files = {f"{part}.safetensors": encode_tensors(values) for part, values in trainer.learner.state().items()}
    arrays, replay = trainer.source.save(store)
    files["arrays.safetensors"] = encode_arrays(trainer.world.state() | arrays)
    path = store.save(
        steps=trainer.counters.steps,
        files=files,
        state={
            **counters_to_json(trainer.counters, trainer.scores),
            "env_seed": trainer.env_seed,
            "num_envs": trainer.world.num_envs,
        },
        replay=replay,
        score=trainer.scores.mean if trainer.scores.is_full else None,
    )
    store.prune()
    return path


def restore_checkpoint(
    trainer: Trainer, checkpoint: Checkpoint, store: CheckpointStore, progress: Progress | None = None
) -> list[str]:
    """Bring a fresh trainer to the state of a checkpoint; return what could not be restored exactly."""
    trainer.counters, trainer.scores = counters_from_json(checkpoint.state)
    learner = {
        name.removesuffix(".safetensors"): load_tensors(data)
        for name, data in checkpoint.files.items()
        if name.endswith(".safetensors") and name != "arrays.safetensors"
    }
    trainer.learner.load_state(learner, updates=trainer.counters.updates)
    arrays = load_arrays(checkpoint.files["arrays.safetensors"])
    lost, first_frames = trainer.world.restore(arrays, progress)
    return trainer.source.restore(checkpoint, arrays, store, first_frames=first_frames) + lost
