"""Where batches come from: a source takes in steps, and gives out the batches that are due.

A replay memory draws batches a fixed number of updates ahead. A rollout is learnt from before its weights play on, and
then dropped.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from redline.algorithms.family import ActorExtras
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.envs.vector import push_frames
from redline.errors import UserError
from redline.learner import Learner
from redline.replay import (
    BatchBuffers,
    BatchLoader,
    ReplayLayout,
    ReplayMemory,
    RolloutBuffer,
    SequenceBuffers,
    restore_memory,
    take_snapshot,
    with_burn_in,
    without_damage,
)
from redline.replay.batches import Wait
from redline.replay.sampler import Uniform
from redline.runs.checkpoints import CheckpointStore
from redline.runs.manifest import Checkpoint
from redline.runtime.carrier import download, make_carrier
from redline.runtime.counters import Counters, Pacing, Purpose, stream
from redline.types import (
    AnyBatch,
    Array,
    Batch,
    Draw,
    EnvSpec,
    FloatArray,
    Handles,
    IntArray,
    SequenceBatch,
    VectorStep,
)

ROWS_IN_A_PASS = 128  # of the target network: larger batches make a row no cheaper
DRAW_COLUMNS = ("lane", "number", "weight", "burn_in", "ahead")  # of draws, in a checkpoint
MOST_ROWS_KEPT = 512  # of features with their graph: 0.2 MB each of the largest network at 84 × 84


def part_of(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays under a prefix, without it."""
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}


