"""Training: one vector step after another. Act, run the updates that are due, store the step.

One vector step: (1) act, (2) send, (3) run the updates that are due, drawing only from transitions complete before
this step, (4) receive, (5) append. The envs run from (2) to (4) while the learner learns. Updates on a full rollout
come before (1) instead, so that the next action comes from the newest weights.
Checkpoints are taken between (5) and (1), where everything stands still.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as encode_arrays
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save as encode_tensors

from redline.algorithms.family import ActorExtras, ActorParams
from redline.envs.vector import VectorEnv
from redline.episodes.tracing import RecordingConfig
from redline.errors import DamagedError
from redline.learner import Learner, NonFiniteError, describe_batch
from redline.runs.checkpoints import CheckpointStore
from redline.runs.manifest import Checkpoint
from redline.runtime.actor import Actor, Episode
from redline.runtime.carrier import Upload
from redline.runtime.config import Job, Limits
from redline.runtime.counters import Counters, Purpose, Scores, counters_from_json, counters_to_json, stream
from redline.runtime.sources import ReplaySource, Source, part_of, prefixed
from redline.types import AnyBatch, Array, EnvSpec, IntArray, Progress

if TYPE_CHECKING:
    from redline.runtime.processes.roles import RingWorld

ARRAYS = "arrays.safetensors"  # in a checkpoint: the state of all parts but the learner
PHASES = ("act", "draw", "learn", "keep", "other")


class Turn(NamedTuple):  # made at every vector step: a dataclass would take several times as long
    """Input of a world for one vector step: the policy, the progress of the run, and the source that stores it."""

    policy: ActorParams
    rng: Callable[[], np.random.Generator]  # of the actions
    source: Source
    steps: int
    updates: int


class InlineWorld:
    """A vector env and the actor that plays it, in the process of the learner: the reference topology.

    The emulators run on threads of their own from `send` to `recv`, while the learner learns. `RingWorld` is the world
    of actors in other processes.
    """

    def __init__(self, env: VectorEnv, *, state_width: int = 0, recording: RecordingConfig | None = None) -> None:
        self.env, self.spec, self.num_envs = env, env.spec, env.num_envs
        self.actor = Actor(env, state_width=state_width, recording=recording)
        self.waited_s = {"envs": 0.0}  # so far, by reason
        self._sent: tuple[IntArray, ActorExtras] | None = None

    def begin(self) -> Array:
        """Start an episode in every lane, and return the first frames."""
        first_frames = self.env.reset()
        self.actor.begin(first_frames)
        return first_frames

    def start_step(self, turn: Turn) -> None:
        """Act with the newest weights, and let the envs step."""
        self._sent = self.actor.choose(turn.policy, turn.rng())
        self.env.send(self._sent[0])

    def finish_step(self, turn: Turn) -> tuple[int, list[Episode]]:
        """Wait for the envs, store the step, and return how many steps and which episodes were played."""
        if self._sent is None:
            raise RuntimeError("finish_step() follows start_step()")
        begun_s = time.monotonic()
        step = self.env.recv()
        self.waited_s["envs"] += time.monotonic() - begun_s
        obs, (actions, extras) = self.actor.obs, self._sent
        episodes = self.actor.observe(step)
        turn.source.append(obs=obs, actions=actions, extras=extras, step=step, next_obs=self.actor.obs)
        return self.num_envs, episodes

    def state(self) -> dict[str, Array]:
        """Return what a checkpoint keeps of actor and envs."""
        return {**prefixed("actor", self.actor.state()), **prefixed("env", self.env.state())}

    def restore(self, arrays: dict[str, Array], progress: Progress | None) -> tuple[list[str], Array | None]:
        """Restore actor and envs, or begin anew where that is impossible.

        Return what was lost, and the first frames [N, *frame] of envs that start anew; None if their episodes go on.
        """
        cut = "the episodes under way are cut, all envs start anew"
        if "actor.return" not in arrays:
            return [f"the actors were processes of their own: {cut}"], self.begin()
        num_envs = len(arrays["actor.return"])
        if num_envs != self.num_envs:
            return [f"{num_envs} envs became {self.num_envs}: {cut}"], self.begin()
        if self.env.restore(part_of("env", arrays), progress):
            self.actor.load_state(part_of("actor", arrays))
            return [], None
        self.actor.begin(self.env.frames)
        return [f"{self.spec.name} did not come back as it was: {cut}"], self.env.frames


class Stopwatch:
    """Adds the time since the last lap to a phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last_s = time.perf_counter()

    def lap(self, phase: str) -> None:
        """End a phase; the next begins."""
        now_s = time.perf_counter()
        self.seconds[phase] += now_s - self._last_s
        self._last_s = now_s

    def forget(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.skip()

    def skip(self) -> None:
        """Leave out the time since the last lap: it is not training."""
        self._last_s = time.perf_counter()


class Mark(Protocol):
    """A moment in what a GPU computes, as a CUDA event is one."""

    def query(self) -> bool:
        """Tell whether the GPU has come so far."""

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds until another mark."""


class DeviceStopwatch(Stopwatch):
    """Adds up when a GPU ends what was begun in each phase: by the clock of the CPU, it would all end at once.

    Laps are counted when the GPU has come so far, and nobody waits for it.
    """

    def __init__(self, mark: Callable[[], Mark]) -> None:
        super().__init__()
        self._mark = mark
        self._last = mark()
        self._laps: deque[tuple[str, Mark, Mark]] = deque()

    def lap(self, phase: str) -> None:
        begun, self._last = self._last, self._mark()
        self._laps.append((phase, begun, self._last))
        while self._laps and self._laps[0][2].query():
            name, start, end = self._laps.popleft()
            self.seconds[name] += start.elapsed_time(end) / 1_000.0

    def forget(self) -> None:
        self._laps.clear()
        super().forget()

    def skip(self) -> None:
        self._last = self._mark()


def mark_cuda(device: torch.device) -> Mark:
    """Mark what a GPU has begun so far."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def make_stopwatch(device: torch.device) -> Stopwatch:
    """Return the clock of the phases of training on a device."""
    if device.type == "cuda":
        return DeviceStopwatch(partial(mark_cuda, device))
    return Stopwatch()


class Trainer:
    """The parts of a run and its counters."""

    def __init__(
        self,
        job: Job,
        *,
        world: InlineWorld | RingWorld,
        env_seed: int | None,
        source: Source,
        learner: Learner,
        after_update: Callable[[], None] = lambda: None,
        resources: ExitStack | None = None,
    ) -> None:
        """Take the parts, and the `resources` that they hold: closing the trainer closes them."""
        self.job = job
        self.world = world
        self.env_seed = env_seed  # None if the envs are seeded elsewhere
        self.source = source
        self.learner = learner
        self._upload = Upload(learner.device)
        self._after_update = after_update
        self._resources = resources or ExitStack()
        self.counters = Counters()
        self.scores = Scores()
        self.phases = make_stopwatch(learner.device)
        self._stray_steps = 0  # beyond the last whole vector step
        self._last_batch: AnyBatch | None = None

    @property
    def spec(self) -> EnvSpec:
        return self.world.spec

    def close(self) -> None:
        self._resources.close()

    def begin(self) -> None:
        """Start an episode in every lane; actors in other processes do that themselves, when they start."""
        if isinstance(self.world, InlineWorld):
            self.source.begin(self.world.begin())

    @property
    def epsilon(self) -> float:
        return epsilon_at(self.job, self.counters.steps)

    @property
    def waited_s(self) -> dict[str, float]:
        return {**self.world.waited_s, "gather": self.source.waited_s}

    def turn(self) -> Turn:
        """Return the input of the world for the next vector step."""
        job, counters, learner = self.job, self.counters, self.learner
        policy = ActorParams(
            job.algorithm,
            learner.online,
            self.epsilon,
            learner.device,
            is_warmup=is_warmup(job, counters.steps),
            keeps_features=self.source.keeps_features,
            upload=self._upload,
        )
        rng = partial(stream, job.seed, Purpose.ACT, counters.vector_steps)
        return Turn(policy, rng, self.source, counters.steps, counters.updates)

    def vector_step(self) -> list[Episode]:
        """Play one vector step, run the updates that are due, and return the episodes that ended."""
        counters, phases = self.counters, self.phases
        phases.lap("other")
        if self.source.learns_before_acting:
            self.learn()
        turn = self.turn()
        self.world.start_step(turn)
        phases.lap("act")
        if not self.source.learns_before_acting:
            self.learn()
        steps, episodes = self.world.finish_step(turn)
        phases.lap("keep")
        counters.steps += steps
        whole, self._stray_steps = divmod(self._stray_steps + steps, self.world.num_envs)
        counters.vector_steps += whole
        counters.episodes += len(episodes)
        if self.source.pacing.is_free:
            counters.free_steps, counters.free_samples = counters.steps, counters.samples
        for episode in episodes:
            self.scores.add(episode.total_reward, time_s=counters.time_s, length_steps=episode.length_steps)
        if episodes:
            self._skip_ahead()
        return episodes

    def _skip_ahead(self) -> None:
        """Start the annealing early, once the return that it waits for is reached."""
        wanted, newest = self.job.anneal_at_return, self.scores.newest_mean
        ahead_steps = self.job.algorithm.annealed_from() - self.counters.schedule_steps
        if wanted is not None and newest is not None and newest >= wanted and ahead_steps > 0:
            self.counters.skipped_steps += ahead_steps

    def learn(self) -> None:
        for batches in self.source.batches_due(self.counters):
            self.phases.lap("draw")
            for batch, precomputed in zip(batches, self.learner.precompute_targets(batches), strict=True):
                self._learn_from(batch, precomputed)
            self.phases.lap("learn")
        self.phases.lap("draw")

    def _learn_from(self, batch: AnyBatch, precomputed: torch.Tensor | None) -> None:
        counters, source = self.counters, self.source
        self._last_batch = batch
        rng = stream(self.job.seed, Purpose.LEARN, counters.updates)
        priorities = self.learner.update(batch, steps=counters.schedule_steps, rng=rng, precomputed=precomputed)
        if isinstance(source, ReplaySource):
            for handles, sizes in source.exchange_priorities(priorities):
                self.check_loss(float(sizes.max()))  # a priority that is not a number would spoil the whole tree
                source.sampler.update(handles, sizes)
        counters.updates += 1
        counters.samples += source.num_samples(batch)
        self._after_update()

    def limit_reached(self, *, invocation_s: float, limits: Limits | None = None) -> str | None:
        """Return which limit the run has reached, in words, if any; of the job's limits, or of others."""
        per_step = self.spec.frames_per_step
        limits = limits or self.job.limits
        return limits.reached(self.counters, self.scores, frames_per_step=per_step, invocation_s=invocation_s)

    def check_loss(self, loss: float | None) -> None:
        """Raise an error that describes the last batch if the mean loss is not finite."""
        if loss is None or math.isfinite(loss):
            return
        names = ", ".join(self.learner.non_finite_weights()) or "none"
        batch = "none" if self._last_batch is None else describe_batch(self._last_batch)
        raise NonFiniteError(
            f"the loss is {loss} at step {self.counters.steps:,}, update {self.counters.updates:,}; "
            f"non-finite weights: {names}; last batch: {batch}; a lower --optimizer.lr may help"
        )

    def save(self, store: CheckpointStore) -> Path:
        """Write a checkpoint of everything that decides how the run goes on."""
        counters, scores, bad = self.counters, self.scores, self.learner.non_finite_weights()
        if bad:
            raise NonFiniteError(
                f"weights {', '.join(bad)} are not finite at step {counters.steps:,}: no checkpoint is written"
            )
        files = {f"{part}.safetensors": encode_tensors(values) for part, values in self.learner.state().items()}
        arrays, replay = self.source.save(store)
        files[ARRAYS] = encode_arrays(self.world.state() | arrays)
        envs = {"env_seed": self.env_seed, "num_envs": self.world.num_envs}
        path = store.save(
            steps=counters.steps,
            files=files,
            state={**counters_to_json(counters, scores), **envs},
            replay=replay,
            score=scores.mean if scores.is_full else None,
        )
        store.prune()
        return path

    def restore(self, checkpoint: Checkpoint, store: CheckpointStore, progress: Progress | None = None) -> list[str]:
        """Bring a fresh trainer to the state of a checkpoint; return what could not be restored exactly."""
        self.counters, self.scores = counters_from_json(checkpoint.state)
        with malformed_is_damage(checkpoint):
            learner = {
                name.removesuffix(".safetensors"): load_tensors(data)
                for name, data in checkpoint.files.items()
                if name.endswith(".safetensors") and name != ARRAYS
            }
            self.learner.load_state(learner, updates=self.counters.updates)
            arrays = load_arrays(checkpoint.files[ARRAYS])
            lost, first_frames = self.world.restore(arrays, progress)
            return self.source.restore(checkpoint, arrays, store, first_frames=first_frames) + lost


@contextmanager
def malformed_is_damage(checkpoint: Checkpoint) -> Iterator[None]:
    """Name a checkpoint whose files have the right checksums, but lack tensors, or hold some that do not fit.

    What JSON says is decoded into types before: a TypeError or AttributeError is a fault of Redline's.
    """
    try:
        yield
    except (SafetensorError, KeyError, IndexError, ValueError, RuntimeError) as error:
        raise DamagedError(
            f"{checkpoint.path} does not hold what Redline writes ({type(error).__name__}: {error}): "
            "remove that folder to go on from an older checkpoint"
        ) from error


def is_warmup(job: Job, steps: int) -> bool:
    """Tell whether actions are random after `steps` steps, because nothing was learnt yet."""
    return steps < job.algorithm.warmup_steps


def epsilon_at(job: Job, steps: int) -> float:
    """Return ε after `steps` steps; 1 during the warm-up."""
    return 1.0 if is_warmup(job, steps) else job.algorithm.explore.epsilon_at(steps)
