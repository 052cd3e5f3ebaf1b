"""Atari games on native threads, safe from the traps of the emulator's vector env.

Lanes that end are reset within the same step, so that every step counts in every lane. The first episode end
`seed_interval_steps` or more after a lane's last seeded reset is followed by another; from there the same actions give
the same frames, bit for bit, across all unseeded resets until the next seeded one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from ale_py.vector_env import AtariVectorEnv as Emulator
from gymnasium.vector import AutoresetMode

from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError, Ledger, State, checked_actions, checksums
from redline.types import Array, BoolArray, EnvSpec, FloatArray, IntArray, Progress, VectorStep
from redline.worker import Worker

if TYPE_CHECKING:
    from redline.envs.atari_games import AtariGame, AtariProtocol

SEED_INTERVAL_STEPS = 10_000
_NOOP = 0
_NO_SEED = -1  # to the emulator: reset, and continue with its own random numbers


class _Standing(NamedTuple):  # made at every step: a dataclass would take several times as long
    """The state of every lane."""

    frames: Array  # [N, *frame]
    info: dict[str, Array]  # [N] each: lives, emulator frames since the seeded reset and since the last reset

    def fingerprint(self) -> State:
        """Return what must come back after a resume."""
        counters = ("lives", "frame_number", "episode_frame_number")
        return {"frame_crc32": checksums(self.frames)} | {name: self.info[name].astype(np.int64) for name in counters}


class _Emulated(NamedTuple):
    """One step of every lane, and the state of the lanes after the ended ones were reset."""

    frames: Array  # [N, *frame] the final ones where an episode ended
    reward: FloatArray  # [N]
    terminated: BoolArray  # [N]
    truncated: BoolArray  # [N]
    lives: Array  # [N] before any reset
    reseeded: BoolArray | None  # [N] lanes that were reset with their next seed; None if no lane was reset
    standing: _Standing


class AtariVectorEnv:
    """N games in lockstep; the emulators run between `send` and `recv`, resets included."""

    def __init__(
        self,
        game: AtariGame,
        config: EnvConfig,
        *,
        num_envs: int,
        seed: int,
        threads: int,
        seed_interval_steps: int = SEED_INTERVAL_STEPS,
        recv_timeout_s: float = 60.0,
    ) -> None:
        self._emulator = make_emulator(game.game, game.protocol, config, num_envs=num_envs, threads=threads)
        self.spec: EnvSpec = game.spec(config)
        self.num_envs = num_envs
        self._life_loss_ends_return = game.protocol.life_loss_ends_return
        self._seed_interval_steps = seed_interval_steps
        self._recv_timeout_s = recv_timeout_s
        self._ledger = Ledger(num_envs, num_actions=self.spec.num_actions, run_seed=seed)
        self._worker = Worker(f"receive {game.name}")
        self._standing: _Standing | None = None
        self._actions: IntArray = np.full(num_envs, _NOOP, np.int64)  # [N] the last ones sent
        self._pending: int | None = None  # ticket of the step that was sent and not received
        self._is_hung = False

    @property
    def frames(self) -> Array:
        """The newest frame of every lane [N, *frame]."""
        return self._now().frames

    @property
    def reset_seed(self) -> IntArray:
        """The seed [N] of the last seeded reset."""
        return self._ledger.seed

    @property
    def steps_since_seed(self) -> IntArray:
        """Actions [N] taken since that reset."""
        return self._ledger.steps

    def actions_since_seed(self, lane: int, begin: int = 0, end: int | None = None) -> Array:
        """Return those actions of one lane, or a part; after an episode's end, until the next `send`."""
        return self._ledger.actions(lane, begin, end)

    def reset(self) -> Array:
        """Begin an episode in every lane from its next seed."""
        self._refuse_pending("reset")
        self._ledger.reseed(np.ones(self.num_envs, np.bool_))
        standing: _Standing = self._run(partial(self._reset_lanes, self._ledger.seed))
        self._standing = standing
        return standing.frames

    def send(self, actions: IntArray) -> None:
        """Start one step of every lane, and the wait for it."""
        self._refuse_pending("send")
        self._now()
        self._actions = checked_actions(actions, num_envs=self.num_envs, num_actions=self.spec.num_actions)
        self._ledger.record(self._actions)
        # the waiting thread is ready before the emulators begin, and does not take a core from them
        try:
            self._pending = self._worker.submit(self._collect)
            self._emulator.send(self._actions)
        except BaseException:  # such as Ctrl-C: the thread may wait for what was never sent
            self._is_hung = True
            raise

    def recv(self) -> VectorStep:
        """Return the results of the step; RuntimeError if the emulators do not answer."""
        if self._pending is None:
            raise RuntimeError(f"{self.spec.name}: recv() follows send(), once")
        step: _Emulated = self._await(self._pending, self._recv_timeout_s)
        self._pending = None
        before = self._now()
        self._standing = step.standing
        if step.reseeded is not None:
            self._ledger.reseed(step.reseeded)
        return VectorStep(
            frames=step.frames,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            life_lost=self._lives_lost(before, step),
            first_frames=step.standing.frames,
        )

    def state(self) -> State:
        """Return what `restore` needs."""
        self._refuse_pending("state")
        return self._ledger.state() | self._now().fingerprint()

    def restore(self, state: State, progress: Progress | None = None) -> bool:
        """Replay the steps since each lane's seeded reset; all lanes arrive together."""
        self._refuse_pending("restore")
        if self._ledger.load(state):
            self._standing = self._relive(progress)
            if all(np.array_equal(state[name], value) for name, value in self._standing.fingerprint().items()):
                return True
        self.reset()
        return False

    def close(self) -> None:
        """End the waiting thread; emulators that hang stay until the process ends, and do not delay it."""
        self._worker.close(0.0 if self._is_hung else self._recv_timeout_s)
        if not self._is_hung:
            self._emulator.close()

    def _relive(self, progress: Progress | None) -> _Standing:
        """Step the whole vector as often as the longest lane did; the others join as late as possible."""
        steps = self._ledger.steps
        total = int(steps.max())
        joins = total - steps  # [N] the step before which a lane is reset with its seed
        standing: _Standing = self._run(partial(self._reset_lanes, np.where(joins == 0, self._ledger.seed, _NO_SEED)))
        script = self._ledger.script(joins, idle=_NOOP)  # [T, N]
        for t in range(total):
            if t in joins[joins > 0]:
                self._run(partial(self._reset_lanes, self._ledger.seed, joins == t))
            self._emulator.send(script[t])
            standing = self._run(partial(self._collect, reliving=joins <= t)).standing
            if progress is not None and (t + 1) % 100 == 0:
                progress((t + 1) / total)
        if total and (joins == total).any():
            standing = self._run(partial(self._reset_lanes, self._ledger.seed, joins == total))
        if progress is not None:
            progress(1.0)
        return standing

    def _collect(self, reliving: BoolArray | None = None) -> _Emulated:
        """Receive one step and reset the lanes that ended, with their next seed where one is due.

        Lanes that are replayed get no new seed: they had none; lanes yet to join are left alone.
        """
        observations, reward, terminated, truncated, info = self._emulator.recv()
        frames = observations[:, 0]
        standing = _Standing(frames, info)
        ended = terminated | truncated
        reseeded = None
        if reliving is not None:
            ended &= reliving
        if ended.any():
            reseeded = np.zeros_like(ended)
            if reliving is None:
                reseeded = ended & (self._ledger.steps >= self._seed_interval_steps)
            standing = self._reset_lanes(self._ledger.next_seeds(reseeded), ended)
        return _Emulated(
            frames=frames,
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            lives=info["lives"],
            reseeded=reseeded,
            standing=standing,
        )

    def _reset_lanes(self, seeds: IntArray, lanes: BoolArray | None = None) -> _Standing:
        """Reset those lanes (by default all), each with its seed if that is ≥ 0."""
        if lanes is None:
            observations, info = self._emulator.reset(seed=seeds)
        else:
            observations, info = self._emulator.reset(seed=seeds[lanes], options={"reset_mask": lanes})
        return _Standing(observations[:, 0], info)

    def _lives_lost(self, before: _Standing, step: _Emulated) -> BoolArray:
        if not self._life_loss_ends_return:
            return np.zeros(self.num_envs, np.bool_)
        goes_on = ~(step.terminated | step.truncated)
        return goes_on & (step.lives > 0) & (step.lives < before.info["lives"])

    def _run(self, job: Callable[[], Any]) -> Any:
        seeding_s = 2.0 * self.num_envs  # a seeded reset loads the ROM anew: 0.13 s each on a free core
        return self._await(self._worker.submit(job), self._recv_timeout_s + seeding_s)

    def _await(self, ticket: int, timeout_s: float) -> Any:
        try:
            return self._worker.result(ticket, timeout_s)
        except TimeoutError:
            self._is_hung = True
            raise EnvError(
                f"{self.spec.name}: no answer from the emulators within {timeout_s:g} s, a worker thread has failed;"
                f" lanes 0 … {self.num_envs - 1}, seeds {self._ledger.seed.tolist()},"
                f" steps since {self._ledger.steps.tolist()}, actions {self._actions.tolist()}"
            ) from None

    def _now(self) -> _Standing:
        if self._standing is None:
            raise RuntimeError(f"{self.spec.name}: reset() or restore() comes first")
        return self._standing

    def _refuse_pending(self, what: str) -> None:
        if self._pending is not None:
            raise RuntimeError(f"{self.spec.name}: {what}() cannot follow send(), recv() comes first")


