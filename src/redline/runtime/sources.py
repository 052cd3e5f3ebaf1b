"""Where batches come from: what a trainer asks of a replay memory or of a rollout alike."""

from collections.abc import Callable, Iterator, Sequence
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
    waited_s: float  # for batches to be gathered
    entropy_nats: float | None  # of the policy that plays now, if it can be told

    @property
    def memory(self) -> ReplayMemory | None:
        """The replay memory, if there is one."""
        ...

    @property
    def learns_before_acting(self) -> bool:
        """Whether the next action waits for what is learnt; otherwise learning goes on while the envs step."""
        ...

    @property
    def keeps_features(self) -> bool:
        """Whether what the torso gave while acting is learnt from: `append` is then handed it."""
        ...

    @property
    def take_priorities(self) -> Callable[[Array], None] | None:
        """Takes how surprising each row of the last batch was; None where every row is learnt from alike."""
        ...

    def begin(self, first_frames: Array) -> None:
        """Start an episode in every lane with `first_frames` [N, *frame]; episodes under way are cut."""
        ...

    def batches_due(self, counters: Counters) -> Iterator[Sequence[AnyBatch]]:
        """Yield what is due to be learnt, in groups of batches that do not depend on what is learnt from each other."""
        ...

    def num_samples(self, batch: AnyBatch) -> int:
        """Return how many transitions a batch counts for."""
        ...

    def append(self, *, obs: Array, actions: IntArray, extras: ActorExtras, step: VectorStep, next_obs: Array) -> None:
        """Take in one step of all lanes: what was seen, done and thought, what came of it, and what is seen next."""
        ...

    def save(self, store: CheckpointStore) -> SavedSource:
        """Return what a checkpoint keeps; the bytes of a replay memory go to the store's segments."""
        ...

    def restore(
        self,
        checkpoint: Checkpoint,
        arrays: dict[str, Array],
        store: CheckpointStore,
        *,
        first_frames: Array | None,
    ) -> list[str]:
        """Go on from what was saved; return what was lost.

        `first_frames` begin the episodes of envs that start anew; None: the episodes under way go on.
        """
        ...


def part_of(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays under a prefix, without it."""
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}


def prefixed(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays under a prefix."""
    return {f"{prefix}.{key}": np.ascontiguousarray(value) for key, value in arrays.items()}
