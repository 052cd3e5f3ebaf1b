"""A checkpoint plays: `redline eval`, `redline play RUN --policy`, and the agent that Python scripts hold."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_tensors

from redline.algorithms.family import ActorParams, Algorithm, act
from redline.envs.catalog import env_spec, resolve
from redline.envs.classic import GymnasiumEnv, frame_converter
from redline.envs.vector import push_frames
from redline.episodes.episode import EPISODE, Address, encode_episode
from redline.episodes.library import POLICY, Entry, open_library, played_path
from redline.episodes.setting import SETTING
from redline.episodes.tracing import RecordingConfig
from redline.errors import UserError, check_range, check_seed
from redline.exploration import Exploration, Greedy, Sampled
from redline.files import check_own, explained, make_own_folder
from redline.learner import compute_threads
from redline.networks import Network, mask_state
from redline.runs.blocks import BlockWriter
from redline.runs.host import usable_cores
from redline.runs.manifest import NEWEST, Checkpoint, find_checkpoint
from redline.runtime.actor import Episode, RequestedStop
from redline.runtime.config import Job
from redline.runtime.counters import Purpose, stream
from redline.runtime.evaluation import evaluation_seed, make_player
from redline.runtime.precision import allow_tf32
from redline.runtime.resolve import find_device
from redline.runtime.resuming import SavedRun, read_run
from redline.runtime.run_log import setting_of
from redline.types import Array, BoolArray, Progress

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class EvaluationConfig:
    """How `redline eval` plays."""

    episodes: int = 30
    """Whole episodes to play."""
    seed: int = 0
    """Seed of the games and of random actions; the run's own seed is part of both."""
    epsilon: float | None = None
    """Share of random actions; as the algorithm's paper evaluates if not given."""
    num_envs: int = 8
    """Environments played side by side, never more than there are episodes."""
    sample: bool = False
    """Draw actions from the policy of a policy-gradient run instead of taking its likeliest."""
    device: str = "auto"
    """Where the network computes: auto, cpu, cuda or cuda:i."""

    def __post_init__(self) -> None:
        check_range("episodes", self.episodes, 1, 10_000)
        check_seed(self.seed)
        if self.epsilon is not None and not 0.0 <= self.epsilon <= 1.0:
            raise UserError(f"epsilon is {self.epsilon}, but a probability lies between 0 and 1")
        check_range("num-envs", self.num_envs, 1, 1024)
        if self.sample and self.epsilon is not None:
            raise UserError("sample and epsilon are two ways to act: use one of them")


@dataclass(frozen=True)
class Evaluation:
    """The episodes that `redline eval` played, and how."""

    played: list[Episode]  # in the order in which they ended
    epsilon: float
    num_envs: int
    protocol: str
    frames_per_step: int
    device: torch.device
    duration_s: float


def evaluate(
    job: Job,
    checkpoint: Checkpoint,
    config: EvaluationConfig,
    *,
    progress: Progress,
    requested_stop: RequestedStop = lambda: None,
    recording: RecordingConfig | None = None,
) -> Evaluation:
    """Play the episodes that `config` asks for with the weights of a checkpoint, and record them if asked to."""
    begun_s = time.monotonic()
    explore, epsilon = choose_acting(job.algorithm, config)
    device = find_device(config.device)
    allow_tf32(allowed=False)
    num_envs, cores = min(config.num_envs, config.episodes), usable_cores()
    threads, how = min(cores, num_envs), (explore, epsilon)
    spec, seed = env_spec(job.env), evaluation_seed(job.seed, config.seed)
    player = make_player(job, spec, device=device, num_envs=num_envs, threads=threads, act=how, recording=recording)
    load_weights(player.network, checkpoint)
    with compute_threads(cores if spec.is_image else 1), _denormals_flushed():
        played = player.play(config.episodes, seed=seed, progress=progress, requested_stop=requested_stop)
    return Evaluation(
        played=played,
        epsilon=epsilon,
        num_envs=num_envs,
        protocol=f"{resolve(job.env.id).evaluation_rules}; whole episodes of at most "
        f"{job.env.max_episode_frames:,} frames, unclipped rewards",
        frames_per_step=spec.frames_per_step,
        device=device,
        duration_s=time.monotonic() - begun_s,
    )


def choose_acting(algorithm: Algorithm, config: EvaluationConfig) -> tuple[Exploration, float]:
    """Return the exploration and ε: greedy, unless `config` asks for draws from a policy."""
    if config.sample:
        if not isinstance(algorithm.explore, Sampled):
            raise UserError("the run's algorithm learns values, which are no policy to draw from: leave --sample out")
        return Sampled(), 0.0
    return Greedy(), algorithm.explore.evaluation_epsilon() if config.epsilon is None else config.epsilon