def prefixed(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {f"{prefix}.{key}": np.ascontiguousarray(value) for key, value in arrays.items()}


class ReplaySource:
    """A replay memory, its sampler, and the loader that gathers batches in a thread."""

    learns_before_acting = False  # replayed transitions are old anyway, so updates run while the envs step
    keeps_features = False  # learning does not use the torso's features from acting
    entropy_nats: float | None = None  # of the policy that plays now: values are no policy

    def __init__(
        self, algorithm: QLearning, layout: ReplayLayout, *, pacing: Pacing, seed: int, device: torch.device
    ) -> None:
        self._algorithm = algorithm
        self._seed = seed
        self._sequence = algorithm.core.sequence()
        self._rows = algorithm.batch_size // (self._sequence.length_steps if self._sequence else 1)
        self.memory = ReplayMemory(layout)
        self.pacing = pacing
        self.waited_s = 0.0  # for batches to be gathered
        self.sampler = algorithm.sample.build(self.memory)
        self.loader: BatchLoader[Batch | SequenceBatch] = BatchLoader(
            self.memory,
            make_buffers=lambda: self._make_buffers(pin_memory=device.type == "cuda"),
            gamma=algorithm.returns.gamma,
            clip_rewards=algorithm.returns.clip_rewards,
            prefetch=algorithm.replay.prefetch,
            group=largest_group(algorithm),
        )
        self._drawn: list[Draw] = []  # of the batches that are being learnt from
        self._carrier = make_carrier(device)
        self._late: deque[tuple[Handles, torch.Tensor, Wait]] = deque()  # priorities that do not count yet

    def _make_buffers(self, *, pin_memory: bool) -> BatchBuffers | SequenceBuffers:
        layout, n_steps = self.memory.layout, self._algorithm.returns.n
        if self._sequence is None:
            return BatchBuffers(layout, batch_size=self._rows, n_steps=n_steps, pin_memory=pin_memory)
        return SequenceBuffers(
            layout,
            batch_size=self._rows,
            burn_in=self._sequence.burn_in_steps,
            length=self._sequence.length_steps,
            n_steps=n_steps,
            pin_memory=pin_memory,
        )

    def begin(self, first_frames: Array) -> None:
        """Start an episode in every lane with `first_frames` [N, *frame]; the steps of cut episodes stay."""
        self.memory.cut(self.memory.lanes)
        self.memory.begin(self.memory.lanes, first_frames)

    def batches_due(self, counters: Counters) -> Iterator[Sequence[AnyBatch]]:
        """Yield the batches that are due, in groups whose batches do not depend on each other's updates."""
        if self.memory.num_sampleable == 0:
            return
        due = self.pacing.updates_due(
            steps=counters.steps,
            samples=counters.samples,
            batch_size=self._algorithm.batch_size,
            since=(counters.free_steps, counters.free_samples),
        )
        while due > 0:
            group = self._next_batches(min(due, largest_group(self._algorithm)), counters)
            yield group
            due -= len(group)

    def _next_batches(self, count: int, counters: Counters) -> list[Batch | SequenceBatch]:
        """Draw exactly `prefetch` updates ahead, and return the batches whose turn it is."""
        while self.loader.is_short_of(count):
            rng = stream(self._seed, Purpose.DRAW, counters.batches_drawn)
            draw = self.sampler.draw(rng, self._rows, beta=self._algorithm.sample.beta_at(counters.steps))
            if self._sequence is not None:
                draw = with_burn_in(self.memory, draw, self._sequence.burn_in_steps)
            self.loader.submit(draw)
            counters.batches_drawn += 1
        begun_s = time.monotonic()
        taken = self.loader.take(count)
        self.waited_s += time.monotonic() - begun_s
        self._drawn = [draw for draw, _ in taken]
        carried, wait = self._carrier.carry([batch for _, batch in taken])
        self.loader.hold(wait)
        return carried

    def num_samples(self, batch: AnyBatch) -> int:
        """Return how many transitions a batch counts for, padding of short sequences included."""
        return self._algorithm.batch_size

    def exchange_priorities(self, priorities: torch.Tensor) -> list[tuple[Handles, Array]]:
        """Take the priorities of the last batch, and return those that count from the next draw on."""
        if not self.sampler.wants_priorities:
            return []
        (draw,) = self._drawn
        self._late.append((draw.handles, *download(priorities)))
        due = []
        while len(self._late) > self._algorithm.sample.draws_late():
            handles, sizes, wait = self._late.popleft()
            wait()
            due.append((handles, sizes.numpy()))
        return due

    def append(self, *, obs: Array, actions: IntArray, extras: ActorExtras, step: VectorStep, next_obs: Array) -> None:
        """Store a step of all lanes: observation, action, network outputs, result and next observation.

        Each frame is stored once, so observations are not.
        """
        self.memory.append(
            self.memory.lanes,
            actions=actions,
            reward=step.reward,
            return_ends=step.return_ends,
            episode_ends=step.ended,
            frames=step.frames,
            first_frames=step.first_frames,
        )

    def save(self, store: CheckpointStore) -> tuple[dict[str, Array], dict[str, Any] | None]:
        """Return what a checkpoint keeps: arrays, and the manifest of a replay memory, whose bytes go to the store."""
        replay = take_snapshot(self.memory, store.segments.append, store.segments.holds)
        arrays = {
            **prefixed("replay", replay.arrays),
            **prefixed("sampler", self.sampler.state()),
            **prefixed("draws", _draws_to_arrays(self.loader.pending)),
            **prefixed("late", self._late_to_arrays()),
        }
        return arrays, replay.manifest

    def restore(
        self, checkpoint: Checkpoint, arrays: dict[str, Array], store: CheckpointStore, *, first_frames: Array | None
    ) -> list[str]:
        """Go on from a checkpoint; return what was lost.

        `first_frames` begin the episodes of envs that start anew; None: the episodes under way go on.
        """
        lost: list[str] = []
        if checkpoint.replay is None:
            raise UserError(f"{checkpoint.path} holds no replay memory: it is not a checkpoint of a run with replay")
        replay, num_damaged = without_damage(checkpoint.replay, checkpoint.damaged_replay)
        if num_damaged:
            lost.append(
                f"{num_damaged:,} transitions of the saved replay are damaged, or older than damaged ones, and left out"
            )
        restore_memory(self.memory, replay, part_of("replay", arrays), store.segments.read)
        self.sampler.load_state(part_of("sampler", arrays))
        if first_frames is not None:
            self.begin(first_frames)
        late = part_of("late", arrays)
        if late and self._algorithm.sample.draws_late():
            handles = Handles(late["lane"], late["number"])
            self._late.append((handles, *download(torch.from_numpy(late["priority"]))))
        return lost + self._restore_draws(checkpoint, arrays)

    def _late_to_arrays(self) -> dict[str, Array]:
        if not self._late:
            return {}
        ((handles, sizes, wait),) = self._late
        wait()
        return {"lane": handles.lane, "number": handles.number, "priority": sizes.numpy()}

    def _restore_draws(self, checkpoint: Checkpoint, arrays: dict[str, Array]) -> list[str]:
        """Queue the batches drawn ahead again, if they would still be the same."""
        lost: list[str] = []
        saved, layout, frame_bytes = checkpoint.replay or {}, self.memory.layout, self.memory.frames.budget_bytes
        now = layout.capacity, layout.effective_codec, frame_bytes
        same_size = (saved["capacity"], saved["codec"], saved["frame_budget_bytes"]) == now
        if saved["budget_bytes"] == layout.budget_bytes and saved["frame_budget_bytes"] != frame_bytes:
            lost.append("the machine had less memory to spare for the replay than now, or more")
        kept = part_of("draws", arrays)
        is_any_due = self.loader.prefetch and checkpoint.state["counters"].get("batches_drawn", 0)
        is_sequence = self._sequence is not None
        draws = _draws_from_arrays(kept, of_sequences=is_sequence) if kept or is_any_due else []
        fits = len(draws) in (0, self.loader.prefetch) and all(len(draw.weight) == self._rows for draw in draws)
        fits &= same_size or not draws  # a smaller memory may evict a row before its turn
        if fits and all(self._is_held(draw) for draw in draws):
            for draw in draws:
                self.loader.submit(draw)
            return lost
        return [*lost, f"{len(draws)} batches drawn ahead are drawn anew"]

    def _is_held(self, draw: Draw) -> bool:
        """Tell whether all drawn rows, and the burn-in steps before them, can be read."""
        before = draw.handles.number - (0 if draw.burn_in is None else draw.burn_in)
        earliest = Handles(draw.handles.lane, before)
        return bool((self.memory.is_resident(draw.handles) & self.memory.is_resident(earliest)).all())

    def close(self) -> None:
        self.loader.close()
        self.memory.close()


def largest_group(algorithm: QLearning) -> int:
    """Return the most batches that are drawn at once: one where the next draw waits for priorities."""
    if not isinstance(algorithm.sample, Uniform) or algorithm.core.sequence() is not None:
        return 1
    return max(1, ROWS_IN_A_PASS // algorithm.batch_size)


def _draws_to_arrays(draws: list[Draw]) -> dict[str, Array]:
    if not draws:
        return {name: np.zeros((0, 0)) for name in DRAW_COLUMNS[:3]}  # none, rather than lost
    rows: list[Any] = [(one.handles.lane, one.handles.number, one.weight, one.burn_in, one.ahead) for one in draws]
    columns = zip(DRAW_COLUMNS, zip(*rows, strict=True), strict=True)
    return {name: np.stack(column) for name, column in columns if column[0] is not None}


def _draws_from_arrays(arrays: dict[str, Array], *, of_sequences: bool) -> list[Draw]:
    if arrays and not any(column.size for column in arrays.values()):
        return []
    columns = [arrays[name] for name in (DRAW_COLUMNS if of_sequences else DRAW_COLUMNS[:3])]
    return [Draw(Handles(lane, number), *rest) for lane, number, *rest in zip(*columns, strict=True)]


class RolloutSource:
    """A rollout under way, and the learner whose network gives the bootstrap values."""

    learns_before_acting = True  # the next rollout needs the newest weights
    memory = None
    waited_s = 0.0  # a rollout needs no gathering

    def __init__(self, algorithm: OnPolicy, spec: EnvSpec, *, num_envs: int, seed: int, learner: Learner) -> None:
        self._algorithm = algorithm
        self._seed = seed
        self._learner = learner
        self._num_batches = -(-algorithm.rollout_steps * num_envs // algorithm.batch_size)
        self.entropy_nats: float | None = None  # of the last whole rollout: a few steps say little
        self._next_obs: Array | None = None  # [N, K, *frame] after the last step of the rollout
        self._features: list[torch.Tensor] = []  # [N, F] of each step of the rollout, where they are kept
        # one update on the whole rollout by the weights that acted: the forward pass of acting serves learning too
        rows = algorithm.rollout_steps * num_envs
        self.keeps_features = algorithm.epochs == 1 and self._num_batches == 1 and rows <= MOST_ROWS_KEPT
        self.pacing = Pacing(samples_per_step=algorithm.samples_per_step, warmup_steps=0)
        self.buffer = RolloutBuffer(
            spec, num_envs=num_envs, steps=algorithm.rollout_steps, pin_memory=learner.device.type == "cuda"
        )
        self._carrier = make_carrier(learner.device)

    def begin(self, first_frames: Array) -> None:
        """Drop the rollout under way: its episodes do not go on."""
        self._clear()

    def batches_due(self, counters: Counters) -> Iterator[Sequence[AnyBatch]]:
        """Yield a full rollout in batches, `epochs` times, each time in another order."""
        if not self.buffer.is_full or self._next_obs is None:
            return
        algorithm, returns = self._algorithm, self._algorithm.returns
        rollout = self.buffer.rollout(
            self._state_values(self._next_obs),
            gamma=returns.gamma,
            trace=returns.trace,
            clip_rewards=returns.clip_rewards,
        )
        advantage, target = algorithm.objective.targets(rollout)
        self.entropy_nats = self.buffer.mean_entropy()
        # what was computed while acting is learnt from without another look at the pictures
        whole = self.buffer.whole(advantage, target, has_obs=not self._features)
        (whole,), wait = self._carrier.carry([replace(whole, features=tuple(self._features))])
        for _ in range(algorithm.epochs):
            rng = stream(self._seed, Purpose.DRAW, counters.batches_drawn)
            for batch in self.buffer.batches(whole, rng=rng, num_batches=self._num_batches):
                counters.batches_drawn += 1
                yield [batch]
        wait()  # long over: all of it was learnt from
        self._clear()

    def num_samples(self, batch: AnyBatch) -> int:
        """Return the rows of a batch."""
        return len(batch.action)

    def append(self, *, obs: Array, actions: IntArray, extras: ActorExtras, step: VectorStep, next_obs: Array) -> None:
        """Store a step of all lanes, with the value of the last observation where a limit cut an episode."""
        if extras.out is None or extras.preferences is None:
            raise ValueError("a rollout is played by the network, never at random")
        if extras.features is not None:
            self._features.append(extras.features)
        self._next_obs = next_obs
        value = self._algorithm.objective.state_values(torch.from_numpy(extras.out)).numpy()  # [N]
        final_value = np.zeros_like(value)
        if step.truncated.any():
            final_obs = push_frames(obs, step.frames)[step.truncated]
            final_value[step.truncated] = self._state_values(final_obs)
        self.buffer.append(
            obs=obs,
            action=actions,
            log_probability=_log_probabilities(extras.preferences, actions),
            value=value,
            reward=step.reward,
            final_value=final_value,
            return_ends=step.return_ends,
            episode_ends=step.ended,
        )

    def _state_values(self, obs: Array) -> FloatArray:
        """Return the value of each observation [N, K, *frame] by the newest weights."""
        with torch.no_grad():
            out = self._learner.online(torch.from_numpy(obs).to(self._learner.device))
            values: FloatArray = self._algorithm.objective.state_values(out).cpu().numpy()
        return values

    def _clear(self) -> None:
        self.buffer.clear()
        self._features = []
        self._next_obs = None

    def save(self, store: CheckpointStore) -> tuple[dict[str, Array], dict[str, Any] | None]:
        return prefixed("rollout", self.buffer.state()), None

    def restore(
        self, checkpoint: Checkpoint, arrays: dict[str, Array], store: CheckpointStore, *, first_frames: Array | None
    ) -> list[str]:
        """Go on with the rollout under way, if its episodes do."""
        if first_frames is None:
            self.buffer.load_state(part_of("rollout", arrays))
            self._next_obs = arrays["actor.obs"]
            if self.keeps_features:  # the weights have not changed since: the same numbers, bit for bit
                online, device = self._learner.online, self._learner.device
                self._features = [
                    online.features(torch.from_numpy(obs).to(device)) for obs in self.buffer.observations()
                ]
        return []


Source = ReplaySource | RolloutSource


def _log_probabilities(preferences: FloatArray, actions: IntArray) -> FloatArray:
    """Return log π [N] of the actions taken; meaningless for Q-values, where nobody reads it."""
    shifted = preferences - preferences.max(axis=1, keepdims=True)
    log_policy = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))  # [N, A]
    chosen: FloatArray = log_policy[np.arange(len(actions)), actions]
    return chosen