def make_emulator(
    game: str, protocol: AtariProtocol, config: EnvConfig, *, num_envs: int, threads: int, stack: int = 1
) -> Emulator:
    """Return emulators that follow a protocol."""
    return start_emulator(game, emulator_options(protocol, config, stack=stack), num_envs=num_envs, threads=threads)


def start_emulator(game: str, options: Mapping[str, Any], *, num_envs: int, threads: int) -> Emulator:
    """Return emulators with the given options."""
    if threads < 1:
        raise ValueError(f"{threads} emulator threads: 1 or more are needed (0 would take every core)")
    return Emulator(
        game,
        num_envs,
        batch_size=num_envs,
        num_threads=threads,
        thread_affinity_offset=-1,
        autoreset_mode=AutoresetMode.NEXT_STEP,  # never happens in a watched lane: it would ignore an action
        **options,
    )


def emulator_options(protocol: AtariProtocol, config: EnvConfig, *, stack: int = 1) -> dict[str, Any]:
    """Return every option of an emulator: its defaults would surprise."""
    return {
        "max_num_frames_per_episode": config.max_episode_frames,
        "repeat_action_probability": protocol.sticky,
        "full_action_space": False,
        "continuous": False,
        "continuous_action_threshold": 0.5,
        "img_height": config.size,
        "img_width": config.size,
        "grayscale": True,
        "stack_num": stack,
        "frameskip": config.skip,
        "maxpool": True,
        "noop_max": protocol.noop_max,
        "episodic_life": False,  # True resets the whole game on every life
        "life_loss_info": False,  # True mixes lives into `terminated` and can hide a truncation
        "reward_clipping": False,  # True loses the score; the learner clips what it reads
        "use_fire_reset": False,
    }