def load_weights(network: Network, checkpoint: Checkpoint) -> None:
    """Give the network the weights of a checkpoint."""
    try:
        network.take_weights(load_tensors(checkpoint.files[WEIGHTS]))
    except (KeyError, OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the weights in {checkpoint.path} cannot be loaded: {reason}") from error


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Count denormal numbers as 0 for a while, as training does."""
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    were_flushed = not bool(smallest / 2)  # torch has no getter
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(were_flushed)


# redline play RUN --policy


def play_policy(
    run: Path,
    config: EvaluationConfig,
    *,
    progress: Progress,
    requested_stop: RequestedStop,
    checkpoint: str = NEWEST,
) -> list[Entry]:
    """Play whole episodes with the weights of a checkpoint, and record them beside those of the run.

    The same seed plays the same games again: the new recordings replace the older ones.
    """
    saved = read_run(run)
    found = find_checkpoint(run, checkpoint, with_replay=False)
    recording = RecordingConfig(record_values=True)
    with explained(UserError, played_path(run), before="the episodes can't be recorded: "):
        _check_writable(run)  # before anything is played
        evaluation = evaluate(
            saved.job, found, config, progress=progress, requested_stop=requested_stop, recording=recording
        )
        setting, steps = setting_of(replace(saved.job, recording=recording), env_spec(saved.job.env)), found.steps
        with _alone(run), BlockWriter(played_path(run)) as writer:
            writer.append(SETTING, steps, setting.encode())
            for trace in (episode.trace for episode in evaluation.played if episode.trace is not None):
                played = encode_episode(trace, role=POLICY, weights_steps=steps, unix_s=time.time())
                writer.append(EPISODE, steps, played)
            writer.sync()
    library = open_library(run)
    addresses = [Address(POLICY, one.lane, one.reset_seed, one.seed_offset_steps) for one in evaluation.played]
    return [entry for address in addresses if (entry := library.find(address)) is not None]


def _check_writable(run: Path) -> None:
    folder = played_path(run).parent
    check_own(folder, is_folder=True)
    place = folder if folder.exists() else run
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """Keep other processes from appending meanwhile, which takes them a moment."""
    folder = played_path(run).parent
    make_own_folder(folder)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# An agent for envs that others step


class Agent:
    """Chooses actions for the observations of a Gymnasium env, one env or several at once.

    An observation is a frame, which the agent stacks itself, or already a stack [K, …] of as many as it was trained on.
    K frames may be one stack or the frames of K envs: then `stacked` says which. An agent that stacks frames or has a
    recurrent core remembers the episode: call `reset` when one begins.
    """

    def __init__(self, saved: SavedRun, checkpoint: str | int = NEWEST, *, device: str = "auto") -> None:
        kind = resolve(saved.job.env.id)
        self.spec = kind.spec(saved.job.env)
        # the env's own spaces, where Redline numbers actions from 0 and turns observations into frames
        self._first_action, self._space = 0, None
        if isinstance(kind, GymnasiumEnv) and kind.vector is None:
            actions, self._space = kind.spaces
            self._first_action = int(actions.start)
        self.algorithm = saved.job.algorithm
        self.device = find_device(device)
        network = self.algorithm.build_network(self.spec, torch.Generator()).requires_grad_(False).to(self.device)
        load_weights(network, find_checkpoint(saved.path, checkpoint, with_replay=False))
        self.network = network
        self._seed = saved.job.seed
        self._acted = 0
        self._stack: Array | None = None  # [N, K, *frame]
        self._state = torch.zeros(0)

    def reset(self, lanes: BoolArray | None = None) -> None:
        """Forget the episode: of all envs, or of those where `lanes` [N] is true."""
        if lanes is None or self._stack is None:
            self._stack = None
            return
        self._stack[lanes] = 0
        self._state = mask_state(self._state, torch.from_numpy(np.asarray(lanes, np.bool_)).to(self._state.device))

    def act(self, observation: Any, *, greedy: bool = False, stacked: bool | None = None) -> Any:
        """Return an action for each env, a single number for a single env.

        Value learners act greedily. Policies draw their actions unless `greedy`: their likeliest may go in circles.
        """
        given = np.asarray(self._as_frames(np.asarray(observation)), dtype=self.spec.frame_dtype)
        is_single, stack = self._stacked(given, stacked)
        draws = isinstance(self.algorithm.explore, Sampled) and not greedy
        params = ActorParams(
            self.algorithm, self.network, 0.0, self.device, explore=Sampled() if draws else Greedy(), is_silent=True
        )
        rng = stream(self._seed, Purpose.EVALUATE, self._acted)
        self._acted += 1
        actions, self._state, _ = act(params, stack, self._state, rng)
        actions = actions + self._first_action
        return int(actions[0]) if is_single else actions

    def _as_frames(self, given: Array) -> Array:
        """Return observations of one env or of several as the frames that training sees; leave frames as they are."""
        if self._space is None:
            return given
        leading = given.ndim - len(self._space.shape)  # axes: several envs, stacks of frames
        if leading < 0 or given.shape[leading:] != self._space.shape:
            return given
        to_frame = frame_converter(self._space)
        frames = [to_frame(one) for one in given.reshape(-1, *self._space.shape)]
        return np.stack(frames).reshape(*given.shape[:leading], *frames[0].shape)

    def _stacked(self, given: Array, stacked: bool | None) -> tuple[bool, Array]:
        """Tell whether one env is meant, and return the stacks that the network sees [N, K, *frame]."""
        shape, stack = self.spec.frame_shape, self.spec.stack
        whole = (stack, *shape)
        if stack > 1 and stacked is None and given.shape == whole:
            raise UserError(
                f"{given.shape} is one stack of {stack} frames, or {stack} envs: say which, stacked=True or False"
            )
        is_single = given.shape == shape or (stacked is True and given.shape == whole)
        batch = given[None] if is_single else given
        if self._stack is None or len(self._stack) != len(batch):
            self._stack = np.zeros((len(batch), *whole), given.dtype)
            self._state = torch.zeros(len(batch), self.network.state_width, device=self.device)
        if batch.shape[1:] == shape:
            self._stack = push_frames(self._stack, batch)
        elif batch.shape[1:] == whole:
            self._stack = batch.copy()
        else:
            wanted = f"{shape}" if stack == 1 else f"{shape} or {whole}"
            raise UserError(f"an observation has shape {given.shape}: the agent was trained on {wanted}, or several")
        return is_single, self._stack
