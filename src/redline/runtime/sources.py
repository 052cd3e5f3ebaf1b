"""Where batches come from: what a trainer asks of a replay memory or of a rollout alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from redline.algorithms.family import ActorExtras
from redline.experience import ReplayMemory
from redline.runs.checkpoints import CheckpointStore
from redline.runs.manifest import Checkpoint
from redline.runtime.counters import Counters
from redline.runtime.pacing import Pacing
from redline.types import AnyBatch, Array, IntArray, VectorStep


@dataclass(frozen=True)
class SavedSource:
    """What a checkpoint keeps of a source."""

    arrays: dict[str, Array]
    replay: dict[str, Any] | None  # the manifest of a replay memory


class Source(Protocol):
    """Takes in what is played, gives out what is due to be learnt."""

    pacing: Pacing

    @property
    def wants_priorities(self) -> bool:
        """Whether `learnt` makes any difference."""
        ...

    @property
    def waited_s(self) -> float:
        """Seconds that were spent waiting for batches to be gathered."""
        ...

    @property
    def keeps_features(self) -> bool:
        """Whether what the torso gave while acting is learnt from: `append` is then handed it."""
        ...

    @property
    def memory(self) -> ReplayMemory | None:
        """The replay memory, if there is one."""
        ...

    def begin(self, first_frames: Array) -> None:
        """Note that an episode starts in every lane."""
        ...

    def before_acting(self, counters: Counters, obs: Array) -> Iterator[Sequence[AnyBatch]]:
        """Yield what must be learnt before the next action, which `obs` [N, K, *frame] asks for, in groups.

        The batches of a group do not depend on what is learnt from each other.
        """
        ...

    def while_stepping(self, counters: Counters) -> Iterator[Sequence[AnyBatch]]:
        """Yield what can be learnt while the envs step, in such groups."""
        ...

    def num_samples(self, batch: AnyBatch) -> int:
        """Return how many transitions a batch counts for."""
        ...

    def learnt(self, priorities: Array) -> None:
        """Take notice of how surprising each row of the last batch was."""
        ...

    def append(self, *, obs: Array, actions: IntArray, extras: ActorExtras, step: VectorStep) -> None:
        """Take in one step of all lanes: what was seen, done and thought, and what came of it."""
        ...

    def mean_entropy(self) -> float | None:
        """Return the entropy in nats of the policy that plays now, if it can be told."""
        ...

    def cut(self, frames: Array) -> None:
        """Note that the episodes under way are lost, and new ones begin with `frames` [N, *frame]."""
        ...

    def save(self, store: CheckpointStore) -> SavedSource:
        """Return what a checkpoint keeps; the bytes of a replay memory go to the store's segments."""
        ...

    def restore(self, checkpoint: Checkpoint, arrays: dict[str, Array], store: CheckpointStore) -> list[str]:
        """Go on from what was saved, before the envs are back; return what was lost."""
        ...

    def restore_draws(self, checkpoint: Checkpoint, arrays: dict[str, Array]) -> list[str]:
        """Queue again what was drawn and not yet learnt from; return what was lost."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def part_of(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays under a prefix, without it."""
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}


def prefixed(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays under a prefix."""
    return {f"{prefix}.{key}": np.ascontiguousarray(value) for key, value in arrays.items()}
