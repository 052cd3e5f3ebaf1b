"""The learner's view of actors in other processes: rings that they fill, weights that they ask for."""

import numpy as np

from redline.envs.vector import Progress
from redline.experience.shared_lanes import SharedLanes
from redline.runtime.pacing import TAKES_PER_UPDATE
from redline.runtime.processes.board import EVALUATOR, FIRST_ACTOR, WAITS, Place
from redline.runtime.processes.letters import decode_letter
from redline.runtime.processes.shared_weights import SharedWeights
from redline.runtime.training import Played, Turn, WorldRestored
from redline.types import Array, EnvSpec

PATIENCE_S = 0.1  # then there may be orders to look for


class RingWorld:
    """Lets actors go on by giving room back, and takes in what they have played."""

    def __init__(
        self, spec: EnvSpec, *, lanes: SharedLanes, weights: SharedWeights, place: Place, envs_per_actor: int
    ) -> None:
        self.spec = spec
        self.num_envs = len(lanes)
        self._lanes = lanes
        self._weights = weights
        self._place = place
        self._actor_of = np.arange(len(lanes)) // envs_per_actor  # [lanes]
        self._published_updates = -1

    @property
    def waited_s(self) -> dict[str, float]:
        """Seconds waited so far for actors."""
        return {"actors": float(self._place.board.waited_s[self._place.index, WAITS.index("actors")])}

    def begin(self) -> None:
        """Return no frames: each actor begins when it starts, and the rings bring its first ones."""

    def publish(self, turn: Turn) -> None:
        """Make the learner's weights the newest that actors can have."""
        self._weights.publish(turn.policy.network.state_dict(), updates=turn.updates, steps=turn.steps)
        self._published_updates = turn.updates
        self._place.board.bells[EVALUATOR].ring()  # it may wait for them

    def start_step(self, turn: Turn) -> None:
        """Publish the weights if somebody asks for newer ones, and let actors go on whose steps were taken."""
        board = self._place.board
        is_new = turn.updates != self._published_updates
        # only before room is given: an actor in lockstep that is slow to act must not see what is learnt meanwhile
        if is_new and self._lanes.has_taken and self._weights.is_wanted:
            self.publish(turn)
        board.show_progress(steps=turn.steps, updates=turn.updates)
        for actor in np.unique(self._actor_of[self._lanes.release()]).tolist():
            board.bells[FIRST_ACTOR + actor].ring()

    def finish_step(self, turn: Turn) -> Played:
        """Take in a step of each lane that has one; with nothing else to do, wait for some."""
        source = turn.source
        if source.memory is None:
            raise ValueError("actors in other processes need a replay memory to write to")
        is_free = source.pacing.is_free
        if not (is_free and source.pacing.is_learning(turn.steps) and source.memory.num_sampleable):
            is_there = self._place.wait_until(lambda: self._lanes.has_steps, on="actors", timeout_s=PATIENCE_S)
            if not is_there:
                return Played(0, [])
        taken = [self._lanes.take(source.memory)]
        while is_free and taken[-1].steps and len(taken) < TAKES_PER_UPDATE:
            taken.append(self._lanes.take(source.memory))
        letters = [pair for part in taken for pair in zip(part.letters, part.lanes.tolist(), strict=True)]
        return Played(sum(part.steps for part in taken), [decode_letter(letter, lane) for letter, lane in letters])

    def state(self) -> dict[str, Array]:
        """Return nothing: where the actors' envs are is not kept."""
        return {}

    def restore(self, arrays: dict[str, Array], progress: Progress | None) -> WorldRestored:
        """Leave it to the actors to cut the episodes that were under way."""
        return WorldRestored(["with --topology async the episodes under way are cut and all envs start anew"], None)
